/*
 * tokenizer_json.c - tokenizer.json to the parts of a tokenizer.
 *
 * What is not known is refused by its name, and so is whatever `tokenizers` would refuse: ids that
 * are almost right are worse than none.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/base/json_reader.h"
#include "lib/text/tokenizer_parts.h"
#include "lib/text/usage.h"

#include <stdlib.h>
#include <string.h>

/* Of a part other than the vocabulary. */
static const struct gsv_json_limits part_limits = { .max_values = 1 << 20, .max_depth = 64 };

struct member {
    const char *key;
    struct gsv_json_slice value;
};

static gpuserve_status parse_slice(struct gsv_json_value **json, struct gsv_json_slice slice,
                                   const char *name, gpuserve_error *error)
{
    *json = NULL;
    if (!slice.at)
        return GPUSERVE_OK;
    return gsv_json_read(json, slice.at, slice.size, name, part_limits, error);
}

/* A member of no meaning here must still be JSON. */
static gpuserve_status check_value(struct gsv_json_slice value, const char *name,
                                   gpuserve_error *error)
{
    struct gsv_json_value *json;
    const gpuserve_status status = parse_slice(&json, value, name, error);

    gsv_json_free(&json);
    return status;
}

static struct member *member_of(struct member *members, size_t n, struct gsv_json_slice key)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(members[i].key) == key.size && memcmp(members[i].key, key.at, key.size) == 0)
            return &members[i];
    return NULL;
}

/* The values of the members named in `members`; others are refused, or checked and stepped over. */
static gpuserve_status find_members(struct gsv_json_reader *r, struct member *members, size_t n,
                                    bool others, gpuserve_error *error)
{
    gpuserve_status status = gsv_json_reader_open(r, '{', error);

    for (bool first = true, more = true; status == GPUSERVE_OK; first = false) {
        struct gsv_json_slice key, value = { 0 };
        struct member *member;

        status = gsv_json_reader_key(r, first, &more, &key, error);
        if (status != GPUSERVE_OK || !more)
            break;
        status = gsv_json_reader_value(r, &value, error);
        if (status != GPUSERVE_OK)
            break;
        member = member_of(members, n, key);
        if (!member && !others)
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: \"%.*s\"", r->name,
                            (int)(key.size < 100 ? key.size : 100), key.at);
        if (member && member->value.at)
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is there twice", r->name,
                            member->key);
        if (member)
            member->value = value;
        else
            status = check_value(value, r->name, error);
    }
    return status;
}

/* ------------------------------------------------------------------ the model */

enum model_member { TYPE, UNK, PREFIX, MAX_CHARS, VOCAB, MERGES, N_MODEL_MEMBERS };

/* Older files do not tell the type; then what they hold does. */
static gpuserve_status check_type(const struct member *members, const char *name,
                                  gpuserve_error *error)
{
    struct gsv_json_slice type = members[TYPE].value;
    const bool wordpiece =
        members[PREFIX].value.at && members[MAX_CHARS].value.at && !members[MERGES].value.at;

    if (type.at ? type.size == 11 && memcmp(type.at, "\"WordPiece\"", 11) == 0 : wordpiece)
        return GPUSERVE_OK;
    if (!type.at)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: a model without a type, not WordPiece",
                        name);
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: model %.*s", name,
                    (int)(type.size < 100 ? type.size : 100), type.at);
}

/* A string member as an owned copy. */
static gpuserve_status copy_string(const struct member *member, const char *name, char **copy,
                                   gpuserve_error *error)
{
    struct gsv_json_value *json;
    gpuserve_status status = parse_slice(&json, member->value, name, error);

    if (status != GPUSERVE_OK)
        return status;
    if (!gsv_json_is(json, GSV_JSON_TEXT))
        status =
            gsv_fail(error, GPUSERVE_E_FORMAT, "%s: model: \"%s\" is no string", name, member->key);
    else if (strlen(gsv_json_text(json)) != json->n)
        status = gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: model: \"%s\" holds a NUL", name,
                          member->key);
    else if (!(*copy = gsv_copy_text(gsv_json_text(json), json->n)))
        status = gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", name);
    gsv_json_free(&json);
    return status;
}

