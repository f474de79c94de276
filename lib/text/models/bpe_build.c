/*
 * bpe_build.c - builds the lookup tables of a BPE model.
 *
 * Tables: the merges (hash table and Bloom filter), the one-character tokens by position, the
 * bitmap of adjacent characters, the byte tokens, and with ignore_merges the trie of whole words.
 * Models for which equality with `tokenizers` cannot be kept are refused.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/text/models/bpe.h"
#include "lib/text/models/byte_alphabet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ merges */

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static struct gsv_bpe_merge *merge_slot(const struct gsv_bpe *m, uint64_t pair)
{
    size_t slot = gsv_bpe_hash(pair) & (m->n_slots - 1);

    while (m->merges[slot].pair != pair && m->merges[slot].pair != GSV_BPE_NO_PAIR)
        slot = (slot + 1) & (m->n_slots - 1);
    return &m->merges[slot];
}

static bool grow_merges(struct gsv_bpe *m)
{
    const struct gsv_bpe old = *m;
    const size_t n_slots = old.n_slots ? 2 * old.n_slots : 256;
    struct gsv_bpe_merge *merges = gsv_alloc_array(n_slots, sizeof(*merges));

    if (!merges)
        return false;
    for (size_t i = 0; i < n_slots; i++)
        merges[i].pair = GSV_BPE_NO_PAIR;
    m->merges = merges;
    m->n_slots = n_slots;
    for (size_t i = 0; i < old.n_slots; i++)
        if (old.merges[i].pair != GSV_BPE_NO_PAIR)
            *merge_slot(m, old.merges[i].pair) = old.merges[i];
    free(old.merges);
    return true;
}

bool gsv_bpe_add_merge(struct gsv_bpe *m, int32_t left, int32_t right, int32_t id, uint32_t rank)
{
    const uint64_t pair = pair_of(left, right);
    struct gsv_bpe_merge *slot;

    if (5 * (m->n_merges + 1) > 4 * m->n_slots && !grow_merges(m))
        return false;
    slot = merge_slot(m, pair);
    m->n_merges += slot->pair == GSV_BPE_NO_PAIR;
    *slot = (struct gsv_bpe_merge){ pair, rank, id };
    return true;
}

bool gsv_bpe_has_merge(const struct gsv_bpe *m, int32_t left, int32_t right)
{
    const uint64_t pair = pair_of(left, right);

    return m->n_slots > 0 && merge_slot(m, pair)->pair == pair;
}

/* Build the Bloom filter. Without merges no bit is set, so find_merge never reads the empty
 * table. */
static bool make_pair_bits(struct gsv_bpe *m)
{
    size_t n_bits = 64;

    m->pair_shift = 64 - 6;
    for (; n_bits < 16 * m->n_merges; n_bits *= 2)
        m->pair_shift--;
    m->may_merge = gsv_alloc_array(n_bits / 64, sizeof(*m->may_merge));
    for (size_t i = 0; i < m->n_slots && m->may_merge; i++) {
        const uint64_t bit = gsv_bpe_hash(m->merges[i].pair) >> m->pair_shift;

        if (m->merges[i].pair != GSV_BPE_NO_PAIR)
            m->may_merge[bit / 64] |= (uint64_t)1 << bit % 64;
    }
    return m->may_merge != NULL;
}

/* ------------------------------------------------------------------ characters */

/* Decode the first character of a vocabulary text as it occurs in words; -1: it cannot occur. */
static int64_t word_char(const struct gsv_bpe *m, const char *text, size_t *length)
{
    const uint32_t c = gsv_utf8_decode(text, length);

    return m->bytes ? gsv_byte_of_char(c) : (int64_t)c;
}

static void put_char(struct gsv_bpe *m, uint32_t c, unsigned position, int32_t id)
{
    const uint32_t key = position << 21 | c;
    size_t slot;

    if (c < 256) {
        m->low[position][c] = id;
        return;
    }
    slot = gsv_bpe_hash(key) & (m->n_chars - 1);
    while (m->chars[slot].key != GSV_BPE_NO_CHAR)
        slot = (slot + 1) & (m->n_chars - 1);
    m->chars[slot] = (struct gsv_bpe_char){ key, id };
}

