/*
 * pretokenizer_json.c - reads the "pre_tokenizer" object of tokenizer.json.
 *
 * Appends one gsv_pretoken_step for each pre-tokenizer; BertPreTokenizer becomes two. `bert` is
 * true only for a single BertPreTokenizer: the fast path (bert_fast_path.c) needs that. ByteLevel
 * must be the last step, since it turns text into bytes.
 */
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"
#include "lib/text/pipeline/pretokenizer.h"

#include <string.h>

static gpuserve_status put_step(struct gsv_pretokenizer *p, struct gsv_pretoken_step step,
                                gpuserve_error *error)
{
    if (gsv_pretokenizer_is_byte_level(p))
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "a pre-tokenizer after \"ByteLevel\" is not supported: \"ByteLevel\" "
                        "converts the text to bytes");
    if (p->n == GSV_PRETOKEN_MAX_STEPS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the pre-tokenizer has more than %d steps",
                        GSV_PRETOKEN_MAX_STEPS);
    p->steps[p->n++] = step;
    p->bert = false;
    return GPUSERVE_OK;
}

static gpuserve_status add_step(struct gsv_pretokenizer *p, enum gsv_pretoken_kind kind,
                                enum gsv_pretoken_behavior behavior, gpuserve_error *error)
{
    return put_step(p, (struct gsv_pretoken_step){ .kind = kind, .behavior = behavior }, error);
}

/* Read "behavior"; without it the step's behavior does not change. */
static gpuserve_status parse_behavior(struct gsv_pretoken_step *step,
                                      const struct gsv_json_value *json, const char *name,
                                      gpuserve_error *error)
{
    static const char *const behaviors[] = { "Isolated", "Removed", "Contiguous",
                                             "MergedWithPrevious", "MergedWithNext" };
    const char *behavior = behaviors[step->behavior];
    const gpuserve_status status = gsv_json_string(json, "behavior", name, &behavior, error);

    if (status != GPUSERVE_OK)
        return status;
    for (size_t i = 0; i < sizeof(behaviors) / sizeof(behaviors[0]); i++) {
        if (strcmp(behavior, behaviors[i]) != 0)
            continue;
        step->behavior = (enum gsv_pretoken_behavior)i;
        return GPUSERVE_OK;
    }
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    "%s: pre-tokenizer \"%s\": behavior \"%s\" is not supported", name,
                    gsv_json_get_string(gsv_json_member(json, "type")), behavior);
}

static gpuserve_status parse_punctuation(struct gsv_pretokenizer *p,
                                         const struct gsv_json_value *json, const char *name,
                                         gpuserve_error *error)
{
    struct gsv_pretoken_step step = { .kind = GSV_PRETOKEN_PUNCTUATION };
    const gpuserve_status status = parse_behavior(&step, json, name, error);

    return status == GPUSERVE_OK ? put_step(p, step, error) : status;
}

/* Read a required boolean. */
static gpuserve_status need_flag(const struct gsv_json_value *json, const char *key,
                                 const char *name, bool *flag, gpuserve_error *error)
{
    const gpuserve_status status = gsv_json_need(json, key, GSV_JSON_BOOL, name, error);

    return status == GPUSERVE_OK ? gsv_json_bool(json, key, name, flag, error) : status;
}

static gpuserve_status parse_digits(struct gsv_pretokenizer *p, const struct gsv_json_value *json,
                                    const char *name, gpuserve_error *error)
{
    bool individual = false;
    const gpuserve_status status = need_flag(json, "individual_digits", name, &individual, error);

    return status == GPUSERVE_OK
               ? add_step(p, GSV_PRETOKEN_DIGITS,
                          individual ? GSV_PRETOKEN_ISOLATED : GSV_PRETOKEN_CONTIGUOUS, error)
               : status;
}

