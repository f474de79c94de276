/*
 * safetensors.h - the header of one safetensors file, checked, and its tensors by name.
 *
 * A file is 8 bytes of header length, a JSON header, and the tensors' bytes without gaps. What is
 * accepted is what the reference implementation accepts, except that a name that stands twice is
 * refused here.
 */
#ifndef GSV_MODEL_SAFETENSORS_H
#define GSV_MODEL_SAFETENSORS_H

#include "lib/base/dir.h"
#include "lib/base/json_tree.h"

#include <stdbool.h>

#define GSV_TENSOR_MAX_RANK 4 /* of a tensor that a model needs; others are only checked */

enum gsv_tensor_type {
    GSV_TENSOR_F32,
    GSV_TENSOR_F16,
    GSV_TENSOR_BF16,
    GSV_TENSOR_F64,
    GSV_TENSOR_OTHER /* integers and the like: skipped, never read as weights */
};

struct gsv_safetensors;

/* One tensor as its file describes it. */
struct gsv_tensor {
    const char *name;                   /* lent by the file */
    const struct gsv_safetensors *file; /* lent */
    enum gsv_tensor_type type;
    const char *type_name; /* "F32", lent by the file */
    uint64_t rank;
    uint64_t shape[GSV_TENSOR_MAX_RANK]; /* the first ones */
    uint64_t count;                      /* elements */
    uint64_t offset;                     /* from the start of the file */
    uint64_t size_bytes;
};

/* Check `header` (the JSON part of `header_size` bytes) of a file of `file_size` bytes and keep
 * it. `shown` is the file's name for messages. *json is owned. */
gpuserve_status gsv_safetensors_check(struct gsv_json_value **json, const char *header,
                                      uint64_t header_size, uint64_t file_size, const char *shown,
                                      gpuserve_error *error);

/* Open DIR/NAME. The file stays open until it is closed. */
gpuserve_status gsv_safetensors_open(struct gsv_safetensors **file, const struct gsv_dir *dir,
                                     const char *name, gpuserve_error *error);
void gsv_safetensors_close(struct gsv_safetensors **file); /* accepts NULL, leaves NULL */

/* False when there is no such tensor. */
bool gsv_safetensors_find(const struct gsv_safetensors *file, const char *name,
                          struct gsv_tensor *tensor);

/* A value of __metadata__, or NULL. Lent. */
const char *gsv_safetensors_metadata(const struct gsv_safetensors *file, const char *key);

const char *gsv_safetensors_name(const struct gsv_safetensors *file); /* for messages */
int gsv_safetensors_fd(const struct gsv_safetensors *file);

/* Bytes of one element; 0 for OTHER. */
size_t gsv_tensor_element_size(enum gsv_tensor_type type);

#endif
