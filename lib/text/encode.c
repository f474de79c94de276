/*
 * encode.c - encodes a text, or a pair of texts, as token ids with spans.
 *
 *   text -> segments between added tokens -> normalizer -> pre-tokenizer (words) -> subword tokens
 *
 * A segment takes one of two paths. The fast path (bert_fast_path.c) handles BERT's normalizer and
 * pre-tokenizer in one pass over the bytes. The general path in this file normalizes the whole
 * segment first.
 *
 * The work is linear in the text size. With right truncation, encoding stops at the token limit.
 * Two cases count the tokens to the end of the text: strict mode, whose error message reports the
 * count, and pairs with an odd limit, where the longer text gets the odd token.
 *
 * Threading: all state is in the caller's gsv_encoding; the tokenizer is read-only.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/text/pipeline/bert_fast_path.h"
#include "lib/text/pipeline/spans.h"
#include "lib/text/pipeline/token_writer.h"
#include "lib/text/unicode/unicode.h"

/* ------------------------------------------------------------------ added tokens */

/* A text searched for added tokens, with callbacks for the added tokens and the segments
 * between. */
struct encode_split {
    struct gsv_sink *sink;
    const struct gsv_added_search *search;
    const char *text;
    size_t size;
    void (*piece)(struct encode_split *split, size_t begin, size_t end);
    void (*token)(struct encode_split *split, int32_t id, size_t begin, size_t end);
};

/* The character that ends before byte `at`; `at` must not be 0. */
static uint32_t char_before(const char *text, size_t at)
{
    size_t length;

    do
        at--;
    while (((unsigned char)text[at] & 0xC0) == 0x80);
    return gsv_utf8_decode(text + at, &length);
}

static bool is_single_word(const struct encode_split *s, size_t begin, size_t end)
{
    size_t length;

    if (begin > 0 && gsv_unicode_get_flags(char_before(s->text, begin)) & GSV_UNICODE_WORD)
        return false;
    return end == s->size ||
           !(gsv_unicode_get_flags(gsv_utf8_decode(s->text + end, &length)) & GSV_UNICODE_WORD);
}

static size_t space_before(const struct encode_split *s, size_t at, size_t from)
{
    while (at > from) {
        const uint32_t c = char_before(s->text, at);
        char ignored[4];

        if (!(gsv_unicode_get_flags(c) & GSV_UNICODE_SPACE))
            break;
        at -= gsv_utf8_encode(c, ignored);
    }
    return at < from ? from : at;
}

static size_t space_after(const struct encode_split *s, size_t at)
{
    size_t length;

    while (at < s->size &&
           gsv_unicode_get_flags(gsv_utf8_decode(s->text + at, &length)) & GSV_UNICODE_SPACE)
        at += length;
    return at;
}

static void split_at_added_tokens(struct encode_split *s)
{
    const struct gsv_added_token *token;
    size_t done = 0, from = 0, begin, end;

    while (!s->sink->done && (token = gsv_added_find(&s->sink->tokenizer->added, s->search, s->text,
                                                     from, s->size, &begin, &end))) {
        from = end;
        if (token->single_word && !is_single_word(s, begin, end))
            continue;
        if (token->lstrip)
            begin = space_before(s, begin, done);
        if (token->rstrip)
            end = space_after(s, end);
        if (begin >= end)
            continue; /* the match is white space that the previous token already covers */
        if (done < begin)
            s->piece(s, done, begin);
        s->token(s, token->id, begin, end);
        done = end;
    }
    if (done < s->size)
        s->piece(s, done, s->size);
}

/* Emit the added token found in s->text[begin, end); `span` is its byte range in the original
 * text. */
static void put_added(struct encode_split *s, int32_t id, size_t begin, size_t end,
                      gpuserve_span span)
{
    if (s->sink->tokenizer->post.trim_offsets)
        span = gsv_trim_span(s->sink, gsv_trim_of(s->text + begin, end - begin), span);
    gsv_sink_token(s->sink, id, span.begin, span.end);
}

