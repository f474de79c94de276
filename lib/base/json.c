/*
 * json.c - bounded JSON in, through jansson, and getters that name what is wrong.
 */
#include "lib/base/json.h"

#include "lib/base/error.h"

#include <errno.h>
#include <math.h>

/* Count what jansson would allocate for, outside strings: every container, and one value for each
 * comma and colon. Strings are skipped; a broken text is left for jansson to refuse. */
static bool within_limits(const char *text, size_t size, struct gsv_json_limits limits,
                          size_t *values, size_t *depth)
{
    bool in_string = false;

    *values = 1;
    *depth = 0;
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
            ++*values;
            if (++*depth > limits.max_depth)
                return false;
        } else if ((c == '}' || c == ']') && *depth > 0) {
            --*depth;
        } else if (c == ',' || c == ':') {
            if (++*values > limits.max_values)
                return false;
        }
    }
    return *values <= limits.max_values;
}

gpuserve_status gsv_json_parse(json_t **json, const char *text, size_t size, const char *name,
                               struct gsv_json_limits limits, gpuserve_error *error)
{
    static const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_error_t where;
    size_t values, depth;

    *json = NULL;
    if (!within_limits(text, size, limits, &values, &depth)) {
        if (depth > limits.max_depth)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: nested deeper than %zu", name,
                            limits.max_depth);
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: more than %zu JSON values", name,
                        limits.max_values);
    }
    errno = 0;
    *json = json_loadb(text, size, flags, &where);
    if (!*json && json_error_code(&where) == json_error_numeric_overflow)
        /* Tokenizers without a limit write 1000000000000000019884624838656 for it. */
        *json = json_loadb(text, size, flags | JSON_DECODE_INT_AS_REAL, &where);
    if (*json)
        return GPUSERVE_OK;
    /* Out of memory, jansson often tells a syntax error or nothing; malloc's errno stays. */
    if (json_error_code(&where) == json_error_out_of_memory || errno == ENOMEM)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory while parsing", name);
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: line %d, column %d: %s", name, where.line,
                    where.column, where.text);
}

static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return value && !json_is_null(value) ? value : NULL;
}

/* A number beside one that is too large for 64 bits was read as a real. */
static bool whole_number(const json_t *value, int64_t *number)
{
    const double real = json_real_value(value);

    if (json_is_integer(value)) {
        *number = (int64_t)json_integer_value(value);
        return true;
    }
    if (!json_is_real(value) || !(fabs(real) < 0x1p53) || real != floor(real))
        return false;
    *number = (int64_t)real;
    return true;
}

gpuserve_status gsv_json_int(const json_t *object, const char *key, const char *name,
                             int64_t minimum, int64_t maximum, int64_t *value,
                             gpuserve_error *error)
{
    const json_t *found = member(object, key);
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

gpuserve_status gsv_json_double(const json_t *object, const char *key, const char *name,
                                double minimum, double maximum, double *value,
                                gpuserve_error *error)
{
    const json_t *found = member(object, key);
    double number;

    if (!found)
        return GPUSERVE_OK;
    if (!json_is_number(found))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is not a number", name, key);
    number = json_number_value(found);
    if (!(number >= minimum && number <= maximum))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is %g, outside %g to %g", name, key,
                        number, minimum, maximum);
    *value = number;
    return GPUSERVE_OK;
}

gpuserve_status gsv_json_bool(const json_t *object, const char *key, const char *name, bool *value,
                              gpuserve_error *error)
{
    const json_t *found = member(object, key);

    if (!found)
        return GPUSERVE_OK;
    if (!json_is_boolean(found))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is not true or false", name, key);
    *value = json_is_true(found);
    return GPUSERVE_OK;
}

gpuserve_status gsv_json_string(const json_t *object, const char *key, const char *name,
                                const char **value, gpuserve_error *error)
{
    const json_t *found = member(object, key);

    if (!found)
        return GPUSERVE_OK;
    if (!json_is_string(found))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is not a string", name, key);
    *value = json_string_value(found);
    return GPUSERVE_OK;
}
