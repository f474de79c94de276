/*
 * sandbox.h - a seccomp filter that the server installs after the models are loaded.
 */
#ifndef CLI_SANDBOX_H
#define CLI_SANDBOX_H

#include <stdbool.h>

/* Applies to all threads of the process, permanently. `with_network`: IP sockets stay allowed,
 * because the server sends requests to its own port. -1 with errno if the kernel does not support
 * it. */
int cli_sandbox(bool with_network);

#endif