/* ------------------------------------------------------------------ normalized segments */

/* Pre-tokenize the normalized characters [begin, end) and emit the tokens of each word. */
static void put_words(struct gsv_sink *sink, size_t begin, size_t end)
{
    struct gsv_scratch *scratch = sink->scratch;
    const struct gsv_pretokens *const words = &scratch->pretokens;

    if (begin == end) /* the array may still be NULL */
        return;
    if (!gsv_pretokenizer_cut(&sink->tokenizer->pretokenizer, scratch->normal.text.at + begin,
                              end - begin, &scratch->pretokens)) {
        sink->done = sink->no_memory = true;
        return;
    }
    for (size_t i = 0; i < words->n && !sink->done; i++) {
        const struct gsv_char c = words->at[i];
        const uint8_t flags = words->flags[i];

        if (flags & (GSV_CUT_BEFORE | GSV_CUT_DROPPED))
            gsv_sink_word(sink);
        if (flags & GSV_CUT_PREFIXED)
            gsv_sink_char(sink, words->space, c.begin, c.end);
        if (!(flags & GSV_CUT_DROPPED))
            gsv_sink_char(sink, c.c == ' ' ? words->space : c.c, c.begin, c.end);
    }
    gsv_sink_word(sink);
}

static void normalized_piece(struct encode_split *s, size_t begin, size_t end)
{
    const uint32_t *char_of = s->sink->scratch->char_of;

    put_words(s->sink, char_of[begin], char_of[end - 1] + 1);
}

static void normalized_token(struct encode_split *s, int32_t id, size_t begin, size_t end)
{
    const struct gsv_scratch *scratch = s->sink->scratch;
    const gpuserve_span span = { scratch->normal.text.at[scratch->char_of[begin]].begin,
                                 scratch->normal.text.at[scratch->char_of[end - 1]].end };

    put_added(s, id, begin, end, span);
}

/* Write the normalized characters as UTF-8 to scratch->bytes, for the search for added tokens. */
static bool write_bytes(struct gsv_scratch *scratch, size_t *size)
{
    const struct gsv_chars *chars = &scratch->normal.text;

    *size = 0;
    for (size_t i = 0; i < chars->n; i++) {
        size_t length;

        if (!gsv_grow((void **)&scratch->bytes, &scratch->bytes_capacity, *size + 4, 1, SIZE_MAX) ||
            !gsv_grow((void **)&scratch->char_of, &scratch->char_of_capacity, *size + 4,
                      sizeof(*scratch->char_of), SIZE_MAX))
            return false;
        length = gsv_utf8_encode(chars->at[i].c, scratch->bytes + *size);
        for (size_t k = 0; k < length; k++)
            scratch->char_of[*size + k] = (uint32_t)i;
        *size += length;
    }
    return true;
}

/* The lead byte of a character's UTF-8 encoding. */
static unsigned char first_byte(uint32_t c)
{
    if (c < 0x80)
        return (unsigned char)c;
    if (c < 0x800)
        return (unsigned char)(0xC0 | c >> 6);
    return (unsigned char)(c < 0x10000 ? 0xE0 | c >> 12 : 0xF0 | c >> 18);
}

/* True if the normalized characters contain a possible first byte of an added token. */
static bool may_have_token(const struct gsv_added_search *search, const struct gsv_chars *chars)
{
    bool may = false;

    for (size_t i = 0; search->n > 0 && i < chars->n && !may; i++)
        may = search->begins[first_byte(chars->at[i].c)];
    return may;
}

