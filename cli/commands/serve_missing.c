/*
 * serve_missing.c - `gpuserve serve` in a build without libmicrohttpd: prints an error.
 */
#include "cli/options/options.h"

int cli_serve(const struct cli_args *args)
{
    (void)args;
    cli_fail("this build has no HTTP server");
    cli_hint("install libmicrohttpd-dev and rebuild gpuserve");
    return CLI_FAILED;
}
