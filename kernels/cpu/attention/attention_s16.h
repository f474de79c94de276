/*
 * attention_s16.h - operands of attention in signed 16-bit integers, with exact sums of 32 bits:
 * what attention_16bit.h says that a type of operands defines.
 *
 *   K, Q      one step for the head of a text each: the largest magnitude is root(2^31 / size)
 *   V         one step: the largest magnitude is VALUE_LEVELS
 *   weights   a step for each query: its weights sum to at most WEIGHT_SUM, and none is above
 *             2^15 - 1
 *
 * So no sum leaves 32 bits. The operands have 12 to 14 bits below their largest magnitude for heads
 * of 128 to 32, where bfloat16 has 8 of each element. The steps depend on the text alone.
 *
 * An infinity or a NaN has no step: attention.c computes such a head in float32.
 */
#ifndef GSV_CPU_ATTENTION_S16_H
#define GSV_CPU_ATTENTION_S16_H

#include "kernels/cpu/attention/attention_16bit.h"
#include "kernels/cpu/runtime/s16.h"

#define MAX_LEVELS 32767.0f
#define VALUE_LEVELS 8191.0f
/* VALUE_LEVELS * 262,176 < 2^31. Rounding adds up to half a step a key, and the sum of weights that
 * it is divided by has a relative error below 1e-3. */
#define WEIGHT_SUM 261888.0f
#define MAX_KEYS 16384 /* more leave too few steps to flat weights */

typedef vi dot_sum;

GSV_INLINE dot_sum dot2(dot_sum sum, vi x, vi y)
{
    return vs_dot2(sum, x, y);
}

/* Finds the step of `rows` rows and what they are multiplied by. False: not all are finite. */
static bool find_step(const struct attention_16bit_head *h, const float *row, int32_t rows,
                      float levels, float *factor, float *step)
{
    vf magnitude = vf_set(0.0f);
    float largest;

    for (; rows > 0; rows--, row += h->layout.ld)
        for (int32_t i = 0; i < h->size; i += GSV_VL)
            magnitude = vs_larger(magnitude, load_upto(row + i, h->size - i));
    largest = vs_largest(magnitude);
    *factor = largest >= VS_MIN_LARGEST ? levels / largest : 0.0f;
    *step = largest / levels;
    return largest < INFINITY;
}

static bool start_head(struct attention_16bit_head *h)
{
    const float levels = fminf(MAX_LEVELS, (float)floor(sqrt((double)INT32_MAX / h->size)));
    float key_step, query_step;

    if (h->length > MAX_KEYS ||
        !find_step(h, h->k, h->layout.n_keys, levels, &h->key_factor, &key_step) ||
        !find_step(h, h->q, h->length, levels, &h->query_factor, &query_step) ||
        !find_step(h, h->v, h->layout.n_keys, VALUE_LEVELS, &h->value_factor, &h->output_step))
        return false;
    h->score_step = key_step * query_step * (h->op->scale * VMATH_LOG2E);
    return true;
}

/* Lane i: (low[i], high[i]). A word has dimensions GSV_VL apart. */
GSV_INLINE vi key_words(const struct attention_16bit_head *h, vf low, vf high)
{
    return vs_pairs(low, high, vf_set(h->key_factor));
}

GSV_INLINE vi query_words(const struct attention_16bit_head *h, vf low, vf high)
{
    return vs_pairs(low, high, vf_set(h->query_factor));
}

GSV_INLINE vi value_words(const struct attention_16bit_head *h, vf even, vf odd)
{
    return vs_pairs(even, odd, vf_set(h->value_factor));
}

GSV_INLINE int32_t n_words(int32_t size)
{
    const int32_t rest = size % (2 * GSV_VL);

    return size / (2 * GSV_VL) * GSV_VL + (rest < GSV_VL ? rest : GSV_VL);
}

GSV_INLINE vf score_of(const struct attention_16bit_head *h, dot_sum sum)
{
    return __builtin_convertvector(sum, vf) * vf_set(h->score_step);
}

/* In place. Returns what finished sums of outputs are multiplied by: 1 / the sum of the rounded
 * weights, since the errors of many equal weights do not average out. */
GSV_INLINE vf weights_of_lanes(const struct attention_16bit_head *h, float *scores,
                               const struct gsv_key_range *keys, vf largest)
{
    const float limit = WEIGHT_SUM - 0.5f * (float)(keys->end - keys->first);
    vf sum = vf_set(0.0f), levels;
    vi rounded = vi_set(0);

    for (int32_t key = keys->first; key < keys->end; key++) {
        float *at = scores + (size_t)key * PANEL;
        const vf weight = vf_exp2_coarse(vf_load(at) - largest);

        vf_store(at, weight);
        sum = sum + weight;
    }
    levels = vf_min(vf_set(MAX_LEVELS), vf_set(limit) / sum);
    for (int32_t pair = keys->first / 2; 2 * pair < keys->end; pair++) {
        const float *at = scores + (size_t)(2 * pair) * PANEL;
        const vf odd = 2 * pair + 1 < keys->end ? vf_load(at + PANEL) : vf_set(0.0f);
        const vi words = vs_pairs(vf_load(at), odd, levels);

        rounded = vs_dot2(rounded, words, vi_set(0x00010001));
        store_words(scores + (size_t)pair * PANEL, words);
    }
    /* The difference is NaN if a score is. */
    return vf_set(h->output_step) / __builtin_convertvector(rounded, vf) + (sum - sum);
}

GSV_INLINE vf output_of(dot_sum sum, vf inverse)
{
    return __builtin_convertvector(sum, vf) * inverse;
}

#endif
