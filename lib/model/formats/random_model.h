/*
 * random_model.h - models without files: a shape, and weights from a seeded generator.
 *
 *   "random:bert-base,seed=1" -> shape -> config.json, tokenizer files in memory -> the usual load
 *                                      -> weights computed when they are read
 *
 * The path is the whole model. The encoder is BERT's, with mean pooling; its weight matrices are
 * uniform with a standard deviation of 0.02, norms are 1 and biases 0, as in an untrained BERT.
 */
#ifndef GSV_MODEL_RANDOM_MODEL_H
#define GSV_MODEL_RANDOM_MODEL_H

#include "lib/model/formats/weight_file.h"

#include <string.h>

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
