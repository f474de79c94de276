/*
 * lessons.c - what the experiments of `gpuserve bench` share: rows of a table, the limit of the
 * instruction set, and Python scripts that they are compared with.
 */
#include "cli/commands/bench/bench.h"
#include "cli/cli.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

void cli_lesson_row(json_t *rows, const char *name, double seconds, const char *why)
{
    json_t *row = json_pack("{s:s}", "path", name);

    if (seconds >= 0)
        json_object_set_new(row, "seconds", json_real(seconds));
    else
        json_object_set_new(row, "skipped", json_string(why));
    json_array_append_new(rows, row);
}

char *cli_limit_isa(const char *isa)
{
    const char *limit = getenv("GPUSERVE_MAX_ISA");
    char *kept = isa && limit ? cli_copy(limit, strlen(limit)) : NULL;

    if (isa)
        setenv("GPUSERVE_MAX_ISA", isa, 1);
    return kept;
}

void cli_restore_isa(const char *isa, char *kept)
{
    if (kept)
        setenv("GPUSERVE_MAX_ISA", kept, 1);
    else if (isa)
        unsetenv("GPUSERVE_MAX_ISA");
    free(kept);
}

/* Starts the interpreter with its output in a pipe; false if there is none. */
static bool start(const char *script, pid_t *child, int *output)
{
    const char *chosen = getenv("PYTHON");
    char *const argv[] = { (char *)(chosen && *chosen ? chosen : "python3"), (char *)"-c",
                           (char *)script, NULL };
    posix_spawn_file_actions_t files;
    int ends[2], failed;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, ends[1], 1);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    failed = posix_spawnp(child, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    *output = ends[0];
    if (failed)
        close(ends[0]);
    return !failed;
}

double cli_python_seconds(const char *script)
{
    char text[256];
    size_t size = 0;
    ssize_t n;
    pid_t child;
    int output, status = 1;
    char *end;
    double seconds;

    if (!start(script, &child, &output))
        return -1;
    while (size < sizeof(text) - 1 && (n = read(output, text + size, sizeof(text) - 1 - size)) > 0)
        size += (size_t)n;
    close(output);
    waitpid(child, &status, 0);
    text[size] = '\0';
    seconds = strtod(text, &end);
    return status == 0 && end != text ? seconds : -1;
}
