/*
 * safetensors.h - opens a safetensors file, validates its header, and finds tensors by name.
 *
 * A file is 8 bytes of header length, a JSON header, and the tensors' bytes without gaps. The
 * checks accept what the reference implementation accepts, except that duplicate names are refused.
 * Immutable once open.
 */
#ifndef GSV_MODEL_SAFETENSORS_H
#define GSV_MODEL_SAFETENSORS_H

#include "lib/base/dir.h"
#include "lib/base/json_tree.h"

#include <stdbool.h>

#define GSV_TENSOR_MAX_RANK 4 /* of tensors in use; others are only validated */

enum gsv_tensor_type {
    GSV_TENSOR_F32,
    GSV_TENSOR_F16,
    GSV_TENSOR_BF16,
    GSV_TENSOR_F64,
    GSV_TENSOR_F8_E4M3, /* 4 exponent bits, no infinity (float8_e4m3fn) */
    GSV_TENSOR_F8_E5M2, /* 5 exponent bits, the upper half of a float16 */
    GSV_TENSOR_I8_ROWS, /* int8 with a float32 scale for each row: see row_scales.c */
    GSV_TENSOR_OTHER    /* integers and others: validated, never read as weights */
};

struct gsv_safetensors;

/* One tensor, as described in the file's header. */
struct gsv_tensor {
    const char *name;                   /* borrowed from the file */
    const struct gsv_safetensors *file; /* borrowed */
    enum gsv_tensor_type type;
    const char *type_name; /* "F32", static */
    uint64_t rank;
    uint64_t shape[GSV_TENSOR_MAX_RANK]; /* the first GSV_TENSOR_MAX_RANK dimensions */
    uint64_t count;                      /* number of elements */
    uint64_t offset;                     /* bytes from the start of the file */
    uint64_t size_bytes;
    /* I8_ROWS, else 0. Unchanged in a tensor that describes some rows of another one. */
    uint64_t rows_offset;   /* bytes from the start of the file to row 0 of the whole tensor */
    uint64_t scales_offset; /* to the scale of row 0 */
};

/* Validate and parse `header`, the JSON part of `header_size` bytes in a file of `file_size` bytes.
 * `shown` is the file's name for messages. *json is owned by the caller. */
gpuserve_status gsv_safetensors_check(struct gsv_json_value **json, const char *header,
                                      uint64_t header_size, uint64_t file_size, const char *shown,
                                      gpuserve_error *error);

/* Open DIR/NAME; the descriptor stays open until gsv_safetensors_close(). */
gpuserve_status gsv_safetensors_open(struct gsv_safetensors **file, const struct gsv_dir *dir,
                                     const char *name, gpuserve_error *error);
void gsv_safetensors_close(struct gsv_safetensors **file); /* accepts NULL, sets NULL */

/* Find a tensor by name; false if it does not exist. */
bool gsv_safetensors_find(const struct gsv_safetensors *file, const char *name,
                          struct gsv_tensor *tensor);

/* The header's entries, and the tensor of entry i; false for __metadata__. */
size_t gsv_safetensors_count(const struct gsv_safetensors *file);
bool gsv_safetensors_at(const struct gsv_safetensors *file, size_t i, struct gsv_tensor *tensor);

/* The int8 format of docs/converting.md: in a file whose metadata "format" is GSV_INT8_FORMAT,
 * each I8 tensor NAME [rows, columns] has a tensor NAME_scale, F32 [rows]. Its file name is another
 * one than model.safetensors: a program that knows only that name must not read codes as values. */
#define GSV_INT8_FILE "model.int8"
#define GSV_INT8_FORMAT "gpuserve-int8-rows-1"
#define GSV_SCALE_SUFFIX "_scale"
#define GSV_INT8_NAME_BYTES 512 /* of the name of an int8 tensor's scales */

/* Check a file's quantization. A file of the int8 format has valid scales, and its I8 tensors read
 * as I8_ROWS from then on. In any other file, integer weights and tensors with the scales of
 * another method are refused by name. Implemented in row_scales.c. */
gpuserve_status gsv_safetensors_check_scales(struct gsv_safetensors *file, gpuserve_error *error);
void gsv_safetensors_use_row_scales(struct gsv_safetensors *file); /* after that check only */

/* The tensor is the scales of an I8_ROWS tensor: not a weight of its own. */
bool gsv_safetensors_is_row_scales(const struct gsv_safetensors *file, const char *name);

/* A value of __metadata__, borrowed, or NULL. */
const char *gsv_safetensors_metadata(const struct gsv_safetensors *file, const char *key);

const char *gsv_safetensors_name(const struct gsv_safetensors *file); /* for messages */
int gsv_safetensors_fd(const struct gsv_safetensors *file);

/* Bytes of one element; 0 for OTHER. The scales of I8_ROWS are not included. */
size_t gsv_tensor_element_size(enum gsv_tensor_type type);

#endif
