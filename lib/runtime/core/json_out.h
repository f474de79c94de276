/*
 * json_out.h - builds and writes small JSON objects.
 *
 * The documents of the library (model info, devices, profile) have a few hundred values and are
 * built as jansson trees: a key may be added at any time, and jansson checks UTF-8. Replies of the
 * server with millions of floats are streamed without a tree (lib/http/core/json_write.h). Numbers
 * are integers, so neither rounding nor the host program's locale affects them.
 */
#ifndef GSV_RUNTIME_JSON_OUT_H
#define GSV_RUNTIME_JSON_OUT_H

#include <gpuserve/types.h>

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An object under construction. After the first failed allocation all later calls do nothing, and
 * gsv_json_write fails. Start with gsv_json_begin. */
struct gsv_json {
    json_t *object;
};

struct gsv_json gsv_json_begin(void);
void gsv_json_add_string(struct gsv_json *json, const char *key, const char *text); /* NULL: null */
void gsv_json_add_number(struct gsv_json *json, const char *key, int64_t number);
void gsv_json_add_bool(struct gsv_json *json, const char *key, bool boolean);
/* Takes ownership of its argument. */
void gsv_json_add_value(struct gsv_json *json, const char *key, json_t *value);
void gsv_json_add_object(struct gsv_json *json, const char *key, struct gsv_json object);

/* Append to *array. Sets *array to NULL on failure, which gsv_json_add_value then treats as
 * failure. */
void gsv_json_append(json_t **array, json_t *value);

/* Write the object to the caller's buffer as gpuserve_context_metrics() does, and free it. */
gpuserve_status gsv_json_write(struct gsv_json *json, char *text, size_t capacity, size_t *size,
                               gpuserve_error *error);

#endif
