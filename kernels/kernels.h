/*
 * kernels.h - the backends that are compiled into libgpuserve.
 *
 * Both implement the table of <gpuserve/sys/backend.h> for host memory. `ref` is plain scalar C,
 * never optimised: the oracle that every other backend is tested against. `cpu` is the production
 * backend; it selects its instruction set when the device is opened.
 */
#ifndef GSV_KERNELS_H
#define GSV_KERNELS_H

#include <gpuserve/sys/backend.h>

#include <stdbool.h>

const struct gpuserve_backend *gsv_backend_ref(void);
const struct gpuserve_backend *gsv_backend_cpu(void);
/* The same, with results whose bits do not depend on the instruction set. */
const struct gpuserve_backend *gsv_backend_cpu_portable(void);

/* Late interaction: rows of `dim` floats, dim below 2^31. */
struct gsv_max_sim {
    const float *query;    /* [n_query, dim] */
    const float *document; /* [n_document, dim], or more rows, of which `rows` names n_document */
    const int32_t *rows;   /* [n_document] or NULL: the first ones */
    size_t n_query, n_document, dim;
    bool normalizes; /* document rows are divided by max(length, 1e-12) */
};

/* The sum over the query rows of the largest dot product with a document row, accumulated in
 * float64; NaN if a product is NaN, 0 without rows on either side. Thread-safe. */
float gsv_cpu_max_sim(const struct gsv_max_sim *op);
/* best[i] = the largest dot product of query row i with a document row; NaN if one is NaN,
 * -infinity without document rows. */
void gsv_ref_max_sim(const struct gsv_max_sim *op, float *best);

/* A row of floats as a gpuserve_precision, into gpuserve_quantized_bytes() bytes at `to`: what
 * gpuserve_quantize() does. `ranges` is [2, n] of INT8 and UINT8. Thread-safe. */
void gsv_cpu_compact_row(const float *row, size_t n, uint32_t precision, const float *ranges,
                         uint8_t *to);

/* Description of a linear whose packed weights are at `memory`. */
struct gsv_packed_linear {
    int32_t n, k;
    uint32_t dtype;
    uint32_t flags;     /* private to the backend */
    const void *memory; /* [linear_bytes(n, k, dtype)] packed weights */
};

/* Reuse of packed weights after the linear is destroyed, for backends whose device memory is host
 * memory. The bytes are valid for devices of the same `isa` (gpuserve_device_facts). */
struct gsv_packing {
    void (*describe)(const struct gpuserve_linear *linear, struct gsv_packed_linear *packed);
    /* Creates a linear over bytes that linear_create() wrote earlier; they are only read. The
     * caller checks n, k and dtype. */
    gpuserve_status (*restore)(struct gpuserve_device *device, struct gpuserve_linear **linear,
                               const struct gsv_packed_linear *packed, gpuserve_error *error);
};

/* The packing of gsv_backend_cpu(). */
const struct gsv_packing *gsv_cpu_packing(void);

#endif
