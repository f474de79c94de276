/*
 * tokenizer_vocab.c - vocab.txt and tokenizer_config.json to the parts of a BERT tokenizer.
 *
 * Older models have no tokenizer.json. The parts are then those that transformers' conversion
 * gives: BertNormalizer by do_lower_case, tokenize_chinese_chars and strip_accents,
 * BertPreTokenizer, [CLS] A [SEP] B [SEP], and the five special tokens.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/text/tokenizer_parts.h"

#include <string.h>

/* A special token's text: "[CLS]" or { "content": "[CLS]", ... }. */
static const char *special_text(const struct gsv_json_value *config, const char *key,
                                const char *usual)
{
    const struct gsv_json_value *value = gsv_json_member(config, key);

    if (gsv_json_is(value, GSV_JSON_OBJECT))
        value = gsv_json_member(value, "content");
    return gsv_json_is(value, GSV_JSON_TEXT) ? gsv_json_text(value) : usual;
}

static gpuserve_status find_special(struct gsv_tokenizer *t, const char *text, const char *name,
                                    int32_t *id, gpuserve_error *error)
{
    const struct gsv_added_token token = { .content = (char *)(uintptr_t)text,
                                           .size = strlen(text),
                                           .special = true };

    *id = gsv_vocab_id(&t->vocab, text, strlen(text));
    if (*id < 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: the vocabulary lacks \"%s\"", name, text);
    return gsv_added_add(&t->added, token, &t->vocab, name, error);
}

static gpuserve_status read_specials(struct gsv_tokenizer *t, const struct gsv_json_value *config,
                                     const char *name, gpuserve_error *error)
{
    static const char *const keys[][2] = {
        { "unk_token", "[UNK]" }, { "cls_token", "[CLS]" },   { "sep_token", "[SEP]" },
        { "pad_token", "[PAD]" }, { "mask_token", "[MASK]" },
    };
    int32_t ids[sizeof(keys) / sizeof(keys[0])] = { 0 };
    gpuserve_status status = GPUSERVE_OK;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && status == GPUSERVE_OK; i++)
        status =
            find_special(t, special_text(config, keys[i][0], keys[i][1]), name, &ids[i], error);
    if (status != GPUSERVE_OK)
        return status;
    t->model.unknown = ids[0];
    t->post.pair.type_b = 1;
    gsv_post_processor_bert(&t->post, ids[1], ids[2]);
    return GPUSERVE_OK;
}

static gpuserve_status read_normalizer(struct gsv_tokenizer *t, const struct gsv_json_value *config,
                                       gpuserve_error *error)
{
    const char *const name = "tokenizer_config.json";
    bool lowercase = true, chinese = true, strip_accents;
    gpuserve_status status = gsv_json_bool(config, "do_lower_case", name, &lowercase, error);

    strip_accents = lowercase;
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(config, "strip_accents", name, &strip_accents, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(config, "tokenize_chinese_chars", name, &chinese, error);
    if (status == GPUSERVE_OK)
        status =
            gsv_normalizer_bert(&t->normalizer, true, chinese, strip_accents, lowercase, error);
    return status;
}

gpuserve_status gsv_tokenizer_read_vocab(struct gsv_tokenizer *t, const char *text, size_t size,
                                         const struct gsv_json_value *config, const char *name,
                                         gpuserve_error *error)
{
    gpuserve_status status = gsv_vocab_read_lines(&t->vocab, text, size, name, error);

    if (status == GPUSERVE_OK)
        status = read_specials(t, config, name, error);
    if (status == GPUSERVE_OK)
        status = read_normalizer(t, config, error);
    if (status == GPUSERVE_OK)
        status = gsv_decoder_wordpiece(&t->decoder, "##", true, name, error);
    if (status != GPUSERVE_OK)
        return status;
    gsv_pretokenizer_bert(&t->pretokenizer);
    t->model.max_chars = 100;
    t->model.prefix = gsv_copy_text("##", 2);
    return t->model.prefix ? GPUSERVE_OK
                           : gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", name);
}
