/*
 * sandbox.h - what the server gives up once its models are loaded; see sandbox.c.
 */
#ifndef CLI_SANDBOX_H
#define CLI_SANDBOX_H

#include <stdbool.h>

/* For all threads of the process, for good; `with_network`: the server asks itself over its port,
 * so sockets can be made for that. -1 with errno when the kernel does not know it. */
int cli_sandbox(bool with_network);

#endif
