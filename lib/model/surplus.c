/*
 * surplus.c - refuses tensors of the encoder's layers that nothing reads.
 */
#include "lib/model/weight_map.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_pointers(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (const char *const *)a,
                    y = (uintptr_t) * (const char *const *)b;

    return (x > y) - (x < y);
}

/* The names of all tensors in use, sorted by address: each name is stored once, in its file. */
static size_t list_used(const struct gsv_spec *spec, const char **used)
{
    size_t n = 0;

    for (size_t i = 0; i < spec->n_items; i++) {
        for (int32_t part = 0; part < 3; part++) {
            if (spec->items[i].weight[part].count)
                used[n++] = spec->items[i].weight[part].name;
            if (spec->items[i].bias[part].count)
                used[n++] = spec->items[i].bias[part].name;
        }
    }
    qsort(used, n, sizeof(*used), compare_pointers);
    return n;
}

/* True for a buffer that older versions of transformers saved: a constant, not a weight. */
static bool is_buffer(const struct gsv_tensor *tensor)
{
    static const char *const ends[] = { "position_ids", "rotary_emb.inv_freq", ".masked_bias" };
    const size_t length = strlen(tensor->name);

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (length >= strlen(ends[i]) &&
            strcmp(tensor->name + length - strlen(ends[i]), ends[i]) == 0)
            return true;
    return tensor->type == GSV_TENSOR_OTHER;
}

/* True for a tensor that is saved even if the options leave it without a reader. */
static bool is_known(const struct gsv_spec *spec, const struct gsv_tensor *tensor)
{
    for (const char *at = spec->names->unused; at;
         at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        char part[GSV_TENSOR_NAME_BYTES];

        snprintf(part, sizeof(part), "%.*s", (int)strcspn(at, "|"), at);
        if (strstr(tensor->name, part))
            return true;
    }
    return false;
}

/* A tensor of a layer that no item uses would change the result: the layer is another one than
 * config.json and the family say. Tensors outside of the layers may belong to heads. */
gpuserve_status gsv_check_surplus(const struct gsv_spec *spec, gpuserve_error *error)
{
    const char **used = gsv_alloc_array(6 * spec->n_items, sizeof(*used));
    const size_t digits = strcspn(spec->names->layer, "%");
    char prefix[GSV_TENSOR_NAME_BYTES];
    gpuserve_status st = GPUSERVE_OK;
    size_t n;

    if (!used)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    n = list_used(spec, used);
    snprintf(prefix, sizeof(prefix), "%s%.*s", spec->prefix, (int)digits, spec->names->layer);
    for (size_t f = 0; f < spec->weights.n_files; f++) {
        struct gsv_tensor tensor;

        for (size_t i = 0; gsv_weight_file_at(spec->weights.files[f], i, &tensor); i++) {
            if (st != GPUSERVE_OK || strncmp(tensor.name, prefix, strlen(prefix)) != 0 ||
                is_buffer(&tensor) || gsv_is_row_scales(&tensor) || is_known(spec, &tensor) ||
                bsearch(&tensor.name, used, n, sizeof(*used), compare_pointers))
                continue;
            st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                          "%s: tensor '%s' belongs to no part of %d layers of model type '%.64s'",
                          gsv_weight_file_name(tensor.file), tensor.name, spec->config.n_layers,
                          spec->config.model_type);
        }
    }
    free(used);
    return st;
}
