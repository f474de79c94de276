/*
 * json.h - bounded JSON in, through jansson, and getters that name what is wrong.
 *
 * jansson's trees take 12 to 79 times the text, so values and depth are counted before parsing.
 * Duplicate keys are refused.
 */
#ifndef GSV_BASE_JSON_H
#define GSV_BASE_JSON_H

#include <gpuserve/types.h>

#include <jansson.h>
#include <stdbool.h>

struct gsv_json_limits {
    size_t max_values; /* numbers, strings, containers, keys */
    size_t max_depth;
};

/* Parse `size` bytes; `name` is for messages ("DIR/config.json"). *json is owned: json_decref(). */
gpuserve_status gsv_json_parse(json_t **json, const char *text, size_t size, const char *name,
                               struct gsv_json_limits limits, gpuserve_error *error);

/* Members of an object. An absent or null member leaves *value as it was and is GPUSERVE_OK; a
 * member of another type or outside [minimum, maximum] is GPUSERVE_E_FORMAT. */
gpuserve_status gsv_json_int(const json_t *object, const char *key, const char *name,
                             int64_t minimum, int64_t maximum, int64_t *value,
                             gpuserve_error *error);
gpuserve_status gsv_json_double(const json_t *object, const char *key, const char *name,
                                double minimum, double maximum, double *value,
                                gpuserve_error *error);
gpuserve_status gsv_json_bool(const json_t *object, const char *key, const char *name, bool *value,
                              gpuserve_error *error);
/* Lent by the object. */
gpuserve_status gsv_json_string(const json_t *object, const char *key, const char *name,
                                const char **value, gpuserve_error *error);

#endif
