/*
 * load_options.c - how a model was opened, kept so that it can be opened again.
 */
#include "lib/runtime/models/load_options.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

/* Put a copy in the place of a borrowed text; false when out of memory. */
static bool own(const char **text)
{
    if (*text)
        *text = gsv_copy_text(*text, strlen(*text));
    return *text != NULL;
}

gpuserve_status gsv_opening_init(struct gsv_opening *opening, const char *path,
                                 const gpuserve_model_options *options, gpuserve_error *error)
{
    bool all = true;

    opening->options = *options;
    opening->options.name = opening->options.version = NULL; /* the registry's */
    opening->path = gsv_copy_text(path, strlen(path));
    if (options->device)
        all &= own(&opening->options.device);
    if (options->head)
        all &= own(&opening->options.head);
    if (options->default_prompt_name)
        all &= own(&opening->options.default_prompt_name);
    if (options->default_prompt)
        all &= own(&opening->options.default_prompt);
    if (all && opening->path)
        return GPUSERVE_OK;
    gsv_opening_reset(opening);
    return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model's options");
}

void gsv_opening_reset(struct gsv_opening *opening)
{
    free(opening->path);
    free((void *)(uintptr_t)opening->options.device);
    free((void *)(uintptr_t)opening->options.head);
    free((void *)(uintptr_t)opening->options.default_prompt_name);
    free((void *)(uintptr_t)opening->options.default_prompt);
    memset(opening, 0, sizeof(*opening));
}
