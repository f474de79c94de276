/*
 * json_out.h - writing small JSON objects for people and programs.
 *
 * Numbers are whole: neither the host program's locale nor rounding has a say in them.
 */
#ifndef GSV_RUNTIME_JSON_OUT_H
#define GSV_RUNTIME_JSON_OUT_H

#include <gpuserve/types.h>

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An object being built. The first allocation that fails makes all later calls do nothing, and
 * gsv_json_write says so. Start with gsv_json_begin. */
struct gsv_json {
    json_t *object;
};

struct gsv_json gsv_json_begin(void);
void gsv_json_add_string(struct gsv_json *json, const char *key, const char *text); /* NULL: null */
void gsv_json_add_number(struct gsv_json *json, const char *key, int64_t number);
void gsv_json_add_bool(struct gsv_json *json, const char *key, bool boolean);
/* Takes over what it is given. */
void gsv_json_add_value(struct gsv_json *json, const char *key, json_t *value);
void gsv_json_add_object(struct gsv_json *json, const char *key, struct gsv_json object);

/* On to the end of *array; what fails sets it NULL, which gsv_json_add_value then takes as failure.
 */
void gsv_json_append(json_t **array, json_t *value);

/* Write the object to the caller's buffer as gpuserve_context_metrics() describes, and free it. */
gpuserve_status gsv_json_write(struct gsv_json *json, char *text, size_t capacity, size_t *size,
                               gpuserve_error *error);

#endif
