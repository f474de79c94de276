/*
 * compute.h - an open device for arithmetic: what gpuserve_matmul() and its kin share.
 */
#ifndef GSV_RUNTIME_COMPUTE_H
#define GSV_RUNTIME_COMPUTE_H

#include <gpuserve/compute.h>
#include <gpuserve/sys/backend.h>

#include <pthread.h>
#include <stdbool.h>

/* Device memory that grows and stays. */
struct gsv_compute_memory {
    void *memory;
    size_t size;
};

enum gsv_compute_place {
    GSV_COMPUTE_A,
    GSV_COMPUTE_B,
    GSV_COMPUTE_C,
    GSV_COMPUTE_D,
    GSV_COMPUTE_SCRATCH
};
#define GSV_COMPUTE_PLACES 5

struct gpuserve_compute {
    struct gpuserve_context *context;
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    struct gpuserve_stream *stream;
    bool is_host; /* device memory is host memory: operands are used where they lie */
    char selector[64];
    pthread_mutex_t lock; /* for one call after the other */
    struct gsv_compute_memory places[GSV_COMPUTE_PLACES];
};

/* Not NULL and not forked. */
gpuserve_status gsv_compute_check(const gpuserve_compute *compute, gpuserve_error *error);

/* The same, and a caller's job read into `to`; `result` may be NULL. `name` is the job's type. */
gpuserve_status gsv_compute_read(const gpuserve_compute *compute, void *to, size_t size,
                                 const void *job, const char *name,
                                 const gpuserve_compute_result *result, gpuserve_error *error);

/* Make `place` hold `size` bytes; what it held before is lost. */
gpuserve_status gsv_compute_reserve(gpuserve_compute *compute, enum gsv_compute_place place,
                                    size_t size, gpuserve_error *error);

double gsv_compute_now(void);

/* Hand the times to the caller; `to` may be NULL, and was checked. */
void gsv_compute_report(gpuserve_compute_result *to, uint32_t variant, double kernel_seconds,
                        double copy_seconds);

#endif
