/*
 * int8.h - INT8 quantization of weights: probes, rounding.
 */
#ifndef GSV_INT8_H
#define GSV_INT8_H

#include "lib/model/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * How close the vectors of probe texts are to those of full precision: the lowest
 * cosines, an estimate for other texts, and the batch of the worst probes.
 */

enum { GSV_MAX_WORST_PROBES = 4 };

/* The probes with the lowest cosines when all were last measured, as a batch of their own. */
struct gsv_worst_probes {
    struct gpuserve_host_batch batch; /* no sequences: not chosen yet */
    int32_t *memory; /* [3 * n_tokens + GSV_MAX_WORST_PROBES + 1], n_tokens of all probes */
    int32_t texts[GSV_MAX_WORST_PROBES]; /* indices into the probes */
};

/* The token whose vector is compared in models that only classify: the last one if the classifier
 * reads it, since with causal attention the first one attends to itself alone. */
static inline size_t gsv_probe_token(const struct gsv_spec *spec,
                                     const struct gpuserve_host_batch *probes, size_t text)
{
    return (size_t)(spec->config.classifier_pooling == GPUSERVE_POOL_LAST
                        ? probes->cu_seqlens[text + 1] - 1
                        : probes->cu_seqlens[text]);
}

/* Cosine similarity; 1 for two zero vectors, -1 for NaN. */
float gsv_vector_cosine(const float *a, const float *b, size_t n);

/* The cosine of a probe's vector; 1 if the vector of full precision, `exact`, is not finite: such a
 * token cannot be measured. */
float gsv_probe_cosine(const float *exact, const float *got, size_t n);

/* The variance of the logarithms of the losses of a net without kept products. */
double gsv_model_variance(const float *cosines, size_t n);

/* Estimate the lowest cosine of other texts from those of `n` probes. `model_variance` is
 * gsv_model_variance() of the net before products were kept: that these seem to vary less is partly
 * chance, since the smallest number of kept products that passes is chosen. 0: unknown. */
float gsv_expected_min(const float *cosines, size_t n, double model_variance);

/* The same from the tail of `n` losses, as a power law. `cosines` is sorted. 1: fewer than 40. */
float gsv_tail_min(float *cosines, size_t n);

/* gsv_tail_min() of the probes that repeat one word of few tokens. `repeated` [n_sequences] is
 * scratch memory. */
float gsv_expected_repeated_min(const struct gpuserve_host_batch *probes, const float *cosines,
                                float *repeated);

/* Select the worst probes of `all`. `cosines` [n_sequences] is overwritten. */
void gsv_choose_worst(struct gsv_worst_probes *worst, const struct gpuserve_host_batch *all,
                      float *cosines);

/*
 * Rounds the weights of an INT8 product so that the errors cancel in the
 * outputs, not so that each weight is nearest.
 */

/* The mean squares of a product's input, as H = sum over t of u_t u_t^T + diag(rest). */
struct gsv_input_squares {
    size_t k;          /* columns of the input */
    size_t n;          /* number of vectors u_t */
    const float *u;    /* [k, n]: element j of each u_t is together */
    const float *rest; /* [k] */
};

enum { GSV_MAX_ROUNDING_THREADS = 8 };

/* Floats of scratch memory for gsv_round_weights() with up to GSV_MAX_ROUNDING_THREADS threads. */
size_t gsv_rounding_floats(size_t k, size_t n, int32_t n_threads);

/* Replace each weight [rows, k] by a multiple of its row's scale, in -127..127, or for inputs that
 * take several columns `copies[j]` times that (NULL: none does): one of the two neighbours, such
 * that e H e^T is low for the errors e of each row. The result does not depend on the number of
 * threads. */
void gsv_round_weights(float *weight, const float *scale, const int32_t *copies, size_t rows,
                       const struct gsv_input_squares *input, float *scratch, int32_t n_threads);

#endif
