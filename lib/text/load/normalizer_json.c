/*
 * normalizer_json.c - reads the "normalizer" object of tokenizer.json.
 *
 * Appends gsv_normal_step entries; a BertNormalizer becomes up to five steps. `simple` stays true
 * only without a normalizer or with a single BertNormalizer or Lowercase: the fast path
 * (bert_fast_path.c) needs that. Unknown normalizers return GPUSERVE_E_UNSUPPORTED.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"
#include "lib/text/pipeline/normalizer.h"

#include <string.h>

static gpuserve_status add_step(struct gsv_normalizer *n, struct gsv_normal_step step,
                                gpuserve_error *error)
{
    if (n->n == GSV_NORMAL_MAX_STEPS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the normalizer has more than %d steps",
                        GSV_NORMAL_MAX_STEPS);
    if (!gsv_grow((void **)&n->steps, &n->capacity, n->n + 1, sizeof(*n->steps),
                  GSV_NORMAL_MAX_STEPS))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a normalizer");
    n->steps[n->n++] = step;
    n->simple = false;
    return GPUSERVE_OK;
}

static gpuserve_status add_kind(struct gsv_normalizer *n, enum gsv_normal_kind kind,
                                gpuserve_error *error)
{
    return add_step(n, (struct gsv_normal_step){ .kind = kind }, error);
}

gpuserve_status gsv_normalizer_bert(struct gsv_normalizer *n, bool clean, bool chinese,
                                    bool strip_accents, bool lowercase, gpuserve_error *error)
{
    const bool alone = n->n == 0;
    gpuserve_status status = GPUSERVE_OK;

    if (clean)
        status = add_kind(n, GSV_NORMAL_CLEAN, error);
    if (status == GPUSERVE_OK && chinese)
        status = add_kind(n, GSV_NORMAL_CHINESE, error);
    if (status == GPUSERVE_OK && strip_accents)
        status = add_kind(n, GSV_NORMAL_DECOMPOSE, error);
    if (status == GPUSERVE_OK && strip_accents)
        status = add_kind(n, GSV_NORMAL_DROP_NONSPACING, error);
    if (status == GPUSERVE_OK && lowercase)
        status = add_kind(n, GSV_NORMAL_LOWERCASE, error);
    n->simple = alone;
    n->clean = clean;
    n->chinese = chinese;
    n->strip_accents = strip_accents;
    n->lowercase = lowercase;
    return status;
}

static gpuserve_status need_bool(const struct gsv_json_value *json, const char *key,
                                 const char *name, bool *value, gpuserve_error *error)
{
    const gpuserve_status status = gsv_json_need(json, key, GSV_JSON_BOOL, name, error);

    return status == GPUSERVE_OK ? gsv_json_bool(json, key, name, value, error) : status;
}

static gpuserve_status parse_bert(struct gsv_normalizer *n, const struct gsv_json_value *json,
                                  const char *name, gpuserve_error *error)
{
    bool clean = false, chinese = false, lowercase = false, strip_accents;
    gpuserve_status status = need_bool(json, "clean_text", name, &clean, error);

    if (status == GPUSERVE_OK)
        status = need_bool(json, "handle_chinese_chars", name, &chinese, error);
    if (status == GPUSERVE_OK)
        status = need_bool(json, "lowercase", name, &lowercase, error);
    strip_accents = lowercase; /* meaning of null */
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(json, "strip_accents", name, &strip_accents, error);
    if (status == GPUSERVE_OK)
        status = gsv_normalizer_bert(n, clean, chinese, strip_accents, lowercase, error);
    return status;
}

static gpuserve_status parse_strip(struct gsv_normalizer *n, const struct gsv_json_value *json,
                                   const char *name, gpuserve_error *error)
{
    struct gsv_normal_step step = { .kind = GSV_NORMAL_STRIP };
    gpuserve_status status = need_bool(json, "strip_left", name, &step.left, error);

    if (status == GPUSERVE_OK)
        status = need_bool(json, "strip_right", name, &step.right, error);
    return status == GPUSERVE_OK ? add_step(n, step, error) : status;
}

static bool to_chars(struct gsv_chars *chars, const struct gsv_json_value *string)
{
    const char *text = gsv_json_get_string(string);
    const size_t size = string->n;

    if (!gsv_grow((void **)&chars->at, &chars->capacity, size, sizeof(*chars->at), SIZE_MAX))
        return false;
    for (size_t i = 0, length; i < size; i += length)
        chars->at[chars->n++].c = gsv_utf8_decode(text + i, &length);
    return true;
}

