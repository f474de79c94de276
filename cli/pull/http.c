/*
 * http.c - documents and files of a hub by HTTP: endpoint and token, retries, size limits.
 *
 * curl.c or helper.c makes each request. Over plain http the token is sent to a loopback address
 * only. Used by one thread.
 */
#include "cli/pull/pull.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_ENDPOINT "https://huggingface.co"
#define TOKEN_BYTES 512

/* ---------------------------------------------------------------------------------- environment */

static const char *set_or_null(const char *variable)
{
    const char *value = getenv(variable);

    return value && *value ? value : NULL;
}

/* Reads the token that `hf auth login` stored. Owned, or NULL. */
static char *token_of_file(void)
{
    const char *home = set_or_null("HF_HOME"), *given = set_or_null("HF_TOKEN_PATH");
    char *path, text[TOKEN_BYTES] = "";
    FILE *file;

    if (given)
        path = cli_format("%s", given);
    else if (home)
        path = cli_format("%s/token", home);
    else
        path = cli_format("%s/.cache/huggingface/token", set_or_null("HOME") ? getenv("HOME") : "");
    file = fopen(path, "re");
    free(path);
    if (!file)
        return NULL;
    if (!fgets(text, sizeof(text), file))
        text[0] = '\0';
    fclose(file);
    return cli_format("%s", text);
}

/* Removes trailing whitespace. Frees the token and returns NULL if it has bytes that are invalid in
 * a header. */
static char *clean_token(char *token)
{
    size_t size;

    if (!token)
        return NULL;
    size = strlen(token);
    while (size && strchr(" \t\r\n", token[size - 1]))
        token[--size] = '\0';
    for (size_t i = 0; i < size; i++) {
        if (token[i] <= ' ' || token[i] > '~')
            size = 0;
    }
    if (size)
        return token;
    free(token);
    return NULL;
}

/* True if the host of an http URL is this machine. A URL with a user name has no such host. */
static bool is_loopback(const char *url)
{
    const char *host = url + strlen("http://");
    const size_t size = strcspn(host, "/?#"), name = strcspn(host, ":/?#");

    if (memchr(host, '@', size))
        return false;
    return (name == 9 && strncasecmp(host, "localhost", name) == 0) ||
           strncmp(host, "[::1]", 5) == 0 ||
           (strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == name);
}

int cli_http_init(struct pull_http *http)
{
    const char *endpoint = set_or_null("HF_ENDPOINT"), *token = set_or_null("HF_TOKEN");
    const char *helper = set_or_null("GPUSERVE_FETCH");
    size_t size;

    memset(http, 0, sizeof(*http));
    if (!endpoint)
        endpoint = DEFAULT_ENDPOINT;
    size = strlen(endpoint);
    while (size && endpoint[size - 1] == '/')
        size--;
    if (strncasecmp(endpoint, "https://", 8) != 0 && strncasecmp(endpoint, "http://", 7) != 0)
        return cli_fail("HF_ENDPOINT: \"%s\" is not an http or https URL", endpoint);
    if (helper)
        http->helper = cli_copy(helper, strlen(helper));
    else if (cli_curl_open(&http->curl) != CLI_OK || cli_hash_open() != CLI_OK)
        return CLI_FAILED;
    http->endpoint = cli_copy(endpoint, size);
    http->token = clean_token(token ? cli_copy(token, strlen(token)) : token_of_file());
    if (http->token && strncasecmp(endpoint, "https://", 8) != 0 && !is_loopback(http->endpoint)) {
        cli_warn("the token is not sent to %s: the connection is not encrypted", http->endpoint);
        free(http->token);
        http->token = NULL;
    }
    return CLI_OK;
}

void cli_http_reset(struct pull_http *http)
{
    cli_curl_close(http->curl);
    free(http->helper);
    free(http->endpoint);
    free(http->token);
    memset(http, 0, sizeof(*http));
}

char *cli_http_escape(const char *text, bool slashes)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    char *out = cli_alloc(strlen(text) + 1, 3), *at = out;

    for (; *text; text++) {
        if (strchr(plain, *text) || (slashes && *text == '/'))
            *at++ = *text;
        else
            at += sprintf(at, "%%%02X", (unsigned char)*text);
    }
    return out;
}

/* ------------------------------------------------------------------------------------- requests */

static enum request_end run(const struct pull_http *http, struct http_request *request)
{
    request->status = 0;
    request->detail[0] = '\0';
    return http->curl ? cli_curl_run(http, request) : cli_helper_run(http, request);
}

static bool may_pass(enum request_end end, long status)
{
    if (end == REQUEST_DONE)
        return status == 429 || (status >= 500 && status <= 504);
    return end == REQUEST_BROKEN;
}

