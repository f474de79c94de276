/*
 * tokenizer_gguf.c - reads the tokenizer of a GGUF file: vocabulary, special tokens, WordPiece and
 * Unigram.
 *
 *   tokenizer.ggml.model   "bert": WordPiece       "t5": Unigram of XLM-RoBERTa
 *                          "gpt2": byte-level BPE  "llama": SentencePiece's BPE
 *
 * WordPiece tokens are stored with U+2581 before those that begin a word and without "##" before
 * the others; the original texts are restored. The file may say whether texts are lowercased; if
 * not, they are unless the vocabulary has capital letters.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/text/load/gguf_tokens.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BEGIN "\xE2\x96\x81" /* U+2581 */

/* ------------------------------------------------------------------ keys */

static gpuserve_status read_ids(struct gguf_tokens *from, gpuserve_error *error)
{
    int64_t padding; /* checked, though texts are not padded */
    const struct {
        const char *key;
        int64_t *id;
    } ids[] = {
        { "tokenizer.ggml.bos_token_id", &from->bos },
        { "tokenizer.ggml.eos_token_id", &from->eos },
        { "tokenizer.ggml.unknown_token_id", &from->unknown },
        { "tokenizer.ggml.seperator_token_id", &from->separator }, /* spelled so in the format */
        { "tokenizer.ggml.cls_token_id", &from->cls },
        { "tokenizer.ggml.mask_token_id", &from->mask },
        { "tokenizer.ggml.padding_token_id", &padding },
    };
    gpuserve_status status = GPUSERVE_OK;

    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]) && status == GPUSERVE_OK; i++) {
        *ids[i].id = -1;
        status =
            gsv_gguf_int(from->gguf, ids[i].key, 0, (int64_t)from->tokens->n - 1, ids[i].id, error);
    }
    return status;
}

/* Read the flags; they keep the caller's defaults if the file does not have them. */
static gpuserve_status read_flags(struct gguf_tokens *from, gpuserve_error *error)
{
    gpuserve_status status =
        gsv_gguf_bool(from->gguf, "tokenizer.ggml.add_bos_token", &from->adds_bos, error);

    if (status == GPUSERVE_OK)
        status = gsv_gguf_bool(from->gguf, "tokenizer.ggml.add_eos_token", &from->adds_eos, error);
    if (status == GPUSERVE_OK)
        status =
            gsv_gguf_bool(from->gguf, "tokenizer.ggml.add_sep_token", &from->adds_separator, error);
    return status;
}

static gpuserve_status check_length(const struct gguf_tokens *from,
                                    const struct gsv_gguf_value *array, const char *key,
                                    gpuserve_error *error)
{
    if (!array || array->n == from->tokens->n)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: key '%s' has %llu elements for %llu tokens",
                    from->gguf->shown, key, (unsigned long long)array->n,
                    (unsigned long long)from->tokens->n);
}

static gpuserve_status read_arrays(struct gguf_tokens *from, gpuserve_error *error)
{
    const struct gsv_gguf *gguf = from->gguf;
    gpuserve_status status =
        gsv_gguf_array(gguf, "tokenizer.ggml.tokens", GSV_GGUF_STRING, &from->tokens, error);

    if (status == GPUSERVE_OK && (!from->tokens || from->tokens->n == 0))
        status = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: key 'tokenizer.ggml.tokens' is %s",
                          gguf->shown, from->tokens ? "empty" : "missing");
    if (status == GPUSERVE_OK && from->tokens->n > GSV_VOCAB_MAX_ID)
        status = gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: %llu tokens, the limit is %d",
                          gguf->shown, (unsigned long long)from->tokens->n, GSV_VOCAB_MAX_ID);
    if (status == GPUSERVE_OK)
        status =
            gsv_gguf_array(gguf, "tokenizer.ggml.token_type", GSV_GGUF_INT32, &from->types, error);
    if (status == GPUSERVE_OK)
        status =
            gsv_gguf_array(gguf, "tokenizer.ggml.scores", GSV_GGUF_FLOAT32, &from->scores, error);
    if (status == GPUSERVE_OK)
        status = check_length(from, from->types, "tokenizer.ggml.token_type", error);
    if (status == GPUSERVE_OK)
        status = check_length(from, from->scores, "tokenizer.ggml.scores", error);
    if (status != GPUSERVE_OK)
        return status;
    from->n = from->tokens->n; /* rows without a token at the end of the embedding table */
    while (from->n > 1 && gsv_gguf_token_type(from, from->n - 1) == GSV_GGUF_TOKEN_UNUSED)
        from->n--;
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------ vocabulary */