static void put_normalized(struct gsv_sink *sink, const char *text, size_t begin, size_t end)
{
    const struct gsv_tokenizer *t = sink->tokenizer;
    struct encode_split inner = { .sink = sink,
                                  .search = &t->added.normalized,
                                  .piece = normalized_piece,
                                  .token = normalized_token };

    if (!gsv_normalizer_apply(&t->normalizer, text, begin, end, &sink->scratch->normal)) {
        sink->done = sink->no_memory = true;
        return;
    }
    if (!may_have_token(&t->added.normalized, &sink->scratch->normal.text)) {
        put_words(sink, 0, sink->scratch->normal.text.n);
        return;
    }
    if (!write_bytes(sink->scratch, &inner.size)) {
        sink->done = sink->no_memory = true;
        return;
    }
    inner.text = sink->scratch->bytes;
    split_at_added_tokens(&inner);
}

/* ------------------------------------------------------------------ one text */

/* The normalized form of an ASCII byte that bert_fast_path.c keeps. */
static unsigned char normalized_byte(const struct gsv_tokenizer *t, unsigned char c)
{
    if (t->normalizer.clean && t->byte_classes[c] == GSV_BYTE_SPACE)
        return ' ';
    return t->normalizer.lowercase && c >= 'A' && c <= 'Z' ? c + 32 : c;
}

static bool normalized_token_begins(const struct gsv_tokenizer *t, const char *text, size_t size)
{
    const struct gsv_added_search *search = &t->added.normalized;
    uint32_t slot = search->trie.root;

    for (size_t i = 0; i < size && search->tokens[slot] < 0; i++) {
        slot = gsv_trie_step(&search->trie, slot, normalized_byte(t, (unsigned char)text[i]));
        if (slot == GSV_TRIE_NO_SLOT)
            return false;
    }
    return search->tokens[slot] >= 0;
}

/* True if the normalized form of text[begin, end) may contain an added token. The usual answer is
 * false, which avoids normalizing the text only to search it. */
static bool may_have_normalized_token(const struct gsv_tokenizer *t, const char *text, size_t begin,
                                      size_t end)
{
    if (t->added.normalized.n == 0)
        return false;
    for (size_t i = begin; i < end; i++) {
        const unsigned char c = (unsigned char)text[i];
        const uint8_t class = t->byte_classes[c];

        if (class == GSV_BYTE_WIDE || class == GSV_BYTE_DROPPED)
            return true; /* its normalized form may be any text, or may join its neighbours */
        if (t->added.normalized.begins[normalized_byte(t, c)] &&
            normalized_token_begins(t, text + i, end - i))
            return true;
    }
    return false;
}

static void raw_piece(struct encode_split *s, size_t begin, size_t end)
{
    const struct gsv_tokenizer *t = s->sink->tokenizer;

    if (t->scans && !may_have_normalized_token(t, s->text, begin, end))
        gsv_bert_scan(s->sink, s->text, s->size, begin, end);
    else
        put_normalized(s->sink, s->text, begin, end);
}

static void raw_token(struct encode_split *s, int32_t id, size_t begin, size_t end)
{
    put_added(s, id, begin, end, (gpuserve_span){ (uint32_t)begin, (uint32_t)end });
}

/* Encode one text into the sink; returns its token count before truncation (see
 * gsv_sink_finish()). */
static size_t encode_text(struct gsv_sink *sink, const char *text, size_t size, size_t first)
{
    struct encode_split split = { .sink = sink,
                                  .search = &sink->tokenizer->added.raw,
                                  .text = text,
                                  .size = size,
                                  .piece = raw_piece,
                                  .token = raw_token };

    sink->done = sink->no_memory || sink->no_unknown;
    sink->text = text;
    gsv_sink_begin(sink, first);
    split_at_added_tokens(&split);
    return gsv_sink_finish(sink);
}

/* ------------------------------------------------------------------ special tokens, types */

static void put_special(struct gsv_encoding *e, size_t at, const struct gsv_template *t,
                        size_t from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        e->ids[at + i] = t->ids[from + i];
        e->type_ids[at + i] = t->types[from + i];
        e->spans[at + i] = (gpuserve_span){ 0, 0 };
    }
}

/* ------------------------------------------------------------------ truncation */