static gpuserve_status parse_byte_level(struct gsv_pretokenizer *p,
                                        const struct gsv_json_value *json, const char *name,
                                        gpuserve_error *error)
{
    bool prefix = false, trims, regex = true;
    gpuserve_status status = need_flag(json, "add_prefix_space", name, &prefix, error);

    if (status == GPUSERVE_OK) /* unused here, but `tokenizers` requires it */
        status = need_flag(json, "trim_offsets", name, &trims, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(json, "use_regex", name, &regex, error);
    if (status != GPUSERVE_OK)
        return status;
    return put_step(
        p,
        (struct gsv_pretoken_step){ .kind = GSV_PRETOKEN_BYTE_LEVEL,
                                    .scheme = prefix ? GSV_PREFIX_ALWAYS : GSV_PREFIX_NEVER,
                                    .pattern = regex ? GSV_SPLIT_GPT2 : GSV_N_SPLIT_PATTERNS },
        error);
}

/* A pattern is { "Regex": "..." } or { "String": "..." }. */
static gpuserve_status parse_pattern(struct gsv_pretoken_step *step,
                                     const struct gsv_json_value *json, const char *name,
                                     gpuserve_error *error)
{
    const struct gsv_json_value *string = gsv_json_member(json, "String");
    const char *regex = gsv_json_get_string(gsv_json_member(json, "Regex"));
    const char *text = gsv_json_get_string(string);

    if (!gsv_json_is(json, GSV_JSON_OBJECT) || json->n != 1 || (!regex && !text))
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: pre-tokenizer \"Split\": \"pattern\" is neither a regex nor a string",
                        name);
    step->pattern = regex ? gsv_split_pattern_of(regex) : GSV_N_SPLIT_PATTERNS;
    if (regex && step->pattern == GSV_N_SPLIT_PATTERNS)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: pre-tokenizer \"Split\": regex \"%s\" is not supported", name, regex);
    for (size_t i = 0, length; !regex && i < string->n; i += length) {
        if (step->n_literal == GSV_PRETOKEN_MAX_LITERAL)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                            "%s: pre-tokenizer \"Split\": the string has more than %d characters",
                            name, GSV_PRETOKEN_MAX_LITERAL);
        step->literal[step->n_literal++] = gsv_utf8_decode(text + i, &length);
    }
    if (!regex && step->n_literal == 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: pre-tokenizer \"Split\": an empty string is not supported", name);
    return GPUSERVE_OK;
}

static gpuserve_status parse_split(struct gsv_pretokenizer *p, const struct gsv_json_value *json,
                                   const char *name, gpuserve_error *error)
{
    struct gsv_pretoken_step step = { .kind = GSV_PRETOKEN_SPLIT };
    gpuserve_status status = gsv_json_need(json, "behavior", GSV_JSON_STRING, name, error);

    if (status == GPUSERVE_OK)
        status = parse_behavior(&step, json, name, error);
    if (status == GPUSERVE_OK)
        status = need_flag(json, "invert", name, &step.inverted, error);
    if (status == GPUSERVE_OK)
        status = parse_pattern(&step, gsv_json_member(json, "pattern"), name, error);
    return status == GPUSERVE_OK ? put_step(p, step, error) : status;
}

/* Read "prepend_scheme", or "add_prefix_space" of older files. */
static gpuserve_status parse_scheme(struct gsv_pretoken_step *step,
                                    const struct gsv_json_value *json, const char *name,
                                    gpuserve_error *error)
{
    static const char *const schemes[] = { "never", "first", "always" };
    const char *scheme = NULL;
    bool adds = true;
    gpuserve_status status = gsv_json_bool(json, "add_prefix_space", name, &adds, error);

    if (status == GPUSERVE_OK)
        status = gsv_json_string(json, "prepend_scheme", name, &scheme, error);
    if (status != GPUSERVE_OK)
        return status;
    step->scheme = adds ? GSV_PREFIX_ALWAYS : GSV_PREFIX_NEVER;
    if (!scheme)
        return GPUSERVE_OK;
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        if (strcmp(scheme, schemes[i]) != 0)
            continue;
        step->scheme = (enum gsv_prefix_scheme)i;
        if (adds || step->scheme == GSV_PREFIX_NEVER)
            return GPUSERVE_OK;
    }
    return gsv_fail(error, GPUSERVE_E_FORMAT,
                    "%s: \"Metaspace\": unknown \"prepend_scheme\" \"%s\"", name, scheme);
}