/* Fill `chars` with `times` copies of a character. */
static bool put_char(struct gsv_chars *chars, uint32_t c, size_t times)
{
    if (!gsv_grow((void **)&chars->at, &chars->capacity, times, sizeof(*chars->at), SIZE_MAX))
        return false;
    while (chars->n < times)
        chars->at[chars->n++].c = c;
    return true;
}

/* Take one of the supported regular expressions of white space; false: it is another one. */
static bool take_space_regex(struct gsv_normal_step *step, const char *regex)
{
    static const struct {
        const char *regex;
        size_t min_length;
        bool lines;
    } known[] = { { "\\s+", 1, false }, { "\\s{2,}|[\\n\\r\\t]", 2, true } };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(regex, known[i].regex) != 0)
            continue;
        step->kind = GSV_NORMAL_REPLACE_SPACE;
        step->min_length = known[i].min_length;
        step->lines = known[i].lines;
        return true;
    }
    return false;
}

/* Read a "pattern": literal text, or a supported regular expression: " {2,}", those of CLIP and of
 * DeBERTa-v2. */
static gpuserve_status parse_pattern(struct gsv_normal_step *step,
                                     const struct gsv_json_value *json, const char *name,
                                     gpuserve_error *error)
{
    const struct gsv_json_value *text = gsv_json_member(json, "String");
    const char *regex = gsv_json_get_string(gsv_json_member(json, "Regex"));

    if (gsv_json_is(text, GSV_JSON_STRING) && text->n > 0)
        return to_chars(&step->pattern, text)
                   ? GPUSERVE_OK
                   : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a normalizer");
    if (regex && take_space_regex(step, regex))
        return GPUSERVE_OK;
    if (!regex)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: normalizer \"Replace\": \"pattern\" is empty or missing", name);
    if (strcmp(regex, " {2,}") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: normalizer \"Replace\": the regex \"%s\" is not supported", name,
                        regex);
    step->kind = GSV_NORMAL_REPLACE_RUN;
    return put_char(&step->pattern, ' ', 2)
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a normalizer");
}

static gpuserve_status parse_replace(struct gsv_normalizer *n, const struct gsv_json_value *json,
                                     const char *name, gpuserve_error *error)
{
    const struct gsv_json_value *content = gsv_json_member(json, "content");
    struct gsv_normal_step *step;
    gpuserve_status status;

    if (!gsv_json_is(content, GSV_JSON_STRING))
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: normalizer \"Replace\": \"content\" is missing", name);
    status = add_kind(n, GSV_NORMAL_REPLACE, error);
    if (status != GPUSERVE_OK)
        return status;
    step = &n->steps[n->n - 1];
    status = parse_pattern(step, gsv_json_member(json, "pattern"), name, error);
    if (status == GPUSERVE_OK && !to_chars(&step->content, content))
        status = gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a normalizer");
    return status;
}

/* An empty "prepend" is refused: `tokenizers` moves the first character's span for it. */
static gpuserve_status parse_prepend(struct gsv_normalizer *n, const struct gsv_json_value *json,
                                     const char *name, gpuserve_error *error)
{
    const struct gsv_json_value *text = gsv_json_member(json, "prepend");
    gpuserve_status status;

    if (!gsv_json_is(text, GSV_JSON_STRING) || text->n == 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: normalizer \"Prepend\": \"prepend\" is missing", name);
    status = add_kind(n, GSV_NORMAL_PREPEND, error);
    if (status == GPUSERVE_OK && !to_chars(&n->steps[n->n - 1].content, text))
        status = gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a normalizer");
    return status;
}

static gpuserve_status parse_charsmap(struct gsv_normalizer *n, const struct gsv_json_value *json,
                                      const char *name, gpuserve_error *error)
{
    const struct gsv_json_value *map = gsv_json_member(json, "precompiled_charsmap");
    gpuserve_status status;

    if (!gsv_json_is(map, GSV_JSON_STRING))
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: normalizer \"Precompiled\": \"precompiled_charsmap\" is missing",
                        name);
    status = add_kind(n, GSV_NORMAL_CHARSMAP, error);
    if (status == GPUSERVE_OK)
        status = gsv_charsmap_read(&n->steps[n->n - 1].charsmap, gsv_json_get_string(map), map->n,
                                   name, error);
    return status;
}

