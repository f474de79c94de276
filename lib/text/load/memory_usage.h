/*
 * memory_usage.h - "truncation" and "padding" of tokenizer.json: checked, never heeded.
 *
 * They are what the file's last user happened to set (all-MiniLM-L6-v2 says 128 tokens); here the
 * limit comes with each text, and nothing is padded. But a file in which they are broken is broken.
 */
#ifndef GSV_TEXT_MEMORY_USAGE_H
#define GSV_TEXT_MEMORY_USAGE_H

#include <gpuserve/types.h>

struct gsv_json_value;

/* NULL and a JSON null are good. */
gpuserve_status gsv_usage_check_truncation(const struct gsv_json_value *json, const char *name,
                                           gpuserve_error *error);
gpuserve_status gsv_usage_check_padding(const struct gsv_json_value *json, const char *name,
                                        gpuserve_error *error);

#endif
