/*
 * compute.h - a device opened for arithmetic: what gpuserve_matmul(), gpuserve_chain() and the LSTM
 * calls share.
 */
#ifndef GSV_RUNTIME_COMPUTE_H
#define GSV_RUNTIME_COMPUTE_H

#include <gpuserve/compute.h>
#include <gpuserve/sys/backend.h>
#include <pthread.h>
#include <stdbool.h>

/* Device memory that grows on demand and is kept between calls. */
struct gsv_compute_memory {
    void *memory;
    size_t size;
};

enum gsv_compute_buffer {
    GSV_COMPUTE_A,
    GSV_COMPUTE_B,
    GSV_COMPUTE_C,
    GSV_COMPUTE_D,
    GSV_COMPUTE_SCRATCH
};
#define GSV_COMPUTE_BUFFERS 5

struct gpuserve_compute {
    struct gpuserve_context *context;
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    struct gpuserve_stream *stream;
    bool is_host; /* device memory is host memory: operands are used in place */
    char selector[64];
    pthread_mutex_t lock; /* serialises calls */
    struct gsv_compute_memory buffers[GSV_COMPUTE_BUFFERS];
    uint32_t n_transfers; /* calls of gpuserve_transfer() */
};

/* The handle is not NULL and the process is not a fork of its creator. */
gpuserve_status gsv_compute_check(const gpuserve_compute *compute, gpuserve_error *error);

/* Also copies the caller's job struct to `to` and checks `result`, which may be NULL. `name` is the
 * type of the job, for messages. */
gpuserve_status gsv_compute_read(const gpuserve_compute *compute, void *to, size_t size,
                                 const void *job, const char *name,
                                 const gpuserve_compute_result *result, gpuserve_error *error);

/* Makes `buffer` hold at least `size` bytes; its previous content is lost. Caller holds the lock.
 */
gpuserve_status gsv_compute_reserve(gpuserve_compute *compute, enum gsv_compute_buffer buffer,
                                    size_t size, gpuserve_error *error);

/* Writes the times, in seconds, to the caller's result; `to` may be NULL and is already checked. */
void gsv_compute_report(gpuserve_compute_result *to, uint32_t variant, double kernel_seconds,
                        double copy_seconds);

/*
 * The handle of an LSTM network on a device: layers and sizes.
 *
 * Immutable after gpuserve_lstm_create(); runs are serialised by the lock of `compute`.
 */

struct gsv_lstm_layer {
    struct gpuserve_lstm_layer *layer;
    void *memory; /* device memory that holds the packed weights */
};

struct gpuserve_lstm {
    gpuserve_compute *compute; /* borrowed: the caller's, which must outlive this */
    int32_t input_size;
    int32_t hidden_size;
    int32_t n_layers;
    int32_t n_directions;
    struct gsv_lstm_layer layers[]; /* [n_layers] */
};

#endif
