/*
 * post_processor.c - reading the "post_processor" of tokenizer.json into two templates.
 */
#include "lib/text/post_processor.h"

#include "lib/base/error.h"
#include "lib/base/json.h"
#include "lib/text/vocab.h"

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

/* <s> A </s>, and <s> A </s> </s> B </s>, all of type 0. */
static void roberta_templates(struct gsv_post_processor *p, int32_t cls, int32_t sep)
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
}

/* ["[SEP]", 102] */
static gpuserve_status parse_named_id(const json_t *json, const char *key, const char *name,
                                      int32_t *id, gpuserve_error *error)
{
    const json_t *number = json_array_get(json_object_get(json, key), 1);

    if (!json_is_integer(number) || json_integer_value(number) < 0 ||
        json_integer_value(number) > GSV_VOCAB_MAX_ID)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: post-processor: \"%s\" is not [token, id]",
                        name, key);
    *id = (int32_t)json_integer_value(number);
    return GPUSERVE_OK;
}

static gpuserve_status parse_type_id(const json_t *piece, const char *name, uint8_t *type,
                                     gpuserve_error *error)
{
    int64_t value = 0;
    const gpuserve_status status = gsv_json_int(piece, "type_id", name, 0, 255, &value, error);

    *type = (uint8_t)value;
    return status;
}

/* { "SpecialToken": { "id": "[CLS]", "type_id": 0 } } by the table of special tokens. */
static gpuserve_status parse_special(struct gsv_template *t, const json_t *piece,
                                     const json_t *specials, const char *name,
                                     gpuserve_error *error)
{
    const char *text = json_string_value(json_object_get(piece, "id"));
    const json_t *ids = json_object_get(json_object_get(specials, text ? text : ""), "ids");
    uint8_t type = 0;
    const gpuserve_status status = parse_type_id(piece, name, &type, error);

    if (status != GPUSERVE_OK)
        return status;
    if (!json_is_array(ids))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: post-processor: no special token \"%s\"",
                        name, text ? text : "");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);

        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > GSV_VOCAB_MAX_ID)
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: post-processor: a bad id of \"%s\"",
                            name, text);
        if (t->n == GSV_TEMPLATE_MAX)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                            "%s: post-processor: more than %d special tokens", name,
                            GSV_TEMPLATE_MAX);
        add_special(t, (int32_t)json_integer_value(id), type);
    }
    return GPUSERVE_OK;
}

/* A template's pieces, in which A comes once, and then B once in that for pairs. */
static gpuserve_status parse_template(struct gsv_template *t, const json_t *pieces, bool pair,
                                      const json_t *specials, const char *name,
                                      gpuserve_error *error)
{
    bool seen_a = false, seen_b = false;
    gpuserve_status status = GPUSERVE_OK;

    for (size_t i = 0; i < json_array_size(pieces) && status == GPUSERVE_OK; i++) {
        const json_t *special = json_object_get(json_array_get(pieces, i), "SpecialToken");
        const json_t *sequence = json_object_get(json_array_get(pieces, i), "Sequence");
        const char *id = json_string_value(json_object_get(sequence, "id"));

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
            "%s: post-processor: a template for %s that has not each text once, in order", name,
            pair ? "pairs" : "a single text");
    return status;
}

static gpuserve_status parse_processing(struct gsv_post_processor *p, const json_t *json,
                                        const char *name, gpuserve_error *error)
{
    const json_t *specials = json_object_get(json, "special_tokens");
    gpuserve_status status =
        parse_template(&p->single, json_object_get(json, "single"), false, specials, name, error);

    if (status == GPUSERVE_OK)
        status =
            parse_template(&p->pair, json_object_get(json, "pair"), true, specials, name, error);
    return status;
}

gpuserve_status gsv_post_processor_parse(struct gsv_post_processor *p, const json_t *json,
                                         const char *name, gpuserve_error *error)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    gpuserve_status status;
    int32_t cls = 0, sep = 0;
    bool bert;

    p->pair.type_b = 1;
    if (!json || json_is_null(json))
        return GPUSERVE_OK;
    if (type && strcmp(type, "TemplateProcessing") == 0)
        return parse_processing(p, json, name, error);
    bert = type && strcmp(type, "BertProcessing") == 0;
    if (!bert && (!type || strcmp(type, "RobertaProcessing") != 0))
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: post-processor \"%s\"", name,
                        type ? type : "");
    status = parse_named_id(json, "cls", name, &cls, error);
    if (status == GPUSERVE_OK)
        status = parse_named_id(json, "sep", name, &sep, error);
    if (status != GPUSERVE_OK || bert) {
        gsv_post_processor_bert(p, cls, sep);
        return status;
    }
    p->pair.type_b = 0;
    roberta_templates(p, cls, sep);
    p->trim_offsets = p->add_prefix_space = true;
    status = gsv_json_bool(json, "trim_offsets", name, &p->trim_offsets, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(json, "add_prefix_space", name, &p->add_prefix_space, error);
    return status;
}
