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
#define INPUTS_PER_COPY 12

static float larger(float a, float b)
{
    return a > b ? a : b;
}

static float largest_weight(const float *w, const int32_t *copies, size_t k)
{
    float largest = 0.0f;

    for (size_t i = 0; i < k; i++)
        largest = larger(fabsf(copies ? w[i] / (float)copies[i] : w[i]), largest);
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

        scales[j] = largest_weight(w, source->copies, k) / LEVELS;
        if (device->isa->adds_sums)
            scales[j] = larger(largest_sum(sum, w, k) / levels, scales[j]);
    }
}

int32_t gsv_cpu_max_copies(int32_t k)
{
    const int32_t copies = k / INPUTS_PER_COPY;

    return k <= GSV_MAX_INT8_K - copies ? copies : 0;
}

/* None where products are added in 16 bits, with weights of about 7 bits: multilingual-e5-small
 * then passes on the probes with few kept products, and has 0.983 on a text of one word repeated.
 */
int32_t gsv_cpu_copies_limit(const struct gsv_cpu_isa *isa, int32_t k)
{
    return isa->adds_sums ? 0 : gsv_cpu_max_copies(k);
}

int32_t gsv_cpu_int8_copies(struct gpuserve_device *device, int32_t k, int32_t *step)
{
    *step = device->isa->copy_step;
    return gsv_cpu_copies_limit(device->isa, k) / *step * *step;
}
