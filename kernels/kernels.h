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

const struct gpuserve_backend *gsv_backend_ref(void);
const struct gpuserve_backend *gsv_backend_cpu(void);
/* The same, with results whose bits do not depend on the instruction set. */
const struct gpuserve_backend *gsv_backend_cpu_portable(void);

/* Late interaction: rows of `dim` floats, dim below 2^31. */
struct gsv_max_sim {
    const float *query;    /* [n_query, dim] */
    const float *document; /* [n_document, dim] */
    size_t n_query, n_document, dim;
};

/* best[i] = the largest dot product of query row i with a document row; NaN if one is NaN,
 * -infinity without document rows. Bits of a row do not depend on the other query rows.
 * Thread-safe. */
void gsv_cpu_max_sim(const struct gsv_max_sim *op, float *best);
void gsv_ref_max_sim(const struct gsv_max_sim *op, float *best);

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
