/*
 * vocab.c - vocabulary: maps token text to id and id to text.
 *
 * The texts are concatenated in one buffer. A hash table (open addressing) maps text to token, an
 * array maps id to token.
 */
#include "lib/text/models/vocab.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    MAX_TOKENS = GSV_VOCAB_MAX_ID + 1,
    MAX_TEXT_BYTES = 1 << 28,
    MIN_HASHED = 1024,
    BYTES_PER_SLOT = 32, /* of a vocabulary's text in a file, so that the table seldom grows */
};

static size_t hash_of(const char *text, size_t size)
{
    return (size_t)XXH3_64bits(text, size);
}

/* The slot of a text, or the empty slot for it. */
static uint32_t *find_slot(const struct gsv_vocab *v, const char *text, size_t size)
{
    size_t slot = hash_of(text, size) & (v->n_hashed - 1);

    while (v->hashed[slot]) {
        const struct gsv_vocab_token *token = &v->tokens[v->hashed[slot] - 1];

        if (token->size == size && memcmp(v->text + token->at, text, size) == 0)
            break;
        slot = (slot + 1) & (v->n_hashed - 1);
    }
    return &v->hashed[slot];
}

static bool rehash(struct gsv_vocab *v, size_t n_hashed)
{
    uint32_t *hashed = gsv_alloc_array(n_hashed, sizeof(*hashed));

    if (!hashed)
        return false;
    free(v->hashed);
    v->hashed = hashed;
    v->n_hashed = n_hashed;
    for (size_t i = 0; i < v->n; i++)
        *find_slot(v, v->text + v->tokens[i].at, v->tokens[i].size) = (uint32_t)i + 1;
    return true;
}

/* Handling of a duplicate text. */
enum twice { REFUSED, NEW_ID, BOTH_IDS };

/* Add the token whose text is already at the end of v->text. */
static gpuserve_status take_token(struct gsv_vocab *v, size_t size, uint32_t id, enum twice twice,
                                  const char *name, gpuserve_error *error)
{
    const char *text = v->text + v->text_size;
    uint32_t *slot;

    if (size > GSV_VOCAB_MAX_TOKEN_BYTES)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: a token has %zu bytes, the limit is %d",
                        name, size, GSV_VOCAB_MAX_TOKEN_BYTES);
    if (2 * (v->n + 1) > v->n_hashed && !rehash(v, 2 * v->n_hashed))
        goto no_memory;
    slot = find_slot(v, text, size);
    if (*slot && twice == NEW_ID) {
        v->tokens[*slot - 1].id = (int32_t)id;
        return GPUSERVE_OK;
    }
    if (*slot && twice == REFUSED)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: duplicate token \"%.*s\"", name, (int)size,
                        text);
    if (!gsv_grow((void **)&v->tokens, &v->capacity, v->n + 1, sizeof(*v->tokens), MAX_TOKENS))
        goto no_memory;
    v->tokens[v->n++] =
        (struct gsv_vocab_token){ (uint32_t)v->text_size, (uint32_t)size, (int32_t)id };
    *slot = (uint32_t)v->n;
    v->text_size += size;
    return GPUSERVE_OK;
no_memory:
    return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory at %zu tokens", name, v->n);
}

gpuserve_status gsv_vocab_reserve(struct gsv_vocab *v, size_t more, const char *name,
                                  gpuserve_error *error)
{
    size_t n_hashed = MIN_HASHED;

    if (more > MAX_TEXT_BYTES - v->text_size)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: the vocabulary exceeds %d bytes", name,
                        MAX_TEXT_BYTES);
    while (v->n == 0 && n_hashed < more / BYTES_PER_SLOT)
        n_hashed *= 2;
    if (!gsv_grow((void **)&v->text, &v->text_capacity, v->text_size + more, 1, MAX_TEXT_BYTES) ||
        (v->n_hashed < n_hashed && !rehash(v, n_hashed)))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", name);
    return GPUSERVE_OK;
}

static gpuserve_status index_ids(struct gsv_vocab *v, const char *name, gpuserve_error *error)
{
    uint32_t *by_id;
    size_t n_ids = 0;

    for (size_t i = 0; i < v->n; i++)
        if ((size_t)v->tokens[i].id >= n_ids)
            n_ids = (size_t)v->tokens[i].id + 1;
    by_id = gsv_alloc_array(n_ids, sizeof(*by_id));
    if (!by_id)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for %zu ids", name, n_ids);
    free(v->by_id);
    v->by_id = by_id;
    v->n_ids = n_ids;
    for (size_t i = 0; i < v->n; i++)
        by_id[v->tokens[i].id] = (uint32_t)i + 1;
    return GPUSERVE_OK;
}

/* The id of the last token joins the index; the others are in it. */
static gpuserve_status index_last_id(struct gsv_vocab *v, const char *name, gpuserve_error *error)
{
    const size_t id = (size_t)v->tokens[v->n - 1].id;

    if (id >= v->n_ids) {
        uint32_t *by_id =
            realloc(v->by_id, (id + 1) * sizeof(*by_id)); /* at most GSV_VOCAB_MAX_ID */

        if (!by_id)
            return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for %zu ids", name, id + 1);
        memset(by_id + v->n_ids, 0, (id + 1 - v->n_ids) * sizeof(*by_id));
        v->by_id = by_id;
        v->n_ids = id + 1;
    }
    v->by_id[id] = (uint32_t)v->n;
    return GPUSERVE_OK;
}

