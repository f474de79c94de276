/*
 * json_tree.c - parses a small JSON text into a tree in one block of memory.
 *
 *   count values -> one allocation: values, pointers to them, string bytes -> fill
 *
 * The count is an upper bound, so filling cannot overrun the block. Each object has its fields in
 * text order and sorted by key; lookups use binary search.
 */
#define _GNU_SOURCE /* strtod_l */
#include "lib/base/json_tree.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_reader.h"
#include "lib/base/utf8.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NUMBER_BYTES \
    400 /* characters of a non-integer number: more than exact decimals of doubles in use */

struct tree_reader {
    struct gsv_json_reader text;
    struct gsv_json_value *values; /* the next free one */
    size_t n_values;               /* free values left */
    struct gsv_json_value **pointers;
    char *bytes;
    gpuserve_error *error;
};

gpuserve_status gsv_json_check_limits(const char *text, size_t size, const char *name,
                                      struct gsv_json_limits limits, size_t *n_values,
                                      gpuserve_error *error)
{
    const size_t valid = gsv_utf8_valid_length(text, size);
    bool in_string = false;
    size_t depth = 0;

    *n_values = 1;
    if (valid != size)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: not UTF-8 at byte %zu", name, valid);
    for (size_t i = 0; i < size; i++) {
        const char c = text[i];

        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            ++*n_values;
            if (++depth > limits.max_depth)
                return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                                "%s: the JSON nesting is deeper than %zu levels", name,
                                limits.max_depth);
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        } else if (c == ',' || c == ':') {
            ++*n_values;
        }
        if (*n_values > limits.max_values)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: more than %zu JSON values", name,
                            limits.max_values);
    }
    return GPUSERVE_OK;
}

static gpuserve_status broken(const struct gsv_json_reader *r, const char *at, const char *what,
                              gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: byte %zu: %s", r->name, (size_t)(at - r->begin),
                    what);
}

/* ------------------------------------------------------------------------------------ scalars */

static gpuserve_status keep_text(struct tree_reader *r, struct gsv_json_slice slice,
                                 const char **text, size_t *n)
{
    const gpuserve_status st = gsv_json_reader_text(&r->text, slice, r->bytes, n, r->error);

    if (st != GPUSERVE_OK)
        return st;
    *text = r->bytes;
    r->bytes[*n] = '\0';
    r->bytes += *n + 1; /* never overruns: the string with its quotes is longer */
    return GPUSERVE_OK;
}

/* Number of bytes at `p` that form a JSON number; 0 if none. */
static size_t number_length(const char *p, const char *end, bool *is_whole)
{
    const char *const begin = p;
    const char *digits;

    *is_whole = true;
    p += p < end && *p == '-';
    digits = p;
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    if (p == digits || (*digits == '0' && p - digits > 1))
        return 0;
    if (p < end && *p == '.') {
        *is_whole = false;
        for (digits = ++p; p < end && *p >= '0' && *p <= '9';)
            p++;
        if (p == digits)
            return 0;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        *is_whole = false;
        p++;
        p += p < end && (*p == '+' || *p == '-');
        for (digits = p; p < end && *p >= '0' && *p <= '9';)
            p++;
        if (p == digits)
            return 0;
    }
    return (size_t)(p - begin);
}

/* False if the value does not fit in 64 bits. "-0" is not read as an integer: no count is
 * negative. */
static bool read_whole(const char *p, size_t size, int64_t *whole)
{
    const bool negative = *p == '-';
    int64_t value = 0;

    for (size_t i = negative; i < size; i++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, p[i] - '0', &value))
            return false;
    if (!negative && value == INT64_MIN)
        return false;
    *whole = negative ? value : -value;
    return !(negative && value == 0);
}

