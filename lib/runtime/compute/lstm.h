/*
 * lstm.h - a network of LSTM layers on a device: what creating and running share.
 */
#ifndef GSV_RUNTIME_LSTM_H
#define GSV_RUNTIME_LSTM_H

#include "lib/runtime/compute/compute.h"

struct gsv_lstm_layer {
    struct gpuserve_lstm_layer *layer;
    void *memory; /* the device's, with the weights */
};

struct gpuserve_lstm {
    gpuserve_compute *compute; /* the caller's, which outlives this */
    int32_t input_size;
    int32_t hidden_size;
    int32_t n_layers;
    int32_t n_directions;
    struct gsv_lstm_layer layers[]; /* [n_layers] */
};

#endif
