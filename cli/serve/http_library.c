/*
 * http_library.c - loads libgpuserve-http.
 *
 * Search order: the folder of libgpuserve, then the system's libraries. The library stays loaded.
 */
#include "cli/serve/serve.h"
#include "cli/cli.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL(name)                                                      \
    {                                                                   \
        "gpuserve_http_" #name, offsetof(struct cli_http_library, name) \
    }

static const struct cli_symbol symbols[] = { CALL(start), CALL(check),    CALL(address),
                                             CALL(alive), CALL(reload),   CALL(drain),
                                             CALL(stop),  CALL(endpoints) };
enum { N_SYMBOLS = sizeof(symbols) / sizeof(symbols[0]) };

_Static_assert(N_SYMBOLS * sizeof(void *) == sizeof(struct cli_http_library),
               "symbols[] lists every function");

/* Opens the library in a folder; *found tells whether its file is there. */
static void *open_in(const char *folder, int length, const char *below, bool *found)
{
    char *path = cli_format("%.*s/%s" CLI_HTTP_SONAME, length, folder, below);
    void *library = NULL;

    *found = access(path, F_OK) == 0;
    if (*found)
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    free(path);
    return library;
}

static void *open_library(void)
{
    static const char *const below[] = { "", "http/" }; /* installed; in a build folder */
    Dl_info core;
    const char *slash = NULL;

    if (dladdr((const void *)(uintptr_t)&gpuserve_version, &core) && core.dli_fname)
        slash = strrchr(core.dli_fname, '/');
    for (size_t i = 0; slash && i < sizeof(below) / sizeof(below[0]); i++) {
        bool found;
        void *library = open_in(core.dli_fname, (int)(slash - core.dli_fname), below[i], &found);

        if (found)
            return library; /* NULL: dlerror() says what it lacks */
    }
    return dlopen(CLI_HTTP_SONAME, RTLD_NOW | RTLD_LOCAL);
}

const struct cli_http_library *cli_http_library(void)
{
    static struct cli_http_library calls;
    void *library;

    if (calls.start)
        return &calls;
    library = open_library();
    if (!library) {
        cli_fail("the HTTP server cannot be loaded: %s", dlerror());
        cli_hint("install the package libgpuserve-http0, or build gpuserve with -Dhttp=enabled");
        return NULL;
    }
    if (cli_library_symbols(library, CLI_HTTP_SONAME, symbols, N_SYMBOLS, &calls) != CLI_OK) {
        cli_hint("install the program and the library of the same version");
        memset(&calls, 0, sizeof(calls));
        return NULL;
    }
    return &calls;
}
