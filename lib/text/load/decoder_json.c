/*
 * decoder_json.c - reads the "decoder" object of tokenizer.json.
 *
 * Appends one gsv_decoder_step for each decoder, or for each element of a "Sequence". Decoders
 * whose behaviour is not reproduced return GPUSERVE_E_UNSUPPORTED.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"
#include "lib/text/pipeline/decoder.h"
#include "lib/text/pipeline/pretokenizer.h"

#include <string.h>

/* Append a step. Its texts are borrowed and copied; `content` may be NULL. */
static gpuserve_status add_step(struct gsv_decoder *d, struct gsv_decoder_step step,
                                const char *name, gpuserve_error *error)
{
    struct gsv_decoder_step *const added = &d->steps[d->n];

    if (d->n == GSV_DECODER_MAX_STEPS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: the decoder has more than %d steps", name,
                        GSV_DECODER_MAX_STEPS);
    d->joins = true;
    d->n++;
    *added = step;
    added->text = step.text ? gsv_copy_text(step.text, step.text_size) : NULL;
    added->content = step.content ? gsv_copy_text(step.content, step.content_size) : NULL;
    if ((step.text && !added->text) || (step.content && !added->content))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for a decoder", name);
    return GPUSERVE_OK;
}

static char *text_of(const struct gsv_json_value *value)
{
    return (char *)(uintptr_t)gsv_json_get_string(value); /* add_step() copies it */
}

gpuserve_status gsv_decoder_wordpiece(struct gsv_decoder *d, const char *prefix, bool cleanup,
                                      const char *name, gpuserve_error *error)
{
    const struct gsv_decoder_step step = { .kind = GSV_DECODE_WORDPIECE,
                                           .cleanup = cleanup,
                                           .text = (char *)(uintptr_t)prefix,
                                           .text_size = strlen(prefix) };

    return add_step(d, step, name, error);
}

gpuserve_status gsv_decoder_byte_level(struct gsv_decoder *d, const char *name,
                                       gpuserve_error *error)
{
    return add_step(d, (struct gsv_decoder_step){ .kind = GSV_DECODE_BYTE_LEVEL }, name, error);
}

