/*
 * fake_tokenizer.c - a fake tokenizer, whose tokens are words, that tests can hold and count.
 *
 * Replaces lib/text (see fake.h). A held thread waits on a condition before it tokenizes a text.
 */
#include "tests/runtime/fake.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/text/tokenizer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ID_CLS = 1, ID_SEP = 2, ID_FIRST_WORD = 10 };

/* ------------------------------------------------------------------------------------- control */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_held;
    int n_inside, most;
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void set_held(bool is_held)
{
    pthread_mutex_lock(&gate.lock);
    gate.is_held = is_held;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

void fake_hold_tokenization(void)
{
    set_held(true);
}

void fake_release_tokenization(void)
{
    set_held(false);
}

void fake_wait_tokenizing(int n)
{
    pthread_mutex_lock(&gate.lock);
    while (gate.n_inside < n)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

int fake_most_tokenizing(void)
{
    int n;

    pthread_mutex_lock(&gate.lock);
    n = gate.most;
    gate.most = 0;
    pthread_mutex_unlock(&gate.lock);
    return n;
}

static void pass_gate(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.n_inside++;
    gate.most = gate.n_inside > gate.most ? gate.n_inside : gate.most;
    pthread_cond_broadcast(&gate.changed);
    while (gate.is_held)
        pthread_cond_wait(&gate.changed, &gate.lock);
    gate.n_inside--;
    pthread_mutex_unlock(&gate.lock);
}

/* ----------------------------------------------------------------------------------- tokenizer */

struct gsv_tokenizer {
    int unused;
};

static int32_t id_of(const char *word, size_t length)
{
    uint32_t hash = 17;

    if (length == 3 && memcmp(word, "NAN", 3) == 0)
        return FAKE_ID_NAN;
    if (length == 5 && memcmp(word, "BREAK", 5) == 0)
        return FAKE_ID_BREAK;
    for (size_t i = 0; i < length; i++)
        hash = hash * 31 + (unsigned char)word[i];
    return (int32_t)(ID_FIRST_WORD + hash % (FAKE_VOCAB - ID_FIRST_WORD));
}

gpuserve_status gsv_tokenizer_load(struct gsv_tokenizer **tokenizer, const struct gsv_dir *dir,
                                   const struct gsv_tokenizer_settings *settings,
                                   gpuserve_error *error)
{
    (void)dir;
    (void)settings;
    *tokenizer = gsv_alloc_array(1, sizeof(**tokenizer));
    return *tokenizer ? GPUSERVE_OK : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
}

void gsv_tokenizer_free(struct gsv_tokenizer **tokenizer)
{
    free(*tokenizer);
    *tokenizer = NULL;
}

static gpuserve_status push(struct gsv_encoding *e, int32_t id, uint8_t type, size_t begin,
                            size_t end, gpuserve_error *error)
{
    size_t ids = e->capacity, types = e->capacity, spans = e->capacity;

    if (!gsv_grow((void **)&e->ids, &ids, e->n + 1, sizeof(*e->ids), SIZE_MAX) ||
        !gsv_grow((void **)&e->type_ids, &types, e->n + 1, 1, SIZE_MAX) ||
        !gsv_grow((void **)&e->spans, &spans, e->n + 1, sizeof(*e->spans), SIZE_MAX))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    e->capacity = ids;
    e->ids[e->n] = id;
    e->type_ids[e->n] = type;
    e->spans[e->n] = (gpuserve_span){ (uint32_t)begin, (uint32_t)end };
    e->n++;
    return GPUSERVE_OK;
}

static gpuserve_status push_words(struct gsv_encoding *e, const char *text, size_t size,
                                  uint8_t type, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    if (gsv_utf8_valid_length(text, size) != size)
        return gsv_fail(error, GPUSERVE_E_INVALID, "not UTF-8 at byte %zu",
                        gsv_utf8_valid_length(text, size));
    for (size_t i = 0; i < size && st == GPUSERVE_OK;) {
        size_t end = i;

        while (end < size && text[end] != ' ')
            end++;
        if (end - i == 10 && memcmp(text + i, "UNKNOWABLE", 10) == 0)
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "a word that cannot be tokenized");
        if (end > i)
            st = push(e, id_of(text + i, end - i), type, i, end, error);
        i = end + 1;
    }
    return st;
}

gpuserve_status gsv_tokenizer_encode(const struct gsv_tokenizer *tokenizer, struct gsv_encoding *e,
                                     const char *text, size_t size, const char *pair,
                                     size_t pair_size, const struct gsv_encode_options *options,
                                     gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    (void)tokenizer;
    pass_gate();
    e->n = 0;
    e->truncated = false;
    if (!options->no_special)
        st = push(e, ID_CLS, 0, 0, 0, error);
    if (st == GPUSERVE_OK)
        st = push_words(e, text, size, 0, error);
    if (st == GPUSERVE_OK && !options->no_special)
        st = push(e, ID_SEP, 0, 0, 0, error);
    if (st == GPUSERVE_OK && pair)
        st = push_words(e, pair, pair_size, 1, error);
    if (st != GPUSERVE_OK || options->max_tokens == 0 || e->n <= options->max_tokens)
        return st;
    if (options->truncation == GPUSERVE_TRUNCATE_STRICT)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the text has %zu tokens, the limit is %zu",
                        e->n, options->max_tokens);
    e->n = options->max_tokens;
    e->ids[e->n - 1] = ID_SEP;
    e->truncated = true;
    return GPUSERVE_OK;
}

