/*
 * cli.h - what every file of the program `gpuserve` shares: exit codes, messages, signals.
 *
 *   main.c -> options -> one command_NAME.c -> input -> pump (the library) -> output
 *
 * The program sees the library through <gpuserve/gpuserve.h> only, as any other program would; its
 * own names begin with cli_. Results go to standard output, everything else to standard error.
 * Functions that return an int give CLI_OK, or CLI_FAILED after the message was printed.
 */
#ifndef CLI_H
#define CLI_H

#include <gpuserve/gpuserve.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1, /* the work could not be done */
    CLI_USAGE = 2   /* the command line is wrong */
};

/* ------------------------------------------------------------------------------------ messages */

/* "gpuserve: message" on standard error. The first returns CLI_FAILED, the second CLI_USAGE. */
int cli_fail(const char *format, ...) GPUSERVE_PRINTF(1, 2);
int cli_usage(const char *format, ...) GPUSERVE_PRINTF(1, 2);
void cli_warn(const char *format, ...) GPUSERVE_PRINTF(1, 2);
/* "  hint: ..." below the message just printed. */
void cli_hint(const char *format, ...) GPUSERVE_PRINTF(1, 2);
/* The library's error with its hint; `where` may be NULL. */
int cli_fail_with(const gpuserve_error *error, const char *where);
/* From now on a message waits for no reader: it is cut to PIPE_BUF bytes, and left out, which a
 * later one tells, where there is no room. */
void cli_never_wait_for_messages(void);

/* -------------------------------------------------------------------------------------- memory */

/* Zeroed; out of memory ends the program with a message and no partial output. */
void *cli_alloc(size_t n, size_t size);
/* An array of *capacity elements made to hold `needed`; grows by half. */
void *cli_grow(void *array, size_t *capacity, size_t needed, size_t size);
char *cli_copy(const char *text, size_t size);
char *cli_format(const char *format, ...) GPUSERVE_PRINTF(1, 2);

/* ------------------------------------------------------------------------------------- signals */

/* From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE remove the partial output, then end the program
 * as they would have. */
void cli_signals_init(void);
/* The file to remove then; NULL: none. The text must stay until the next call. */
void cli_partial_file(const char *path);
void cli_remove_partial_file(void);

/* ------------------------------------------------------------------------------- small helpers */

/* Seconds of the monotonic clock. */
double cli_now(void);
/* Whether the bytes are UTF-8 (RFC 3629). */
bool cli_is_utf8(const char *text, size_t size);

#endif