static gpuserve_status parse_wordpiece(struct gsv_decoder *d, const struct gsv_json_value *json,
                                       const char *name, gpuserve_error *error)
{
    const char *prefix = "##";
    bool cleanup = true;
    gpuserve_status status = gsv_json_need(json, "prefix", GSV_JSON_STRING, name, error);

    if (status == GPUSERVE_OK)
        status = gsv_json_need(json, "cleanup", GSV_JSON_BOOL, name, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_string(json, "prefix", name, &prefix, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(json, "cleanup", name, &cleanup, error);
    return status == GPUSERVE_OK ? gsv_decoder_wordpiece(d, prefix, cleanup, name, error) : status;
}

static gpuserve_status parse_metaspace(struct gsv_decoder *d, const struct gsv_json_value *json,
                                       const char *name, gpuserve_error *error)
{
    struct gsv_pretoken_step read;
    const gpuserve_status status = gsv_pretoken_metaspace(&read, json, name, error);
    char space[4];

    if (status != GPUSERVE_OK)
        return status;
    return add_step(
        d,
        (struct gsv_decoder_step){ .kind = GSV_DECODE_METASPACE,
                                   .drops = read.scheme != GSV_PREFIX_NEVER,
                                   .text = space,
                                   .text_size = gsv_utf8_encode(read.replacement, space) },
        name, error);
}

gpuserve_status gsv_decoder_metaspace(struct gsv_decoder *d, const char *name,
                                      gpuserve_error *error)
{
    char text[] = "\xE2\x96\x81";

    return add_step(d,
                    (struct gsv_decoder_step){ .kind = GSV_DECODE_METASPACE,
                                               .drops = true,
                                               .text = text,
                                               .text_size = sizeof(text) - 1 },
                    name, error);
}

static gpuserve_status parse_suffix(struct gsv_decoder *d, const struct gsv_json_value *json,
                                    const char *name, gpuserve_error *error)
{
    const struct gsv_json_value *suffix = gsv_json_member(json, "suffix");

    if (!gsv_json_is(suffix, GSV_JSON_STRING) || suffix->n == 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: decoder \"BPEDecoder\": an empty or missing suffix is not supported",
                        name);
    return add_step(d,
                    (struct gsv_decoder_step){ .kind = GSV_DECODE_SUFFIX,
                                               .text = text_of(suffix),
                                               .text_size = suffix->n },
                    name, error);
}

static gpuserve_status parse_replace(struct gsv_decoder *d, const struct gsv_json_value *json,
                                     const char *name, gpuserve_error *error)
{
    const struct gsv_json_value *pattern =
        gsv_json_member(gsv_json_member(json, "pattern"), "String");
    const struct gsv_json_value *content = gsv_json_member(json, "content");

    if (!gsv_json_is(pattern, GSV_JSON_STRING) || pattern->n == 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: decoder \"Replace\": only a literal pattern (\"String\") is supported",
                        name);
    if (!gsv_json_is(content, GSV_JSON_STRING))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: decoder \"Replace\": \"content\" is missing",
                        name);
    return add_step(d,
                    (struct gsv_decoder_step){ .kind = GSV_DECODE_REPLACE,
                                               .text = text_of(pattern),
                                               .text_size = pattern->n,
                                               .content = text_of(content),
                                               .content_size = content->n },
                    name, error);
}

static gpuserve_status parse_strip(struct gsv_decoder *d, const struct gsv_json_value *json,
                                   const char *name, gpuserve_error *error)
{
    const struct gsv_json_value *content = gsv_json_member(json, "content");
    int64_t start = 0, stop = 0;
    size_t length = 0;
    gpuserve_status status = gsv_json_need(json, "start", GSV_JSON_INT, name, error);

    if (status == GPUSERVE_OK)
        status = gsv_json_need(json, "stop", GSV_JSON_INT, name, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_int(json, "start", name, 0, INT64_MAX, &start, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_int(json, "stop", name, 0, INT64_MAX, &stop, error);
    if (status != GPUSERVE_OK)
        return status;
    if (gsv_json_is(content, GSV_JSON_STRING) && content->n > 0)
        gsv_utf8_decode(gsv_json_get_string(content), &length);
    if (length == 0 || length != content->n)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: decoder \"Strip\": \"content\" is not a single character", name);
    if (stop != 0) /* `tokenizers` itself fails at tokens shorter than `stop` */
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: decoder \"Strip\": \"stop\" %lld is not supported, only 0", name,
                        (long long)stop);
    return add_step(d,
                    (struct gsv_decoder_step){ .kind = GSV_DECODE_STRIP,
                                               .text = text_of(content),
                                               .text_size = content->n,
                                               .count = (size_t)start },
                    name, error);
}

static gpuserve_status parse_one(struct gsv_decoder *d, const struct gsv_json_value *json,
                                 const char *name, gpuserve_error *error)
{
    static const struct {
        const char *type;
        enum gsv_decoder_kind kind;
    } plain[] = {
        { "ByteLevel", GSV_DECODE_BYTE_LEVEL },
        { "ByteFallback", GSV_DECODE_BYTE_FALLBACK },
        { "Fuse", GSV_DECODE_FUSE },
    };
    const char *type = gsv_json_get_string(gsv_json_member(json, "type"));

    if (!type)
        type = "";
    if (strcmp(type, "ByteLevel") == 0 &&
        (!gsv_json_is(gsv_json_member(json, "trim_offsets"), GSV_JSON_BOOL) ||
         !gsv_json_is(gsv_json_member(json, "add_prefix_space"), GSV_JSON_BOOL)))
        return gsv_fail(
            error, GPUSERVE_E_FORMAT, /* `tokenizers` requires both */
            "%s: decoder \"ByteLevel\": \"trim_offsets\" or \"add_prefix_space\" is missing", name);
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (strcmp(type, plain[i].type) == 0)
            return add_step(d, (struct gsv_decoder_step){ .kind = plain[i].kind }, name, error);
    if (strcmp(type, "WordPiece") == 0)
        return parse_wordpiece(d, json, name, error);
    if (strcmp(type, "Metaspace") == 0)
        return parse_metaspace(d, json, name, error);
    if (strcmp(type, "BPEDecoder") == 0)
        return parse_suffix(d, json, name, error);
    if (strcmp(type, "Replace") == 0)
        return parse_replace(d, json, name, error);
    if (strcmp(type, "Strip") == 0)
        return parse_strip(d, json, name, error);
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: decoder \"%s\" is not supported", name,
                    type);
}

gpuserve_status gsv_decoder_parse(struct gsv_decoder *d, const struct gsv_json_value *json,
                                  const char *name, gpuserve_error *error)
{
    const char *type = gsv_json_get_string(gsv_json_member(json, "type"));
    const struct gsv_json_value *parts = gsv_json_member(json, "decoders");
    gpuserve_status status = GPUSERVE_OK;

    if (!json || gsv_json_is(json, GSV_JSON_NULL))
        return GPUSERVE_OK;
    if (!type || strcmp(type, "Sequence") != 0)
        return parse_one(d, json, name, error);
    if (!gsv_json_is(parts, GSV_JSON_ARRAY))
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: decoder \"Sequence\": \"decoders\" is missing", name);
    d->joins = true;
    for (size_t i = 0; i < gsv_json_count(parts) && status == GPUSERVE_OK; i++)
        status = parse_one(d, gsv_json_at(parts, i), name, error);
    return status;
}