gpuserve_status gsv_vocab_read_json(struct gsv_vocab *v, struct gsv_json_slice object,
                                    const char *name, gpuserve_error *error)
{
    struct gsv_json_reader reader = gsv_json_reader_of(object, name);
    struct gsv_json_slice key;
    gpuserve_status status = gsv_json_reader_open(&reader, '{', error);

    if (status == GPUSERVE_OK) /* the tokens' text is no larger than the object */
        status = gsv_vocab_reserve(v, object.size, name, error);
    for (bool first = true, more = true; status == GPUSERVE_OK; first = false) {
        size_t size = 0;
        uint32_t id = 0;

        status = gsv_json_reader_key(&reader, first, &more, &key, error);
        if (status != GPUSERVE_OK || !more)
            break;
        status = gsv_json_reader_text(&reader, key, v->text + v->text_size, &size, error);
        if (status == GPUSERVE_OK)
            status = gsv_json_reader_id(&reader, GSV_VOCAB_MAX_ID, &id, error);
        if (status == GPUSERVE_OK)
            status = take_token(v, size, id, REFUSED, name, error);
    }
    v->n_model = v->n;
    return status == GPUSERVE_OK ? index_ids(v, name, error) : status;
}

gpuserve_status gsv_vocab_add(struct gsv_vocab *v, const struct gsv_json_reader *r,
                              struct gsv_json_slice text, gpuserve_error *error)
{
    size_t size = 0;
    const gpuserve_status status =
        gsv_json_reader_text(r, text, v->text + v->text_size, &size, error);

    if (status != GPUSERVE_OK)
        return status;
    return take_token(v, size, (uint32_t)v->n, BOTH_IDS, r->name, error);
}

gpuserve_status gsv_vocab_add_text(struct gsv_vocab *v, const char *text, size_t size,
                                   const char *name, gpuserve_error *error)
{
    memcpy(v->text + v->text_size, text, size);
    return take_token(v, size, (uint32_t)v->n, BOTH_IDS, name, error);
}

gpuserve_status gsv_vocab_finish(struct gsv_vocab *v, const char *name, gpuserve_error *error)
{
    char *text = realloc(v->text, v->text_size + 1); /* about a tenth of the reserved size */

    if (!text)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for %zu tokens", name, v->n);
    v->text = text;
    v->text_capacity = v->text_size + 1;
    v->n_model = v->n;
    return index_ids(v, name, error);
}

/* The size without trailing white space. */
static size_t trimmed_size(const char *line, size_t size)
{
    while (size > 0) {
        size_t at = size - 1, length;

        while (at > 0 && ((unsigned char)line[at] & 0xC0) == 0x80)
            at--;
        if (!(gsv_unicode_get_flags(gsv_utf8_decode(line + at, &length)) & GSV_UNICODE_SPACE))
            break;
        size = at;
    }
    return size;
}

gpuserve_status gsv_vocab_read_lines(struct gsv_vocab *v, const char *text, size_t size,
                                     const char *name, gpuserve_error *error)
{
    const char *const end = text + size;
    gpuserve_status status = gsv_vocab_reserve(v, size, name, error);

    for (uint32_t id = 0; text < end && status == GPUSERVE_OK; id++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *line_end = newline ? newline : end;
        const size_t length = trimmed_size(text, (size_t)(line_end - text));

        if (id > GSV_VOCAB_MAX_ID)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: the file has more than %d lines",
                            name, GSV_VOCAB_MAX_ID + 1);
        memcpy(v->text + v->text_size, text, length);
        status = take_token(v, length, id, NEW_ID, name, error);
        text = newline ? newline + 1 : end;
    }
    v->n_model = v->n;
    return status == GPUSERVE_OK ? index_ids(v, name, error) : status;
}

gpuserve_status gsv_vocab_append(struct gsv_vocab *v, const char *text, size_t size, uint32_t id,
                                 const char *name, gpuserve_error *error)
{
    gpuserve_status status = gsv_vocab_reserve(v, size, name, error);

    if (status != GPUSERVE_OK)
        return status;
    if (id > GSV_VOCAB_MAX_ID)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: a token id exceeds %d", name,
                        GSV_VOCAB_MAX_ID);
    memcpy(v->text + v->text_size, text, size);
    status = take_token(v, size, id, REFUSED, name, error);
    return status == GPUSERVE_OK ? index_last_id(v, name, error) : status;
}

void gsv_vocab_reset(struct gsv_vocab *v)
{
    free(v->text);
    free(v->tokens);
    free(v->hashed);
    free(v->by_id);
    *v = (struct gsv_vocab){ 0 };
}

int32_t gsv_vocab_id(const struct gsv_vocab *v, const char *text, size_t size)
{
    const uint32_t found = v->n_hashed ? *find_slot(v, text, size) : 0;

    return found ? v->tokens[found - 1].id : -1;
}

int32_t gsv_vocab_model_id(const struct gsv_vocab *v, const char *text, size_t size)
{
    const uint32_t found = v->n_hashed ? *find_slot(v, text, size) : 0;

    return found && found <= v->n_model ? v->tokens[found - 1].id : -1;
}

const char *gsv_vocab_text(const struct gsv_vocab *v, int32_t id, size_t *size)
{
    const struct gsv_vocab_token *token;

    if (id < 0 || (size_t)id >= v->n_ids || !v->by_id[id])
        return NULL;
    token = &v->tokens[v->by_id[id] - 1];
    *size = token->size;
    return v->text + token->at;
}

size_t gsv_vocab_bytes(const struct gsv_vocab *v)
{
    return v->text_capacity + v->capacity * sizeof(*v->tokens) + v->n_hashed * sizeof(*v->hashed) +
           v->n_ids * sizeof(*v->by_id);
}
