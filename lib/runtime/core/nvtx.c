/*
 * nvtx.c - NVTX ranges by the NVTX 3 injection protocol, without NVIDIA's headers.
 *
 * The constants and structs are those of nvtxTypes.h, which is not installed on every machine.
 *
 *   library  dlopen(NVTX_INJECTION64_PATH), InitializeInjectionNvtx2(export)
 *   tool     export(CALLBACKS) -> GetModuleFunctionTable(CORE) -> writes its function pointers
 *
 * The tool's library is never unloaded: it may run threads and expects to see the process end.
 */
#define _GNU_SOURCE
#include "lib/runtime/core/nvtx.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ETID_CALLBACKS = 1, ETID_VERSION = 3 };
enum { MODULE_CORE = 1 };
enum { CORE_RANGE_PUSH = 9, CORE_RANGE_POP = 11 };
#define NVTX_VERSION 3

typedef void (*function)(void);

struct callbacks {
    size_t struct_size;
    int (*get_module_function_table)(int module, function ***table, unsigned int *size);
};

struct version_info {
    size_t struct_size;
    uint32_t version;
    uint32_t reserved;
    void (*set_injection_version)(uint32_t version);
};

/* The protocol's functions get no context argument. They are called only during the tool's
 * initialization on this thread, so a thread-local variable passes it. */
static _Thread_local struct {
    struct gsv_nvtx *nvtx;
    function *table[GSV_NVTX_CORE];
} current;

static int get_module_function_table(int module, function ***table, unsigned int *size)
{
    if (module != MODULE_CORE || !current.nvtx)
        return 0;
    for (int i = 1; i < GSV_NVTX_CORE; i++)
        current.table[i] = &current.nvtx->functions[i];
    current.table[0] = NULL; /* function numbers start at 1 */
    *table = current.table;
    if (size)
        *size = GSV_NVTX_CORE;
    return 1;
}

static void set_injection_version(uint32_t version)
{
    (void)version;
}

static const void *get_export_table(uint32_t id)
{
    static const struct callbacks callbacks = { sizeof(callbacks), get_module_function_table };
    static const struct version_info version = { sizeof(version), NVTX_VERSION, 0,
                                                 set_injection_version };

    if (id == ETID_CALLBACKS)
        return &callbacks;
    return id == ETID_VERSION ? (const void *)&version : NULL;
}

void gsv_nvtx_init(struct gsv_nvtx *nvtx)
{
    const char *path = secure_getenv("NVTX_INJECTION64_PATH");
    int (*initialize)(const void *(*)(uint32_t));
    void *symbol;

    memset(nvtx, 0, sizeof(*nvtx));
    if (!path || sizeof(void *) != 8)
        return;
    nvtx->handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    symbol = nvtx->handle ? dlsym(nvtx->handle, "InitializeInjectionNvtx2") : NULL;
    memcpy(&initialize, &symbol, sizeof(initialize));
    current.nvtx = nvtx;
    if (!symbol || initialize(get_export_table) == 0)
        memset(nvtx->functions, 0, sizeof(nvtx->functions));
    current.nvtx = NULL;
}

void gsv_nvtx_push(const struct gsv_nvtx *nvtx, const char *format, ...)
{
    int (*push)(const char *);
    char text[192];
    va_list args;

    if (!nvtx->functions[CORE_RANGE_PUSH])
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    memcpy(&push, &nvtx->functions[CORE_RANGE_PUSH], sizeof(push));
    push(text);
}

void gsv_nvtx_pop(const struct gsv_nvtx *nvtx)
{
    int (*pop)(void);

    if (!nvtx->functions[CORE_RANGE_POP])
        return;
    memcpy(&pop, &nvtx->functions[CORE_RANGE_POP], sizeof(pop));
    pop();
}
