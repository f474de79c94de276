/*
 * special_tokens.c - special and added tokens of models without a tokenizer.json.
 *
 * Order: added tokens by id, then the keys of the class ("cls_token" ...), then
 * "additional_special_tokens". Ids of tokens that the vocabulary lacks depend on this order.
 */
#include "lib/text/load/special_tokens.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"

#include <stdlib.h>
#include <string.h>

/* State while the files are read. */
struct special_tokens_reading {
    struct gsv_tokenizer *t;
    const struct gsv_vocab_files *files;
    const struct gsv_json_value *decoder; /* "added_tokens_decoder"; NULL if absent */
    const struct gsv_special *keys;
    size_t n_keys;
    const char *name;
};

/* The value of a key such as "cls_token"; NULL if no file has it. */
static const struct gsv_json_value *value_of(const struct special_tokens_reading *r,
                                             const char *key)
{
    const struct gsv_json_value *value =
        r->decoder ? NULL : gsv_json_member(r->files->specials, key);

    return value ? value : gsv_json_member(r->files->config, key);
}

/* The text of "[CLS]" or { "content": "[CLS]", ... }; `usual` for any other value. */
static const char *text_of(const struct gsv_json_value *value, const char *usual)
{
    if (gsv_json_is(value, GSV_JSON_OBJECT))
        value = gsv_json_member(value, "content");
    return gsv_json_is(value, GSV_JSON_STRING) ? gsv_json_get_string(value) : usual;
}

/* NULL: no such token, because its value is null or no file and no class names one. */
static const char *text_of_key(const struct special_tokens_reading *r,
                               const struct gsv_special *key)
{
    const struct gsv_json_value *value = value_of(r, key->key);

    return gsv_json_is(value, GSV_JSON_NULL) ? NULL : text_of(value, key->usual);
}

/* ------------------------------------------------------------------ added tokens */

/* True if a file, not only the class, names the text as special. */
static bool is_named(const struct special_tokens_reading *r, const char *text)
{
    const struct gsv_json_value *more = value_of(r, "additional_special_tokens");

    for (size_t i = 0; i < r->n_keys; i++) {
        const char *special = text_of(value_of(r, r->keys[i].key), NULL);

        if (special && strcmp(special, text) == 0)
            return true;
    }
    for (size_t i = 0; i < gsv_json_count(more); i++)
        if (strcmp(text_of(gsv_json_at(more, i), ""), text) == 0)
            return true;
    return false;
}

/* An entry of either file: the id is the key in "added_tokens_decoder", the value in
 * added_tokens.json. */
struct special_tokens_entry {
    int64_t id;
    const struct gsv_json_value *value;
};

static int compare_entries(const void *a, const void *b)
{
    const struct special_tokens_entry *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

static gpuserve_status add_entry(const struct special_tokens_reading *r,
                                 const struct gsv_json_value *value, gpuserve_error *error)
{
    struct gsv_tokenizer *const t = r->t;
    bool special;

    if (value->kind != GSV_JSON_INT)
        return gsv_added_parse_one(&t->added, value, false, &t->vocab, r->name, error);
    special = is_named(r, value->key);
    return gsv_added_add(&t->added,
                         (struct gsv_added_token){ .content = (char *)(uintptr_t)value->key,
                                                   .size = strlen(value->key),
                                                   .special = special,
                                                   .normalized = !special },
                         &t->vocab, r->name, error);
}

static gpuserve_status list_entries(struct special_tokens_entry *entries,
                                    const struct gsv_json_value *fields, const char *name,
                                    gpuserve_error *error)
{
    for (size_t i = 0; i < fields->n; i++) {
        const struct gsv_json_value *value = fields->is.fields[i];
        char *end;

        entries[i].value = value;
        entries[i].id = gsv_json_get_int(value);
        if (value->kind == GSV_JSON_OBJECT) {
            entries[i].id = strtoll(value->key, &end, 10);
            if (*end == '\0' && end != value->key)
                continue;
        } else if (value->kind == GSV_JSON_INT) {
            continue;
        }
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: the added token \"%.64s\" has no id", name,
                        value->key);
    }
    qsort(entries, fields->n, sizeof(*entries), compare_entries);
    return GPUSERVE_OK;
}

/* Add in the order of ids: tokens missing from the vocabulary are appended in this order. */
static gpuserve_status read_added(const struct special_tokens_reading *r, gpuserve_error *error)
{
    const struct gsv_json_value *fields = r->decoder ? r->decoder : r->files->added;
    struct special_tokens_entry *entries;
    gpuserve_status status;

    if (!gsv_json_is(fields, GSV_JSON_OBJECT))
        return GPUSERVE_OK;
    entries = gsv_alloc_array(fields->n, sizeof(*entries));
    if (!entries)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for added tokens", r->name);
    status = list_entries(entries, fields, r->name, error);
    for (size_t i = 0; i < fields->n && status == GPUSERVE_OK; i++)
        status = add_entry(r, entries[i].value, error);
    free(entries);
    return status;
}