/* Restore a WordPiece token: `buffer` has the capacity of the text plus 2. */
static struct gsv_gguf_text restore_word(struct gsv_gguf_text text, int32_t type, char *buffer)
{
    const size_t prefix_size = strlen(WORD_BEGIN);

    if (type == GSV_GGUF_TOKEN_CONTROL)
        return text;
    /* A lone U+2581 is the continuation "##" of itself: no word is empty. */
    if (text.size > prefix_size && memcmp(text.at, WORD_BEGIN, prefix_size) == 0)
        return (struct gsv_gguf_text){ text.at + prefix_size, text.size - prefix_size };
    memcpy(buffer, "##", 2);
    memcpy(buffer + 2, text.at, text.size);
    return (struct gsv_gguf_text){ buffer, text.size + 2 };
}

static gpuserve_status check_token(const struct gguf_tokens *from, uint64_t id,
                                   struct gsv_gguf_text text, gpuserve_error *error)
{
    const char *problem = NULL;

    if (text.size > GSV_VOCAB_MAX_TOKEN_BYTES)
        problem = "is longer than 65536 bytes";
    else if (gsv_utf8_valid_length(text.at, text.size) != text.size)
        problem = "is not UTF-8";
    else if (from->scores && !isfinite(gsv_gguf_float_at(from->scores, id)))
        problem = "has a score that is not a finite number";
    if (!problem)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: token %llu %s", from->gguf->shown,
                    (unsigned long long)id, problem);
}

/* Add all tokens; `buffer` has the capacity of the longest token plus 2. */
static gpuserve_status add_vocab(struct gguf_tokens *from, bool is_wordpiece, char *buffer,
                                 gpuserve_error *error)
{
    struct gsv_vocab *const vocab = &from->t->vocab;
    const char *const name = from->gguf->shown;
    gpuserve_status status = GPUSERVE_OK;
    size_t at = 0;

    for (uint64_t id = 0; id < from->n && status == GPUSERVE_OK; id++) {
        struct gsv_gguf_text text = gsv_gguf_next_string(from->tokens, &at);

        status = check_token(from, id, text, error);
        if (status != GPUSERVE_OK)
            return status;
        if (is_wordpiece)
            text = restore_word(text, gsv_gguf_token_type(from, id), buffer);
        if (text.size == 0)
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: token %llu is empty", name,
                            (unsigned long long)id);
        status = gsv_vocab_add_text(vocab, text.at, text.size, name, error);
    }
    return status;
}

static gpuserve_status read_vocab(struct gguf_tokens *from, bool is_wordpiece,
                                  gpuserve_error *error)
{
    struct gsv_vocab *const vocab = &from->t->vocab;
    const char *const name = from->gguf->shown;
    char *buffer = malloc(GSV_VOCAB_MAX_TOKEN_BYTES + 2);
    gpuserve_status status;

    if (!buffer)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", name);
    /* Each text is preceded by 8 bytes of length in the file, so "##" fits too. */
    status = gsv_vocab_reserve(vocab, from->tokens->size, name, error);
    if (status == GPUSERVE_OK)
        status = add_vocab(from, is_wordpiece, buffer, error);
    free(buffer);
    return status == GPUSERVE_OK ? gsv_vocab_finish(vocab, name, error) : status;
}

/* Add control tokens as special tokens and user-defined ones as added tokens. A mask token of other
 * models than BERT includes the white space before it, as in the original tokenizers. */
static gpuserve_status add_tokens(const struct gguf_tokens *from, bool is_wordpiece,
                                  gpuserve_error *error)
{
    struct gsv_tokenizer *const t = from->t;
    gpuserve_status status = GPUSERVE_OK;

    for (uint64_t id = 0; id < from->n && status == GPUSERVE_OK; id++) {
        const int32_t type = gsv_gguf_token_type(from, id);
        const bool special = type == GSV_GGUF_TOKEN_CONTROL || type == GSV_GGUF_TOKEN_UNKNOWN;
        size_t size = 0;
        const char *text = gsv_vocab_text(&t->vocab, (int32_t)id, &size);

        if (special || type == GSV_GGUF_TOKEN_USER_DEFINED)
            status = gsv_added_add(
                &t->added,
                (struct gsv_added_token){ .content = (char *)(uintptr_t)text,
                                          .size = size,
                                          .special = special,
                                          .lstrip = !is_wordpiece && (int64_t)id == from->mask },
                &t->vocab, from->gguf->shown, error);
    }
    return status;
}

