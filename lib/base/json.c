/*
 * json.c - bounded JSON parsing into jansson values, and their text.
 *
 *   text -> gsv_json_reader -> json_t tree
 *
 * Depth and value count are bounded before jansson allocates. A container is added to its parent
 * before it is filled, so the root owns everything at any time. Every jansson constructor and
 * setter reports allocation failure, so the result is complete or NULL.
 */
#include "lib/base/json_tree.h"

#include "lib/base/error.h"
#include "lib/base/json_reader.h"

#include <stdlib.h>
#include <string.h>

struct json_parser {
    struct gsv_json_reader text;
    char *scratch; /* as many bytes as the text: a key, and behind it a string with escapes */
    gpuserve_error *error;
};

static gpuserve_status out_of_memory(const struct json_parser *p)
{
    return gsv_fail(p->error, GPUSERVE_E_NOMEM, "%s: out of memory", p->text.name);
}

/* A string without escapes is copied once, from the text; `scratch` holds others decoded. */
static gpuserve_status make_text(const struct json_parser *p, struct gsv_json_slice slice,
                                 char *scratch, json_t **value)
{
    const char *text = slice.at;
    size_t size = slice.size;
    gpuserve_status st = GPUSERVE_OK;

    if (memchr(slice.at, '\\', slice.size)) {
        text = scratch;
        st = gsv_json_reader_text(&p->text, slice, scratch, &size, p->error);
    }
    if (st == GPUSERVE_OK)
        *value = json_stringn_nocheck(text, size);
    return st;
}

static gpuserve_status make_scalar(const struct json_parser *p, struct gsv_json_slice slice,
                                   json_t **value)
{
    struct gsv_json_value scalar;
    const gpuserve_status st = gsv_json_reader_scalar(&p->text, slice, &scalar, p->error);

    if (st != GPUSERVE_OK)
        return st;
    if (scalar.kind == GSV_JSON_NULL)
        *value = json_null();
    else if (scalar.kind == GSV_JSON_BOOL)
        *value = json_boolean(scalar.is.boolean);
    else if (scalar.kind == GSV_JSON_INT)
        *value = json_integer(scalar.is.whole);
    else
        *value = json_real(scalar.is.real);
    return GPUSERVE_OK;
}

/* The next value; a container is empty yet. */
static gpuserve_status make_value(struct json_parser *p, char *scratch, json_t **value)
{
    const char next = gsv_json_reader_peek(&p->text);
    struct gsv_json_slice slice;
    gpuserve_status st;

    *value = NULL;
    if (next == '{' || next == '[') {
        *value = next == '{' ? json_object() : json_array();
        return *value ? GPUSERVE_OK : out_of_memory(p);
    }
    st = gsv_json_reader_value(&p->text, &slice, p->error);
    if (st == GPUSERVE_OK && next == '"')
        st = make_text(p, (struct gsv_json_slice){ slice.at + 1, slice.size - 2 }, scratch, value);
    else if (st == GPUSERVE_OK)
        st = make_scalar(p, slice, value);
    return st == GPUSERVE_OK && !*value ? out_of_memory(p) : st;
}

/* Reads a value of an object from its key on. *value is borrowed from the object. */
static gpuserve_status add_member(struct json_parser *p, json_t *object,
                                  struct gsv_json_slice slice, json_t **value)
{
    char *const key = p->scratch;
    size_t size = 0;
    gpuserve_status st = gsv_json_reader_text(&p->text, slice, key, &size, p->error);

    if (st != GPUSERVE_OK)
        return st;
    key[size] = '\0';
    if (strlen(key) != size)
        return gsv_fail(p->error, GPUSERVE_E_FORMAT, "%s: byte %zu: the key contains a NUL byte",
                        p->text.name, (size_t)(slice.at - p->text.begin));
    if (json_object_get(object, key))
        return gsv_fail(p->error, GPUSERVE_E_FORMAT, "%s: duplicate object key \"%.64s\"",
                        p->text.name, key);
    st = make_value(p, key + size + 1, value);
    if (st == GPUSERVE_OK && json_object_set_new_nocheck(object, key, *value) != 0)
        return out_of_memory(p);
    return st;
}

static gpuserve_status add_element(struct json_parser *p, json_t *array, json_t **value)
{
    const gpuserve_status st = make_value(p, p->scratch, value);

    return st == GPUSERVE_OK && json_array_append_new(array, *value) != 0 ? out_of_memory(p) : st;
}

/* Recursion depth equals the depth of the text, which has a limit. */
static gpuserve_status fill(struct json_parser *p, json_t *container)
{
    const bool is_object = json_is_object(container);
    gpuserve_status st = gsv_json_reader_open(&p->text, is_object ? '{' : '[', p->error);

    for (bool first = true; st == GPUSERVE_OK; first = false) {
        struct gsv_json_slice key;
        json_t *value = NULL;
        bool more;

        st = is_object ? gsv_json_reader_key(&p->text, first, &more, &key, p->error)
                       : gsv_json_reader_element(&p->text, first, &more, p->error);
        if (st == GPUSERVE_OK && !more)
            return st;
        if (st == GPUSERVE_OK)
            st = is_object ? add_member(p, container, key, &value)
                           : add_element(p, container, &value);
        if (st == GPUSERVE_OK && (json_is_object(value) || json_is_array(value)))
            st = fill(p, value);
    }
    return st;
}

static gpuserve_status read_root(struct json_parser *p, json_t **root)
{
    gpuserve_status st = make_value(p, p->scratch, root);

    if (st == GPUSERVE_OK && (json_is_object(*root) || json_is_array(*root)))
        st = fill(p, *root);
    if (st == GPUSERVE_OK)
        st = gsv_json_reader_end(&p->text, p->error);
    if (st == GPUSERVE_OK)
        return st;
    json_decref(*root);
    *root = NULL;
    return st;
}

gpuserve_status gsv_json_parse(json_t **json, const char *text, size_t size, const char *name,
                               struct gsv_json_limits limits, gpuserve_error *error)
{
    struct json_parser p = { .text = { text, text, text + size, name }, .error = error };
    size_t n_values;
    gpuserve_status st = gsv_json_check_limits(text, size, name, limits, &n_values, error);

    *json = NULL;
    if (st != GPUSERVE_OK)
        return st;
    p.scratch = malloc(size + 1);
    st = p.scratch ? read_root(&p, json) : out_of_memory(&p);
    free(p.scratch);
    return st;
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
