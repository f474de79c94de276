/*
 * helper.c - HTTP requests and hashes by a helper program, where libcurl and libcrypto are missing.
 *
 * GPUSERVE_FETCH has the helper's words, one a line. The Python package sets it, so that `pull`
 * uses Python's own TLS and hashes. The protocol, of one process for each request:
 *
 *   standard input   URL, offset and token (an empty line: none), one a line
 *   standard output  "STATUS DETAIL" and a line break, then the body; STATUS 0: no answer came
 *   exit status      0: whole answer, 2: connection broken, 3: certificate not trusted, else failed
 *
 * and for each hash, with the words --hash and "sha256" or "git" (of a git blob) after its own:
 *
 *   standard input   the file
 *   standard output  the hash in hexadecimal digits and a line break
 */
#include "cli/pull/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_WORDS 16
#define MORE_WORDS 2 /* after those of GPUSERVE_FETCH */
#define READ_BYTES (1 << 16)

extern char **environ;

enum { EXIT_BROKEN = 2, EXIT_UNTRUSTED = 3 };

/* Splits `line` in place, and adds `hash` as the last words unless it is NULL. */
static int split(char *line, char *hash, char *words[MAX_WORDS + MORE_WORDS + 1])
{
    static char option[] = "--hash";
    size_t n = 0;

    for (char *rest = line, *word; (word = strsep(&rest, "\n"));) {
        if (!*word)
            continue;
        if (n == MAX_WORDS)
            return cli_fail("GPUSERVE_FETCH has more than %d words", MAX_WORDS);
        words[n++] = word;
    }
    if (n == 0)
        return cli_fail("GPUSERVE_FETCH is empty");
    if (hash) {
        words[n++] = option;
        words[n++] = hash;
    }
    words[n] = NULL;
    return CLI_OK;
}

/* Starts the helper with `in` as its standard input and `out` as its standard output; `hash`: see
 * split(). */
static int start(pid_t *child, const char *helper, char *hash, int in, int out)
{
    char *line = cli_copy(helper, strlen(helper)), *words[MAX_WORDS + MORE_WORDS + 1];
    posix_spawn_file_actions_t actions;
    int result = split(line, hash, words), error;

    if (result == CLI_OK) {
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
        error = posix_spawnp(child, words[0], &actions, NULL, words, environ);
        posix_spawn_file_actions_destroy(&actions);
        if (error)
            result = cli_fail("%s: %s", words[0], strerror(error));
    }
    free(line);
    return result;
}

/* Reads "STATUS DETAIL" from the first line; false while it is not complete. */
static bool read_head(struct http_request *request, const char *bytes, size_t n, size_t *head)
{
    const char *end = memchr(bytes, '\n', n);
    char *detail;

    if (!end)
        return false;
    *head = (size_t)(end - bytes) + 1;
    request->status = strtol(bytes, &detail, 10);
    while (*detail == ' ')
        detail++;
    if (detail <= end)
        snprintf(request->detail, sizeof(request->detail), "%.*s", (int)(end - detail), detail);
    return true;
}

/* Passes the answer on. False: the receiver refused the body, or there is no first line. */
static bool read_answer(struct http_request *request, int fd)
{
    char *bytes = cli_alloc(READ_BYTES + 1, 1); /* ends with a NUL */
    size_t held = 0, head = 0;
    bool has_head = false, good = true;
    ssize_t n;

    while (good &&
           ((n = read(fd, bytes + held, READ_BYTES - held)) > 0 || (n < 0 && errno == EINTR))) {
        held += n > 0 ? (size_t)n : 0;
        if (!has_head) {
            has_head = read_head(request, bytes, held, &head);
            good = has_head || held < READ_BYTES;
        }
        if (has_head && !request->status)
            break; /* no answer: the exit status says more */
        if (has_head) {
            good = held == head ||
                   request->receive(request->user, request->status, bytes + head, held - head);
            held = head = 0;
        }
    }
    free(bytes);
    return good;
}