/* Split the token limit between two texts: the "longest_first" truncation of `tokenizers`. */
static void share_limit(size_t limit, size_t *a, size_t *b)
{
    size_t *const shorter = *a > *b ? b : a, *const longer = *a > *b ? a : b;

    if (*a <= limit && *b <= limit - *a)
        return;
    if (*shorter <= limit && *shorter <= limit - *shorter) {
        *longer = limit - *shorter;
        return;
    }
    *shorter = limit / 2;
    *longer = limit - limit / 2;
}

/* type_ids may be NULL if n is 0: the encoding then has no tokens at all. */
static void put_types(struct gsv_encoding *e, size_t at, uint8_t type, size_t n)
{
    if (n > 0)
        memset(e->type_ids + at, type, n);
}

/* Keep `kept` of the `n` tokens at `first` and move them to `to`, where to <= first. */
static void keep(struct gsv_encoding *e, bool left, size_t first, size_t n, size_t kept, size_t to)
{
    const size_t from = left ? first + n - kept : first;

    if (kept == 0)
        return;
    memmove(e->ids + to, e->ids + from, kept * sizeof(*e->ids));
    memmove(e->spans + to, e->spans + from, kept * sizeof(*e->spans));
}

/* ------------------------------------------------------------------ encode job */

struct encode_job {
    struct gsv_sink sink;
    const struct gsv_template *template;
    size_t n_before, n_between, n_after; /* special tokens; all 0 with no_special */
    size_t limit;                        /* maximum number of tokens that are not special */
    size_t first_b;                      /* of a pair: the first token of the second text */
    bool strict;
};

static gpuserve_status out_of_memory(const struct gsv_encoding *e, gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory at %zu tokens of a text", e->capacity);
}

/* Set the error for an encode that failed in the sink: out of memory or no unknown token. */
static gpuserve_status failed(const struct gsv_sink *sink, gpuserve_error *error)
{
    if (!sink->no_unknown)
        return out_of_memory(sink->out, error);
    return gsv_fail(
        error, GPUSERVE_E_INVALID,
        "the text has a character outside the vocabulary, and the tokenizer has no unknown token");
}

/* The token count at which encoding may stop; SIZE_MAX if the full count is needed. */
static size_t enough_tokens(const struct encode_job *job)
{
    return job->sink.left || job->strict ? SIZE_MAX : job->limit;
}

/* Record whether `what`, with `n` tokens, was truncated. Strict mode returns an error for it. */
static gpuserve_status note_truncation(const struct encode_job *job, const char *what,
                                       bool truncated, size_t n, gpuserve_error *error)
{
    const size_t special = job->n_before + job->n_between + job->n_after;

    job->sink.out->truncated = truncated;
    if (!truncated || !job->strict)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                    "%s has %zu tokens (%zu of them special), the limit is %zu", what, n + special,
                    special, job->limit + special);
}

/* Trim the span of the first token that remains after left truncation. */
static void trim_first(const struct encode_job *job, const char *text, size_t at)
{
    struct gsv_encoding *e = job->sink.out;

    e->spans[at] = gsv_trim_first(job->sink.tokenizer, text, e->ids[at], e->spans[at]);
}

static gpuserve_status encode_single(struct encode_job *job, const char *text, size_t size,
                                     gpuserve_error *error)
{
    struct gsv_sink *s = &job->sink;
    gpuserve_status status;
    size_t count;

    s->stop = enough_tokens(job);
    count = encode_text(s, text, size, job->n_before);
    if (s->no_memory || s->no_unknown || !gsv_encoding_grow(s->out, s->n + job->n_after))
        return failed(s, error);
    status = note_truncation(job, "the text", count > job->limit, count, error);
    if (status != GPUSERVE_OK)
        return status;
    if (s->left && count > job->limit && job->limit > 0)
        trim_first(job, text, job->n_before);
    put_special(s->out, 0, job->template, 0, job->n_before);
    put_types(s->out, job->n_before, job->template->type_a, s->n - job->n_before);
    put_special(s->out, s->n, job->template, job->n_before, job->n_after);
    s->out->n = s->n + job->n_after;
    return GPUSERVE_OK;
}

