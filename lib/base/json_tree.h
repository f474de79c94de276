/*
 * json_tree.h - parses a small JSON text into a tree, with getters that report what is wrong.
 *
 * Used for the files of a model directory. The values are counted first and the tree is one
 * allocation, so parsing succeeds or fails as a whole: a truncated string is never accepted. Every
 * value is borrowed from the root. Duplicate keys and text that is not UTF-8 are refused.
 */
#ifndef GSV_BASE_JSON_TREE_H
#define GSV_BASE_JSON_TREE_H

#include <gpuserve/types.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gsv_json_kind {
    GSV_JSON_NULL,
    GSV_JSON_BOOL,
    GSV_JSON_INT, /* a number without fraction or exponent that fits in 64 bits; not "-0" */
    GSV_JSON_NUMBER,
    GSV_JSON_STRING,
    GSV_JSON_ARRAY,
    GSV_JSON_OBJECT
};

struct gsv_json_value {
    enum gsv_json_kind kind;
    const char *key; /* of a field of an object, contains no NUL; else NULL */
    size_t n;        /* bytes of a string, elements of an array, fields of an object */
    union {
        bool boolean;
        int64_t whole;
        double real;
        const char *text;               /* [n] and a NUL */
        struct gsv_json_value **fields; /* [n] in text order */
    } is;
    struct gsv_json_value **sorted; /* [n] an object's fields sorted by key */
    struct gsv_json_value *next;    /* used while parsing */
};

struct gsv_json_limits {
    size_t max_values; /* numbers, strings, containers, keys */
    size_t max_depth;  /* at most 64 */
};

/* Parses `size` bytes; `name` is for messages ("DIR/config.json"). *root is owned:
 * gsv_json_free(). */
gpuserve_status gsv_json_read(struct gsv_json_value **root, const char *text, size_t size,
                              const char *name, struct gsv_json_limits limits,
                              gpuserve_error *error);
void gsv_json_free(struct gsv_json_value **root); /* accepts NULL, leaves NULL */

/* Counts containers, commas and colons: an upper bound of the number of values. Of the text it
 * validates only that it is UTF-8. GPUSERVE_E_TOO_LARGE over a limit. */
gpuserve_status gsv_json_check_limits(const char *text, size_t size, const char *name,
                                      struct gsv_json_limits limits, size_t *n_values,
                                      gpuserve_error *error);

/* The getters below accept NULL and values of any kind. */
static inline bool gsv_json_is(const struct gsv_json_value *value, enum gsv_json_kind kind)
{
    return value && value->kind == kind;
}

/* NULL if the object has no such field. */
const struct gsv_json_value *gsv_json_member(const struct gsv_json_value *object, const char *key);

/* Elements of an array; 0 for any other kind. */
static inline size_t gsv_json_count(const struct gsv_json_value *array)
{
    return gsv_json_is(array, GSV_JSON_ARRAY) ? array->n : 0;
}

static inline const struct gsv_json_value *gsv_json_at(const struct gsv_json_value *array, size_t i)
{
    return i < gsv_json_count(array) ? array->is.fields[i] : NULL;
}

/* NULL if the value is not a string. */
static inline const char *gsv_json_get_string(const struct gsv_json_value *value)
{
    return gsv_json_is(value, GSV_JSON_STRING) ? value->is.text : NULL;
}

/* 0 if the value is not an integer. */
static inline int64_t gsv_json_get_int(const struct gsv_json_value *value)
{
    return gsv_json_is(value, GSV_JSON_INT) ? value->is.whole : 0;
}

/* Typed fields of an object. An absent or null field leaves *value unchanged and returns
 * GPUSERVE_OK. A field of another type or outside [minimum, maximum] is GPUSERVE_E_FORMAT. */
gpuserve_status gsv_json_int(const struct gsv_json_value *object, const char *key, const char *name,
                             int64_t minimum, int64_t maximum, int64_t *value,
                             gpuserve_error *error);
gpuserve_status gsv_json_double(const struct gsv_json_value *object, const char *key,
                                const char *name, double minimum, double maximum, double *value,
                                gpuserve_error *error);
gpuserve_status gsv_json_bool(const struct gsv_json_value *object, const char *key,
                              const char *name, bool *value, gpuserve_error *error);
/* Checks that a field exists and has this kind; GPUSERVE_E_FORMAT otherwise. */
gpuserve_status gsv_json_need(const struct gsv_json_value *object, const char *key,
                              enum gsv_json_kind kind, const char *name, gpuserve_error *error);
/* *value is borrowed from the object. */
gpuserve_status gsv_json_string(const struct gsv_json_value *object, const char *key,
                                const char *name, const char **value, gpuserve_error *error);

/*
 * Bounded JSON parsing into jansson values, for the HTTP server.
 *
 * One pass of json_reader.h over the text makes the tree. jansson's own parser may continue with a
 * damaged string when memory runs out. jansson trees take 12 to 79 times the size of the text, so
 * values and depth are counted before parsing. Duplicate keys are refused.
 */

/* Parses `size` bytes; `name` is for messages ("body"). *json is owned: json_decref(). */
gpuserve_status gsv_json_parse(json_t **json, const char *text, size_t size, const char *name,
                               struct gsv_json_limits limits, gpuserve_error *error);

/* A jansson value as text, owned: free(). NULL for a NULL value and if out of memory. `flags` as
 * for json_dumps(), which may return a truncated text when its buffer cannot grow. */
char *gsv_json_dump(const json_t *value, size_t flags);

#endif
