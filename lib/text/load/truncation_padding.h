/*
 * truncation_padding.h - validates "truncation" and "padding" of tokenizer.json.
 *
 * The values are checked but not used: they are the settings of the file's last user
 * (all-MiniLM-L6-v2 has 128 tokens). The token limit comes with each text, and texts are not
 * padded. Malformed values fail the load.
 */
#ifndef GSV_TEXT_TRUNCATION_PADDING_H
#define GSV_TEXT_TRUNCATION_PADDING_H

#include <gpuserve/types.h>

struct gsv_json_value;

/* NULL and a JSON null are valid. */
gpuserve_status gsv_check_truncation(const struct gsv_json_value *json, const char *name,
                                     gpuserve_error *error);
gpuserve_status gsv_check_padding(const struct gsv_json_value *json, const char *name,
                                  gpuserve_error *error);

#endif
