/*
 * int8_probes.c - the statistics of mixed_precision.c: cosines of probe vectors, an estimate for
 * other texts, and the batch of the worst probes.
 *
 * No state; the caller owns all memory.
 */
#include "lib/model/int8/int8.h"

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

float gsv_probe_cosine(const float *exact, const float *got, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(exact[i]))
            return 1.0f;
    return gsv_vector_cosine(exact, got, n);
}

/* Two estimates of the worst loss, of which the larger counts. LONE: the worst of many texts loses
 * more than the worst probe. TAIL: where the logarithms of the losses vary more, the tail is
 * longer. With peaked attention one text in a thousand loses ten times as much as the worst probe,
 * and only the variance of all probes shows it. The constants were fitted on the random models of
 * tests/python/random_models.py with 2,000 other texts each. */
#define LONE 1.5
#define TAIL 5.5
#define MAX_VARIANCE 0.75
/* Repeated texts: close to a point where attention turns to another token, their errors grow
 * without limit, so the tail of the losses is that of a power, not of a normal distribution. In one
 * model, one count of a word in 300 loses 100 times as much as the median, next to counts that lose
 * no more than others. The tail's exponent is that of the largest losses (Hill, 1975); the estimate
 * is the loss that one text in RARE exceeds. */
#define RARE 2000.0
#define TAIL_PART 10 /* of so many probes, one is of the tail */
#define MIN_TAIL 4
/* Tokens of a repeated text, and of the repeated word. */
#define MIN_REPEATED 12
#define MAX_PERIOD 6
#define MIN_LOSS 1e-6 /* about the rounding error of a cosine */

static double loss_of(float cosine)
{
    return fmax(MIN_LOSS, 1.0 - (double)cosine);
}

static double mean_log_loss(const float *cosines, size_t n)
{
    double sum = 0.0;

    for (size_t i = 0; i < n; i++)
        sum += log(loss_of(cosines[i]));
    return sum / (double)n;
}

static double loss_variance(const float *cosines, size_t n, double mean)
{
    double sum = 0.0;

    for (size_t i = 0; i < n; i++)
        sum += (log(loss_of(cosines[i])) - mean) * (log(loss_of(cosines[i])) - mean);
    return sum / (double)n;
}

double gsv_model_variance(const float *cosines, size_t n)
{
    return fmin(MAX_VARIANCE, loss_variance(cosines, n, mean_log_loss(cosines, n)));
}

float gsv_expected_min(const float *cosines, size_t n, double model_variance)
{
    const double mean = mean_log_loss(cosines, n);
    const double variance = fmax(model_variance, loss_variance(cosines, n, mean));
    double worst = exp(mean + TAIL * variance);

    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, LONE * loss_of(cosines[i]));
    return (float)fmax(-1.0, 1.0 - worst);
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

float gsv_tail_min(float *cosines, size_t n)
{
    const size_t k = n / TAIL_PART;
    double begin, sum = 0.0;

    if (k < MIN_TAIL)
        return 1.0f;
    qsort(cosines, n, sizeof(*cosines), compare_floats);
    begin = log(loss_of(cosines[k]));
    for (size_t i = 0; i < k; i++)
        sum += log(loss_of(cosines[i])) - begin;
    begin += sum / (double)k * log(RARE * (double)k / (double)n);
    return (float)fmax(-1.0, 1.0 - exp(begin));
}

/* True for the tokens of a text that repeats one word of up to MAX_PERIOD tokens. */
static bool is_repeated(const int32_t *ids, size_t n)
{
    size_t equal = 0;

    if (n < MIN_REPEATED)
        return false;
    for (size_t period = 1; period <= MAX_PERIOD && 4 * equal < 3 * n; period++) {
        equal = 0;
        for (size_t i = period; i < n; i++)
            equal += ids[i] == ids[i - period];
    }
    return 4 * equal >= 3 * n;
}

float gsv_expected_repeated_min(const struct gpuserve_host_batch *probes, const float *cosines,
                                float *repeated)
{
    const int32_t *at = probes->cu_seqlens;
    size_t n = 0;

    for (int32_t t = 0; t < probes->n_sequences; t++)
        if (is_repeated(probes->ids + at[t], (size_t)(at[t + 1] - at[t])))
            repeated[n++] = cosines[t];
    return gsv_tail_min(repeated, n);
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
