/*
 * tokenizer.c - creates and frees tokenizers, decodes token ids to text, answers queries.
 *
 * Loading: gsv_tokenizer_read_files() fills the parts of struct gsv_tokenizer, then
 * gsv_tokenizer_finish() derives the lookup tables. Decoding: token texts -> decoder steps -> text.
 *
 * Threading: a loaded tokenizer is immutable; all queries are safe from any thread.
 */
#include "lib/text/tokenizer.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/text/pipeline/bert_fast_path.h"
#include "lib/text/tokenizer_parts.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static int by_size(const void *a_, const void *b_)
{
    const size_t a = *(const size_t *)a_, b = *(const size_t *)b_;

    return (a > b) - (a < b);
}

/* The median of the tokens' characters, rounded down as in model2vec. */
static gpuserve_status set_median(struct gsv_tokenizer *t, const struct gsv_dir *dir,
                                  gpuserve_error *error)
{
    size_t *sizes = gsv_alloc_array(t->vocab.n_ids, sizeof(*sizes));
    size_t n = 0;

    if (!sizes)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gsv_dir_path(dir));
    for (size_t i = 0; i < t->vocab.n_ids; i++) {
        size_t size;
        const char *token = gsv_tokenizer_token(t, (int32_t)i, &size);

        if (token)
            sizes[n++] = gsv_utf8_count(token, size);
    }
    qsort(sizes, n, sizeof(*sizes), by_size);
    t->median_characters = n > 0 ? (sizes[(n - 1) / 2] + sizes[n / 2]) / 2 : 0;
    free(sizes);
    return GPUSERVE_OK;
}

gpuserve_status gsv_tokenizer_load(struct gsv_tokenizer **tokenizer, const struct gsv_dir *dir,
                                   const struct gsv_tokenizer_settings *settings,
                                   gpuserve_error *error)
{
    static _Atomic uint64_t loaded; /* serial numbers identify the owner of a word cache */
    struct gsv_tokenizer *t = gsv_alloc_array(1, sizeof(*t));
    gpuserve_status status;

    *tokenizer = NULL;
    if (!t)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gsv_dir_path(dir));
    t->serial = atomic_fetch_add(&loaded, 1) + 1;
    t->lowers = settings && settings->do_lower_case;
    t->skips_unknown = settings && settings->skips_unknown;
    status = gsv_tokenizer_read_files(t, dir, settings ? settings->folder : NULL, error);
    if (settings && settings->no_special) {
        t->post.single.n = t->post.single.n_before = 0;
        t->post.pair.n = t->post.pair.n_before = t->post.pair.n_between = 0;
    }
    if (status == GPUSERVE_OK && settings && settings->cuts_characters)
        status = set_median(t, dir, error);
    if (status == GPUSERVE_OK)
        *tokenizer = t;
    else
        gsv_tokenizer_free(&t);
    return status;
}

gpuserve_status gsv_tokenizer_finish(struct gsv_tokenizer *t, const char *name,
                                     gpuserve_error *error)
{
    gpuserve_status status = gsv_token_model_build(
        &t->model, &t->vocab, gsv_pretokenizer_is_byte_level(&t->pretokenizer), name, error);

    if (status == GPUSERVE_OK)
        status = gsv_added_build(&t->added, &t->normalizer, name, error);
    if (status == GPUSERVE_OK && t->post.trim_offsets)
        status = gsv_trims_make(&t->trims, &t->vocab, name, error);
    if (status != GPUSERVE_OK)
        return status;
    t->scans = (t->model.kind == GSV_WORDPIECE || t->model.kind == GSV_WORDLEVEL) &&
               t->normalizer.simple && t->pretokenizer.bert && !t->trims;
    if (t->scans)
        gsv_bert_scan_prepare(t);
    return GPUSERVE_OK;
}

/* Whether the text is this one token, without the special tokens around a text. */
static gpuserve_status is_one_token(const struct gsv_tokenizer *t, const char *text, bool *is_one,
                                    gpuserve_error *error)
{
    const struct gsv_encode_options options = { .no_special = true };
    struct gsv_encoding encoding = { 0 };
    const gpuserve_status status =
        gsv_tokenizer_encode(t, &encoding, text, strlen(text), NULL, 0, &options, error);

    *is_one =
        status == GPUSERVE_OK && encoding.n == 1 && encoding.ids[0] == gsv_tokenizer_id(t, text);
    gsv_encoding_reset(&encoding);
    return status;
}

gpuserve_status gsv_tokenizer_add_special(struct gsv_tokenizer *t, const char *token,
                                          gpuserve_error *error)
{
    const struct gsv_added_token added = { .content = (char *)(uintptr_t)token,
                                           .size = strlen(token),
                                           .special = true };
    bool is_one;
    gpuserve_status status = is_one_token(t, token, &is_one, error);

    if (status != GPUSERVE_OK || is_one)
        return status;
    status = gsv_added_add(&t->added, added, &t->vocab, "special token", error);
    return status == GPUSERVE_OK
               ? gsv_added_build(&t->added, &t->normalizer, "special token", error)
               : status;
}

void gsv_tokenizer_free(struct gsv_tokenizer **tokenizer)
{
    struct gsv_tokenizer *t = tokenizer ? *tokenizer : NULL;

    if (!t)
        return;
    *tokenizer = NULL;
    gsv_vocab_reset(&t->vocab);
    gsv_added_reset(&t->added);
    gsv_normalizer_reset(&t->normalizer);
    gsv_token_model_reset(&t->model);
    gsv_decoder_reset(&t->decoder);
    free(t->trims);
    free(t);
}

