/*
 * json.c - bounded JSON parsing into jansson values, and their text.
 *
 *   text -> gsv_json_read() (json_tree.c) -> json_t tree
 *
 * The tree's depth and value count are bounded before jansson allocates. Every jansson constructor
 * and setter reports allocation failure, so the result is complete or NULL.
 */
#include "lib/base/json_tree.h"

#include "lib/base/error.h"

#include <stdlib.h>

static json_t *value_of(const struct gsv_json_value *value);

/* Returns the value, or releases it and returns NULL if a part could not be added. */
static json_t *kept(json_t *value, bool whole)
{
    if (whole)
        return value;
    json_decref(value);
    return NULL;
}

static json_t *array_of(const struct gsv_json_value *array)
{
    json_t *value = json_array();
    bool whole = value != NULL;

    for (size_t i = 0; whole && i < array->n; i++)
        whole = json_array_append_new(value, value_of(array->is.fields[i])) == 0;
    return kept(value, whole);
}

static json_t *object_of(const struct gsv_json_value *object)
{
    json_t *value = json_object();
    bool whole = value != NULL;

    for (size_t i = 0; whole && i < object->n; i++) {
        const struct gsv_json_value *member = object->is.fields[i];

        whole = json_object_set_new_nocheck(value, member->key, value_of(member)) == 0;
    }
    return kept(value, whole);
}

/* Recursion depth equals the tree's depth, which has a limit. NULL if out of memory; jansson's
 * setters fail on a NULL value. */
static json_t *value_of(const struct gsv_json_value *value)
{
    switch (value->kind) {
    case GSV_JSON_NULL:
        return json_null();
    case GSV_JSON_BOOL:
        return json_boolean(value->is.boolean);
    case GSV_JSON_INT:
        return json_integer(value->is.whole);
    case GSV_JSON_NUMBER:
        return json_real(value->is.real);
    case GSV_JSON_STRING:
        return json_stringn_nocheck(value->is.text, value->n);
    case GSV_JSON_ARRAY:
        return array_of(value);
    default:
        return object_of(value);
    }
}

gpuserve_status gsv_json_parse(json_t **json, const char *text, size_t size, const char *name,
                               struct gsv_json_limits limits, gpuserve_error *error)
{
    struct gsv_json_value *tree = NULL;
    const gpuserve_status st = gsv_json_read(&tree, text, size, name, limits, error);

    *json = NULL;
    if (st != GPUSERVE_OK)
        return st;
    *json = value_of(tree);
    gsv_json_free(&tree);
    if (!*json)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", name);
    return GPUSERVE_OK;
}

char *gsv_json_dump(const json_t *value, size_t flags)
{
    const size_t size = value ? json_dumpb(value, NULL, 0, flags) : 0;
    char *text = size ? malloc(size + 1) : NULL;

    if (!text || json_dumpb(value, text, size, flags) != size) {
        free(text);
        return NULL;
    }
    text[size] = '\0';
    return text;
}
