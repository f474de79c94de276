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

#endif
