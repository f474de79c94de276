/*
 * cli.h - declarations shared by all files of the program `gpuserve`: exit codes, messages,
 * signals.
 *
 *   main.c -> options -> commands/NAME.c: io/input.c -> io/pipeline.c (library) -> io/output.c
 *
 * The program uses the library through its public headers, like any other program. Own names begin
 * with cli_. Results go to standard output, all messages to standard error. Functions that return
 * an int return CLI_OK, or CLI_FAILED after they printed a message.
 */
#ifndef CLI_H
#define CLI_H

#include <gpuserve/gpuserve.h>

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1, /* the command failed */
    CLI_USAGE = 2   /* the command line is invalid */
};

/* ------------------------------------------------------------------------------------ messages */

/* Print "gpuserve: message" on standard error. Return value: CLI_FAILED of the first, CLI_USAGE of
 * the second. */
int cli_fail(const char *format, ...) GPUSERVE_PRINTF(1, 2);
int cli_usage(const char *format, ...) GPUSERVE_PRINTF(1, 2);
void cli_warn(const char *format, ...) GPUSERVE_PRINTF(1, 2);
/* Prints a line "  hint: ..." below the last message. */
void cli_hint(const char *format, ...) GPUSERVE_PRINTF(1, 2);
/* Prints the library's error with its hint; `where` may be NULL. */
int cli_fail_with(const gpuserve_error *error, const char *where);
/* The same line as cli_warn() with the level of a gpuserve_log_level, which only JSON shows. */
void cli_tell(int32_t level, const char *format, ...) GPUSERVE_PRINTF(2, 3);
/* A gpuserve_log_fn: prints a message of the library with its level. */
void cli_log(void *user, int32_t level, const char *message);
/* From this call on, each line is a JSON object: time (RFC 3339), level, message. */
void cli_log_as_json(void);
bool cli_log_is_json(void);
/* An error line to be written in `in_s` seconds, by a signal handler; returns its size. */
size_t cli_log_line_at(char line[PIPE_BUF], unsigned in_s, const char *message);
/* From this call on, a message never blocks. It is truncated to PIPE_BUF bytes, and dropped if
 * standard error is not writable at once; a later message reports the number of dropped ones. */
void cli_never_wait_for_messages(void);

/* -------------------------------------------------------------------------------------- memory */

/* Returns zeroed memory. Out of memory ends the program with a message and removes partial
 * output. */
void *cli_alloc(size_t n, size_t size);
/* Grows an array of *capacity elements to at least `needed`, by a factor of 1.5 or more. */
void *cli_grow(void *array, size_t *capacity, size_t needed, size_t size);
char *cli_copy(const char *text, size_t size);
/* The next number of the splitmix64 generator; the first `state` is the seed. */
uint64_t cli_random(uint64_t *state);
char *cli_format(const char *format, ...) GPUSERVE_PRINTF(1, 2);

/* ------------------------------------------------------------------------------------- signals */

/* Installs the handler of SIGINT, SIGTERM, SIGHUP and SIGPIPE: it removes the partial output, then
 * ends the program by the signal's default action. */
void cli_signals_init(void);
/* From this call on, a signal only sets cli_signal_pending(), its number, else 0. */
void cli_signals_defer(void);
int cli_signal_pending(void);
/* Ends the program by the pending signal; without one, restores cli_signals_init(). */
void cli_signals_end_by_pending(void);
/* Sets the file that a signal removes; NULL: none. Borrowed until the next call. */
void cli_partial_file(const char *path);
void cli_remove_partial_file(void);

/* --------------------------------------------------------------------- libraries loaded at run
 * time */

struct cli_symbol {
    const char *name;
    size_t offset; /* of the function pointer in the table */
};

/* Loads the first of `names`, which ends with NULL, that is installed; it stays loaded. NULL
 * without a message: *why says what prevents the loading of the first one. Owned. */
void *cli_library_open(const char *const *names, char **why);
/* Fills a table of function pointers. CLI_FAILED after a message, in which `what` is the library.
 */
int cli_library_symbols(void *library, const char *what, const struct cli_symbol *symbols, size_t n,
                        void *table);

/* ------------------------------------------------------------------------------- small helpers */

/* Monotonic clock, in seconds. */
double cli_now(void);
/* Sorts ascending; no value is a NaN. */
void cli_sort_doubles(double *values, size_t n);
/* True if the bytes are valid UTF-8 (RFC 3629). */
bool cli_is_utf8(const char *text, size_t size);

#endif
