/*
 * json_out.c - builds and writes small JSON objects with jansson.
 */
#include "lib/runtime/core/json_out.h"

#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"

#include <stdlib.h>
#include <string.h>

struct gsv_json gsv_json_begin(void)
{
    return (struct gsv_json){ json_object() };
}

void gsv_json_add_value(struct gsv_json *json, const char *key, json_t *value)
{
    /* Takes ownership of `value` on failure, too, and fails for NULL. */
    if (json_object_set_new(json->object, key, value) == 0)
        return;
    json_decref(json->object);
    json->object = NULL;
}

void gsv_json_add_string(struct gsv_json *json, const char *key, const char *text)
{
    /* A path may hold any bytes: the text is cut at the first one that is not UTF-8. */
    gsv_json_add_value(json, key,
                       text ? json_stringn(text, gsv_utf8_valid_length(text, strlen(text)))
                            : json_null());
}

void gsv_json_add_number(struct gsv_json *json, const char *key, int64_t number)
{
    gsv_json_add_value(json, key, json_integer((json_int_t)number));
}

void gsv_json_add_bool(struct gsv_json *json, const char *key, bool boolean)
{
    gsv_json_add_value(json, key, json_boolean(boolean));
}

void gsv_json_add_object(struct gsv_json *json, const char *key, struct gsv_json object)
{
    gsv_json_add_value(json, key, object.object);
}

void gsv_json_append(json_t **array, json_t *value)
{
    if (json_array_append_new(*array, value) == 0)
        return;
    json_decref(*array);
    *array = NULL;
}

gpuserve_status gsv_json_write(struct gsv_json *json, char *text, size_t capacity, size_t *size,
                               gpuserve_error *error)
{
    char *dump = gsv_json_dump(json->object, JSON_INDENT(2));
    gpuserve_status st;

    json_decref(json->object);
    json->object = NULL;
    if (!dump)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a JSON text");
    st = gsv_write_text(dump, strlen(dump), text, capacity, size, error);
    free(dump);
    return st;
}