/* Uses the "C" locale: the program's locale may have another decimal point. */
static bool read_real(const char *p, size_t size, double *real)
{
    const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    char copy[MAX_NUMBER_BYTES + 1];

    if (c == (locale_t)0)
        return false;
    memcpy(copy, p, size);
    copy[size] = '\0';
    *real = strtod_l(copy, NULL, c);
    freelocale(c);
    return true;
}

static gpuserve_status read_number(const struct gsv_json_reader *r, struct gsv_json_slice slice,
                                   struct gsv_json_value *value, gpuserve_error *error)
{
    bool is_whole;

    if (number_length(slice.at, slice.at + slice.size, &is_whole) != slice.size)
        return broken(r, slice.at, "not a JSON value", error);
    value->kind = GSV_JSON_INT;
    if (is_whole && read_whole(slice.at, slice.size, &value->is.whole))
        return GPUSERVE_OK;
    value->kind = GSV_JSON_NUMBER;
    if (slice.size > MAX_NUMBER_BYTES)
        return broken(r, slice.at, "the number has more than 400 characters", error);
    if (!read_real(slice.at, slice.size, &value->is.real))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", r->name);
    return isfinite(value->is.real) ? GPUSERVE_OK
                                    : broken(r, slice.at, "the number is out of range", error);
}

static bool is_word(struct gsv_json_slice slice, const char *word)
{
    return slice.size == strlen(word) && memcmp(slice.at, word, slice.size) == 0;
}

gpuserve_status gsv_json_reader_scalar(const struct gsv_json_reader *reader,
                                       struct gsv_json_slice slice, struct gsv_json_value *value,
                                       gpuserve_error *error)
{
    value->is.boolean = is_word(slice, "true");
    value->kind = is_word(slice, "null") ? GSV_JSON_NULL : GSV_JSON_BOOL;
    if (value->kind == GSV_JSON_NULL || value->is.boolean || is_word(slice, "false"))
        return GPUSERVE_OK;
    return read_number(reader, slice, value, error);
}

static gpuserve_status read_scalar(struct tree_reader *r, struct gsv_json_value *value)
{
    struct gsv_json_slice slice;
    const gpuserve_status st = gsv_json_reader_value(&r->text, &slice, r->error);

    if (st != GPUSERVE_OK)
        return st;
    if (*slice.at != '"')
        return gsv_json_reader_scalar(&r->text, slice, value, r->error);
    value->kind = GSV_JSON_STRING;
    return keep_text(r, (struct gsv_json_slice){ slice.at + 1, slice.size - 2 }, &value->is.text,
                     &value->n);
}

/* --------------------------------------------------------------------------------- containers */

static int compare_keys(const void *a, const void *b)
{
    const struct gsv_json_value *const *x = a, *const *y = b;

    return strcmp((*x)->key, (*y)->key);
}

/* Converts the linked list of elements to arrays, and sorts an object's fields by key. */
static gpuserve_status close_container(struct tree_reader *r, struct gsv_json_value *value,
                                       struct gsv_json_value *first)
{
    const bool is_object = value->kind == GSV_JSON_OBJECT;

    value->is.fields = r->pointers;
    for (size_t i = 0; first; i++, first = first->next)
        value->is.fields[i] = first;
    r->pointers += value->n;
    if (!is_object || value->n == 0)
        return GPUSERVE_OK;
    value->sorted = r->pointers;
    r->pointers += value->n;
    memcpy(value->sorted, value->is.fields, value->n * sizeof(*value->sorted));
    qsort(value->sorted, value->n, sizeof(*value->sorted), compare_keys);
    for (size_t i = 1; i < value->n; i++)
        if (strcmp(value->sorted[i - 1]->key, value->sorted[i]->key) == 0)
            return gsv_fail(r->error, GPUSERVE_E_FORMAT, "%s: duplicate object key \"%.64s\"",
                            r->text.name, value->sorted[i]->key);
    return GPUSERVE_OK;
}

