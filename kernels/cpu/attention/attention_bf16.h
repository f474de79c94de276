/*
 * attention_bf16.h - operands of attention in bfloat16, with sums in float32: what
 * attention_16bit.h says that a type of operands defines.
 */
#ifndef GSV_CPU_ATTENTION_BF16_H
#define GSV_CPU_ATTENTION_BF16_H

#include "kernels/cpu/attention/attention_16bit.h"
#include "kernels/cpu/runtime/bf16.h"

typedef vf dot_sum;

#if !defined(GSV_HAS_TILES)
GSV_INLINE dot_sum dot2(dot_sum sum, vi x, vi y)
{
    return vh_dot2(sum, x, y);
}
#endif

GSV_INLINE bool start_head(struct attention_16bit_head *h)
{
    (void)h;
    return true;
}

/* The lanes of `low`, then those of `high`: a word has adjacent dimensions. */
GSV_INLINE vi key_words(const struct attention_16bit_head *h, vf low, vf high)
{
    (void)h;
    return vh_two(low, high);
}

GSV_INLINE vi query_words(const struct attention_16bit_head *h, vf low, vf high)
{
    const vf factor = vf_set(h->op->scale * VMATH_LOG2E);

    return vh_two(low * factor, high * factor);
}

GSV_INLINE vi value_words(const struct attention_16bit_head *h, vf even, vf odd)
{
    (void)h;
    return vh_pairs(even, odd);
}

GSV_INLINE int32_t n_words(int32_t size)
{
    return (size + 1) / 2;
}

GSV_INLINE vf score_of(const struct attention_16bit_head *h, dot_sum sum)
{
    (void)h;
    return sum;
}

/* In place. Returns what finished sums of outputs are multiplied by. */
GSV_INLINE vf weights_of_lanes(const struct attention_16bit_head *h, float *scores,
                               const struct gsv_key_range *keys, vf largest)
{
    vf sum = vf_set(0.0f);

    for (int32_t key = keys->first; key < keys->end; key += 2) {
        const float *at = scores + (size_t)key * PANEL;
        const vf even = vf_exp2_coarse(vf_load(at) - largest);
        vf odd = vf_set(0.0f);

        if (key + 1 < keys->end)
            odd = vf_exp2_coarse(vf_load(at + PANEL) - largest);
        sum = sum + even + odd;
        store_words(scores + (size_t)(key / 2) * PANEL, vh_pairs(even, odd));
    }
    (void)h;
    return vf_set(1.0f) / sum;
}

GSV_INLINE vf output_of(dot_sum sum, vf inverse)
{
    return sum * inverse;
}

#endif
