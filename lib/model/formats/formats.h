/*
 * formats.h - the file formats of weights: safetensors, GGUF. torch/torch_file.h has PyTorch's.
 */
#ifndef GSV_MODEL_FORMATS_H
#define GSV_MODEL_FORMATS_H

#include "lib/base/gguf.h"
#include "lib/base/json_tree.h"
#include "lib/model/formats/weight_file.h"

#include <stdbool.h>
#include <string.h>

/*
 * Opens a safetensors file, validates its header, and finds tensors by name.
 *
 * A file is 8 bytes of header length, a JSON header, and the tensors' bytes without gaps. The
 * checks accept what the reference implementation accepts, except that duplicate names are refused.
 * Immutable once open.
 */

#define GSV_METADATA_KEY "__metadata__" /* the field of a header that is not a tensor */

/* Validate and parse `header`, the JSON part of `header_size` bytes in a file of `file_size` bytes.
 * `shown` is the file's name for messages. *json is owned by the caller. */
gpuserve_status gsv_safetensors_check(struct gsv_json_value **json, const char *header,
                                      uint64_t header_size, uint64_t file_size, const char *shown,
                                      gpuserve_error *error);

/* Open DIR/NAME and validate its header. *file is owned: gsv_weight_file_close(). */
gpuserve_status gsv_safetensors_open(struct gsv_weight_file **file, const struct gsv_dir *dir,
                                     const char *name, gpuserve_error *error);

/* The int8 format of docs/converting.md: in a file whose metadata "format" is GSV_INT8_FORMAT,
 * each I8 tensor NAME [rows, columns] has a tensor NAME_scale, F32 [rows]. Its file name is another
 * one than model.safetensors: a program that knows only that name must not read codes as values. */
#define GSV_INT8_FILE "model.int8"
#define GSV_INT8_FORMAT "gpuserve-int8-rows-1"
#define GSV_SCALE_SUFFIX "_scale"
#define GSV_INT8_NAME_BYTES 512 /* of the name of an int8 tensor's scales */

/* Read the I8 tensors as I8_ROWS from now on; each has valid scales. */
void gsv_safetensors_use_row_scales(struct gsv_weight_file *file);

/* A value of __metadata__, borrowed, or NULL; NULL for a file of another format. */
const char *gsv_safetensors_metadata(const struct gsv_weight_file *file, const char *key);

/*
 * Presents the encoder in a GGUF file as a Hugging Face model: the configuration as
 * the JSON of config.json, the tensors under the names of the original checkpoint.
 *
 * llama.cpp's converter changes three things that matter here. Encoders of the BERT, RoBERTa and
 * XLM-RoBERTa families all become "bert", whose position table begins with the first position in
 * use. The pooler is left out. Tensors are renamed.
 */

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

/*
 * Models without files: a shape, and weights from a seeded generator.
 *
 *   "random:bert-base,seed=1" -> shape -> config.json, tokenizer files in memory -> the usual load
 *                                      -> weights computed when they are read
 *
 * The path is the whole model. The encoder is BERT's, with mean pooling; its weight matrices are
 * uniform with a standard deviation of 0.02, norms are 1 and biases 0, as in an untrained BERT.
 */

#define GSV_RANDOM_PREFIX "random:"

struct gsv_random_shape {
    int64_t layers, hidden, heads, intermediate, vocab, positions;
    int64_t seed;
};

/* True if the path names a random model. */
static inline bool gsv_is_random(const char *path)
{
    return strncmp(path, GSV_RANDOM_PREFIX, sizeof(GSV_RANDOM_PREFIX) - 1) == 0;
}

/* Parse "random:NAME[,KEY=N...]" or "random:KEY=N[,KEY=N...]". GPUSERVE_E_INVALID names the part
 * that is wrong, and its limits. */
gpuserve_status gsv_random_parse(struct gsv_random_shape *shape, const char *path,
                                 gpuserve_error *error);

/* Open a model's directory: that of a random model in memory, any other path on disk. */
gpuserve_status gsv_model_dir_open(struct gsv_dir **dir, const char *path, gpuserve_error *error);

/* Open the weights of a random model's directory: tensors with names, shapes and offsets, whose
 * values gsv_tensor_fetch() computes. */
gpuserve_status gsv_random_weights_open(struct gsv_weight_file **file, const struct gsv_dir *dir,
                                        gpuserve_error *error);

#endif