/* Register a token that is one character, for each position whose prefix and suffix it has. */
static void take_char(struct gsv_bpe *m, const char *text, size_t size, int32_t id)
{
    const size_t prefix = strlen(m->prefix), suffix = strlen(m->suffix);

    for (unsigned position = 0; position < (m->has_affixes ? GSV_BPE_POSITIONS : 1u); position++) {
        const size_t before = position & GSV_BPE_INNER ? prefix : 0;
        const size_t after = position & GSV_BPE_LAST ? suffix : 0;
        size_t length;
        int64_t c;

        if (size <= before + after || memcmp(text, m->prefix, before) != 0 ||
            memcmp(text + size - after, m->suffix, after) != 0)
            continue;
        if (((unsigned char)text[before] & 0xC0) == 0x80) /* starts inside a UTF-8 sequence */
            continue;
        c = word_char(m, text + before, &length);
        if (c >= 0 && length == size - before - after)
            put_char(m, (uint32_t)c, position, id);
    }
}

/* Mark all adjacent character pairs of a token in `joined`. */
static void take_pairs(struct gsv_bpe *m, const char *text, size_t size)
{
    int64_t before = -1;

    for (size_t i = 0, length; i < size; i += length) {
        const int64_t c = word_char(m, text + i, &length);

        if (before >= 0 && c >= 0) {
            const size_t bit = gsv_bpe_joined_bit(m, (uint32_t)before, (uint32_t)c);

            m->joined[bit / 64] |= (uint64_t)1 << bit % 64;
        }
        before = c;
    }
}

static bool make_tables(struct gsv_bpe *m, const struct gsv_vocab *vocab)
{
    const size_t joined_bytes = ((size_t)1 << GSV_BPE_JOINED_BITS) / 8;

    m->n_chars = 16;
    while (m->n_chars < 2 * GSV_BPE_POSITIONS * vocab->n_model)
        m->n_chars *= 2;
    if (!m->has_affixes)
        m->n_chars /= m->n_chars > 64 ? 4 : 1;
    m->chars = gsv_alloc_array(m->n_chars, sizeof(*m->chars));
    m->joined = gsv_alloc_array(joined_bytes / 8, 8);
    if (!m->chars || !m->joined)
        return false;
    for (size_t i = 0; i < m->n_chars; i++)
        m->chars[i].key = GSV_BPE_NO_CHAR;
    memset(m->low, 0xFF, sizeof(m->low));                       /* every id is -1 */
    memset(m->joined, m->has_affixes ? 0xFF : 0, joined_bytes); /* affixes: words are not cut */
    for (size_t i = 0; i < vocab->n_model; i++) {
        const struct gsv_vocab_token *token = &vocab->tokens[i];

        if (token->size == 0)
            continue;
        take_char(m, vocab->text + token->at, token->size, token->id);
        take_pairs(m, vocab->text + token->at, token->size);
    }
    return true;
}

/* ------------------------------------------------------------------ other tables */

static void find_bytes(struct gsv_bpe *m, const struct gsv_vocab *vocab)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];

        snprintf(text, sizeof(text), "<0x%02X>", byte);
        m->byte_ids[byte] = gsv_vocab_model_id(vocab, text, 6);
    }
}

/* Convert a token to the bytes it has in words; false: it cannot occur in words. */
static bool to_word(const struct gsv_bpe *m, const char *text, size_t size, char *word, size_t *n)
{
    *n = 0;
    for (size_t i = 0, length; i < size; i += length) {
        const int64_t c = word_char(m, text + i, &length);

        if (c < 0)
            return false;
        if (m->bytes)
            word[(*n)++] = (char)c;
        else
            *n += gsv_utf8_encode((uint32_t)c, word + *n);
    }
    return *n > 0;
}

