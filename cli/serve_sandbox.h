/*
 * serve_sandbox.h - what the server gives up once its models are loaded; see serve_sandbox.c.
 */
#ifndef CLI_SERVE_SANDBOX_H
#define CLI_SERVE_SANDBOX_H

#include <stdbool.h>

/* For all threads of the process, for good; `with_network`: the server asks itself over its port,
 * so sockets can be made for that. -1 with errno when the kernel does not know it. */
int cli_sandbox(bool with_network);

#endif
