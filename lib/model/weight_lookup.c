/*
 * weight_lookup.c - finds tensors of a checkpoint by name, and checks their type and shape.
 */
#include "lib/model/weight_map.h"

#include "lib/base/error.h"

#include <stdio.h>
#include <string.h>

gpuserve_status gsv_check_tensor(const struct gsv_tensor *t, uint64_t rows, uint64_t cols,
                                 gpuserve_error *error)
{
    const bool fits = rows == 0 ? t->rank == 1 && t->shape[0] == cols
                                : t->rank == 2 && t->shape[0] == rows && t->shape[1] == cols;

    if (t->type == GSV_TENSOR_OTHER)
        return gsv_fail(
            error, GPUSERVE_E_UNSUPPORTED,
            "%s: tensor '%s' is %s; supported weight types: F32, F16, BF16, F64, "
            "F8_E4M3, F8_E5M2; in GGUF files also Q4_0 to Q8_0, Q2_K to Q6_K and IQ4_NL",
            gsv_weight_file_name(t->file), t->name, t->type_name);
    if (t->is_strided)
        return gsv_tensor_check_order(t, error);
    if (fits)
        return GPUSERVE_OK;
    if (rows == 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%s' has rank %llu and %llu elements, expected shape [%llu]",
                        gsv_weight_file_name(t->file), t->name, (unsigned long long)t->rank,
                        (unsigned long long)t->count, (unsigned long long)cols);
    return gsv_fail(error, GPUSERVE_E_FORMAT,
                    "%s: tensor '%s' is [%llu, %llu] of rank %llu, expected shape [%llu, %llu]",
                    gsv_weight_file_name(t->file), t->name, (unsigned long long)t->shape[0],
                    (unsigned long long)t->shape[1], (unsigned long long)t->rank,
                    (unsigned long long)rows, (unsigned long long)cols);
}

bool gsv_lookup(const struct gsv_collector *c, struct gsv_tensor *tensor, const char *names,
                const char *suffix, char full[GSV_TENSOR_NAME_BYTES])
{
    char first[GSV_TENSOR_NAME_BYTES] = "";

    for (const char *at = names; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        snprintf(full, GSV_TENSOR_NAME_BYTES, "%s%.*s%s", c->prefix, (int)strcspn(at, "|"), at,
                 suffix);
        if (at == names)
            memcpy(first, full, sizeof(first));
        if (gsv_checkpoint_find(c->from, full, tensor))
            return true;
    }
    memcpy(full, first, sizeof(first));
    return false;
}

bool gsv_lookup_weight(const struct gsv_collector *c, struct gsv_tensor *tensor, const char *names,
                       const char *suffix, char full[GSV_TENSOR_NAME_BYTES])
{
    char other[GSV_TENSOR_NAME_BYTES];

    if (gsv_lookup(c, tensor, names, suffix, full))
        return true;
    return c->spec->config.adapters.n > 0 && strcmp(suffix, ".weight") == 0 &&
           gsv_lookup(c, tensor, names, ".parametrizations.weight.original", other);
}

gpuserve_status gsv_find_tensor(const struct gsv_collector *c, struct gsv_tensor *tensor,
                                const char *name, const char *suffix, const char *other,
                                int32_t rows, int32_t cols, enum gsv_presence presence)
{
    char full[GSV_TENSOR_NAME_BYTES], second[GSV_TENSOR_NAME_BYTES];

    if (presence == GSV_ABSENT)
        return GPUSERVE_OK;
    if (gsv_lookup_weight(c, tensor, name, suffix, full) ||
        (other && gsv_lookup_weight(c, tensor, name, other, second)))
        return gsv_check_tensor(tensor, (uint64_t)rows, (uint64_t)cols, c->error);
    if (presence == GSV_IF_PRESENT)
        return GPUSERVE_OK;
    return gsv_fail(c->error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is missing",
                    gsv_weight_file_name(c->from->files[0]), full);
}

struct gsv_tensor gsv_tensor_rows(const struct gsv_tensor *whole, int32_t first, int32_t n)
{
    const uint64_t columns = whole->rank == 2 ? whole->shape[1] : 1;
    struct gsv_tensor part = *whole;

    part.shape[0] = (uint64_t)n;
    part.count = (uint64_t)n * columns;
    part.offset += gsv_tensor_bytes(whole->type, (uint64_t)first * columns);
    part.size_bytes = gsv_tensor_bytes(whole->type, part.count);
    return part;
}