struct two_texts {
    const char *a, *b;
    size_t size_a, size_b;
};

static gpuserve_status encode_pair(struct encode_job *job, const struct two_texts *texts,
                                   gpuserve_error *error)
{
    struct gsv_sink *s = &job->sink;
    struct gsv_encoding *e = s->out;
    size_t a, b, found_a, found_b, first_b, to_b, all_a, all_b;
    gpuserve_status status;

    s->stop = job->limit % 2 == 1 ? SIZE_MAX : enough_tokens(job);
    a = encode_text(s, texts->a, texts->size_a, job->n_before);
    found_a = s->n - job->n_before;
    first_b = s->n + job->n_between;
    b = encode_text(s, texts->b, texts->size_b, first_b);
    found_b = s->n - first_b;
    if (s->no_memory || s->no_unknown || !gsv_encoding_grow(e, s->n + job->n_after))
        return failed(s, error);
    status = note_truncation(job, "the pair of texts", a > job->limit || b > job->limit - a, a + b,
                             error);
    if (status != GPUSERVE_OK)
        return status;
    all_a = a;
    all_b = b;
    share_limit(job->limit, &a, &b);
    keep(e, s->left, job->n_before, found_a, a, job->n_before);
    to_b = job->first_b = job->n_before + a + job->n_between;
    keep(e, s->left, first_b, found_b, b, to_b);
    if (s->left && a > 0 && a < all_a)
        trim_first(job, texts->a, job->n_before);
    if (s->left && b > 0 && b < all_b)
        trim_first(job, texts->b, to_b);
    put_special(e, 0, job->template, 0, job->n_before);
    put_types(e, job->n_before, job->template->type_a, a);
    put_special(e, job->n_before + a, job->template, job->n_before, job->n_between);
    put_types(e, to_b, job->template->type_b, b);
    put_special(e, to_b + b, job->template, job->n_before + job->n_between, job->n_after);
    e->n = to_b + b + job->n_after;
    return GPUSERVE_OK;
}

static gpuserve_status encode(struct encode_job *job, const struct two_texts *texts,
                              gpuserve_error *error)
{
    return texts->b ? encode_pair(job, texts, error)
                    : encode_single(job, texts->a, texts->size_a, error);
}

/* Encode the lowercased texts, then map the spans back to the original texts. */
static gpuserve_status encode_lowered(struct encode_job *job, const struct two_texts *texts,
                                      gpuserve_error *error)
{
    struct gsv_encoding *e = job->sink.out;
    struct gsv_lowered a = { 0 }, b = { 0 };
    struct two_texts lowered;
    gpuserve_status status;

    if (!gsv_lower_text(&a, texts->a, texts->size_a) ||
        (texts->b && !gsv_lower_text(&b, texts->b, texts->size_b))) {
        status = out_of_memory(e, error);
    } else {
        lowered = (struct two_texts){ a.n ? a.bytes : "", texts->b ? (b.n ? b.bytes : "") : NULL,
                                      a.n, b.n };
        status = encode(job, &lowered, error);
    }
    for (size_t i = 0; status == GPUSERVE_OK && i < e->n; i++)
        e->spans[i] = gsv_lowered_span(texts->b && i >= job->first_b ? &b : &a, e->spans[i]);
    gsv_lowered_reset(&a);
    gsv_lowered_reset(&b);
    return status;
}

static gpuserve_status check_text(const char *text, size_t size, const char *what,
                                  gpuserve_error *error)
{
    size_t valid;

    if (size > UINT32_MAX)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s has %zu bytes, the limit is %u", what,
                        size, UINT32_MAX);
    valid = gsv_utf8_valid_length(text, size);
    if (valid < size)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s is not UTF-8 at byte %zu (0x%02X)", what,
                        valid, (unsigned char)text[valid]);
    return GPUSERVE_OK;
}