void gsv_gguf_set_templates(struct gsv_tokenizer *t, int64_t first, int64_t last, size_t n_between,
                            uint8_t type_b)
{
    struct gsv_template *const templates[2] = { &t->post.single, &t->post.pair };

    for (size_t i = 0; i < 2; i++) {
        struct gsv_template *to = templates[i];

        to->n = 0;
        if (first >= 0)
            to->ids[to->n++] = (int32_t)first;
        to->n_before = to->n;
        to->n_between = 0;
        if (i == 1 && last >= 0)
            for (; to->n_between < n_between; to->n_between++)
                to->ids[to->n++] = (int32_t)last;
        if (last >= 0) {
            to->types[to->n] = i == 1 ? type_b : 0;
            to->ids[to->n++] = (int32_t)last;
        }
        to->type_b = i == 1 ? type_b : 0;
    }
}

/* ------------------------------------------------------------------ WordPiece */

static bool has_capitals(const struct gguf_tokens *from)
{
    for (uint64_t id = 0; id < from->n; id++) {
        size_t size = 0;
        const char *text = gsv_vocab_text(&from->t->vocab, (int32_t)id, &size);

        if (gsv_gguf_token_type(from, id) != GSV_GGUF_TOKEN_NORMAL)
            continue;
        for (size_t i = 0; i < size; i++)
            if (text[i] >= 'A' && text[i] <= 'Z')
                return true;
    }
    return false;
}

/* The id from a key, else that of the text; GPUSERVE_E_FORMAT if there is neither. */
static gpuserve_status find_special(const struct gguf_tokens *from, int64_t *id, const char *text,
                                    gpuserve_error *error)
{
    if (*id < 0)
        *id = gsv_vocab_id(&from->t->vocab, text, strlen(text));
    if (*id >= 0 && *id < (int64_t)from->n)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_FORMAT,
                    "%s: the file has neither an id nor a token for \"%s\"", from->gguf->shown,
                    text);
}

static gpuserve_status read_wordpiece_normalizer(struct gguf_tokens *from, gpuserve_error *error)
{
    bool lowercase = true, strip_accents;
    gpuserve_status status;

    if (!gsv_gguf_find(from->gguf, "tokenizer.ggml.normalizer.lowercase"))
        lowercase = !has_capitals(from);
    status = gsv_gguf_bool(from->gguf, "tokenizer.ggml.normalizer.lowercase", &lowercase, error);
    strip_accents = lowercase;
    if (status == GPUSERVE_OK)
        status = gsv_gguf_bool(from->gguf, "tokenizer.ggml.normalizer.strip_accents",
                               &strip_accents, error);
    if (status == GPUSERVE_OK)
        status =
            gsv_normalizer_bert(&from->t->normalizer, true, true, strip_accents, lowercase, error);
    return status;
}

static gpuserve_status read_wordpiece(struct gguf_tokens *from, gpuserve_error *error)
{
    struct gsv_tokenizer *const t = from->t;
    int64_t first = from->cls >= 0 ? from->cls : from->bos;
    int64_t last = from->separator >= 0 ? from->separator : from->eos;
    gpuserve_status status;

    from->adds_bos = from->adds_separator = true;
    status = read_flags(from, error);
    if (status == GPUSERVE_OK)
        status = find_special(from, &from->unknown, "[UNK]", error);
    if (status == GPUSERVE_OK && from->adds_bos)
        status = find_special(from, &first, "[CLS]", error);
    if (status == GPUSERVE_OK)
        status = find_special(from, &last, "[SEP]", error);
    if (status == GPUSERVE_OK)
        status = read_wordpiece_normalizer(from, error);
    if (status == GPUSERVE_OK)
        status = gsv_decoder_wordpiece(&t->decoder, "##", true, from->gguf->shown, error);
    if (status != GPUSERVE_OK)
        return status;
    t->model.kind = GSV_WORDPIECE;
    t->model.wordpiece.unknown = (int32_t)from->unknown;
    t->model.wordpiece.max_chars = 100;
    t->model.wordpiece.prefix = gsv_copy_text("##", 2);
    gsv_pretokenizer_bert(&t->pretokenizer);
    gsv_gguf_set_templates(t, from->adds_bos ? first : -1,
                           from->adds_separator || from->adds_eos ? last : -1, 1, 1);
    return t->model.wordpiece.prefix
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", from->gguf->shown);
}

/* ------------------------------------------------------------------ Unigram */

