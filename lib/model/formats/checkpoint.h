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
 * pytorch_model.bin, or the files named by pytorch_model.bin.index.json; the first that exists.
 * Without them the safetensors files of GSV_INT8_FILE. */
#define GSV_MAX_WEIGHT_FILES 1024

struct gsv_checkpoint {
    struct gsv_weight_file **files;
    size_t n_files;
    struct gsv_weight_file *lora; /* of an adapter's directory: takes precedence; else NULL */
};

gpuserve_status gsv_checkpoint_open(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                    const char *folder, gpuserve_error *error);
void gsv_checkpoint_close(struct gsv_checkpoint *checkpoint); /* leaves it empty */

/* Check how the weights of a file are quantized. A safetensors file of the int8 format has valid
 * scales, and its I8 tensors read as I8_ROWS from then on. In any other file, integer weights and
 * tensors with the scales of another method are refused by name. Implemented in row_scales.c. */
gpuserve_status gsv_check_quantization(struct gsv_weight_file *file, gpuserve_error *error);

/* The tensor is the scales of an I8_ROWS tensor: not a weight of its own. */
bool gsv_is_row_scales(const struct gsv_tensor *tensor);

/* Fail for a folder without readable weights; names the weights of other programs that are there.
 * Implemented in unreadable.c. */
gpuserve_status gsv_fail_unreadable(const struct gsv_dir *dir, const char *folder,
                                    gpuserve_error *error);

/* Fail for a file in place of a model directory: names its format, and the way out. */
gpuserve_status gsv_fail_no_directory(const char *path, gpuserve_error *error);

bool gsv_checkpoint_find(const struct gsv_checkpoint *checkpoint, const char *name,
                         struct gsv_tensor *tensor);

/* All tensors of files of any format, sorted by name, *tensors owned: free(). Of two with one name,
 * the one that gsv_checkpoint_find() returns. The scales of I8_ROWS are left out. */
gpuserve_status gsv_checkpoint_list(const struct gsv_checkpoint *checkpoint,
                                    struct gsv_tensor **tensors, size_t *n, gpuserve_error *error);

/* Reading a tensor's elements [first, first + n), in any chunks:
 *   gsv_tensor_fetch: file --> `raw`, gsv_tensor_raw_bytes() long --> gsv_tensor_floats: float32
 * The raw bytes are the elements as in the file; those of I8_ROWS follow the scales of their rows.
 * Chunks of block types are whole blocks. Type OTHER has no floats, and a tensor with is_strided
 * cannot be read. */
size_t gsv_tensor_raw_bytes(const struct gsv_tensor *tensor, uint64_t first, size_t n);
gpuserve_status gsv_tensor_fetch(const struct gsv_tensor *tensor, uint64_t first, size_t n,
                                 void *raw, gpuserve_error *error);
/* `raw` may be `to` itself for F32. */
void gsv_tensor_floats(const struct gsv_tensor *tensor, uint64_t first, size_t n, const void *raw,
                       float *to);

#define GSV_MAX_RAW_BYTES 8 /* of an element, with its row's scale */

/* Converts numbers from a file or a device to float32. */

/* Convert n values. The buffers may overlap if both end at the same address: 16-bit results are
 * widened in place this way. */
void gsv_floats_from_f16(float *to, const void *from, size_t n);
void gsv_floats_from_bf16(float *to, const void *from, size_t n);
void gsv_floats_from_f64(float *to, const void *from, size_t n);
/* NaN stays NaN; E4M3 has no infinity. */
void gsv_floats_from_f8_e4m3(float *to, const void *from, size_t n);
void gsv_floats_from_f8_e5m2(float *to, const void *from, size_t n);

/* Convert n values, whole blocks, of a block type (GSV_TENSOR_Q4_0 and later). */
void gsv_floats_from_blocks(float *to, const void *from, enum gsv_tensor_type type, size_t n);

/* Convert I8, I32 or I64; exact up to 2^24. */
void gsv_floats_from_integers(float *to, const void *from, enum gsv_tensor_type type, size_t n);

/* The index of the first NaN or infinity; n if all values are finite. */
size_t gsv_floats_finite(const float *values, size_t n);

#endif