static gpuserve_status prepare_job(struct encode_job *job, const struct gsv_tokenizer *t,
                                   struct gsv_encoding *encoding, bool pair,
                                   const struct gsv_encode_options *options, gpuserve_error *error)
{
    const struct gsv_template *template = pair ? &t->post.pair : &t->post.single;

    *job = (struct encode_job){ .template = template, .limit = SIZE_MAX };
    if (!options->no_special) {
        job->n_before = template->n_before;
        job->n_between = template->n_between;
        job->n_after = template->n - template->n_before - template->n_between;
        if (options->max_tokens && options->max_tokens < template->n)
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "the limit of %zu tokens is less than the %zu special tokens",
                            options->max_tokens, template->n);
    }
    if (options->max_tokens)
        job->limit = options->max_tokens - (options->no_special ? 0 : template->n);
    job->strict = options->truncation == GPUSERVE_TRUNCATE_STRICT;
    job->sink.tokenizer = t;
    job->sink.out = encoding;
    job->sink.limit = job->limit;
    job->sink.left = options->truncation == GPUSERVE_TRUNCATE_LEFT ||
                     (options->truncation == GPUSERVE_TRUNCATE_DEFAULT && t->truncate_left);
    encoding->n = 0;
    encoding->truncated = false;
    job->sink.scratch = gsv_encoding_scratch(encoding, t);
    return job->sink.scratch ? GPUSERVE_OK : out_of_memory(encoding, error);
}

/* Cut the text by characters before it is tokenized, as in model2vec. Strict: an error instead. */
static gpuserve_status cut_characters(const struct encode_job *job, const char *text, size_t *size,
                                      gpuserve_error *error)
{
    const size_t median = job->sink.tokenizer->median_characters, limit = job->limit;
    const bool cuts = median > 0 && limit <= SIZE_MAX / median && !job->sink.left;
    const size_t kept = cuts ? gsv_utf8_prefix(text, *size, limit * median) : *size;

    if (kept < *size && job->strict)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "the text has %zu characters, the limit is %zu for %zu tokens",
                        gsv_utf8_count(text, *size), limit * median, limit);
    *size = kept;
    return GPUSERVE_OK;
}

static void leave_out(struct gsv_encoding *encoding, int32_t id)
{
    size_t n = 0;

    for (size_t i = 0; i < encoding->n; i++) {
        if (encoding->ids[i] == id)
            continue;
        encoding->ids[n] = encoding->ids[i];
        encoding->type_ids[n] = encoding->type_ids[i];
        encoding->spans[n++] = encoding->spans[i];
    }
    encoding->n = n;
}

gpuserve_status gsv_tokenizer_encode(const struct gsv_tokenizer *t, struct gsv_encoding *encoding,
                                     const char *text, size_t size, const char *pair,
                                     size_t pair_size, const struct gsv_encode_options *options,
                                     gpuserve_error *error)
{
    static const struct gsv_encode_options defaults;
    struct two_texts texts = { text, pair, size, pair_size };
    struct encode_job job;
    gpuserve_status status = check_text(text, size, "the text", error);

    if (status == GPUSERVE_OK && pair)
        status = check_text(pair, pair_size, "the second text", error);
    if (status == GPUSERVE_OK)
        status = prepare_job(&job, t, encoding, pair != NULL, options ? options : &defaults, error);
    if (status == GPUSERVE_OK)
        status = cut_characters(&job, text, &texts.size_a, error);
    if (status != GPUSERVE_OK)
        return status;
    status = t->lowers ? encode_lowered(&job, &texts, error) : encode(&job, &texts, error);
    if (status == GPUSERVE_OK && t->skips_unknown)
        leave_out(encoding, gsv_tokenizer_unknown(t));
    encoding->truncated |= texts.size_a < size;
    return status;
}
