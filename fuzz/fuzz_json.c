/*
 * fuzz_json.c - arbitrary JSON configuration files: parsing with limits, then all typed getters.
 */
#include "fuzz/fuzz.h"

#include "lib/base/json_tree.h"

#include <stdlib.h>

enum { MAX_VALUES = 1000, MAX_DEPTH = 32 };

/* Number of values in a tree; aborts if it is deeper than the limit. */
static size_t count_values(const struct gsv_json_value *json, size_t depth)
{
    size_t n = 1;

    if (depth > MAX_DEPTH)
        abort();
    if (json->kind != GSV_JSON_ARRAY && json->kind != GSV_JSON_OBJECT)
        return n;
    for (size_t i = 0; i < json->n; i++) {
        const struct gsv_json_value *value = json->is.fields[i];

        if ((json->kind == GSV_JSON_OBJECT) != (value->key != NULL) ||
            (value->key && gsv_json_member(json, value->key) != value))
            abort();
        n += (value->key != NULL) + count_values(value, depth + 1);
    }
    return n;
}

static void read_members(const struct gsv_json_value *object)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const char *text = NULL;

    for (size_t i = 0; i < object->n; i++) {
        const char *key = object->is.fields[i]->key;
        int64_t number = 3;
        double real = 0.5;
        bool flag = false;

        if (gsv_json_int(object, key, "fuzz", -5, 1000, &number, &error) == GPUSERVE_OK &&
            (number < -5 || number > 1000))
            abort();
        if (gsv_json_double(object, key, "fuzz", 0.0, 1.0, &real, &error) == GPUSERVE_OK &&
            !(real >= 0.0 && real <= 1.0))
            abort();
        (void)gsv_json_bool(object, key, "fuzz", &flag, &error);
        (void)gsv_json_string(object, key, "fuzz", &text, &error);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct gsv_json_limits limits = { .max_values = MAX_VALUES, .max_depth = MAX_DEPTH };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_json_value *json = NULL;

    if (gsv_json_read(&json, (const char *)data, size, "fuzz", limits, &error) != GPUSERVE_OK) {
        if (json)
            abort();
        return 0;
    }
    if (count_values(json, 0) > 2 * MAX_VALUES)
        abort();
    if (gsv_json_is(json, GSV_JSON_OBJECT))
        read_members(json);
    gsv_json_free(&json);
    return 0;
}
