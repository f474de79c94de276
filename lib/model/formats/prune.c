/*
 * prune.c - magnitude pruning and 2:4 sparsity of weight matrices.
 *
 * The bits of a magnitude, read as an integer, have the order of the magnitudes. So the k-th
 * smallest is found exactly with two histograms: of the upper 16 bits, then of the lower 16 bits
 * within the bucket of the k-th one. Of equal magnitudes the first ones of the matrix become zero.
 */
#include "lib/model/formats/checkpoint_writer.h"

#include <ctype.h>
#include <string.h>

#define MIN_ELEMENTS 4096
#define HALF_BITS 16
#define LOW_MASK 0xFFFFu

static uint32_t magnitude(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits & 0x7FFFFFFFu;
}

/* "encoder.layer.3.output.dense.weight": a component of the name is a layer's number. */
static bool has_layer(const char *name)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        const char *end = dot + 1;

        while (isdigit((unsigned char)*end))
            end++;
        if (end > dot + 1 && *end == '.')
            return true;
    }
    return false;
}

bool gsv_is_prunable(const struct gsv_tensor *tensor, const struct gsv_pruning *pruning)
{
    static const char ending[] = ".weight";
    const size_t n = strlen(tensor->name), m = sizeof(ending) - 1;

    return tensor->rank == 2 && tensor->count >= MIN_ELEMENTS && n > m &&
           strcmp(tensor->name + n - m, ending) == 0 && has_layer(tensor->name) &&
           (pruning->percent > 0 || tensor->shape[1] % GSV_PRUNE_GROUP == 0);
}

/* Count the magnitudes by their upper half; or, with `upper`, those with this upper half by their
 * lower half. */
static gpuserve_status count(struct gsv_pruning *pruning, const struct gsv_tensor *tensor,
                             gsv_prune_read read, void *user, const uint32_t *upper)
{
    memset(pruning->counts, 0, GSV_PRUNE_BUCKETS * sizeof(*pruning->counts));
    for (uint64_t first = 0; first < tensor->count;) {
        const float *values;
        size_t n;
        const gpuserve_status st = read(user, first, &values, &n);

        if (st != GPUSERVE_OK)
            return st;
        for (size_t i = 0; i < n; i++) {
            const uint32_t bits = magnitude(values[i]);

            if (!upper)
                pruning->counts[bits >> HALF_BITS]++;
            else if (bits >> HALF_BITS == *upper)
                pruning->counts[bits & LOW_MASK]++;
        }
        first += n;
    }
    return GPUSERVE_OK;
}

/* The bucket of the value with `*left` smaller ones; *left becomes its number within the bucket. */
static uint32_t find_bucket(const struct gsv_pruning *pruning, uint64_t *left)
{
    uint32_t bucket = 0;

    while (bucket < GSV_PRUNE_BUCKETS - 1 && pruning->counts[bucket] <= *left)
        *left -= pruning->counts[bucket++];
    return bucket;
}

gpuserve_status gsv_prune_begin(struct gsv_pruning *pruning, const struct gsv_tensor *tensor,
                                gsv_prune_read read, void *user)
{
    /* Rounded down; the quotient first, so that the product cannot overflow. */
    uint64_t left =
        tensor->count / 100 * pruning->percent + tensor->count % 100 * pruning->percent / 100;
    gpuserve_status st = GPUSERVE_OK;
    uint32_t upper = 0;

    pruning->n_matrices++;
    pruning->n_values += tensor->count;
    pruning->threshold = 0;
    pruning->n_equal = 0;
    if (pruning->percent == 0)
        return GPUSERVE_OK;
    st = count(pruning, tensor, read, user, NULL);
    if (st != GPUSERVE_OK)
        return st;
    upper = find_bucket(pruning, &left);
    st = count(pruning, tensor, read, user, &upper);
    pruning->threshold = upper << HALF_BITS | find_bucket(pruning, &left);
    pruning->n_equal = left;
    return st;
}

static void prune_by_magnitude(struct gsv_pruning *pruning, float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = magnitude(values[i]);

        if (bits == pruning->threshold && pruning->n_equal > 0)
            pruning->n_equal--;
        else if (bits >= pruning->threshold)
            continue;
        values[i] = 0.0f;
    }
}

/* Keep the two largest magnitudes of each four; of equal ones the first. */
static void prune_groups(float *values, size_t n)
{
    for (size_t i = 0; i + GSV_PRUNE_GROUP <= n; i += GSV_PRUNE_GROUP) {
        bool is_kept[GSV_PRUNE_GROUP];

        for (size_t k = 0; k < GSV_PRUNE_GROUP; k++) {
            int n_larger = 0;

            for (size_t j = 0; j < GSV_PRUNE_GROUP; j++) {
                const uint32_t a = magnitude(values[i + j]), b = magnitude(values[i + k]);

                n_larger += a > b || (a == b && j < k);
            }
            is_kept[k] = n_larger < GSV_PRUNE_GROUP / 2;
        }
        for (size_t k = 0; k < GSV_PRUNE_GROUP; k++)
            if (!is_kept[k])
                values[i + k] = 0.0f;
    }
}

void gsv_prune_values(struct gsv_pruning *pruning, float *values, size_t n)
{
    if (pruning->percent > 0)
        prune_by_magnitude(pruning, values, n);
    else
        prune_groups(values, n);
    for (size_t i = 0; i < n; i++)
        pruning->n_zeros += values[i] == 0.0f;
}
