/*
 * truncation_padding.c - validates "truncation" and "padding" of tokenizer.json.
 *
 * Each field is checked for its type, range or list of known values, as `tokenizers` does. No value
 * is stored.
 */
#include "lib/text/load/special_tokens.h"

#include "lib/base/error.h"
#include "lib/base/json_tree.h"

#include <string.h>

/* Check that a string field is one of `choices`, a list that ends with NULL. */
static gpuserve_status check_choice(const struct gsv_json_value *json, const char *key,
                                    const char *const *choices, const char *name,
                                    gpuserve_error *error)
{
    const char *text = gsv_json_get_string(gsv_json_member(json, key));

    for (; text && *choices; choices++)
        if (strcmp(text, *choices) == 0)
            return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: unknown value of \"%s\": \"%s\"", name, key,
                    text ? text : "not a string");
}

static gpuserve_status check_number(const struct gsv_json_value *json, const char *key,
                                    int64_t maximum, const char *name, gpuserve_error *error)
{
    int64_t ignored;
    const gpuserve_status status = gsv_json_need(json, key, GSV_JSON_INT, name, error);

    return status == GPUSERVE_OK ? gsv_json_int(json, key, name, 0, maximum, &ignored, error)
                                 : status;
}

static const char *const directions[] = { "Left", "Right", NULL };

gpuserve_status gsv_check_truncation(const struct gsv_json_value *json, const char *name,
                                     gpuserve_error *error)
{
    static const char *const strategies[] = { "LongestFirst", "OnlyFirst", "OnlySecond", NULL };
    gpuserve_status status = GPUSERVE_OK;

    if (!json || gsv_json_is(json, GSV_JSON_NULL))
        return GPUSERVE_OK;
    if (!gsv_json_is(json, GSV_JSON_OBJECT))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"truncation\" is not an object", name);
    if (gsv_json_member(json, "direction"))
        status = check_choice(json, "direction", directions, name, error);
    if (status == GPUSERVE_OK)
        status = check_number(json, "max_length", INT64_MAX, name, error);
    if (status == GPUSERVE_OK)
        status = check_choice(json, "strategy", strategies, name, error);
    if (status == GPUSERVE_OK)
        status = check_number(json, "stride", INT64_MAX, name, error);
    return status;
}

/* The strategy is "BatchLongest" or { "Fixed": 128 }. */
static gpuserve_status check_padding_strategy(const struct gsv_json_value *json, const char *name,
                                              gpuserve_error *error)
{
    static const char *const strategies[] = { "BatchLongest", NULL };
    const struct gsv_json_value *strategy = gsv_json_member(json, "strategy");

    if (gsv_json_is(strategy, GSV_JSON_OBJECT) && strategy->n == 1)
        return check_number(strategy, "Fixed", INT64_MAX, name, error);
    return check_choice(json, "strategy", strategies, name, error);
}

gpuserve_status gsv_check_padding(const struct gsv_json_value *json, const char *name,
                                  gpuserve_error *error)
{
    const struct gsv_json_value *multiple = gsv_json_member(json, "pad_to_multiple_of");
    gpuserve_status status;

    if (!json || gsv_json_is(json, GSV_JSON_NULL))
        return GPUSERVE_OK;
    if (!gsv_json_is(json, GSV_JSON_OBJECT))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"padding\" is not an object", name);
    status = check_padding_strategy(json, name, error);
    if (status == GPUSERVE_OK)
        status = check_choice(json, "direction", directions, name, error);
    if (status == GPUSERVE_OK && multiple && !gsv_json_is(multiple, GSV_JSON_NULL))
        status = check_number(json, "pad_to_multiple_of", INT64_MAX, name, error);
    if (status == GPUSERVE_OK)
        status = check_number(json, "pad_id", UINT32_MAX, name, error);
    if (status == GPUSERVE_OK)
        status = check_number(json, "pad_type_id", UINT32_MAX, name, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_need(json, "pad_token", GSV_JSON_STRING, name, error);
    return status;
}
