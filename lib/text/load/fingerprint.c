/*
 * fingerprint.c - feeds all data that determines token ids to a digest.
 *
 * The order and the byte order are fixed: equal tokenizers have equal digests on every machine. The
 * result is the tokenizer's part of the model fingerprint.
 */
#include "lib/text/tokenizer_parts.h"

#include <string.h>

struct digest {
    void (*update)(void *state, const void *bytes, size_t size);
    void *state;
};

/* Always little-endian. */
static void add_number(const struct digest *d, uint64_t number)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(number >> 8 * i);
    d->update(d->state, bytes, sizeof(bytes));
}

/* The length prefix makes the concatenation of texts unambiguous. */
static void add_text(const struct digest *d, const char *text, size_t size)
{
    add_number(d, size);
    d->update(d->state, text, size);
}

static void add_vocab(const struct digest *d, const struct gsv_vocab *vocab)
{
    add_number(d, vocab->n_ids);
    for (size_t id = 0; id < vocab->n_ids; id++) {
        size_t size = 0;
        const char *text = gsv_vocab_text(vocab, (int32_t)id, &size);

        add_text(d, text ? text : "", size);
    }
}

static void add_added(const struct digest *d, const struct gsv_added_tokens *added)
{
    add_number(d, added->n);
    for (size_t i = 0; i < added->n; i++) {
        const struct gsv_added_token *t = &added->tokens[i];

        add_text(d, t->content, t->size);
        add_number(d, (uint64_t)t->id);
        add_number(d, (uint64_t)t->single_word | (uint64_t)t->lstrip << 1 |
                          (uint64_t)t->rstrip << 2 | (uint64_t)t->normalized << 3);
    }
}

static void add_chars(const struct digest *d, const struct gsv_chars *chars)
{
    add_number(d, chars->n);
    for (size_t i = 0; i < chars->n; i++)
        add_number(d, chars->at[i].c);
}

static void add_charsmap(const struct digest *d, const struct gsv_charsmap *m)
{
    add_number(d, m->n_units);
    for (size_t i = 0; i < m->n_units; i++)
        add_number(d, m->units[i]);
    add_text(d, m->strings, m->size);
}

/* Fields of "Split"; "ByteLevel" uses the same. */
static void add_split(const struct digest *d, const struct gsv_pretoken_step *step)
{
    add_number(d, (uint64_t)step->scheme);
    add_number(d, (uint64_t)step->pattern);
    add_number(d, step->inverted);
    add_number(d, step->n_literal);
    for (size_t i = 0; i < step->n_literal; i++)
        add_number(d, step->literal[i]);
}

static void add_steps(const struct digest *d, const struct gsv_tokenizer *t)
{
    add_number(d, t->normalizer.n);
    for (size_t i = 0; i < t->normalizer.n; i++) {
        const struct gsv_normal_step *step = &t->normalizer.steps[i];

        add_number(d, (uint64_t)step->kind);
        add_number(d, (uint64_t)step->left | (uint64_t)step->right << 1);
        add_chars(d, &step->pattern);
        add_chars(d, &step->content);
        if (step->charsmap)
            add_charsmap(d, step->charsmap);
    }
    add_number(d, t->pretokenizer.n);
    for (size_t i = 0; i < t->pretokenizer.n; i++) {
        add_number(d, (uint64_t)t->pretokenizer.steps[i].kind);
        add_number(d, (uint64_t)t->pretokenizer.steps[i].behavior);
        if (t->pretokenizer.steps[i].kind >= GSV_PRETOKEN_SPLIT)
            add_split(d, &t->pretokenizer.steps[i]);
        if (t->pretokenizer.steps[i].kind != GSV_PRETOKEN_METASPACE)
            continue;
        add_number(d, (uint64_t)t->pretokenizer.steps[i].scheme);
        add_number(d, t->pretokenizer.steps[i].replacement);
        add_number(d, t->pretokenizer.steps[i].splits);
    }
}

/* The slot order of the merge table depends only on the order of insertion. */
static void add_bpe(const struct digest *d, const struct gsv_bpe *m)
{
    add_text(d, m->prefix, strlen(m->prefix));
    add_text(d, m->suffix, strlen(m->suffix));
    add_number(d, (uint64_t)m->unknown);
    add_number(d, (uint64_t)m->fuses_unknown | (uint64_t)m->falls_back << 1 |
                      (uint64_t)m->ignores_merges << 2);
    add_number(d, m->n_merges);
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->merges[i].pair == GSV_BPE_NO_PAIR)
            continue;
        add_number(d, m->merges[i].pair);
        add_number(d, (uint64_t)m->merges[i].rank << 32 | (uint32_t)m->merges[i].id);
    }
}

static void add_template(const struct digest *d, const struct gsv_template *t)
{
    add_number(d, t->n);
    add_number(d, t->n_before);
    add_number(d, t->n_between);
    add_number(d, t->type_a);
    add_number(d, t->type_b);
    for (size_t i = 0; i < t->n; i++) {
        add_number(d, (uint64_t)t->ids[i]);
        add_number(d, t->types[i]);
    }
}

static void add_unigram(const struct digest *d, const struct gsv_unigram *m)
{
    add_number(d, (uint64_t)m->unknown);
    add_number(d, m->byte_fallback);
    add_number(d, m->n_scores);
    for (size_t i = 0; i < m->n_scores; i++) {
        uint64_t bits;

        memcpy(&bits, &m->scores[i], sizeof(bits));
        add_number(d, bits);
    }
}

static void add_model(const struct digest *d, const struct gsv_token_model *m)
{
    switch (m->kind) {
    case GSV_WORDPIECE:
        add_text(d, m->wordpiece.prefix, strlen(m->wordpiece.prefix));
        add_number(d, (uint64_t)m->wordpiece.unknown);
        add_number(d, m->wordpiece.max_chars);
        break;
    case GSV_WORDLEVEL:
        add_number(d, (uint64_t)m->wordpiece.unknown);
        break;
    case GSV_BPE:
        add_bpe(d, &m->bpe);
        break;
    case GSV_UNIGRAM:
        add_unigram(d, &m->unigram);
        break;
    case GSV_DICTIONARY:
        add_vocab(d, &m->dictionary.stops);
        break;
    }
}

void gsv_tokenizer_digest(const struct gsv_tokenizer *t,
                          void (*update)(void *state, const void *bytes, size_t size), void *state)
{
    const struct digest d = { update, state };
    const char *kind = gsv_tokenizer_kind(t);

    add_text(&d, kind, strlen(kind));
    add_model(&d, &t->model);
    add_vocab(&d, &t->vocab);
    add_added(&d, &t->added);
    add_steps(&d, t);
    add_template(&d, &t->post.single);
    add_template(&d, &t->post.pair);
    add_number(&d, t->truncate_left);
    add_number(&d, t->lowers);
    if (t->skips_unknown) /* of few models; the digests of others stay equal */
        add_number(&d, t->skips_unknown);
}