static bool make_words(struct gsv_bpe *m, const struct gsv_vocab *vocab)
{
    struct gsv_trie_builder b = { 0 };
    char *word = malloc(GSV_VOCAB_MAX_TOKEN_BYTES + 1);
    bool good = word && gsv_trie_add(&b, -1, NULL, 0, -1); /* root even without tokens */
    size_t n;

    for (size_t i = 0; i < vocab->n_model && good; i++) {
        const struct gsv_vocab_token *token = &vocab->tokens[i];

        if (to_word(m, vocab->text + token->at, token->size, word, &n))
            good = gsv_trie_add(&b, -1, word, n, token->id);
    }
    good = good && gsv_trie_build(&m->words, &b);
    m->word_ids = good ? gsv_alloc_array(m->words.n, sizeof(*m->word_ids)) : NULL;
    for (size_t i = 0; m->word_ids && i < m->words.n; i++)
        m->word_ids[i] = -1;
    for (size_t i = 0; m->word_ids && i < b.n; i++)
        m->word_ids[b.nodes[i].slot] = b.nodes[i].value;
    gsv_trie_builder_reset(&b);
    free(word);
    return m->word_ids != NULL;
}

/* The first byte valid in UTF-8 that has no token; -1: none is missing. */
static int find_lacking_byte(const struct gsv_bpe *m)
{
    for (unsigned position = 0; position < (m->has_affixes ? GSV_BPE_POSITIONS : 1u); position++)
        for (int byte = 0; byte < 0xF5; byte++)
            if (byte != 0xC0 && byte != 0xC1 && m->low[position][byte] < 0)
                return byte;
    return -1;
}

/* Check which characters can be unknown. At byte level every byte needs a token, or else an unknown
 * token without byte fallback: `tokenizers` drops the bytes otherwise and assigns wrong spans. */
static gpuserve_status check_unknown(struct gsv_bpe *m, const char *name, gpuserve_error *error)
{
    const int lacking = m->bytes ? find_lacking_byte(m) : -1;

    if (lacking >= 0 && (m->unknown < 0 || m->falls_back))
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: model: \"vocab\" has no token for byte 0x%02X", name, lacking);
    if (!m->bytes && m->has_unknown && m->unknown < 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: model: \"unk_token\" is not in the vocabulary", name);
    m->one_way = !m->has_affixes && !m->falls_back && (m->unknown < 0 || (m->bytes && lacking < 0));
    return GPUSERVE_OK;
}

/* Refuse two model tokens with the same id. An added token may share an id with a model token. */
static gpuserve_status check_ids(const struct gsv_vocab *vocab, const char *name,
                                 gpuserve_error *error)
{
    bool *seen = gsv_alloc_array(vocab->n_ids, sizeof(*seen));
    gpuserve_status status = GPUSERVE_OK;

    if (!seen)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for %zu ids", name,
                        vocab->n_ids);
    for (size_t i = 0; i < vocab->n_model && status == GPUSERVE_OK; i++) {
        const int32_t id = vocab->tokens[i].id;

        if (seen[id])
            status = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: model: two tokens have the id %d",
                              name, id);
        seen[id] = true;
    }
    free(seen);
    return status;
}

gpuserve_status gsv_bpe_build(struct gsv_bpe *m, const struct gsv_vocab *vocab, bool bytes,
                              const char *name, gpuserve_error *error)
{
    gpuserve_status status = check_ids(vocab, name, error);

    if (status != GPUSERVE_OK)
        return status;
    m->bytes = bytes;
    m->has_affixes = m->prefix[0] || m->suffix[0];
    find_bytes(m, vocab);
    if (!make_pair_bits(m) || !make_tables(m, vocab) ||
        (m->ignores_merges && !make_words(m, vocab)))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for %zu tokens", name,
                        vocab->n_model);
    return check_unknown(m, name, error);
}

void gsv_bpe_reset(struct gsv_bpe *m)
{
    free(m->prefix);
    free(m->suffix);
    free(m->merges);
    free(m->chars);
    free(m->joined);
    free(m->may_merge);
    free(m->word_ids);
    gsv_trie_reset(&m->words);
    *m = (struct gsv_bpe){ 0 };
}

size_t gsv_bpe_bytes(const struct gsv_bpe *m)
{
    return m->n_slots * sizeof(*m->merges) +
           (m->may_merge ? ((size_t)1 << (64 - m->pair_shift)) / 8 : 0) +
           m->n_chars * sizeof(*m->chars) +
           (m->joined ? ((size_t)1 << GSV_BPE_JOINED_BITS) / 8 : 0) +
           m->words.n * (sizeof(*m->words.units) + sizeof(*m->word_ids));
}