gpuserve_status gsv_pretoken_metaspace(struct gsv_pretoken_step *step,
                                       const struct gsv_json_value *json, const char *name,
                                       gpuserve_error *error)
{
    const char *replacement = gsv_json_get_string(gsv_json_member(json, "replacement"));
    size_t length = 0;
    gpuserve_status status;

    *step = (struct gsv_pretoken_step){ .kind = GSV_PRETOKEN_METASPACE, .splits = true };
    status = parse_scheme(step, json, name, error);

    if (status == GPUSERVE_OK)
        status = gsv_json_bool(json, "split", name, &step->splits, error);
    if (status != GPUSERVE_OK)
        return status;
    if (replacement && replacement[0])
        step->replacement = gsv_utf8_decode(replacement, &length);
    if (length == 0 || replacement[length])
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: \"Metaspace\": \"replacement\" is not a single character", name);
    return GPUSERVE_OK;
}

static gpuserve_status parse_metaspace(struct gsv_pretokenizer *p,
                                       const struct gsv_json_value *json, const char *name,
                                       gpuserve_error *error)
{
    struct gsv_pretoken_step step;
    const gpuserve_status status = gsv_pretoken_metaspace(&step, json, name, error);

    return status == GPUSERVE_OK ? put_step(p, step, error) : status;
}

static gpuserve_status parse_one(struct gsv_pretokenizer *p, const struct gsv_json_value *json,
                                 const char *name, gpuserve_error *error)
{
    const char *type = gsv_json_get_string(gsv_json_member(json, "type"));
    gpuserve_status status;

    if (!type)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: a pre-tokenizer has no \"type\"", name);
    if (strcmp(type, "BertPreTokenizer") == 0) {
        const bool alone = p->n == 0;

        status = add_step(p, GSV_PRETOKEN_SPACE, GSV_PRETOKEN_REMOVED, error);
        if (status == GPUSERVE_OK)
            status = add_step(p, GSV_PRETOKEN_PUNCTUATION, GSV_PRETOKEN_ISOLATED, error);
        p->bert = alone;
        return status;
    }
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_step(p, GSV_PRETOKEN_SPACE, GSV_PRETOKEN_REMOVED, error);
    if (strcmp(type, "Whitespace") == 0)
        return add_step(p, GSV_PRETOKEN_WORDS, GSV_PRETOKEN_REMOVED, error);
    if (strcmp(type, "Punctuation") == 0)
        return parse_punctuation(p, json, name, error);
    if (strcmp(type, "Metaspace") == 0)
        return parse_metaspace(p, json, name, error);
    if (strcmp(type, "ByteLevel") == 0)
        return parse_byte_level(p, json, name, error);
    if (strcmp(type, "Split") == 0)
        return parse_split(p, json, name, error);
    if (strcmp(type, "Digits") == 0)
        return parse_digits(p, json, name, error);
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: pre-tokenizer \"%s\" is not supported",
                    name, type);
}

static gpuserve_status parse_any(struct gsv_pretokenizer *p, const struct gsv_json_value *json,
                                 const char *name, gpuserve_error *error)
{
    const char *type = gsv_json_get_string(gsv_json_member(json, "type"));
    const struct gsv_json_value *parts = gsv_json_member(json, "pretokenizers");
    gpuserve_status status = GPUSERVE_OK;

    if (!type || strcmp(type, "Sequence") != 0)
        return parse_one(p, json, name, error);
    if (!gsv_json_is(parts, GSV_JSON_ARRAY))
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: pre-tokenizer \"Sequence\": \"pretokenizers\" is missing", name);
    for (size_t i = 0; i < gsv_json_count(parts) && status == GPUSERVE_OK; i++)
        status = parse_any(p, gsv_json_at(parts, i), name, error);
    return status;
}

gpuserve_status gsv_pretokenizer_parse(struct gsv_pretokenizer *p,
                                       const struct gsv_json_value *json, const char *name,
                                       gpuserve_error *error)
{
    if (!json || gsv_json_is(json, GSV_JSON_NULL))
        return GPUSERVE_OK;
    return parse_any(p, json, name, error);
}