static gpuserve_status read_key(struct tree_reader *r, struct gsv_json_slice slice,
                                const char **key)
{
    size_t n = 0;
    const gpuserve_status st = keep_text(r, slice, key, &n);

    if (st != GPUSERVE_OK)
        return st;
    return strlen(*key) == n ? GPUSERVE_OK
                             : broken(&r->text, slice.at, "the key contains a NUL byte", r->error);
}

static gpuserve_status read_value(struct tree_reader *r, struct gsv_json_value **out);

/* read_container() and read_value() recurse; gsv_json_check_limits() bounded the depth. */
static gpuserve_status read_container(struct tree_reader *r, struct gsv_json_value *value)
{
    const bool is_object = value->kind == GSV_JSON_OBJECT;
    struct gsv_json_value *first = NULL, **end = &first;
    gpuserve_status st = gsv_json_reader_open(&r->text, is_object ? '{' : '[', r->error);

    while (st == GPUSERVE_OK) {
        struct gsv_json_slice slice;
        const char *key = NULL;
        bool more;

        st = is_object ? gsv_json_reader_key(&r->text, value->n == 0, &more, &slice, r->error)
                       : gsv_json_reader_element(&r->text, value->n == 0, &more, r->error);
        if (st == GPUSERVE_OK && !more)
            return close_container(r, value, first);
        if (st == GPUSERVE_OK && is_object)
            st = read_key(r, slice, &key);
        if (st == GPUSERVE_OK)
            st = read_value(r, end);
        if (st != GPUSERVE_OK)
            break;
        (*end)->key = key;
        end = &(*end)->next;
        value->n++;
    }
    return st;
}

static gpuserve_status read_value(struct tree_reader *r, struct gsv_json_value **out)
{
    const char next = gsv_json_reader_peek(&r->text);
    struct gsv_json_value *value = r->values;

    if (r->n_values == 0) /* more values than the count */
        return gsv_fail(r->error, GPUSERVE_E_INTERNAL, "%s: the count of JSON values is wrong",
                        r->text.name);
    r->values++;
    r->n_values--;
    memset(value, 0, sizeof(*value));
    *out = value;
    if (next != '{' && next != '[')
        return read_scalar(r, value);
    value->kind = next == '{' ? GSV_JSON_OBJECT : GSV_JSON_ARRAY;
    return read_container(r, value);
}

/* --------------------------------------------------------------------------------------- root */

static gpuserve_status read_root(struct tree_reader *r, struct gsv_json_value **root)
{
    const gpuserve_status st = read_value(r, root);

    return st == GPUSERVE_OK ? gsv_json_reader_end(&r->text, r->error) : st;
}

gpuserve_status gsv_json_read(struct gsv_json_value **root, const char *text, size_t size,
                              const char *name, struct gsv_json_limits limits,
                              gpuserve_error *error)
{
    struct tree_reader r = { .text = { text, text, text + size, name }, .error = error };
    size_t bytes;
    void *block;
    gpuserve_status st;

    *root = NULL;
    st = gsv_json_check_limits(text, size, name, limits, &r.n_values, error);
    if (st != GPUSERVE_OK)
        return st;
    if (!gsv_mul_size(r.n_values, sizeof(*r.values) + 2 * sizeof(struct gsv_json_value *),
                      &bytes) ||
        !gsv_add_size(bytes, size + 1, &bytes) || !(block = malloc(bytes)))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for %zu JSON values", name,
                        r.n_values);
    r.values = block;
    r.pointers = (struct gsv_json_value **)(void *)(r.values + r.n_values);
    r.bytes = (char *)(r.pointers + 2 * r.n_values);
    st = read_root(&r, root); /* *root is the first value, at the start of the block */
    if (st != GPUSERVE_OK) {
        *root = NULL;
        free(block);
    }
    return st;
}

void gsv_json_free(struct gsv_json_value **root)
{
    if (!root)
        return;
    free(*root);
    *root = NULL;
}

/* ------------------------------------------------------------------------------------- fields */