static gpuserve_status read_max_chars(struct gsv_tokenizer *t, struct gsv_json_slice value,
                                      const char *name, gpuserve_error *error)
{
    struct gsv_json_reader reader = gsv_json_reader_of(value, name);
    uint32_t number = 0;
    gpuserve_status status;

    if (!value.at)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: model: \"max_input_chars_per_word\" is missing", name);
    status = gsv_json_reader_id(&reader, INT32_MAX, &number, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_reader_end(&reader, error);
    t->model.max_chars = number;
    return status;
}

static gpuserve_status find_unknown(struct gsv_tokenizer *t, const struct member *member,
                                    const char *name, gpuserve_error *error)
{
    char *unknown = NULL;
    gpuserve_status status = copy_string(member, name, &unknown, error);

    if (status != GPUSERVE_OK)
        return status;
    t->model.unknown = gsv_vocab_id(&t->vocab, unknown, strlen(unknown));
    if (t->model.unknown < 0)
        status =
            gsv_fail(error, GPUSERVE_E_FORMAT, "%s: the vocabulary lacks \"%s\"", name, unknown);
    free(unknown);
    return status;
}

static gpuserve_status read_model(struct gsv_tokenizer *t, struct gsv_json_slice model,
                                  const char *name, gpuserve_error *error)
{
    struct member members[N_MODEL_MEMBERS] = {
        [TYPE] = { "type", { 0 } },
        [UNK] = { "unk_token", { 0 } },
        [PREFIX] = { "continuing_subword_prefix", { 0 } },
        [MAX_CHARS] = { "max_input_chars_per_word", { 0 } },
        [VOCAB] = { "vocab", { 0 } },
        [MERGES] = { "merges", { 0 } },
    };
    struct gsv_json_reader reader = gsv_json_reader_of(model, name);
    gpuserve_status status = find_members(&reader, members, N_MODEL_MEMBERS, true, error);

    if (status == GPUSERVE_OK)
        status = check_type(members, name, error);
    if (status == GPUSERVE_OK && !members[VOCAB].value.at)
        status = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: model: no \"vocab\"", name);
    if (status == GPUSERVE_OK)
        status = gsv_vocab_read_json(&t->vocab, members[VOCAB].value, name, error);
    if (status == GPUSERVE_OK)
        status = copy_string(&members[PREFIX], name, &t->model.prefix, error);
    if (status == GPUSERVE_OK)
        status = read_max_chars(t, members[MAX_CHARS].value, name, error);
    if (status == GPUSERVE_OK)
        status = find_unknown(t, &members[UNK], name, error);
    return status;
}

/* ------------------------------------------------------------------ the parts around it */

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
    const char *version = gsv_json_text(json);

    if (json && (!version || strcmp(version, "1.0") != 0))
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: \"version\" is \"%s\", not \"1.0\"",
                        name, version ? version : "no string");
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
        return gsv_usage_check_truncation(json, name, error);
    default:
        return gsv_usage_check_padding(json, name, error);
    }
}

gpuserve_status gsv_tokenizer_read_json(struct gsv_tokenizer *t, const char *text, size_t size,
                                        const char *name, gpuserve_error *error)
{
    struct member members[N_PARTS] = {
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
    gpuserve_status status = find_members(&reader, members, N_PARTS, false, error);

    if (status == GPUSERVE_OK)
        status = gsv_json_reader_end(&reader, error);
    if (status == GPUSERVE_OK && !members[MODEL].value.at)
        status = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: no \"model\"", name);
    if (status == GPUSERVE_OK)
        status = read_model(t, members[MODEL].value, name, error);
    for (int part = 0; part < MODEL && status == GPUSERVE_OK; part++) {
        struct gsv_json_value *json;

        status = parse_slice(&json, members[part].value, name, error);
        if (status == GPUSERVE_OK)
            status = read_part(t, (enum part)part, json, name, error);
        gsv_json_free(&json);
    }
    return status;
}
