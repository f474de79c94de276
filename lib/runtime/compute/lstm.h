/*
 * lstm.h - the handle of an LSTM network on a device: layers and sizes.
 *
 * Immutable after gpuserve_lstm_create(); runs are serialised by the lock of `compute`.
 */
#ifndef GSV_RUNTIME_LSTM_H
#define GSV_RUNTIME_LSTM_H

#include "lib/runtime/compute/compute.h"

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
