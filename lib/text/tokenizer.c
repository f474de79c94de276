/*
 * tokenizer.c - loading a tokenizer of a model directory, and asking about it.
 */
#include "lib/text/tokenizer.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"
#include "lib/text/bert_scan.h"
#include "lib/text/tokenizer_parts.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_FILE_BYTES = 64 << 20,
    MAX_CONFIG_BYTES = 8 << 20,
    MAX_NAME_BYTES = 4096,
};

/* Where a tokenizer's files are. */
struct source {
    const struct gsv_dir *dir;
    const char *folder;
};

/* A file as UTF-8; `name` receives "DIR/FILE" for messages. */
static gpuserve_status read_text(const struct source *from, const char *file, size_t max_bytes,
                                 char *name, char **text, size_t *size, gpuserve_error *error)
{
    char path[GSV_FILE_NAME_BYTES];
    gpuserve_status status;
    size_t valid;

    (void)gsv_join_name(path, from->folder, file); /* which fits: the file is there */
    status = gsv_dir_read(from->dir, path, max_bytes, text, size, error);
    snprintf(name, MAX_NAME_BYTES, "%s/%s", gsv_dir_path(from->dir), path);
    if (status != GPUSERVE_OK)
        return status;
    valid = gsv_utf8_valid_length(*text, *size);
    if (valid == *size)
        return GPUSERVE_OK;
    free(*text);
    *text = NULL;
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s is not UTF-8 at byte %zu", name, valid);
}

/* A small JSON object, NULL when there is no such file. */
static gpuserve_status read_object(const struct source *from, const char *file,
                                   struct gsv_json_value **json, gpuserve_error *error)
{
    static const struct gsv_json_limits limits = { .max_values = 1 << 20, .max_depth = 64 };
    char name[MAX_NAME_BYTES], *text = NULL;
    gpuserve_status status;
    size_t size;

    *json = NULL;
    if (!gsv_dir_has_in(from->dir, from->folder, file))
        return GPUSERVE_OK;
    status = read_text(from, file, MAX_CONFIG_BYTES, name, &text, &size, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_read(json, text, size, name, limits, error);
    free(text);
    if (status != GPUSERVE_OK || gsv_json_is(*json, GSV_JSON_OBJECT))
        return status;
    gsv_json_free(json);
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: not a JSON object", name);
}

static gpuserve_status read_vocab_files(struct gsv_tokenizer *t, const struct source *from,
                                        const struct gsv_json_value *config, const char *text,
                                        size_t size, const char *name, gpuserve_error *error)
{
    struct gsv_json_value *specials = NULL, *added = NULL;
    gpuserve_status status = read_object(from, "special_tokens_map.json", &specials, error);

    if (status == GPUSERVE_OK)
        status = read_object(from, "added_tokens.json", &added, error);
    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_read_vocab(
            t, text, size, &(struct gsv_vocab_files){ config, specials, added }, name, error);
    gsv_json_free(&specials);
    gsv_json_free(&added);
    return status;
}

static gpuserve_status read_parts(struct gsv_tokenizer *t, const struct source *from,
                                  const struct gsv_json_value *config, gpuserve_error *error)
{
    const bool json = gsv_dir_has_in(from->dir, from->folder, "tokenizer.json");
    char name[MAX_NAME_BYTES], *text = NULL;
    gpuserve_status status;
    size_t size;

    if (!json && !gsv_dir_has_in(from->dir, from->folder, "vocab.txt"))
        return gsv_fail(error, GPUSERVE_E_NOT_FOUND, "%s: neither tokenizer.json nor vocab.txt",
                        gsv_dir_path(from->dir));
    status = read_text(from, json ? "tokenizer.json" : "vocab.txt", MAX_FILE_BYTES, name, &text,
                       &size, error);
    if (status == GPUSERVE_OK && json)
        status = gsv_tokenizer_read_json(t, text, size, name, error);
    else if (status == GPUSERVE_OK)
        status = read_vocab_files(t, from, config, text, size, name, error);
    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_finish(t, name, error);
    free(text);
    return status;
}

/* sentence-transformers saves a tokenizer beside its transformer; others leave it in front. */
static struct source find_source(const struct gsv_dir *dir, const struct gsv_tokenizer_place *place)
{
    const char *folder = place && place->folder ? place->folder : "";
    const bool is_there =
        gsv_dir_has_in(dir, folder, "tokenizer.json") || gsv_dir_has_in(dir, folder, "vocab.txt");

    return (struct source){ dir, is_there ? folder : "" };
}

static gpuserve_status read_direction(struct gsv_tokenizer *t, const struct gsv_json_value *config,
                                      gpuserve_error *error)
{
    const char *side = "right";
    const gpuserve_status status =
        gsv_json_string(config, "truncation_side", "tokenizer_config.json", &side, error);

    t->truncate_left = strcmp(side, "left") == 0;
    return status;
}

gpuserve_status gsv_tokenizer_load(struct gsv_tokenizer **tokenizer, const struct gsv_dir *dir,
                                   const struct gsv_tokenizer_place *place, gpuserve_error *error)
{
    const struct source from = find_source(dir, place);
    static _Atomic uint64_t loaded; /* tells caches of words apart, nothing else */
    struct gsv_tokenizer *t = gsv_alloc_array(1, sizeof(*t));
    struct gsv_json_value *config = NULL;
    gpuserve_status status;

    *tokenizer = NULL;
    if (!t)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gsv_dir_path(dir));
    t->serial = atomic_fetch_add(&loaded, 1) + 1;
    t->lowers = place && place->do_lower_case;
    status = read_object(&from, "tokenizer_config.json", &config, error);
    if (status == GPUSERVE_OK)
        status = read_direction(t, config, error);
    if (status == GPUSERVE_OK)
        status = read_parts(t, &from, config, error);
    gsv_json_free(&config);
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
    t->scans =
        t->model.kind == GSV_WORDPIECE && t->normalizer.simple && t->pretokenizer.bert && !t->trims;
    if (t->scans)
        gsv_bert_scan_prepare(t);
    return GPUSERVE_OK;
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

/* The text of an id as the decoder sees it; NULL for no token, or a special one to be left out. As
 * in `tokenizers` that is decided by the text: a special token that is normalized to another text
 * stays. */
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

/* The tokens' text. False when out of memory. */
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
        if ((size_t)ids[i] >= t->vocab.n_ids) /* as a negative one is */
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "id %d at %zu is outside the vocabulary of %zu", ids[i], i,
                            t->vocab.n_ids);
    if (!decode(t, ids, n_ids, skip_special, &decoded)) {
        gsv_decoded_reset(&decoded);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for decoding");
    }
    needed = decoded.size + 1; /* the NUL */
    if (size)
        *size = needed;
    if (text && decoded.size > 0)
        memcpy(text, decoded.bytes, needed <= capacity ? decoded.size : 0);
    if (!text || needed > capacity)
        status = gsv_fail(error, GPUSERVE_E_TOO_LARGE, "a text of %zu bytes, room for %zu", needed,
                          text ? capacity : 0);
    else
        text[needed - 1] = '\0';
    gsv_decoded_reset(&decoded);
    return status;
}

/* ------------------------------------------------------------------ questions */

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
