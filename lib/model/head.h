/*
 * head.h - a custom classification head over any embedding model: a small safetensors file.
 *
 * docs/heads.md describes the format.
 */
#ifndef GSV_MODEL_HEAD_H
#define GSV_MODEL_HEAD_H

#include "lib/model/formats/safetensors.h"

#define GSV_MAX_HEAD_LAYERS 4

enum gsv_head_input {
    GSV_HEAD_INPUT_MODEL, /* the embedding as the model returns it */
    GSV_HEAD_INPUT_NORMALIZED,
    GSV_HEAD_INPUT_RAW
};

struct gsv_head_layer {
    struct gsv_tensor weight; /* [out, in] */
    struct gsv_tensor bias;   /* [out]; count 0: no bias */
};

struct gsv_head {
    struct gsv_safetensors *file;
    struct gsv_head_layer layers[GSV_MAX_HEAD_LAYERS]; /* with RELU between layers */
    int32_t n_layers;
    char **labels; /* owned */
    size_t n_labels;
    int32_t score; /* gpuserve_score */
    enum gsv_head_input input;
};

/* Open a head; `path` is a safetensors file or a folder with head.safetensors. */
gpuserve_status gsv_head_open(struct gsv_head *head, const char *path, gpuserve_error *error);
void gsv_head_close(struct gsv_head *head);

#endif
