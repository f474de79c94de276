/*
 * serve.h - parts of the command `serve`: its files, port, service manager and sandbox.
 */
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

#include "cli/cli.h"
#include "cli/options/options.h"

#include <gpuserve/http.h>

#include <stdbool.h>
#include <stdint.h>

/* Limits the files that the server may open to those that it needs (Landlock). */

/* Call after the context is created and before the server starts threads. If the limit cannot be
 * set, the reason goes to standard error and the server continues without the limit. */
void cli_limit_files(const struct cli_args *args, gpuserve_context *context,
                     const gpuserve_http_options *options);

/* Finds the process that listens on a TCP port, for the message "port in use". */

/* "nginx (process 123)", owned; NULL: the port is free. */
char *cli_port_holder(unsigned port);

/* Sets the options of traces from the flags and the environment. *url, which `options` borrows, is
 * owned; NULL: no traces. CLI_USAGE after a message. */
int cli_traces_options(const struct cli_args *args, gpuserve_http_options *options, char **url);

/* Reports the server's state to systemd (the sd_notify protocol). */

/* Sends "READY=1", "STOPPING=1" or "WATCHDOG=1". */
void cli_notify(const char *state);
void cli_notify_reloading(void);
/* Interval between heartbeats for systemd's watchdog, in microseconds; 0: no watchdog. */
uint64_t cli_watchdog_us(void);

/*
 * Limits which files the process may open, by Landlock of the Linux kernel.
 *
 * Use: begin, allow for each path, enforce, reset. The limit cannot be removed later.
 */

enum cli_file_right {
    CLI_READ = 1,
    CLI_WRITE = 2,    /* no reading; no truncating either, if the kernel can control it */
    CLI_CREATE = 4,   /* create regular files below a directory */
    CLI_SOCKET = 8,   /* create sockets and remove files below a directory */
    CLI_REPLACE = 16, /* remove and rename files below a directory */
    CLI_STORE = 32,   /* read, write, truncate, create, rename and remove files below a directory */
};

struct cli_landlock {
    int ruleset;      /* file descriptor; -1: no limit */
    int version;      /* ABI version of the kernel's Landlock */
    uint64_t handled; /* rights that are denied unless a rule allows them */
};

/* Creates the ruleset. -1 with errno if the kernel has no Landlock or it is disabled. */
int cli_landlock_begin(struct cli_landlock *landlock);
/* Allows a file or everything below a directory. A missing path needs no rule. -1 with errno. */
int cli_landlock_allow(struct cli_landlock *landlock, const char *path, int rights);
/* Applies to this thread and the threads it starts, permanently; -1 with errno. */
int cli_landlock_enforce(struct cli_landlock *landlock);
/* True if truncating is denied too: kernels before 6.2 cannot deny it. */
bool cli_landlock_is_whole(const struct cli_landlock *landlock);
void cli_landlock_reset(struct cli_landlock *landlock);

/* A seccomp filter that the server installs after the models are loaded. */

/* Applies to all threads of the process, permanently. `with_network`: IP sockets stay allowed,
 * because the server sends requests to its own port, or traces to a collector. -1 with errno if the
 * kernel does not support it. */
int cli_sandbox(bool with_network);

/*
 * Libgpuserve-http, loaded when `serve` runs.
 *
 * The program is not linked with it: it brings libmicrohttpd and OpenSSL, and their some 20
 * libraries, which no other command needs.
 */

/* The functions of gpuserve/http.h, in its order. */
struct cli_http_library {
    __typeof__(&gpuserve_http_start) start;
    __typeof__(&gpuserve_http_check) check;
    __typeof__(&gpuserve_http_address) address;
    __typeof__(&gpuserve_http_alive) alive;
    __typeof__(&gpuserve_http_reload) reload;
    __typeof__(&gpuserve_http_drain) drain;
    __typeof__(&gpuserve_http_stop) stop;
    __typeof__(&gpuserve_http_endpoints) endpoints;
};

/* Loads the library, once. NULL after a message. Call from one thread. */
const struct cli_http_library *cli_http_library(void);

/* Prints the endpoints of a server with these dialects (NULL: all) as a table, or as a JSON array.
 * CLI_FAILED after a message. */
int cli_print_endpoints(const struct cli_http_library *library, const char *dialects, bool as_json);

#endif
