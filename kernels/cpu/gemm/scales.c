/*
 * scales: the scale of each output's int8 weights: the largest range of integers that the products
 * of the processor add without overflow.
 *
 * With 32-bit sums the largest weight is 127. Where products are added in 16 bits (s8_sums.h), the
 * weights of a sum of the same sign sum to at most GSV_SUM_WEIGHTS. The scale follows from the
 * largest such sum of the row, so that no bit is lost to sums that the weights do not reach.
 */
#include "kernels/cpu/runtime/cpu.h"

#include <math.h>

#define LEVELS 127.0f

static float larger(float a, float b)
{
    return a > b ? a : b;
}

static float largest_weight(const float *w, size_t k)
{
    float largest = 0.0f;

    for (size_t i = 0; i < k; i++)
        largest = larger(fabsf(w[i]), largest);
    return largest;
}

/* Largest sum of the weights of one sign at w[0..n), n up to GSV_QUAD_DEPTH. */
static float largest_sum_at(enum gsv_s8_sum sum, const float *w, size_t n)
{
    float positive[GSV_QUAD_DEPTH / 2] = { 0.0f }, negative[GSV_QUAD_DEPTH / 2] = { 0.0f };
    float largest = 0.0f;

    for (size_t i = 0; i < n; i++) {
        const size_t at = gsv_s8_sum_at(sum, i);

        positive[at] += w[i] > 0.0f ? w[i] : 0.0f;
        negative[at] += w[i] < 0.0f ? -w[i] : 0.0f;
    }
    for (size_t i = 0; i < GSV_QUAD_DEPTH / 2; i++)
        largest = larger(largest, larger(positive[i], negative[i]));
    return largest;
}

static float largest_sum(enum gsv_s8_sum sum, const float *w, size_t k)
{
    float largest = 0.0f;

    for (size_t i = 0; i < k; i += GSV_QUAD_DEPTH)
        largest = larger(
            largest_sum_at(sum, w + i, k - i < GSV_QUAD_DEPTH ? k - i : GSV_QUAD_DEPTH), largest);
    return largest;
}

void gsv_cpu_int8_scales(struct gpuserve_device *device,
                         const struct gpuserve_linear_source *source, float *scales)
{
    const size_t k = (size_t)source->k;
    const enum gsv_s8_sum sum = gsv_s8_sum_of(device->isa->adds_pairs, (size_t)source->n, k);
    /* Rounding to either neighbour adds less than 1 to each weight of a sum. */
    const float levels = (float)(GSV_SUM_WEIGHTS - (int)sum);

    for (size_t j = 0; j < (size_t)source->n; j++) {
        const float *w = source->weight + j * k;

        scales[j] = largest_weight(w, k) / LEVELS;
        if (device->isa->adds_sums)
            scales[j] = larger(largest_sum(sum, w, k) / levels, scales[j]);
    }
}
