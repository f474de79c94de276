/*
 * json.c - bounded JSON in, through jansson.
 */
#include "lib/base/json.h"

#include "lib/base/error.h"

#include <errno.h>

gpuserve_status gsv_json_parse(json_t **json, const char *text, size_t size, const char *name,
                               struct gsv_json_limits limits, gpuserve_error *error)
{
    static const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_error_t where;
    size_t values;
    gpuserve_status st;

    *json = NULL;
    st = gsv_json_check_limits(text, size, name, limits, &values, error);
    if (st != GPUSERVE_OK)
        return st;
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
