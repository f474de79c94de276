/*
 * weight_rounding.h - rounds the weights of an INT8 product so that the errors cancel in the
 * outputs, not so that each weight is nearest.
 */
#ifndef GSV_MODEL_WEIGHT_ROUNDING_H
#define GSV_MODEL_WEIGHT_ROUNDING_H

#include <stddef.h>
#include <stdint.h>

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

/* Replace each weight [rows, k] by a multiple of its row's scale, in -127..127: one of the two
 * neighbours, such that e H e^T is low for the errors e of each row. The result does not depend on
 * the number of threads. */
void gsv_round_weights(float *weight, const float *scale, size_t rows,
                       const struct gsv_input_squares *input, float *scratch, int32_t n_threads);

#endif
