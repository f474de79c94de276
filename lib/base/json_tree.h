/*
 * json_tree.h - a small JSON text as a tree, and getters that name what is wrong.
 *
 * For what a model's directory says. The tree is one allocation, made after the values were
 * counted, so that reading fails whole or not at all: half a string can never be taken for one.
 * Everything is lent by the root. Duplicate keys and text that is not UTF-8 are refused.
 */
#ifndef GSV_BASE_JSON_TREE_H
#define GSV_BASE_JSON_TREE_H

#include <gpuserve/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gsv_json_kind {
    GSV_JSON_NULL,
    GSV_JSON_BOOL,
    GSV_JSON_INT, /* a number without fraction and exponent that fits in 64 bits; not "-0" */
    GSV_JSON_NUMBER,
    GSV_JSON_STRING,
    GSV_JSON_ARRAY,
    GSV_JSON_OBJECT
};

struct gsv_json_value {
    enum gsv_json_kind kind;
    const char *key; /* of an object's member, without NUL inside; else NULL */
    size_t n;        /* bytes of a text, elements of an array, members of an object */
    union {
        bool boolean;
        int64_t whole;
        double real;
        const char *text;               /* [n] and a NUL */
        struct gsv_json_value **fields; /* [n] in the order of the text */
    } is;
    struct gsv_json_value **sorted; /* [n] members of an object by their keys */
    struct gsv_json_value *next;    /* while reading */
};

struct gsv_json_limits {
    size_t max_values; /* numbers, strings, containers, keys */
    size_t max_depth;  /* 64 at most */
};

/* Read `size` bytes; `name` is for messages ("DIR/config.json"). *root is owned. */
gpuserve_status gsv_json_read(struct gsv_json_value **root, const char *text, size_t size,
                              const char *name, struct gsv_json_limits limits,
                              gpuserve_error *error);
void gsv_json_free(struct gsv_json_value **root); /* accepts NULL, leaves NULL */

/* Count containers, commas and colons, at least as many as there are values; a broken text is left
 * to whoever reads it. GPUSERVE_E_TOO_LARGE over a limit. */
gpuserve_status gsv_json_check_limits(const char *text, size_t size, const char *name,
                                      struct gsv_json_limits limits, size_t *n_values,
                                      gpuserve_error *error);

/* All accept NULL and every kind of value. */
static inline bool gsv_json_is(const struct gsv_json_value *value, enum gsv_json_kind kind)
{
    return value && value->kind == kind;
}

/* NULL where there is no such member. */
const struct gsv_json_value *gsv_json_member(const struct gsv_json_value *object, const char *key);

/* Elements of an array; 0 for anything else. */
static inline size_t gsv_json_count(const struct gsv_json_value *array)
{
    return gsv_json_is(array, GSV_JSON_ARRAY) ? array->n : 0;
}

static inline const struct gsv_json_value *gsv_json_at(const struct gsv_json_value *array, size_t i)
{
    return i < gsv_json_count(array) ? array->is.fields[i] : NULL;
}

/* NULL for anything but a text. */
static inline const char *gsv_json_get_string(const struct gsv_json_value *value)
{
    return gsv_json_is(value, GSV_JSON_STRING) ? value->is.text : NULL;
}

/* 0 for anything but a whole number. */
static inline int64_t gsv_json_get_int(const struct gsv_json_value *value)
{
    return gsv_json_is(value, GSV_JSON_INT) ? value->is.whole : 0;
}

/* Members of an object. An absent or null member leaves *value as it was and is GPUSERVE_OK; a
 * member of another type or outside [minimum, maximum] is GPUSERVE_E_FORMAT. */
gpuserve_status gsv_json_int(const struct gsv_json_value *object, const char *key, const char *name,
                             int64_t minimum, int64_t maximum, int64_t *value,
                             gpuserve_error *error);
gpuserve_status gsv_json_double(const struct gsv_json_value *object, const char *key,
                                const char *name, double minimum, double maximum, double *value,
                                gpuserve_error *error);
gpuserve_status gsv_json_bool(const struct gsv_json_value *object, const char *key,
                              const char *name, bool *value, gpuserve_error *error);
/* A member that must be there and of this kind, or GPUSERVE_E_FORMAT. */
gpuserve_status gsv_json_need(const struct gsv_json_value *object, const char *key,
                              enum gsv_json_kind kind, const char *name, gpuserve_error *error);
/* Lent by the object. */
gpuserve_status gsv_json_string(const struct gsv_json_value *object, const char *key,
                                const char *name, const char **value, gpuserve_error *error);

#endif
