/*
 * load_options.c - deep copy of the options a model was opened with.
 *
 * Resume, failover and swap load the model again from this copy, when the caller's strings are
 * gone.
 */
#include "lib/runtime/models/handle.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

/* Replaces a borrowed text by an owned copy; false if out of memory. */
static bool own(const char **text)
{
    if (*text)
        *text = gsv_copy_text(*text, strlen(*text));
    return *text != NULL;
}

gpuserve_status gsv_load_options_init(struct gsv_load_options *load_options, const char *path,
                                      const gpuserve_model_options *options, gpuserve_error *error)
{
    bool all = true;

    load_options->options = *options;
    load_options->options.name = load_options->options.version = NULL; /* kept by the registry */
    load_options->path = gsv_copy_text(path, strlen(path));
    if (options->device)
        all &= own(&load_options->options.device);
    if (options->head)
        all &= own(&load_options->options.head);
    if (options->heads)
        all &= own(&load_options->options.heads);
    if (options->default_prompt_name)
        all &= own(&load_options->options.default_prompt_name);
    if (options->default_prompt)
        all &= own(&load_options->options.default_prompt);
    if (options->adapters)
        all &= own(&load_options->options.adapters);
    if (all && load_options->path)
        return GPUSERVE_OK;
    gsv_load_options_reset(load_options);
    return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model's options");
}

void gsv_load_options_reset(struct gsv_load_options *load_options)
{
    free(load_options->path);
    free((void *)(uintptr_t)load_options->options.device);
    free((void *)(uintptr_t)load_options->options.head);
    free((void *)(uintptr_t)load_options->options.heads);
    free((void *)(uintptr_t)load_options->options.default_prompt_name);
    free((void *)(uintptr_t)load_options->options.default_prompt);
    free((void *)(uintptr_t)load_options->options.adapters);
    memset(load_options, 0, sizeof(*load_options));
}
