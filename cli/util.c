/*
 * util.c - memory, signal handling, loading of libraries and small helpers shared by the commands.
 *
 * Allocation failure ends the program, so callers need no check. The signal handler removes the
 * partial output file and ends the program by the same signal.
 */
#include "cli/cli.h"

#include <jansson.h>

#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* -------------------------------------------------------------------------------------- memory */

static void out_of_memory(void)
{
    cli_fail("out of memory");
    cli_remove_partial_file();
    exit(CLI_FAILED);
}

void *cli_alloc(size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size);

    if (!memory)
        out_of_memory();
    return memory;
}

void *cli_grow(void *array, size_t *capacity, size_t needed, size_t size)
{
    size_t wanted = *capacity + *capacity / 2, bytes;

    if (needed <= *capacity)
        return array;
    if (wanted < needed)
        wanted = needed;
    if (wanted < 16)
        wanted = 16;
    if (__builtin_mul_overflow(wanted, size, &bytes))
        out_of_memory();
    array = realloc(array, bytes);
    if (!array)
        out_of_memory();
    *capacity = wanted;
    return array;
}

char *cli_copy(const char *text, size_t size)
{
    char *copy = cli_alloc(size + 1, 1);

    if (size)
        memcpy(copy, text, size);
    return copy;
}

char *cli_format(const char *format, ...)
{
    va_list arguments;
    char *text;
    int size;

    va_start(arguments, format);
    size = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (size < 0)
        out_of_memory();
    return text;
}

uint64_t cli_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ------------------------------------------------------------------------------------- signals */

static const char *volatile partial_file;

void cli_partial_file(const char *path)
{
    partial_file = path;
}

void cli_remove_partial_file(void)
{
    const char *path = partial_file;

    partial_file = NULL;
    if (path)
        unlink(path);
}

/* Only async-signal-safe calls. The handler ends the program itself, because a stop flag would be
 * slow to take effect: the program may be reading a pipe, loading a model or computing. */
static void on_signal(int number)
{
    cli_remove_partial_file();
    raise(number); /* SA_RESETHAND restored the default action, so the shell sees the signal as the
                      exit cause */
}

static void handle_signals(void (*handler)(int), int flags)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
    struct sigaction action = { .sa_handler = handler };
    struct sigaction before;

    action.sa_flags = flags;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        /* A signal that the parent process ignores stays ignored (nohup, background jobs). */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

void cli_signals_init(void)
{
    handle_signals(on_signal, (int)(SA_RESETHAND | SA_NODEFER));
}

static volatile sig_atomic_t pending_signal;

static void remember_signal(int number)
{
    pending_signal = number;
}

void cli_signals_defer(void)
{
    handle_signals(remember_signal, SA_RESTART);
}

int cli_signal_pending(void)
{
    return pending_signal;
}

void cli_signals_end_by_pending(void)
{
    cli_signals_init();
    if (pending_signal)
        raise(pending_signal);
}

/* --------------------------------------------------------------------- libraries loaded at run
 * time */

void *cli_library_open(const char *const *names, char **why)
{
    void *library = NULL;

    *why = NULL;
    for (size_t i = 0; names[i] && !library; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (!library && !*why)
            *why = cli_format("%s", dlerror());
    }
    if (library) {
        free(*why);
        *why = NULL;
    }
    return library;
}

int cli_library_symbols(void *library, const char *what, const struct cli_symbol *symbols, size_t n,
                        void *table)
{
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(library, symbols[i].name);

        if (!symbol)
            return cli_fail("%s has no function %s", what, symbols[i].name);
        memcpy((char *)table + symbols[i].offset, &symbol, sizeof(symbol));
    }
    return CLI_OK;
}

/* ------------------------------------------------------------------------------- small helpers */

double cli_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void cli_sort_doubles(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare_doubles);
}

bool cli_is_utf8(const char *text, size_t size)
{
    json_t *string;

    /* ASCII prefix: most texts are pure ASCII and need no copy. */
    size_t i = 0;
    while (i < size && (unsigned char)text[i] < 0x80)
        i++;
    if (i == size)
        return true;
    string = json_stringn(text + i, size - i); /* jansson rejects invalid UTF-8 */
    json_decref(string);
    return string != NULL;
}