/* ------------------------------------------------------------------ special tokens */

/* Find the added token with a text, or NULL. A linear search: the tokens are not sorted yet. */
static struct gsv_added_token *find_added(const struct special_tokens_reading *r, const char *text)
{
    const int32_t id = gsv_vocab_id(&r->t->vocab, text, strlen(text));

    for (size_t i = 0; i < r->t->added.n && id >= 0; i++)
        if (r->t->added.tokens[i].id == id)
            return &r->t->added.tokens[i];
    return NULL;
}

/* True if an existing added token keeps its flags. "added_tokens_decoder" has the flags of all
 * tokens that a file names; added_tokens.json has no flags. */
static bool entry_stays(const struct special_tokens_reading *r, const struct gsv_json_value *value,
                        bool flagged)
{
    return r->decoder ? value || !flagged : !flagged && !gsv_json_is(value, GSV_JSON_OBJECT);
}

/* Add one special token; `key` is NULL for an additional special token. */
static gpuserve_status add_special(const struct special_tokens_reading *r,
                                   const struct gsv_json_value *value, const char *text,
                                   const struct gsv_special *key, gpuserve_error *error)
{
    struct gsv_tokenizer *const t = r->t;
    const bool flagged = key && key->flagged;
    struct gsv_added_token *same = find_added(r, text);

    if (same && entry_stays(r, value, flagged)) {
        same->special = true;
        return GPUSERVE_OK;
    }
    if (gsv_json_is(value, GSV_JSON_OBJECT))
        return gsv_added_parse_one(&t->added, value, true, &t->vocab, r->name, error);
    return gsv_added_add(&t->added,
                         (struct gsv_added_token){ .content = (char *)(uintptr_t)text,
                                                   .size = strlen(text),
                                                   .lstrip = flagged && key->lstrip,
                                                   .normalized = flagged && key->normalized,
                                                   .special = true },
                         &t->vocab, r->name, error);
}

/* True for the first of the keys with the same text; that key decides the flags. */
static bool is_first(const struct special_tokens_reading *r, size_t i, const char *text)
{
    for (size_t before = 0; before < i; before++) {
        const char *other = text_of_key(r, &r->keys[before]);

        if (other && strcmp(other, text) == 0)
            return false;
    }
    return true;
}

static gpuserve_status read_keys(const struct special_tokens_reading *r, int32_t *ids,
                                 gpuserve_error *error)
{
    gpuserve_status status = GPUSERVE_OK;

    for (size_t i = 0; i < r->n_keys && status == GPUSERVE_OK; i++) {
        const struct gsv_special *key = &r->keys[i];
        const char *text = text_of_key(r, key);

        ids[i] = -1;
        if (!text && key->needed)
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is null", r->name, key->key);
        if (!text)
            continue;
        if (key->known && gsv_vocab_id(&r->t->vocab, text, strlen(text)) < 0)
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: token \"%s\" is not in the vocabulary",
                            r->name, text);
        if (is_first(r, i, text))
            status = add_special(r, value_of(r, key->key), text, key, error);
        ids[i] = gsv_vocab_id(&r->t->vocab, text, strlen(text));
    }
    return status;
}

static gpuserve_status read_more(const struct special_tokens_reading *r, gpuserve_error *error)
{
    const struct gsv_json_value *more = value_of(r, "additional_special_tokens");
    gpuserve_status status = GPUSERVE_OK;

    for (size_t i = 0; i < gsv_json_count(more) && status == GPUSERVE_OK; i++) {
        const struct gsv_json_value *value = gsv_json_at(more, i);
        const char *text = text_of(value, NULL);

        if (text && is_first(r, r->n_keys, text))
            status = add_special(r, value, text, NULL, error);
    }
    return status;
}

gpuserve_status gsv_specials_read(struct gsv_tokenizer *t, const struct gsv_vocab_files *files,
                                  const struct gsv_special *keys, size_t n, int32_t *ids,
                                  const char *name, gpuserve_error *error)
{
    const struct gsv_json_value *decoder = gsv_json_member(files->config, "added_tokens_decoder");
    const struct special_tokens_reading r = {
        .t = t,
        .files = files,
        .decoder = gsv_json_is(decoder, GSV_JSON_OBJECT) ? decoder : NULL,
        .keys = keys,
        .n_keys = n,
        .name = name,
    };
    gpuserve_status status = read_added(&r, error);

    if (status == GPUSERVE_OK)
        status = read_keys(&r, ids, error);
    return status == GPUSERVE_OK ? read_more(&r, error) : status;
}