void gsv_encoding_reset(struct gsv_encoding *e)
{
    free(e->ids);
    free(e->type_ids);
    free(e->spans);
    memset(e, 0, sizeof(*e));
}

gpuserve_status gsv_tokenizer_decode(const struct gsv_tokenizer *tokenizer, const int32_t *ids,
                                     size_t n_ids, bool skip_special, char *text, size_t capacity,
                                     size_t *size, gpuserve_error *error)
{
    (void)tokenizer;
    (void)ids;
    (void)n_ids;
    (void)skip_special;
    (void)text;
    (void)capacity;
    (void)size;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "the fake has no decoder");
}

int32_t gsv_tokenizer_vocab_size(const struct gsv_tokenizer *tokenizer)
{
    (void)tokenizer;
    return FAKE_VOCAB;
}

const char *gsv_tokenizer_kind(const struct gsv_tokenizer *tokenizer)
{
    (void)tokenizer;
    return "Words";
}

size_t gsv_tokenizer_special_count(const struct gsv_tokenizer *tokenizer, bool pair)
{
    (void)tokenizer;
    (void)pair;
    return 2;
}

int32_t gsv_tokenizer_unknown(const struct gsv_tokenizer *tokenizer)
{
    (void)tokenizer;
    return -1;
}

const int32_t *gsv_tokenizer_special_ids(const struct gsv_tokenizer *tokenizer, size_t *n_before,
                                         size_t *n)
{
    static const int32_t ids[] = { ID_CLS, ID_SEP };

    (void)tokenizer;
    *n_before = 1;
    *n = 2;
    return ids;
}

bool gsv_tokenizer_is_special(const struct gsv_tokenizer *tokenizer, int32_t id)
{
    (void)tokenizer;
    return id == ID_CLS || id == ID_SEP;
}

const char *gsv_tokenizer_token(const struct gsv_tokenizer *tokenizer, int32_t id, size_t *size)
{
    (void)tokenizer;
    *size = 1;
    return id >= 0 && id < FAKE_VOCAB ? "x" : NULL;
}

bool gsv_tokenizer_has_prefix(const struct gsv_tokenizer *tokenizer)
{
    (void)tokenizer;
    return false;
}

gpuserve_status gsv_tokenizer_add_special(struct gsv_tokenizer *tokenizer, const char *token,
                                          gpuserve_error *error)
{
    (void)tokenizer;
    (void)token;
    (void)error;
    return GPUSERVE_OK;
}

int32_t gsv_tokenizer_id(const struct gsv_tokenizer *tokenizer, const char *token)
{
    (void)tokenizer;
    return id_of(token, strlen(token));
}

size_t gsv_tokenizer_bytes(const struct gsv_tokenizer *tokenizer)
{
    return sizeof(*tokenizer);
}

bool gsv_next_word(const char *text, size_t size, size_t at, gpuserve_span *word)
{
    while (at < size && text[at] == ' ')
        at++;
    if (at >= size)
        return false;
    word->begin = (uint32_t)at;
    while (at < size && text[at] != ' ')
        at++;
    word->end = (uint32_t)at;
    return true;
}

void gsv_tokenizer_digest(const struct gsv_tokenizer *tokenizer,
                          void (*update)(void *state, const void *bytes, size_t size), void *state)
{
    (void)tokenizer;
    update(state, "words", 5);
}