/* ------------------------------------------------------------------ decoding */

static const char *text_of(const struct gsv_tokenizer *t, int32_t id, size_t *size)
{
    const struct gsv_added_token *added = gsv_added_by_id(&t->added, id);

    if (!added)
        return gsv_vocab_text(&t->vocab, id, size);
    *size = added->normalized_content ? added->normalized_size : added->size;
    return added->normalized_content ? added->normalized_content : added->content;
}

/* The text of an id as input of the decoder. NULL if no token has the id, or for a special token if
 * skip_special is set. As in `tokenizers`, the text decides what is special: a special token whose
 * normalized text differs is kept. */
static const char *token_text(const struct gsv_tokenizer *t, int32_t id, bool skip_special,
                              size_t *size)
{
    const char *text = text_of(t, id, size);
    const struct gsv_added_token *same;

    if (!text || !skip_special)
        return text;
    same = gsv_added_by_id(&t->added, gsv_vocab_id(&t->vocab, text, *size));
    return same && same->special ? NULL : text;
}

/* Concatenate and decode the tokens' texts. False when out of memory. */
static bool decode(const struct gsv_tokenizer *t, const int32_t *ids, size_t n_ids,
                   bool skip_special, struct gsv_decoded *decoded)
{
    for (size_t i = 0; i < n_ids; i++) {
        size_t size = 0;
        const char *token = token_text(t, ids[i], skip_special, &size);

        if (token && !gsv_decoded_add(decoded, token, size))
            return false;
    }
    return gsv_decoder_run(&t->decoder, decoded);
}

gpuserve_status gsv_tokenizer_decode(const struct gsv_tokenizer *t, const int32_t *ids,
                                     size_t n_ids, bool skip_special, char *text, size_t capacity,
                                     size_t *size, gpuserve_error *error)
{
    struct gsv_decoded decoded = { 0 };
    gpuserve_status status = GPUSERVE_OK;
    size_t needed;

    for (size_t i = 0; i < n_ids; i++)
        if ((size_t)ids[i] >= t->vocab.n_ids) /* also true for a negative id */
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "token id %d at index %zu is outside the vocabulary of %zu ids", ids[i],
                            i, t->vocab.n_ids);
    if (!decode(t, ids, n_ids, skip_special, &decoded)) {
        gsv_decoded_reset(&decoded);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for decoding");
    }
    needed = decoded.size + 1; /* including the NUL */
    if (size)
        *size = needed;
    if (text && decoded.size > 0)
        memcpy(text, decoded.bytes, needed <= capacity ? decoded.size : 0);
    if (!text || needed > capacity)
        status =
            gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the text needs %zu bytes, the buffer has %zu",
                     needed, text ? capacity : 0);
    else
        text[needed - 1] = '\0';
    gsv_decoded_reset(&decoded);
    return status;
}

/* ------------------------------------------------------------------ queries */

int32_t gsv_tokenizer_vocab_size(const struct gsv_tokenizer *t)
{
    return (int32_t)t->vocab.n_ids;
}

const char *gsv_tokenizer_kind(const struct gsv_tokenizer *t)
{
    return gsv_token_model_name(&t->model);
}

size_t gsv_tokenizer_special_count(const struct gsv_tokenizer *t, bool pair)
{
    return pair ? t->post.pair.n : t->post.single.n;
}

const int32_t *gsv_tokenizer_special_ids(const struct gsv_tokenizer *t, size_t *n_before, size_t *n)
{
    *n_before = t->post.single.n_before;
    *n = t->post.single.n;
    return t->post.single.ids;
}

bool gsv_tokenizer_is_special(const struct gsv_tokenizer *t, int32_t id)
{
    const struct gsv_added_token *added = gsv_added_by_id(&t->added, id);

    for (size_t i = 0; i < t->post.single.n; i++)
        if (t->post.single.ids[i] == id)
            return true;
    return (added && added->special) || id == gsv_tokenizer_unknown(t);
}

const char *gsv_tokenizer_token(const struct gsv_tokenizer *t, int32_t id, size_t *size)
{
    return (size_t)id < t->vocab.n_ids ? text_of(t, id, size) : NULL;
}

int32_t gsv_tokenizer_unknown(const struct gsv_tokenizer *t)
{
    return gsv_token_model_unknown(&t->model);
}

bool gsv_tokenizer_has_prefix(const struct gsv_tokenizer *t)
{
    const char *prefix = t->model.kind == GSV_WORDPIECE ? t->model.wordpiece.prefix
                         : t->model.kind == GSV_BPE     ? t->model.bpe.prefix
                                                        : NULL;

    return prefix && *prefix;
}

int32_t gsv_tokenizer_id(const struct gsv_tokenizer *t, const char *token)
{
    return gsv_vocab_id(&t->vocab, token, strlen(token));
}

size_t gsv_tokenizer_bytes(const struct gsv_tokenizer *t)
{
    return sizeof(*t) + (t->trims ? t->vocab.n_ids * sizeof(*t->trims) : 0) +
           gsv_vocab_bytes(&t->vocab) + gsv_token_model_bytes(&t->model) +
           gsv_normalizer_bytes(&t->normalizer) + t->added.capacity * sizeof(*t->added.tokens) +
           (t->added.raw.trie.n + t->added.normalized.trie.n) *
               (sizeof(*t->added.raw.trie.units) + sizeof(*t->added.raw.tokens));
}
