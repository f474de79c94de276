/*
 * safetensors.h - opens a safetensors file, validates its header, and finds tensors by name.
 *
 * A file is 8 bytes of header length, a JSON header, and the tensors' bytes without gaps. The
 * checks accept what the reference implementation accepts, except that duplicate names are refused.
 * Immutable once open.
 */
#ifndef GSV_MODEL_SAFETENSORS_H
#define GSV_MODEL_SAFETENSORS_H

#include "lib/base/json_tree.h"
#include "lib/model/formats/weight_file.h"

/* Validate and parse `header`, the JSON part of `header_size` bytes in a file of `file_size` bytes.
 * `shown` is the file's name for messages. *json is owned by the caller. */
gpuserve_status gsv_safetensors_check(struct gsv_json_value **json, const char *header,
                                      uint64_t header_size, uint64_t file_size, const char *shown,
                                      gpuserve_error *error);

/* Open DIR/NAME and validate its header. *file is owned: gsv_weight_file_close(). */
gpuserve_status gsv_safetensors_open(struct gsv_weight_file **file, const struct gsv_dir *dir,
                                     const char *name, gpuserve_error *error);

/* A value of __metadata__ of a safetensors file, borrowed, or NULL. */
const char *gsv_safetensors_metadata(const struct gsv_weight_file *file, const char *key);

#endif