const struct gsv_json_value *gsv_json_member(const struct gsv_json_value *object, const char *key)
{
    size_t low = 0, high = gsv_json_is(object, GSV_JSON_OBJECT) ? object->n : 0;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(key, object->sorted[middle]->key);

        if (order == 0)
            return object->sorted[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static const struct gsv_json_value *present(const struct gsv_json_value *object, const char *key)
{
    const struct gsv_json_value *value = gsv_json_member(object, key);

    return gsv_json_is(value, GSV_JSON_NULL) ? NULL : value;
}

/* 512.0 and 5.12e2 count as integers too. */
static bool whole_number(const struct gsv_json_value *value, int64_t *number)
{
    *number = gsv_json_get_int(value);
    if (value->kind == GSV_JSON_INT)
        return true;
    if (value->kind != GSV_JSON_NUMBER || !(fabs(value->is.real) < 0x1p53) ||
        value->is.real != floor(value->is.real))
        return false;
    *number = (int64_t)value->is.real;
    return true;
}

gpuserve_status gsv_json_int(const struct gsv_json_value *object, const char *key, const char *name,
                             int64_t minimum, int64_t maximum, int64_t *value,
                             gpuserve_error *error)
{
    const struct gsv_json_value *found = present(object, key);
    int64_t number;

    if (!found)
        return GPUSERVE_OK;
    if (!whole_number(found, &number))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is not a whole number", name, key);
    if (number < minimum || number > maximum)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is %lld, outside %lld to %lld", name,
                        key, (long long)number, (long long)minimum, (long long)maximum);
    *value = number;
    return GPUSERVE_OK;
}

gpuserve_status gsv_json_double(const struct gsv_json_value *object, const char *key,
                                const char *name, double minimum, double maximum, double *value,
                                gpuserve_error *error)
{
    const struct gsv_json_value *found = present(object, key);
    double number;

    if (!found)
        return GPUSERVE_OK;
    if (found->kind != GSV_JSON_INT && found->kind != GSV_JSON_NUMBER)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is not a number", name, key);
    number = found->kind == GSV_JSON_NUMBER ? found->is.real : (double)found->is.whole;
    if (!(number >= minimum && number <= maximum))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is %g, outside %g to %g", name, key,
                        number, minimum, maximum);
    *value = number;
    return GPUSERVE_OK;
}

gpuserve_status gsv_json_bool(const struct gsv_json_value *object, const char *key,
                              const char *name, bool *value, gpuserve_error *error)
{
    const struct gsv_json_value *found = present(object, key);

    if (!found)
        return GPUSERVE_OK;
    if (found->kind != GSV_JSON_BOOL)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is not true or false", name, key);
    *value = found->is.boolean;
    return GPUSERVE_OK;
}

gpuserve_status gsv_json_string(const struct gsv_json_value *object, const char *key,
                                const char *name, const char **value, gpuserve_error *error)
{
    const struct gsv_json_value *found = present(object, key);

    if (!found)
        return GPUSERVE_OK;
    if (found->kind != GSV_JSON_STRING)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is not a string", name, key);
    *value = found->is.text;
    return GPUSERVE_OK;
}

gpuserve_status gsv_json_need(const struct gsv_json_value *object, const char *key,
                              enum gsv_json_kind kind, const char *name, gpuserve_error *error)
{
    static const char *const kinds[] = {
        [GSV_JSON_NULL] = "null",          [GSV_JSON_BOOL] = "true or false",
        [GSV_JSON_INT] = "a whole number", [GSV_JSON_NUMBER] = "a number",
        [GSV_JSON_STRING] = "a string",    [GSV_JSON_ARRAY] = "an array",
        [GSV_JSON_OBJECT] = "an object",
    };
    const struct gsv_json_value *found = gsv_json_member(object, key);

    if (!found)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is missing", name, key);
    if (found->kind != kind)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is not %s", name, key, kinds[kind]);
    return GPUSERVE_OK;
}
