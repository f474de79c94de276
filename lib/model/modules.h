/*
 * modules.h - the sentence-transformers modules around a transformer: folders, pooling, Dense
 * layers, normalization, the token limit and prompts.
 */
#ifndef GSV_MODEL_MODULES_H
#define GSV_MODEL_MODULES_H

#include "lib/model/formats/checkpoint.h"
#include "lib/model/model.h"

struct gsv_dense_module {
    char *folder; /* owned */
    struct gsv_dense_spec spec;
};

struct gsv_modules {
    bool present;      /* modules.json exists and names a module after the transformer */
    bool is_alone;     /* modules.json names only a transformer: a cross-encoder */
    char *transformer; /* folder of config.json and the weights, usually ""; owned */
    int32_t poolings[GSV_MAX_POOLINGS];
    int32_t n_poolings;
    struct gsv_dense_module dense[GSV_MAX_DENSE];
    int32_t n_dense;
    bool skips_prompt; /* pooling excludes the prompt's tokens */
    bool is_sparse;    /* a SpladePooling module instead of Pooling */
    bool log_twice;    /* the sparse activation is log(1 + log(1 + relu)) */
    bool normalize;
    bool scores_answers; /* a LogitScore module: a language model as a reranker */
    int32_t yes, no;     /* token ids of LogitScore; no -1: none */
    int32_t score;       /* gpuserve_score of a cross-encoder's activation_fn; DEFAULT: none */
    int32_t max_tokens;  /* 0: not specified */
    bool do_lower_case;  /* from sentence_bert_config.json: lowercase before tokenization */
    struct gsv_prompt *prompts; /* owned */
    size_t n_prompts;
    const char *default_prompt; /* the name of a prompt, or NULL; borrowed from `prompts` */
};

/* Read the modules. A directory without modules.json is a plain transformer: mean pooling, no
 * normalization, as in sentence-transformers. */
gpuserve_status gsv_modules_read(struct gsv_modules *modules, const struct gsv_dir *dir,
                                 gpuserve_error *error);
void gsv_modules_reset(struct gsv_modules *modules);

/* Parse the config.json of a Pooling module, in the old or the new format. */
gpuserve_status gsv_pooling_parse(struct gsv_modules *modules, const struct gsv_json_value *json,
                                  gpuserve_error *error);
/* Parse the config.json of a Dense module. */
gpuserve_status gsv_dense_parse(struct gsv_dense_spec *spec, const struct gsv_json_value *json,
                                gpuserve_error *error);

/*
 * A custom classification head over any embedding model: a small safetensors file.
 *
 * docs/heads.md describes the format.
 */

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
    struct gsv_weight_file *file;
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
