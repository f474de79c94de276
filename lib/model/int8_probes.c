/*
 * int8_probes.c - the statistics of mixed_precision.c: cosines of probe vectors, an estimate for
 * other texts, and the batch of the worst probes.
 *
 * No state; the caller owns all memory.
 */
#include "lib/model/int8_probes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

float gsv_vector_cosine(const float *a, const float *b, size_t n)
{
    double dot = 0.0, aa = 0.0, bb = 0.0, result;

    for (size_t i = 0; i < n; i++) {
        dot += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    if (aa == 0.0 && bb == 0.0)
        return 1.0f;
    result = dot / sqrt(aa * bb);
    return result >= -1.0 ? (float)result : -1.0f;
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* If the worst probe lost about as much as the worst tenth of the probes, few other texts lose
 * more. If it stands alone, some lose more by about the same factor. The constant was fitted on
 * random models: tests/python/random_models.py. */
float gsv_expected_min(const float *cosines, float *sorted, size_t n)
{
    float worst, tenth;

    memcpy(sorted, cosines, n * sizeof(float));
    qsort(sorted, n, sizeof(float), compare_floats);
    worst = fmaxf(0.0f, 1.0f - sorted[0]);
    tenth = fmaxf(1e-6f, 1.0f - sorted[n / 10]);
    return fmaxf(-1.0f, 1.0f - worst * fmaxf(1.0f, worst / tenth / 1.35f));
}

/* Append a sequence to the batch of the worst; its arrays have the capacity of all probes. */
static void add_text(struct gsv_worst_probes *worst, const struct gpuserve_host_batch *all,
                     int32_t text)
{
    struct gpuserve_host_batch *to = &worst->batch;
    const size_t capacity = (size_t)all->n_tokens, at = (size_t)to->n_tokens;
    const size_t begin = (size_t)all->cu_seqlens[text];
    const int32_t n = all->cu_seqlens[text + 1] - all->cu_seqlens[text];
    int32_t *memory = worst->memory;

    memcpy(memory + at, all->ids + begin, (size_t)n * sizeof(int32_t));
    memcpy(memory + capacity + at, all->type_ids + begin, (size_t)n * sizeof(int32_t));
    memcpy(memory + 2 * capacity + at, all->positions + begin, (size_t)n * sizeof(int32_t));
    worst->texts[to->n_sequences++] = text;
    to->n_tokens += n;
    memory[3 * capacity + (size_t)to->n_sequences] = to->n_tokens;
    to->max_seqlen = n > to->max_seqlen ? n : to->max_seqlen;
}

void gsv_choose_worst(struct gsv_worst_probes *worst, const struct gpuserve_host_batch *all,
                      float *cosines)
{
    int32_t *memory = worst->memory;
    const size_t capacity = (size_t)all->n_tokens;

    memory[3 * capacity] = 0;
    worst->batch = (struct gpuserve_host_batch){ .ids = memory,
                                                 .type_ids = memory + capacity,
                                                 .positions = memory + 2 * capacity,
                                                 .cu_seqlens = memory + 3 * capacity };
    while (worst->batch.n_sequences < GSV_MAX_WORST_PROBES &&
           worst->batch.n_sequences < all->n_sequences) {
        int32_t found = 0;

        for (int32_t t = 1; t < all->n_sequences; t++)
            found = cosines[t] < cosines[found] ? t : found;
        add_text(worst, all, found);
        cosines[found] = 2.0f; /* above any cosine: chosen */
    }
}
