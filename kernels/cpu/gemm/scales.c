/*
 * scales: the scale of each output's int8 weights: the largest range of integers that the products
 * of the processor add without overflow.
 *
 * With 32-bit sums the largest weight is 127. Where four products are added in 16 bits
 * (s8_quads.h), the four weights of a quad of the same sign sum to at most GSV_QUAD_SUM. The scale
 * follows from the largest such sum of the row, so the range is about 7 bits, and not fewer because
 * of sums that the weights do not reach.
 */
#include "kernels/cpu/gemm/s8_quads.h"
#include "kernels/cpu/runtime/cpu.h"

#include <math.h>

#define LEVELS 127.0f
/* Rounding to either neighbour adds less than 1 to each of four weights. */
#define QUAD_LEVELS (GSV_QUAD_SUM - 4.0f)

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

/* Largest sum of the weights of one sign in one of the two quads at w[0..n). */
static float largest_quad_at(const float *w, size_t n)
{
    float positive[2] = { 0.0f }, negative[2] = { 0.0f };

    for (size_t i = 0; i < n; i++) {
        positive[i / 2 % 2] += w[i] > 0.0f ? w[i] : 0.0f;
        negative[i / 2 % 2] += w[i] < 0.0f ? -w[i] : 0.0f;
    }
    return larger(larger(positive[0], positive[1]), larger(negative[0], negative[1]));
}

static float largest_quad(const float *w, size_t k)
{
    float largest = 0.0f;

    for (size_t i = 0; i < k; i += GSV_QUAD_DEPTH)
        largest = larger(largest_quad_at(w + i, k - i < GSV_QUAD_DEPTH ? k - i : GSV_QUAD_DEPTH),
                         largest);
    return largest;
}

void gsv_cpu_int8_scales(struct gpuserve_device *device,
                         const struct gpuserve_linear_source *source, float *scales)
{
    const size_t k = (size_t)source->k;

    for (size_t j = 0; j < (size_t)source->n; j++) {
        const float *w = source->weight + j * k;

        scales[j] = largest_weight(w, k) / LEVELS;
        if (device->isa->adds_quads)
            scales[j] = larger(largest_quad(w, k) / QUAD_LEVELS, scales[j]);
    }
}
