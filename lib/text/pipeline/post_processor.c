/*
 * post_processor.c - parses the "post_processor" of tokenizer.json into two templates.
 *
 * Supported: TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel (only trim_offsets),
 * and a Sequence in which only the last processor adds special tokens.
 */
#include "lib/text/pipeline/post_processor.h"

#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/text/models/vocab.h"

#include <string.h>

static void add_special(struct gsv_template *t, int32_t id, uint8_t type)
{
    t->ids[t->n] = id;
    t->types[t->n++] = type;
}

void gsv_post_processor_bert(struct gsv_post_processor *p, int32_t cls, int32_t sep)
{
    add_special(&p->single, cls, 0);
    p->single.n_before = 1;
    add_special(&p->single, sep, 0);

    add_special(&p->pair, cls, 0);
    p->pair.n_before = 1;
    add_special(&p->pair, sep, 0);
    p->pair.n_between = 1;
    add_special(&p->pair, sep, 1);
    p->pair.type_b = 1;
}

void gsv_post_processor_roberta(struct gsv_post_processor *p, int32_t cls, int32_t sep)
{
    add_special(&p->single, cls, 0);
    p->single.n_before = 1;
    add_special(&p->single, sep, 0);

    add_special(&p->pair, cls, 0);
    p->pair.n_before = 1;
    add_special(&p->pair, sep, 0);
    add_special(&p->pair, sep, 0);
    p->pair.n_between = 2;
    add_special(&p->pair, sep, 0);
    p->pair.type_b = 0;
}

void gsv_post_processor_t5(struct gsv_post_processor *p, int32_t eos)
{
    add_special(&p->single, eos, 0);
    add_special(&p->pair, eos, 0);
    p->pair.n_between = 1;
    add_special(&p->pair, eos, 0);
    p->pair.type_b = 0;
}

static void add_if_any(struct gsv_template *t, int32_t id, uint8_t type)
{
    if (id >= 0)
        add_special(t, id, type);
}

void gsv_post_processor_gpt2(struct gsv_post_processor *p, int32_t bos, int32_t eos)
{
    add_if_any(&p->single, bos, 0);
    p->single.n_before = p->single.n;
    add_if_any(&p->single, eos, 0);
    p->pair.type_b = 1;
    add_if_any(&p->pair, bos, 0);
    p->pair.n_before = p->pair.n;
    add_if_any(&p->pair, eos, 0);
    add_if_any(&p->pair, bos, 1);
    p->pair.n_between = p->pair.n - p->pair.n_before;
    add_if_any(&p->pair, eos, 1);
}

/* Parse a field such as "sep": ["[SEP]", 102]. */
static gpuserve_status parse_named_id(const struct gsv_json_value *json, const char *key,
                                      const char *name, int32_t *id, gpuserve_error *error)
{
    const struct gsv_json_value *pair = gsv_json_member(json, key);
    const struct gsv_json_value *number = gsv_json_at(pair, 1);

    if (gsv_json_count(pair) != 2 || !gsv_json_get_string(gsv_json_at(pair, 0)) ||
        !gsv_json_is(number, GSV_JSON_INT) || gsv_json_get_int(number) < 0 ||
        gsv_json_get_int(number) > GSV_VOCAB_MAX_ID)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: post-processor: \"%s\" is not [token, id]",
                        name, key);
    *id = (int32_t)gsv_json_get_int(number);
    return GPUSERVE_OK;
}

static gpuserve_status parse_type_id(const struct gsv_json_value *piece, const char *name,
                                     uint8_t *type, gpuserve_error *error)
{
    int64_t value = 0;
    gpuserve_status status = gsv_json_need(piece, "type_id", GSV_JSON_INT, name, error);

    if (status == GPUSERVE_OK)
        status = gsv_json_int(piece, "type_id", name, 0, UINT32_MAX, &value, error);
    if (status == GPUSERVE_OK && value > UINT8_MAX)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: \"type_id\" is %lld, the limit is %d",
                        name, (long long)value, UINT8_MAX);
    *type = (uint8_t)value;
    return status;
}

/* Add { "SpecialToken": { "id": "[CLS]", "type_id": 0 } }; `specials` has the token ids of each
 * name. */
static gpuserve_status parse_special(struct gsv_template *t, const struct gsv_json_value *piece,
                                     const struct gsv_json_value *specials, const char *name,
                                     gpuserve_error *error)
{
    const char *text = gsv_json_get_string(gsv_json_member(piece, "id"));
    const struct gsv_json_value *ids =
        gsv_json_member(gsv_json_member(specials, text ? text : ""), "ids");
    uint8_t type = 0;
    const gpuserve_status status = parse_type_id(piece, name, &type, error);

    if (status != GPUSERVE_OK)
        return status;
    if (!gsv_json_is(ids, GSV_JSON_ARRAY))
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: post-processor: special token \"%s\" is missing in \"special_tokens\"",
                        name, text ? text : "");
    for (size_t i = 0; i < gsv_json_count(ids); i++) {
        const struct gsv_json_value *id = gsv_json_at(ids, i);

        if (gsv_json_get_int(id) > GSV_VOCAB_MAX_ID)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                            "%s: post-processor: an id of \"%s\" exceeds %d", name, text,
                            GSV_VOCAB_MAX_ID);
        if (t->n == GSV_TEMPLATE_MAX)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                            "%s: post-processor: more than %d special tokens", name,
                            GSV_TEMPLATE_MAX);
        add_special(t, (int32_t)gsv_json_get_int(id), type);
    }
    return GPUSERVE_OK;
}

