/*
 * tokenizer_json.c - reads tokenizer.json into the parts of a tokenizer.
 *
 * One scan of the file finds the byte range of each top-level field. The model, with the
 * vocabulary, is read first by a streaming reader; the other fields become small JSON trees.
 *
 * Unknown components are refused by name, and so is any input that `tokenizers` refuses: almost
 * correct ids are worse than an error.
 */
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/text/tokenizer_parts.h"
#include "lib/text/load/special_tokens.h"

#include <string.h>

enum part {
    ADDED,
    NORMALIZER,
    PRE_TOKENIZER,
    POST_PROCESSOR,
    DECODER,
    VERSION,
    TRUNCATION,
    PADDING,
    MODEL,
    N_PARTS
};

static gpuserve_status check_version(const struct gsv_json_value *json, const char *name,
                                     gpuserve_error *error)
{
    const char *version = gsv_json_get_string(json);

    if (json && (!version || strcmp(version, "1.0") != 0))
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: \"version\" is \"%s\", not \"1.0\"",
                        name, version ? version : "not a string");
    return GPUSERVE_OK;
}

static gpuserve_status read_part(struct gsv_tokenizer *t, enum part part,
                                 const struct gsv_json_value *json, const char *name,
                                 gpuserve_error *error)
{
    switch (part) {
    case ADDED:
        return gsv_added_parse(&t->added, json, &t->vocab, name, error);
    case NORMALIZER:
        return gsv_normalizer_parse(&t->normalizer, json, name, error);
    case PRE_TOKENIZER:
        return gsv_pretokenizer_parse(&t->pretokenizer, json, name, error);
    case POST_PROCESSOR:
        return gsv_post_processor_parse(&t->post, json, name, error);
    case DECODER:
        return gsv_decoder_parse(&t->decoder, json, name, error);
    case VERSION:
        return check_version(json, name, error);
    case TRUNCATION:
        return gsv_check_truncation(json, name, error);
    default:
        return gsv_check_padding(json, name, error);
    }
}

gpuserve_status gsv_tokenizer_read_json(struct gsv_tokenizer *t, const char *text, size_t size,
                                        const char *name, gpuserve_error *error)
{
    struct gsv_member fields[N_PARTS] = {
        [ADDED] = { "added_tokens", { 0 } },
        [NORMALIZER] = { "normalizer", { 0 } },
        [PRE_TOKENIZER] = { "pre_tokenizer", { 0 } },
        [POST_PROCESSOR] = { "post_processor", { 0 } },
        [DECODER] = { "decoder", { 0 } },
        [VERSION] = { "version", { 0 } },
        [TRUNCATION] = { "truncation", { 0 } },
        [PADDING] = { "padding", { 0 } },
        [MODEL] = { "model", { 0 } },
    };
    struct gsv_json_reader reader = { text, text, text + size, name };
    gpuserve_status status = gsv_json_fields_find(&reader, fields, N_PARTS, false, error);

    if (status == GPUSERVE_OK)
        status = gsv_json_reader_end(&reader, error);
    if (status == GPUSERVE_OK && !fields[MODEL].value.at)
        status = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"model\" is missing", name);
    if (status == GPUSERVE_OK)
        status = gsv_token_model_read(&t->model, &t->vocab, fields[MODEL].value, name, error);
    for (int part = 0; part < MODEL && status == GPUSERVE_OK; part++) {
        struct gsv_json_value *json;

        status = gsv_member_parse(&json, fields[part].value, name, error);
        if (status == GPUSERVE_OK)
            status = read_part(t, (enum part)part, json, name, error);
        gsv_json_free(&json);
    }
    return status;
}
