/*
 * plain.c - runs the tests of a program one after the other, each in a child process.
 *
 *   program [--list] [--filter PATTERN]
 *
 * PATTERN is a shell pattern over suite/name.
 *
 * The child's exit status tells: 0 passed, FAILED a check failed, anything else crashed. Under
 * ThreadSanitizer a report ends the child with its own status, which is a crash here.
 */
#include <criterion/criterion.h>

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Only what hangs is to be ended: a sanitizer on a busy machine took five minutes for one test. */
enum { FAILED = 1, DEFAULT_TIMEOUT_S = 1200 };

static struct plain_test *first;
static struct plain_test **last = &first;
static bool any_failed; /* in the child */

void plain_register(struct plain_test *test)
{
    *last = test;
    last = &test->next;
}

void plain_fail(bool fatal, const char *file, int line, const char *what, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "%s:%d: not so: %s", file, line, what);
    if (*format) {
        fprintf(stderr, ": ");
        va_start(arguments, format);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
    }
    fprintf(stderr, "\n");
    any_failed = true;
    if (fatal)
        exit(FAILED);
}

/* In the child; never returns. */
static void run_here(const struct plain_test *test)
{
    const struct plain_options *options = &test->options;

    alarm(options->timeout > 0.0 ? (unsigned)options->timeout + 1 : DEFAULT_TIMEOUT_S);
    if (options->init)
        options->init();
    test->run();
    if (options->fini)
        options->fini();
    exit(any_failed ? FAILED : 0);
}

/* The wait status of the test's process; -1 when none could be made. */
static int run_test(const struct plain_test *test)
{
    int status = -1;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0)
        run_here(test);
    if (child < 0 || waitpid(child, &status, 0) < 0)
        return -1;
    return status;
}

static bool ended_as_told(const struct plain_test *test, int status)
{
    if (status == -1)
        return false;
    if (test->options.signal)
        return WIFSIGNALED(status) && WTERMSIG(status) == test->options.signal;
    return WIFEXITED(status) && WEXITSTATUS(status) == test->options.exit_code;
}

static bool is_chosen(const struct plain_test *test, const char *pattern)
{
    char name[256];

    snprintf(name, sizeof(name), "%s/%s", test->suite, test->name);
    return !pattern || fnmatch(pattern, name, 0) == 0;
}

int main(int argc, char **argv)
{
    const char *pattern = argc > 2 && strcmp(argv[1], "--filter") == 0 ? argv[2] : NULL;
    unsigned tested = 0, passing = 0, failing = 0, crashing = 0;

    for (const struct plain_test *test = first; test; test = test->next) {
        int status;

        if (argc > 1 && strcmp(argv[1], "--list") == 0) {
            printf("%s::%s\n", test->suite, test->name);
            continue;
        }
        if (test->options.disabled || !is_chosen(test, pattern))
            continue;
        status = run_test(test);
        tested++;
        if (ended_as_told(test, status)) {
            passing++;
            continue;
        }
        printf("[FAIL] %s::%s, status %#x\n", test->suite, test->name, (unsigned)status);
        if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == FAILED)
            failing++;
        else
            crashing++;
    }
    printf("[====] Synthesis: Tested: %u | Passing: %u | Failing: %u | Crashing: %u\n", tested,
           passing, failing, crashing);
    return failing || crashing;
}
