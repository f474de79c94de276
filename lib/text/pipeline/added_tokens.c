/*
 * added_tokens.c - added tokens ("[MASK]"): matched in the text before the model sees it.
 *
 * Loading registers the tokens and normalizes the contents of those that are matched in normalized
 * text. gsv_added_build() sorts the tokens by id and builds one trie for each of the two kinds.
 * Immutable afterwards.
 */
#include "lib/text/pipeline/added_tokens.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"

#include <stdlib.h>
#include <string.h>

static int compare_ids(const void *a, const void *b)
{
    const int32_t x = ((const struct gsv_added_token *)a)->id;
    const int32_t y = ((const struct gsv_added_token *)b)->id;

    return (x > y) - (x < y);
}

const struct gsv_added_token *gsv_added_by_id(const struct gsv_added_tokens *added, int32_t id)
{
    const struct gsv_added_token key = { .id = id };

    if (added->n == 0)
        return NULL;
    return bsearch(&key, added->tokens, added->n, sizeof(key), compare_ids);
}

gpuserve_status gsv_added_add(struct gsv_added_tokens *a, struct gsv_added_token token,
                              struct gsv_vocab *vocab, const char *name, gpuserve_error *error)
{
    struct gsv_added_token *same = NULL;
    gpuserve_status status = GPUSERVE_OK;
    char *content;

    if (token.size == 0)
        return GPUSERVE_OK; /* as `tokenizers` does */
    if (token.size > GSV_ADDED_MAX_BYTES)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "%s: an added token has %zu bytes, the limit is %d", name, token.size,
                        GSV_ADDED_MAX_BYTES);
    if (a->n == GSV_ADDED_MAX)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: more than %d added tokens", name,
                        GSV_ADDED_MAX);
    token.id = gsv_vocab_id(vocab, token.content, token.size);
    if (token.id < 0) {
        /* The id in the file is ignored: `tokenizers` continues from the vocabulary size. */
        token.id = (int32_t)vocab->n;
        status =
            gsv_vocab_append(vocab, token.content, token.size, (uint32_t)token.id, name, error);
    }
    if (status != GPUSERVE_OK)
        return status;
    for (size_t i = 0; i < a->n && !same; i++)
        if (a->tokens[i].id == token.id)
            same = &a->tokens[i];
    content = gsv_copy_text(token.content, token.size);
    if (!content || (!same && !gsv_grow((void **)&a->tokens, &a->capacity, a->n + 1,
                                        sizeof(*a->tokens), GSV_ADDED_MAX))) {
        free(content);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for an added token", name);
    }
    token.content = content;
    if (same) {
        free(same->content);
        free(same->normalized_content);
    } else {
        same = &a->tokens[a->n++];
    }
    *same = token;
    return GPUSERVE_OK;
}

gpuserve_status gsv_added_parse_one(struct gsv_added_tokens *a, const struct gsv_json_value *json,
                                    bool special, struct gsv_vocab *vocab, const char *name,
                                    gpuserve_error *error)
{
    const struct gsv_json_value *content = gsv_json_member(json, "content");
    struct gsv_added_token token = { .normalized = !special, .special = special };
    gpuserve_status status;

    if (!gsv_json_is(content, GSV_JSON_STRING))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: an added token has no \"content\"", name);
    token.content = (char *)(uintptr_t)gsv_json_get_string(content);
    token.size = content->n;
    status = gsv_json_bool(json, "single_word", name, &token.single_word, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(json, "lstrip", name, &token.lstrip, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(json, "rstrip", name, &token.rstrip, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(json, "normalized", name, &token.normalized, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(json, "special", name, &token.special, error);
    return status == GPUSERVE_OK ? gsv_added_add(a, token, vocab, name, error) : status;
}

/* All fields are required: a misspelt flag would silently change ids. The id comes from the
 * vocabulary, or is the next free one. */
static gpuserve_status check_token(const struct gsv_json_value *json, const char *name,
                                   gpuserve_error *error)
{
    static const char *const flags[] = { "single_word", "lstrip", "rstrip", "normalized",
                                         "special" };
    int64_t id = 0;
    gpuserve_status status = gsv_json_need(json, "id", GSV_JSON_INT, name, error);

    if (status == GPUSERVE_OK)
        status = gsv_json_int(json, "id", name, 0, UINT32_MAX, &id, error);
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]) && status == GPUSERVE_OK; i++)
        status = gsv_json_need(json, flags[i], GSV_JSON_BOOL, name, error);
    return status;
}

gpuserve_status gsv_added_parse(struct gsv_added_tokens *a, const struct gsv_json_value *json,
                                struct gsv_vocab *vocab, const char *name, gpuserve_error *error)
{
    gpuserve_status status = GPUSERVE_OK;

    if (json && !gsv_json_is(json, GSV_JSON_ARRAY))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"added_tokens\" is not an array", name);
    for (size_t i = 0; i < gsv_json_count(json) && status == GPUSERVE_OK; i++) {
        status = check_token(gsv_json_at(json, i), name, error);
        if (status == GPUSERVE_OK)
            status = gsv_added_parse_one(a, gsv_json_at(json, i), false, vocab, name, error);
    }
    return status;
}