gpuserve_status gsv_normalizer_charsmap(struct gsv_normalizer *n, const unsigned char *charsmap,
                                        size_t size, const char *name, gpuserve_error *error)
{
    const gpuserve_status status = size > 0 ? add_kind(n, GSV_NORMAL_CHARSMAP, error) : GPUSERVE_OK;

    return status == GPUSERVE_OK && size > 0
               ? gsv_charsmap_read_bytes(&n->steps[n->n - 1].charsmap, charsmap, size, name, error)
               : status;
}

gpuserve_status gsv_normalizer_spm(struct gsv_normalizer *n, const unsigned char *charsmap,
                                   size_t size, const char *name, gpuserve_error *error)
{
    gpuserve_status status = gsv_normalizer_charsmap(n, charsmap, size, name, error);
    struct gsv_normal_step *step;

    if (status == GPUSERVE_OK)
        status =
            add_step(n, (struct gsv_normal_step){ .kind = GSV_NORMAL_STRIP, .right = true }, error);
    if (status == GPUSERVE_OK)
        status = add_kind(n, GSV_NORMAL_REPLACE_RUN, error);
    if (status != GPUSERVE_OK)
        return status;
    step = &n->steps[n->n - 1];
    if (!put_char(&step->pattern, ' ', 2) || !put_char(&step->content, 0x2581, 1))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a normalizer");
    return GPUSERVE_OK;
}

static gpuserve_status parse_one(struct gsv_normalizer *n, const struct gsv_json_value *json,
                                 const char *name, gpuserve_error *error)
{
    static const struct {
        const char *type;
        enum gsv_normal_kind kind;
    } plain[] = {
        { "NFD", GSV_NORMAL_DECOMPOSE },
        { "NFKD", GSV_NORMAL_DECOMPOSE_K },
        { "NFC", GSV_NORMAL_COMPOSE },
        { "NFKC", GSV_NORMAL_COMPOSE_K },
        { "StripAccents", GSV_NORMAL_DROP_COMBINING },
        { "Nmt", GSV_NORMAL_NMT },
    };
    const char *type = gsv_json_get_string(gsv_json_member(json, "type"));

    if (!type)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: a normalizer has no \"type\"", name);
    if (strcmp(type, "BertNormalizer") == 0)
        return parse_bert(n, json, name, error);
    if (strcmp(type, "Lowercase") == 0)
        return gsv_normalizer_bert(n, false, false, false, true, error);
    if (strcmp(type, "Strip") == 0)
        return parse_strip(n, json, name, error);
    if (strcmp(type, "Replace") == 0)
        return parse_replace(n, json, name, error);
    if (strcmp(type, "Prepend") == 0)
        return parse_prepend(n, json, name, error);
    if (strcmp(type, "Precompiled") == 0)
        return parse_charsmap(n, json, name, error);
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (strcmp(type, plain[i].type) == 0)
            return add_kind(n, plain[i].kind, error);
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: normalizer \"%s\" is not supported", name,
                    type);
}

/* Parse nested sequences; the JSON reader bounds the depth. */
static gpuserve_status parse_any(struct gsv_normalizer *n, const struct gsv_json_value *json,
                                 const char *name, gpuserve_error *error)
{
    const char *type = gsv_json_get_string(gsv_json_member(json, "type"));
    const struct gsv_json_value *parts = gsv_json_member(json, "normalizers");
    gpuserve_status status = GPUSERVE_OK;

    if (!type || strcmp(type, "Sequence") != 0)
        return parse_one(n, json, name, error);
    if (!gsv_json_is(parts, GSV_JSON_ARRAY))
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: normalizer \"Sequence\": \"normalizers\" is missing", name);
    for (size_t i = 0; i < gsv_json_count(parts) && status == GPUSERVE_OK; i++)
        status = parse_any(n, gsv_json_at(parts, i), name, error);
    return status;
}

gpuserve_status gsv_normalizer_parse(struct gsv_normalizer *n, const struct gsv_json_value *json,
                                     const char *name, gpuserve_error *error)
{
    n->simple = true;
    if (!json || gsv_json_is(json, GSV_JSON_NULL))
        return GPUSERVE_OK;
    return parse_any(n, json, name, error);
}