/* Prints the message of a request that failed and is not retried. */
static void fail_request(const struct pull_http *http, enum request_end end,
                         const struct http_request *request, const char *what)
{
    const long status = request->status;

    if (end != REQUEST_DONE) {
        cli_fail("%s: %s: %s", http->endpoint, what, request->detail);
        if (end == REQUEST_UNTRUSTED)
            cli_hint("set CURL_CA_BUNDLE to a file with the trusted CA certificates");
        else
            cli_hint("check the network, https_proxy and HF_ENDPOINT");
        return;
    }
    cli_fail("%s: %s: status %ld", http->endpoint, what, status);
    if (status == 401 || status == 403)
        cli_hint(http->token ? "the token has no access: request access on the model's page"
                             : "the model does not exist or requires a token: set HF_TOKEN");
    else if (status == 404)
        cli_hint("the model or the revision does not exist");
    else if (status == 429)
        cli_hint("too many requests: wait, or set HF_TOKEN");
}

struct document {
    char *bytes;
    size_t size, capacity, max_bytes;
};

static bool add_to_document(void *user, long status, const char *bytes, size_t n)
{
    struct document *document = user;

    (void)status;
    if (n > document->max_bytes - document->size)
        return false;
    document->bytes = cli_grow(document->bytes, &document->capacity, document->size + n + 1, 1);
    memcpy(document->bytes + document->size, bytes, n);
    document->size += n;
    document->bytes[document->size] = '\0';
    return true;
}

char *cli_http_get(struct pull_http *http, const char *url, size_t max_bytes, size_t *size,
                   const char *what)
{
    struct document document = { .max_bytes = max_bytes };
    struct http_request request = { .url = url, .receive = add_to_document, .user = &document };
    enum request_end end = REQUEST_FAILED;

    for (int attempt = 0; attempt < 3; attempt++) {
        if (attempt > 0)
            nanosleep(&(struct timespec){ attempt, 0 }, NULL);
        document.size = 0;
        end = run(http, &request);
        if (!may_pass(end, request.status))
            break;
    }
    *size = document.size;
    if (end == REQUEST_DONE && request.status == 200 && document.bytes)
        return document.bytes;
    if (end == REQUEST_REFUSED)
        cli_fail("%s: %s: the response exceeds %zu bytes", http->endpoint, what, max_bytes);
    else
        fail_request(http, end, &request, what);
    free(document.bytes);
    return NULL;
}

/* ---------------------------------------------------------------------------------------- files */

struct receiver {
    struct http_file *file;
    bool begun, too_long;
    int disk_errno;
};

/* First bytes of a body: 206 continues at `have`, 200 is the whole file, so `have` becomes 0. */
static bool begin_body(struct receiver *r, long status)
{
    r->begun = true;
    if (status == 200)
        r->file->have = 0;
    if (lseek(r->file->fd, (off_t)r->file->have, SEEK_SET) >= 0 &&
        ftruncate(r->file->fd, (off_t)r->file->have) == 0)
        return true;
    r->disk_errno = errno;
    return false;
}

static bool add_to_file(void *user, long status, const char *bytes, size_t n)
{
    struct receiver *r = user;
    struct http_file *file = r->file;

    if (status != 200 && status != 206)
        return true; /* body of an error page: discarded */
    if (!r->begun && !begin_body(r, status))
        return false;
    r->too_long = n > file->size - file->have;
    if (r->too_long)
        return false;
    for (size_t at = 0; at < n;) {
        const ssize_t written = write(file->fd, bytes + at, n - at);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            r->disk_errno = errno;
            return false;
        }
        at += (size_t)written;
        file->have += (uint64_t)written;
    }
    cli_progress_update(file->progress, file->done_before + (double)file->have,
                        (file->done_before + (double)file->have) / file->total);
    return true;
}

enum http_end cli_http_get_file(struct pull_http *http, const char *url, struct http_file *file)
{
    struct receiver receiver = { .file = file };
    struct http_request request = {
        .url = url, .offset = file->have, .receive = add_to_file, .user = &receiver
    };
    const enum request_end end = run(http, &request);
    const long status = request.status;

    if (end == REQUEST_DONE && (status == 200 || status == 206))
        return file->have == file->size ? HTTP_DONE : HTTP_BROKEN;
    if (end == REQUEST_DONE && status == 416 && file->have) {
        file->have = 0; /* 416: the file on the server changed; restart from byte 0 */
        return ftruncate(file->fd, 0) == 0 ? HTTP_BROKEN : HTTP_FAILED;
    }
    if (may_pass(end, status))
        return HTTP_BROKEN;
    if (receiver.disk_errno)
        cli_fail("%s: %s", file->what, strerror(receiver.disk_errno));
    else if (receiver.too_long)
        cli_fail("%s: the server sends more than the %llu bytes listed", file->what,
                 (unsigned long long)file->size);
    else
        fail_request(http, end, &request, file->what);
    return HTTP_FAILED;
}
