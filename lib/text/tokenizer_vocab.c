/*
 * tokenizer_vocab.c - vocab.txt and the files beside it to the parts of a BERT tokenizer.
 *
 * Older models have no tokenizer.json. The parts are then those that transformers' conversion
 * gives: BertNormalizer by do_lower_case, tokenize_chinese_chars and strip_accents,
 * BertPreTokenizer, [CLS] A [SEP] B [SEP]. Added tokens are those of tokenizer_config.json's
 * "added_tokens_decoder"; where a file has none, those of added_tokens.json, and the special ones
 * are what special_tokens_map.json calls so before tokenizer_config.json.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/text/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

/* Both in the order of transformers' names of them. */
static const char *const special_keys[][2] = {
    { "unk_token", "[UNK]" }, { "cls_token", "[CLS]" },   { "sep_token", "[SEP]" },
    { "pad_token", "[PAD]" }, { "mask_token", "[MASK]" }, { "bos_token", NULL },
    { "eos_token", NULL },
};

enum { N_SPECIAL_KEYS = sizeof(special_keys) / sizeof(special_keys[0]), N_NEEDED = 5 };

static const struct gsv_json_value *decoder_of(const struct gsv_vocab_files *files)
{
    const struct gsv_json_value *decoder = gsv_json_member(files->config, "added_tokens_decoder");

    return gsv_json_is(decoder, GSV_JSON_OBJECT) ? decoder : NULL;
}

/* The value of a key such as "cls_token"; NULL when no file has one. */
static const struct gsv_json_value *special_value(const struct gsv_vocab_files *files,
                                                  const char *key)
{
    const struct gsv_json_value *value =
        decoder_of(files) ? NULL : gsv_json_member(files->specials, key);

    if (!value || gsv_json_is(value, GSV_JSON_NULL))
        value = gsv_json_member(files->config, key);
    return gsv_json_is(value, GSV_JSON_NULL) ? NULL : value;
}

/* "[CLS]" or { "content": "[CLS]", ... }; `usual` when it is neither. */
static const char *token_text(const struct gsv_json_value *value, const char *usual)
{
    if (gsv_json_is(value, GSV_JSON_OBJECT))
        value = gsv_json_member(value, "content");
    return gsv_json_is(value, GSV_JSON_TEXT) ? gsv_json_text(value) : usual;
}

/* ---------------------------------------------------------------------------- added tokens */

/* Unless it is there already, with what its own entry says. */
static gpuserve_status add_special(struct gsv_tokenizer *t, const struct gsv_json_value *value,
                                   const char *text, const char *name, gpuserve_error *error)
{
    const int32_t id = gsv_vocab_id(&t->vocab, text, strlen(text));

    for (size_t i = 0; i < t->added.n; i++)
        if (id >= 0 && t->added.tokens[i].id == id)
            return GPUSERVE_OK;
    if (gsv_json_is(value, GSV_JSON_OBJECT))
        return gsv_added_parse_one(&t->added, value, true, &t->vocab, name, error);
    return gsv_added_add(&t->added,
                         (struct gsv_added_token){ .content = (char *)(uintptr_t)text,
                                                   .size = strlen(text),
                                                   .special = true },
                         &t->vocab, name, error);
}

static bool is_special(const struct gsv_vocab_files *files, const char *text)
{
    const struct gsv_json_value *more = special_value(files, "additional_special_tokens");

    for (size_t i = 0; i < N_SPECIAL_KEYS; i++) {
        const char *special =
            token_text(special_value(files, special_keys[i][0]), special_keys[i][1]);

        if (special && strcmp(special, text) == 0)
            return true;
    }
    for (size_t i = 0; i < gsv_json_count(more); i++)
        if (strcmp(token_text(gsv_json_at(more, i), ""), text) == 0)
            return true;
    return false;
}