/* Set the normalized text that is matched for a token. */
static gpuserve_status normalize_content(struct gsv_added_token *token,
                                         const struct gsv_normalizer *normalizer, const char *name,
                                         gpuserve_error *error)
{
    struct gsv_normal_buffers buffers = { 0 };
    gpuserve_status status = GPUSERVE_OK;
    char *text = NULL;
    size_t size = 0;

    if (gsv_normalizer_apply(normalizer, token->content, 0, token->size, &buffers))
        text = malloc(4 * buffers.text.n + 1);
    if (!text) {
        gsv_normal_buffers_reset(&buffers);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for an added token", name);
    }
    for (size_t i = 0; i < buffers.text.n; i++)
        size += gsv_utf8_encode(buffers.text.at[i].c, text + size);
    gsv_normal_buffers_reset(&buffers);
    if (size == 0)
        status = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                          "%s: the added token \"%s\" is empty after normalization", name,
                          token->content);
    if (size == 0 || (size == token->size && memcmp(text, token->content, size) == 0)) {
        free(text);
        return status;
    }
    token->normalized_content = text;
    token->normalized_size = size;
    return GPUSERVE_OK;
}

static bool build_search(struct gsv_added_search *s, const struct gsv_added_tokens *a,
                         bool normalized)
{
    struct gsv_trie_builder builder = { 0 };
    bool done = true;

    s->only = -1;
    /* In reverse order: of two tokens with the same text the first one wins. */
    for (size_t i = a->n; i-- > 0 && done;) {
        const struct gsv_added_token *t = &a->tokens[i];
        const char *content = t->normalized_content ? t->normalized_content : t->content;
        const unsigned char first = (unsigned char)content[0];

        if (t->normalized != normalized)
            continue;
        s->only = s->n == 0 || s->only == first ? first : -1;
        s->begins[first] = true;
        s->n++;
        done = gsv_trie_add(&builder, -1, content,
                            t->normalized_content ? t->normalized_size : t->size, (int32_t)i);
    }
    done = done && gsv_trie_build(&s->trie, &builder);
    if (done)
        s->tokens = malloc(s->trie.n * sizeof(*s->tokens));
    done = s->tokens != NULL;
    for (size_t i = 0; i < s->trie.n && done; i++)
        s->tokens[i] = -1;
    for (size_t i = 0; i < builder.n && done; i++)
        s->tokens[builder.nodes[i].slot] = builder.nodes[i].value;
    gsv_trie_builder_reset(&builder);
    return done;
}

static void reset_search(struct gsv_added_search *s)
{
    gsv_trie_reset(&s->trie);
    free(s->tokens);
    memset(s, 0, sizeof(*s));
}

gpuserve_status gsv_added_build(struct gsv_added_tokens *a, const struct gsv_normalizer *normalizer,
                                const char *name, gpuserve_error *error)
{
    gpuserve_status status = GPUSERVE_OK;

    reset_search(&a->raw);
    reset_search(&a->normalized);
    if (a->n > 0)
        qsort(a->tokens, a->n, sizeof(*a->tokens), compare_ids);
    for (size_t i = 0; i < a->n && status == GPUSERVE_OK; i++)
        if (a->tokens[i].normalized && !a->tokens[i].normalized_content)
            status = normalize_content(&a->tokens[i], normalizer, name, error);
    if (status == GPUSERVE_OK &&
        (!build_search(&a->raw, a, false) || !build_search(&a->normalized, a, true)))
        status = gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for added tokens", name);
    return status;
}

void gsv_added_reset(struct gsv_added_tokens *a)
{
    for (size_t i = 0; i < a->n; i++) {
        free(a->tokens[i].content);
        free(a->tokens[i].normalized_content);
    }
    free(a->tokens);
    reset_search(&a->raw);
    reset_search(&a->normalized);
    *a = (struct gsv_added_tokens){ 0 };
}

static size_t next_candidate(const struct gsv_added_search *s, const char *text, size_t from,
                             size_t end)
{
    if (from == end) /* text may be NULL */
        return end;
    if (s->only >= 0) {
        const char *found = memchr(text + from, s->only, end - from);

        return found ? (size_t)(found - text) : end;
    }
    while (from < end && !s->begins[(unsigned char)text[from]])
        from++;
    return from;
}

const struct gsv_added_token *gsv_added_find(const struct gsv_added_tokens *a,
                                             const struct gsv_added_search *s, const char *text,
                                             size_t from, size_t end, size_t *begin, size_t *stop)
{
    if (s->n == 0)
        return NULL;
    for (; (from = next_candidate(s, text, from, end)) < end; from++) {
        uint32_t slot = s->trie.root;
        int32_t found = -1;

        for (size_t i = from; i < end; i++) {
            slot = gsv_trie_step(&s->trie, slot, (unsigned char)text[i]);
            if (slot == GSV_TRIE_NO_SLOT)
                break;
            if (s->tokens[slot] >= 0) {
                found = s->tokens[slot];
                *begin = from;
                *stop = i + 1;
            }
        }
        if (found >= 0)
            return &a->tokens[found];
    }
    return NULL;
}
