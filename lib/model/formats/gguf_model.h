/*
 * gguf_model.h - presents the encoder in a GGUF file as a Hugging Face model: the configuration as
 * the JSON of config.json, the tensors under the names of the original checkpoint.
 *
 * llama.cpp's converter changes three things that matter here. Encoders of the BERT, RoBERTa and
 * XLM-RoBERTa families all become "bert", whose position table begins with the first position in
 * use. The pooler is left out. Tensors are renamed.
 */
#ifndef GSV_MODEL_GGUF_MODEL_H
#define GSV_MODEL_GGUF_MODEL_H

#include "lib/base/gguf.h"
#include "lib/base/json_tree.h"
#include "lib/model/formats/weight_file.h"

#define GSV_GGUF_MAX_DENSE 2

/* What modules.json holds for other models. */
struct gsv_gguf_modules {
    int64_t pooling; /* enum gsv_gguf_pooling */
    int64_t max_tokens;
    /* Of EmbeddingGemma: Dense layers without bias and activation. */
    struct gsv_gguf_dense {
        const char *folder; /* argument of gsv_gguf_weights() */
        uint64_t in, out;
    } dense[GSV_GGUF_MAX_DENSE];
    size_t n_dense;
};

/* The numbers of llama.cpp. */
enum gsv_gguf_pooling {
    GSV_GGUF_POOLING_UNKNOWN = -1, /* the file does not say */
    GSV_GGUF_POOLING_NONE,
    GSV_GGUF_POOLING_MEAN,
    GSV_GGUF_POOLING_CLS,
    GSV_GGUF_POOLING_LAST,
    GSV_GGUF_POOLING_RANK /* a classifier's score */
};

gpuserve_status gsv_gguf_read_modules(struct gsv_gguf_modules *modules, const struct gsv_gguf *gguf,
                                      gpuserve_error *error);

/* Write the JSON of config.json; *json is owned by the caller. */
gpuserve_status gsv_gguf_config(struct gsv_json_value **json, const struct gsv_gguf *gguf,
                                gpuserve_error *error);

/* Open the tensors of the encoder (folder "") or of a Dense layer under their original names, those
 * that are in part `part` of a split file, counted from 0. The result does not refer to `gguf`. */
gpuserve_status gsv_gguf_weights(struct gsv_weight_file **file, const struct gsv_gguf *gguf,
                                 size_t part, const char *folder, gpuserve_error *error);

#endif