/* Check { "[CLS]": { "id": "[CLS]", "ids": [101], "tokens": ["[CLS]"] } }, including unused
 * entries. */
static gpuserve_status check_specials(const struct gsv_json_value *specials, const char *name,
                                      gpuserve_error *error)
{
    gpuserve_status status = GPUSERVE_OK;

    for (size_t i = 0; i < specials->n && status == GPUSERVE_OK; i++) {
        const struct gsv_json_value *special = specials->is.fields[i];
        const struct gsv_json_value *ids = gsv_json_member(special, "ids");
        const struct gsv_json_value *tokens = gsv_json_member(special, "tokens");

        status = gsv_json_need(special, "id", GSV_JSON_STRING, name, error);
        if (status == GPUSERVE_OK)
            status = gsv_json_need(special, "ids", GSV_JSON_ARRAY, name, error);
        if (status == GPUSERVE_OK)
            status = gsv_json_need(special, "tokens", GSV_JSON_ARRAY, name, error);
        for (size_t k = 0; k < gsv_json_count(ids); k++) {
            const struct gsv_json_value *id = gsv_json_at(ids, k);

            if (!gsv_json_is(id, GSV_JSON_INT) || gsv_json_get_int(id) < 0 ||
                gsv_json_get_int(id) > UINT32_MAX)
                return gsv_fail(error, GPUSERVE_E_FORMAT,
                                "%s: post-processor: invalid id of \"%s\"", name, special->key);
        }
        for (size_t k = 0; k < gsv_json_count(tokens); k++)
            if (!gsv_json_get_string(gsv_json_at(tokens, k)))
                return gsv_fail(error, GPUSERVE_E_FORMAT,
                                "%s: post-processor: a token of \"%s\" is not a string", name,
                                special->key);
    }
    return status;
}

/* Check that each piece is an object with one field that has an id: { "Sequence": { "id": "A",
 * "type_id": 0 } }. */
static gpuserve_status check_pieces(const struct gsv_json_value *pieces, const char *name,
                                    gpuserve_error *error)
{
    for (size_t i = 0; i < gsv_json_count(pieces); i++) {
        const struct gsv_json_value *piece = gsv_json_at(pieces, i);
        uint8_t type;
        gpuserve_status status;

        if (!gsv_json_is(piece, GSV_JSON_OBJECT) || piece->n != 1 ||
            !gsv_json_get_string(gsv_json_member(piece->is.fields[0], "id")))
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: post-processor: piece %zu of a template is neither a special "
                            "token nor a sequence",
                            name, i);
        status = parse_type_id(piece->is.fields[0], name, &type, error);
        if (status != GPUSERVE_OK)
            return status;
    }
    return GPUSERVE_OK;
}

/* Parse a template: A exactly once, and in a pair template then B exactly once. */
static gpuserve_status parse_template(struct gsv_template *t, const struct gsv_json_value *pieces,
                                      bool pair, const struct gsv_json_value *specials,
                                      const char *name, gpuserve_error *error)
{
    bool seen_a = false, seen_b = false;
    gpuserve_status status = GPUSERVE_OK;

    for (size_t i = 0; i < gsv_json_count(pieces) && status == GPUSERVE_OK; i++) {
        const struct gsv_json_value *special =
            gsv_json_member(gsv_json_at(pieces, i), "SpecialToken");
        const struct gsv_json_value *sequence = gsv_json_member(gsv_json_at(pieces, i), "Sequence");
        const char *id = gsv_json_get_string(gsv_json_member(sequence, "id"));

        if (special) {
            status = parse_special(t, special, specials, name, error);
        } else if (id && strcmp(id, "A") == 0 && !seen_a) {
            seen_a = true;
            t->n_before = t->n;
            status = parse_type_id(sequence, name, &t->type_a, error);
        } else if (id && strcmp(id, "B") == 0 && seen_a && !seen_b && pair) {
            seen_b = true;
            t->n_between = t->n - t->n_before;
            status = parse_type_id(sequence, name, &t->type_b, error);
        } else {
            seen_a = false;
            break;
        }
    }
    if (status == GPUSERVE_OK && (!seen_a || seen_b != pair))
        return gsv_fail(
            error, GPUSERVE_E_UNSUPPORTED,
            "%s: post-processor: the template for %s must contain each text once, in order", name,
            pair ? "pairs" : "a single text");
    return status;
}