/* A member of either file: in the one its key is the id, in the other its value. */
struct entry {
    int64_t id;
    const struct gsv_json_value *value;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

static gpuserve_status add_entry(struct gsv_tokenizer *t, const struct gsv_vocab_files *files,
                                 const struct gsv_json_value *value, const char *name,
                                 gpuserve_error *error)
{
    const bool special = value->kind == GSV_JSON_WHOLE && is_special(files, value->key);

    if (value->kind != GSV_JSON_WHOLE)
        return gsv_added_parse_one(&t->added, value, false, &t->vocab, name, error);
    return gsv_added_add(&t->added,
                         (struct gsv_added_token){ .content = (char *)(uintptr_t)value->key,
                                                   .size = strlen(value->key),
                                                   .special = special,
                                                   .normalized = !special },
                         &t->vocab, name, error);
}

static gpuserve_status list_entries(struct entry *entries, const struct gsv_json_value *members,
                                    const char *name, gpuserve_error *error)
{
    for (size_t i = 0; i < members->n; i++) {
        const struct gsv_json_value *value = members->is.members[i];
        char *end;

        entries[i].value = value;
        entries[i].id = gsv_json_whole(value);
        if (value->kind == GSV_JSON_OBJECT) {
            entries[i].id = strtoll(value->key, &end, 10);
            if (*end == '\0' && end != value->key)
                continue;
        } else if (value->kind == GSV_JSON_WHOLE) {
            continue;
        }
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: the added token of \"%.64s\" has no id",
                        name, value->key);
    }
    qsort(entries, members->n, sizeof(*entries), compare_entries);
    return GPUSERVE_OK;
}

/* By their ids, since those that the vocabulary lacks are appended to it in this order. */
static gpuserve_status read_added(struct gsv_tokenizer *t, const struct gsv_vocab_files *files,
                                  const char *name, gpuserve_error *error)
{
    const struct gsv_json_value *decoder = decoder_of(files);
    const struct gsv_json_value *members = decoder ? decoder : files->added;
    struct entry *entries;
    gpuserve_status status;

    if (!gsv_json_is(members, GSV_JSON_OBJECT))
        return GPUSERVE_OK;
    entries = gsv_alloc_array(members->n, sizeof(*entries));
    if (!entries)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for added tokens", name);
    status = list_entries(entries, members, name, error);
    for (size_t i = 0; i < members->n && status == GPUSERVE_OK; i++)
        status = add_entry(t, files, entries[i].value, name, error);
    free(entries);
    return status;
}

static gpuserve_status read_more_specials(struct gsv_tokenizer *t,
                                          const struct gsv_vocab_files *files, const char *name,
                                          gpuserve_error *error)
{
    const struct gsv_json_value *more = special_value(files, "additional_special_tokens");
    gpuserve_status status = GPUSERVE_OK;

    for (size_t i = 0; i < gsv_json_count(more) && status == GPUSERVE_OK; i++) {
        const char *text = token_text(gsv_json_at(more, i), NULL);

        if (text)
            status = add_special(t, gsv_json_at(more, i), text, name, error);
    }
    return status;
}

static gpuserve_status read_specials(struct gsv_tokenizer *t, const struct gsv_vocab_files *files,
                                     const char *name, gpuserve_error *error)
{
    int32_t ids[N_NEEDED] = { 0 };
    gpuserve_status status = read_added(t, files, name, error);

    for (size_t i = 0; i < N_SPECIAL_KEYS && status == GPUSERVE_OK; i++) {
        const struct gsv_json_value *value = special_value(files, special_keys[i][0]);
        const char *text = token_text(value, special_keys[i][1]);

        if (!text)
            continue;
        if (i < N_NEEDED) {
            ids[i] = gsv_vocab_id(&t->vocab, text, strlen(text));
            if (ids[i] < 0)
                return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: the vocabulary lacks \"%s\"", name,
                                text);
        }
        status = add_special(t, value, text, name, error);
    }
    if (status == GPUSERVE_OK)
        status = read_more_specials(t, files, name, error);
    if (status != GPUSERVE_OK)
        return status;
    t->model.wordpiece.unknown = ids[0];
    t->post.pair.type_b = 1;
    gsv_post_processor_bert(&t->post, ids[1], ids[2]);
    return GPUSERVE_OK;
}

/* ---------------------------------------------------------------------------- other parts */

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
                                         const struct gsv_vocab_files *files, const char *name,
                                         gpuserve_error *error)
{
    gpuserve_status status = gsv_vocab_read_lines(&t->vocab, text, size, name, error);

    if (status == GPUSERVE_OK)
        status = read_specials(t, files, name, error);
    if (status == GPUSERVE_OK)
        status = read_normalizer(t, files->config, error);
    if (status == GPUSERVE_OK)
        status = gsv_decoder_wordpiece(&t->decoder, "##", true, name, error);
    if (status != GPUSERVE_OK)
        return status;
    gsv_pretokenizer_bert(&t->pretokenizer);
    t->model.wordpiece.max_chars = 100;
    t->model.wordpiece.prefix = gsv_copy_text("##", 2);
    return t->model.wordpiece.prefix ? GPUSERVE_OK
                                     : gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", name);
}
