/*
 * json_fields.c - finds JSON fields by name in a large object without building a tree.
 *
 * gsv_json_fields_find() walks the object once with json_reader and records each requested field as
 * a slice of the text. Small slices are parsed on demand by gsv_json_read(). A duplicate of a
 * requested field is an error.
 */
#include "lib/base/json_reader.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <string.h>

/* Limits for values other than the vocabulary. */
static const struct gsv_json_limits part_limits = { .max_values = 1 << 20, .max_depth = 64 };

gpuserve_status gsv_member_parse(struct gsv_json_value **json, struct gsv_json_slice slice,
                                 const char *name, gpuserve_error *error)
{
    *json = NULL;
    if (!slice.at)
        return GPUSERVE_OK;
    return gsv_json_read(json, slice.at, slice.size, name, part_limits, error);
}

/* A skipped field must still be valid JSON. */
static gpuserve_status check_value(struct gsv_json_slice value, const char *name,
                                   gpuserve_error *error)
{
    struct gsv_json_value *json;
    const gpuserve_status status = gsv_member_parse(&json, value, name, error);

    gsv_json_free(&json);
    return status;
}

static struct gsv_member *member_of(struct gsv_member *fields, size_t n, struct gsv_json_slice key)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(fields[i].key) == key.size && memcmp(fields[i].key, key.at, key.size) == 0)
            return &fields[i];
    return NULL;
}

gpuserve_status gsv_json_fields_find(struct gsv_json_reader *r, struct gsv_member *fields, size_t n,
                                     bool others, gpuserve_error *error)
{
    gpuserve_status status = gsv_json_reader_open(r, '{', error);

    for (bool first = true, more = true; status == GPUSERVE_OK; first = false) {
        struct gsv_json_slice key, value = { 0 };
        struct gsv_member *member;

        status = gsv_json_reader_key(r, first, &more, &key, error);
        if (status != GPUSERVE_OK || !more)
            break;
        status = gsv_json_reader_value(r, &value, error);
        if (status != GPUSERVE_OK)
            break;
        member = member_of(fields, n, key);
        if (!member && !others)
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: field \"%.*s\" is not supported",
                            r->name, (int)(key.size < 100 ? key.size : 100), key.at);
        if (member && member->value.at)
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: duplicate field \"%s\"", r->name,
                            member->key);
        if (member)
            member->value = value;
        else
            status = check_value(value, r->name, error);
    }
    return status;
}

gpuserve_status gsv_member_copy_text(const struct gsv_member *member, const char *name, char **copy,
                                     gpuserve_error *error)
{
    struct gsv_json_value *json;
    gpuserve_status status = gsv_member_parse(&json, member->value, name, error);

    if (status != GPUSERVE_OK)
        return status;
    if (!gsv_json_is(json, GSV_JSON_STRING))
        status = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: model: \"%s\" is not a string", name,
                          member->key);
    else if (strlen(gsv_json_get_string(json)) != json->n)
        status = gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: model: \"%s\" contains a NUL byte",
                          name, member->key);
    else if (!(*copy = gsv_copy_text(gsv_json_get_string(json), json->n)))
        status = gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", name);
    gsv_json_free(&json);
    return status;
}