static gpuserve_status parse_processing(struct gsv_post_processor *p,
                                        const struct gsv_json_value *json, const char *name,
                                        gpuserve_error *error)
{
    const struct gsv_json_value *specials = gsv_json_member(json, "special_tokens");
    gpuserve_status status = gsv_json_need(json, "special_tokens", GSV_JSON_OBJECT, name, error);

    if (status == GPUSERVE_OK)
        status = gsv_json_need(json, "single", GSV_JSON_ARRAY, name, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_need(json, "pair", GSV_JSON_ARRAY, name, error);
    if (status == GPUSERVE_OK)
        status = check_specials(specials, name, error);
    if (status == GPUSERVE_OK)
        status = check_pieces(gsv_json_member(json, "single"), name, error);
    if (status == GPUSERVE_OK)
        status = check_pieces(gsv_json_member(json, "pair"), name, error);
    if (status == GPUSERVE_OK)
        status = parse_template(&p->single, gsv_json_member(json, "single"), false, specials, name,
                                error);
    if (status == GPUSERVE_OK)
        status =
            parse_template(&p->pair, gsv_json_member(json, "pair"), true, specials, name, error);
    return status;
}

/* Parse "trim_offsets" and "add_prefix_space"; both are required. */
static gpuserve_status parse_trim(struct gsv_post_processor *p, const struct gsv_json_value *json,
                                  const char *name, gpuserve_error *error)
{
    bool trims = false;
    gpuserve_status status;

    /* Without both, `tokenizers` silently takes it for another kind of processor. */
    if (!gsv_json_is(gsv_json_member(json, "trim_offsets"), GSV_JSON_BOOL) ||
        !gsv_json_is(gsv_json_member(json, "add_prefix_space"), GSV_JSON_BOOL))
        return gsv_fail(
            error, GPUSERVE_E_UNSUPPORTED,
            "%s: post-processor \"%s\": \"trim_offsets\" or \"add_prefix_space\" is missing", name,
            gsv_json_get_string(gsv_json_member(json, "type")));
    status = gsv_json_bool(json, "trim_offsets", name, &trims, error);
    if (status != GPUSERVE_OK || !trims)
        return status;
    if (p->trim_offsets)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: two post-processors with \"trim_offsets\" are not supported", name);
    p->trim_offsets = true;
    return gsv_json_bool(json, "add_prefix_space", name, &p->add_prefix_space, error);
}

static gpuserve_status parse_bert(struct gsv_post_processor *p, const struct gsv_json_value *json,
                                  bool roberta, const char *name, gpuserve_error *error)
{
    int32_t cls = 0, sep = 0;
    gpuserve_status status = parse_named_id(json, "cls", name, &cls, error);

    if (status == GPUSERVE_OK)
        status = parse_named_id(json, "sep", name, &sep, error);
    if (status == GPUSERVE_OK && roberta)
        status = parse_trim(p, json, name, error);
    if (status != GPUSERVE_OK)
        return status;
    if (!roberta) {
        gsv_post_processor_bert(p, cls, sep);
        return GPUSERVE_OK;
    }
    gsv_post_processor_roberta(p, cls, sep);
    return GPUSERVE_OK;
}

/* Parse a processor that is not a Sequence. *last is set by one that adds special tokens: no other
 * may follow. */
static gpuserve_status parse_one(struct gsv_post_processor *p, const struct gsv_json_value *json,
                                 bool *last, const char *name, gpuserve_error *error)
{
    const char *type = gsv_json_get_string(gsv_json_member(json, "type"));

    if (*last)
        return gsv_fail(
            error, GPUSERVE_E_UNSUPPORTED,
            "%s: post-processor \"%s\" after one that adds special tokens is not supported", name,
            type ? type : "");
    if (type && strcmp(type, "ByteLevel") == 0)
        return parse_trim(p, json, name, error);
    *last = true;
    if (type && strcmp(type, "TemplateProcessing") == 0)
        return parse_processing(p, json, name, error);
    if (type && strcmp(type, "BertProcessing") == 0)
        return parse_bert(p, json, false, name, error);
    if (type && strcmp(type, "RobertaProcessing") == 0)
        return parse_bert(p, json, true, name, error);
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: post-processor \"%s\" is not supported",
                    name, type ? type : "");
}

gpuserve_status gsv_post_processor_parse(struct gsv_post_processor *p,
                                         const struct gsv_json_value *json, const char *name,
                                         gpuserve_error *error)
{
    const char *type = gsv_json_get_string(gsv_json_member(json, "type"));
    const struct gsv_json_value *parts = gsv_json_member(json, "processors");
    gpuserve_status status = GPUSERVE_OK;
    bool last = false;

    p->pair.type_b = 1;
    if (!json || gsv_json_is(json, GSV_JSON_NULL))
        return GPUSERVE_OK;
    if (!type || strcmp(type, "Sequence") != 0)
        return parse_one(p, json, &last, name, error);
    if (!gsv_json_is(parts, GSV_JSON_ARRAY))
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: post-processor \"Sequence\": \"processors\" is missing", name);
    for (size_t i = 0; i < gsv_json_count(parts) && status == GPUSERVE_OK; i++)
        status = parse_one(p, gsv_json_at(parts, i), &last, name, error);
    return status;
}
