/*
 * checkpoint.h - files in one folder of a model directory: JSON files, and the weights in one or
 * more safetensors or PyTorch files, or in a GGUF file.
 */
#ifndef GSV_MODEL_CHECKPOINT_H
#define GSV_MODEL_CHECKPOINT_H

#include "lib/base/json_tree.h"
#include "lib/model/formats/weight_file.h"

#include <stddef.h>

#define GSV_MODEL_DIRECTORY_HINT                                              \
    "a model directory holds config.json and model.safetensors, or "          \
    "model.safetensors.index.json with the files it names, or the same with " \
    "pytorch_model.bin; or one .gguf file"

/* Read FOLDER/NAME as a JSON object, owned by the caller. If the file does not exist, *json is NULL
 * and the status is GPUSERVE_E_NOT_FOUND. */
gpuserve_status gsv_read_json(struct gsv_json_value **json, const struct gsv_dir *dir,
                              const char *folder, const char *name, gpuserve_error *error);

/* Read a JSON array from the directory itself. */
gpuserve_status gsv_read_json_array(struct gsv_json_value **json, const struct gsv_dir *dir,
                                    const char *name, gpuserve_error *error);

/* Like gsv_read_json(), but a missing file returns GPUSERVE_OK. */
gpuserve_status gsv_read_optional_json(struct gsv_json_value **json, const struct gsv_dir *dir,
                                       const char *folder, const char *name, gpuserve_error *error);

/* Read config.json of a folder, or write it from the key-values of the directory's GGUF file. */
gpuserve_status gsv_read_config(struct gsv_json_value **json, const struct gsv_dir *dir,
                                const char *folder, gpuserve_error *error);

/* The weights in a folder: model.safetensors, the files named by model.safetensors.index.json,
 * pytorch_model.bin, or the files named by pytorch_model.bin.index.json; the first that exists. */
struct gsv_checkpoint {
    struct gsv_weight_file **files;
    size_t n_files;
};

gpuserve_status gsv_checkpoint_open(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                    const char *folder, gpuserve_error *error);
void gsv_checkpoint_close(struct gsv_checkpoint *checkpoint); /* leaves it empty */

bool gsv_checkpoint_find(const struct gsv_checkpoint *checkpoint, const char *name,
                         struct gsv_tensor *tensor);

/* Converts numbers from a file or a device to float32. */

/* Convert n values. The buffers may overlap if both end at the same address: 16-bit results are
 * widened in place this way. */
void gsv_floats_from_f16(float *to, const void *from, size_t n);
void gsv_floats_from_bf16(float *to, const void *from, size_t n);
void gsv_floats_from_f64(float *to, const void *from, size_t n);

/* Convert n values, whole blocks, of a block type (GSV_TENSOR_Q4_0 and later). */
void gsv_floats_from_blocks(float *to, const void *from, enum gsv_tensor_type type, size_t n);

/* The index of the first NaN or infinity; n if all values are finite. */
size_t gsv_floats_finite(const float *values, size_t n);

#endif
