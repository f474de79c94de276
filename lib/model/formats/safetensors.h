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
    GSV_TENSOR_OTHER /* integers and others: validated, never read as weights */
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

/* A value of __metadata__, borrowed, or NULL. */
const char *gsv_safetensors_metadata(const struct gsv_safetensors *file, const char *key);

const char *gsv_safetensors_name(const struct gsv_safetensors *file); /* for messages */
int gsv_safetensors_fd(const struct gsv_safetensors *file);

/* Bytes of one element; 0 for OTHER. */
size_t gsv_tensor_element_size(enum gsv_tensor_type type);

#endif