static gpuserve_status read_unigram_scores(struct gguf_tokens *from, gpuserve_error *error)
{
    gpuserve_status status = GPUSERVE_OK;

    if (!from->scores)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: key 'tokenizer.ggml.scores' is missing",
                        from->gguf->shown);
    for (uint64_t id = 0; id < from->n && status == GPUSERVE_OK; id++)
        status = gsv_unigram_add_score(&from->t->model.unigram,
                                       (double)gsv_gguf_float_at(from->scores, id),
                                       from->gguf->shown, error);
    return status;
}

/* The normalizer and the pre-tokenizer are those of XLM-RoBERTa. The key
 * "remove_extra_whitespaces" is not read: the converter fills it with an unrelated setting. */
static gpuserve_status read_unigram(struct gguf_tokens *from, gpuserve_error *error)
{
    static const char charsmap_key[] = "tokenizer.ggml.precompiled_charsmap";
    struct gsv_tokenizer *const t = from->t;
    const struct gsv_gguf_value *charsmap = NULL;
    bool has_prefix = true;
    gpuserve_status status;

    from->adds_eos = true;
    status = read_flags(from, error);
    if (status == GPUSERVE_OK)
        status = find_special(from, &from->unknown, "<unk>", error);
    if (status == GPUSERVE_OK && from->adds_bos)
        status = find_special(from, &from->bos, "<s>", error);
    if (status == GPUSERVE_OK && from->adds_eos)
        status = find_special(from, &from->eos, "</s>", error);
    if (status == GPUSERVE_OK)
        status = read_unigram_scores(from, error);
    if (status == GPUSERVE_OK)
        status = gsv_gguf_array(from->gguf, charsmap_key, GSV_GGUF_UINT8, &charsmap, error);
    if (status == GPUSERVE_OK)
        status = gsv_gguf_bool(from->gguf, "tokenizer.ggml.add_space_prefix", &has_prefix, error);
    if (status == GPUSERVE_OK)
        status = gsv_normalizer_spm(&t->normalizer, charsmap ? charsmap->data : NULL,
                                    charsmap ? charsmap->size : 0, from->gguf->shown, error);
    if (status == GPUSERVE_OK)
        status = gsv_decoder_metaspace(&t->decoder, from->gguf->shown, error);
    if (status != GPUSERVE_OK)
        return status;
    t->model.kind = GSV_UNIGRAM;
    t->model.unigram.unknown = (int32_t)from->unknown;
    gsv_pretokenizer_metaspace(&t->pretokenizer);
    if (!has_prefix)
        t->pretokenizer.steps[0].scheme = GSV_PREFIX_NEVER;
    gsv_gguf_set_templates(t, from->adds_bos ? from->bos : -1, from->adds_eos ? from->eos : -1,
                           from->adds_bos ? 2 : 1, 0);
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------ all models */

gpuserve_status gsv_tokenizer_read_gguf(struct gsv_tokenizer *t, const struct gsv_gguf *gguf,
                                        gpuserve_error *error)
{
    static const struct {
        const char *name;
        gpuserve_status (*read)(struct gguf_tokens *from, gpuserve_error *error);
    } models[] = {
        { "bert", read_wordpiece },
        { "t5", read_unigram },
        { "gpt2", gsv_gguf_read_gpt2 },
        { "llama", gsv_gguf_read_llama },
    };
    struct gguf_tokens from = { .t = t, .gguf = gguf };
    struct gsv_gguf_text model = { NULL, 0 };
    gpuserve_status status = gsv_gguf_string(gguf, "tokenizer.ggml.model", &model, error);

    if (status == GPUSERVE_OK && !model.at)
        status = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: key 'tokenizer.ggml.model' is missing",
                          gguf->shown);
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]) && status == GPUSERVE_OK; i++) {
        const bool is_wordpiece = i == 0;

        if (!gsv_gguf_text_is(model, models[i].name))
            continue;
        status = read_arrays(&from, error);
        if (status == GPUSERVE_OK)
            status = read_ids(&from, error);
        if (status == GPUSERVE_OK)
            status = read_vocab(&from, is_wordpiece, error);
        if (status == GPUSERVE_OK)
            status = add_tokens(&from, is_wordpiece, error);
        return status == GPUSERVE_OK ? models[i].read(&from, error) : status;
    }
    if (status != GPUSERVE_OK)
        return status;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    "%s: tokenizer model '%.*s' is not supported; bert, t5, gpt2 and llama are",
                    gguf->shown, (int)(model.size < 64 ? model.size : 64), model.at);
}