static void send_request(const struct pull_http *http, const struct http_request *request, int fd)
{
    char *text = cli_format("%s\n%llu\n%s\n", request->url, (unsigned long long)request->offset,
                            http->token ? http->token : "");
    const size_t size = strlen(text);

    for (size_t at = 0; at < size;) {
        const ssize_t n = write(fd, text + at, size - at);

        if (n < 0 && errno != EINTR)
            break; /* the helper ended; its exit status says why */
        at += n > 0 ? (size_t)n : 0;
    }
    free(text);
}

static enum request_end end_of(int status, const struct http_request *request)
{
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

    if (code == 0 && request->status)
        return REQUEST_DONE;
    if (code == EXIT_UNTRUSTED)
        return REQUEST_UNTRUSTED;
    return code == EXIT_BROKEN ? REQUEST_BROKEN : REQUEST_FAILED;
}

enum request_end cli_helper_run(const struct pull_http *http, struct http_request *request)
{
    int to[2] = { -1, -1 }, from[2] = { -1, -1 }, status = -1;
    pid_t child = -1;
    bool good = false;

    snprintf(request->detail, sizeof(request->detail),
             "the helper of GPUSERVE_FETCH gave no answer");
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) {
        snprintf(request->detail, sizeof(request->detail), "%s", strerror(errno));
    } else if (start(&child, http->helper, NULL, to[0], from[1]) == CLI_OK) {
        close(from[1]);
        from[1] = -1;
        send_request(http, request, to[1]);
        close(to[1]);
        to[1] = -1;
        good = read_answer(request, from[0]);
        close(from[0]); /* ends a helper that still writes */
        from[0] = -1;
        if (!good)
            kill(child, SIGTERM);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    }
    for (int i = 0; i < 2; i++) {
        if (to[i] >= 0)
            close(to[i]);
        if (from[i] >= 0)
            close(from[i]);
    }
    if (child > 0 && !good)
        return request->status ? REQUEST_REFUSED : REQUEST_FAILED;
    return child > 0 ? end_of(status, request) : REQUEST_FAILED;
}

/* -------------------------------------------------------------------------------------- hashes */

/* Reads the helper's output up to its end, or up to `capacity` bytes. */
static size_t read_all(int fd, char *bytes, size_t capacity)
{
    size_t size = 0;
    ssize_t n;

    while (size < capacity &&
           ((n = read(fd, bytes + size, capacity - size)) > 0 || (n < 0 && errno == EINTR)))
        size += n > 0 ? (size_t)n : 0;
    return size;
}

int cli_helper_hash(const struct pull_http *http, int fd, const struct pull_file *file,
                    char text[PULL_HASH_BYTES])
{
    static char sha256[] = "sha256", git[] = "git";
    const size_t n_digits = file->is_lfs ? 64 : 40;
    char answer[PULL_HASH_BYTES + 1] = ""; /* a hash, a line break and NUL */
    int from[2], status = -1, result;
    pid_t child;

    if (lseek(fd, 0, SEEK_SET) != 0 || pipe2(from, O_CLOEXEC))
        return cli_fail("%s: %s", file->name, strerror(errno));
    result = start(&child, http->helper, file->is_lfs ? sha256 : git, fd, from[1]);
    close(from[1]);
    if (result == CLI_OK)
        answer[read_all(from[0], answer, sizeof(answer) - 1)] = '\0';
    close(from[0]);
    if (result != CLI_OK)
        return result;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 ||
        strspn(answer, "0123456789abcdef") != n_digits || strcmp(answer + n_digits, "\n") != 0)
        return cli_fail("%s: the helper of GPUSERVE_FETCH computes no %s", file->name,
                        file->is_lfs ? "sha256" : "git hash");
    memcpy(text, answer, n_digits);
    text[n_digits] = '\0';
    return CLI_OK;
}
