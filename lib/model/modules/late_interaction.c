/*
 * late_interaction.c - reads how queries and documents of a late interaction model (ColBERT) are
 * encoded: lengths, query expansion, the list of skipped words, prefixes.
 *
 *   sentence_bert_config.json           query_length, document_length, query_expansion: these win
 *   config_sentence_transformers.json   the same, and PyLate's do_query_expansion,
 *                                       attend_to_expansion_tokens, skiplist_words, prefixes
 *   MultiVectorMask                     skiplist_words, skiplist_tasks
 *   artifact.metadata                   Stanford's query_maxlen, doc_maxlen, tokens before a text
 *
 * The rules are those of MultiVectorEncoder of sentence-transformers, which loads all of these.
 */
#include "lib/model/modules/modules.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"

#include <stdlib.h>
#include <string.h>

#define MAX_LENGTH (1 << 20)
#define MAX_SKIPPED 100000 /* words */
#define USUAL_LENGTH 32    /* tokens of a query of ColBERT */
#define PUNCTUATION "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

void gsv_late_reset(struct gsv_late_facts *late)
{
    for (size_t i = 0; i < late->n_skipped; i++)
        free(late->skipped[i]);
    free(late->skipped);
    free(late->token);
    for (int i = 0; i < GSV_ROLES; i++)
        free(late->prefixes[i]);
    memset(late, 0, sizeof(*late));
}

static gpuserve_status nomem(gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a list of words");
}

/* Replace *to by a copy of `text`. */
static gpuserve_status set_text(char **to, const char *text, gpuserve_error *error)
{
    free(*to);
    *to = gsv_copy_text(text, strlen(text));
    return *to ? GPUSERVE_OK : nomem(error);
}

/* ------------------------------------------------------------------------------------ skip list */

static gpuserve_status add_skipped(struct gsv_late_facts *late, const char *word, size_t size,
                                   gpuserve_error *error)
{
    late->skipped[late->n_skipped] = gsv_copy_text(word, size);
    return late->skipped[late->n_skipped++] ? GPUSERVE_OK : nomem(error);
}

/* Each character of `characters` is a word. */
static gpuserve_status skip_characters(struct gsv_late_facts *late, const char *characters,
                                       gpuserve_error *error)
{
    const size_t n = strlen(characters);
    gpuserve_status st = GPUSERVE_OK;

    late->skipped = gsv_alloc_array(n, sizeof(*late->skipped));
    late->skips[GSV_ROLE_DOCUMENT] = true;
    if (!late->skipped)
        return nomem(error);
    for (size_t i = 0; i < n && st == GPUSERVE_OK; i++)
        st = add_skipped(late, characters + i, 1, error);
    return st;
}

static gpuserve_status read_skipped(struct gsv_late_facts *late, const struct gsv_json_value *words,
                                    const char *name, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    if (!words || gsv_json_is(words, GSV_JSON_NULL))
        return GPUSERVE_OK;
    if (!gsv_json_is(words, GSV_JSON_ARRAY) || words->n > MAX_SKIPPED)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: skiplist_words is not a list of at most %d strings", name,
                        MAX_SKIPPED);
    late->skipped = gsv_alloc_array(words->n + 1, sizeof(*late->skipped));
    if (!late->skipped)
        return nomem(error);
    for (size_t i = 0; i < words->n && st == GPUSERVE_OK; i++) {
        const struct gsv_json_value *word = gsv_json_at(words, i);

        if (!gsv_json_is(word, GSV_JSON_STRING))
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: skiplist_words[%zu] is not a string",
                            name, i);
        st = add_skipped(late, gsv_json_get_string(word), word->n, error);
    }
    return st;
}

static gpuserve_status add_skip_role(struct gsv_late_facts *late, const struct gsv_json_value *role,
                                     gpuserve_error *error)
{
    const char *name = gsv_json_get_string(role);

    if (name && strcmp(name, "query") == 0)
        late->skips[GSV_ROLE_QUERY] = true;
    else if (name && strcmp(name, "document") == 0)
        late->skips[GSV_ROLE_DOCUMENT] = true;
    else
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "MultiVectorMask: skiplist_tasks has '%.64s', known are query and document",
                        name ? name : "another value than a string");
    return GPUSERVE_OK;
}

static gpuserve_status read_skip_roles(struct gsv_late_facts *late,
                                       const struct gsv_json_value *roles, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    if (!roles || gsv_json_is(roles, GSV_JSON_NULL))
        late->skips[GSV_ROLE_DOCUMENT] = true;
    else if (!gsv_json_is(roles, GSV_JSON_ARRAY))
        st = add_skip_role(late, roles, error);
    for (size_t i = 0; i < gsv_json_count(roles) && st == GPUSERVE_OK; i++)
        st = add_skip_role(late, gsv_json_at(roles, i), error);
    return st;
}

static gpuserve_status parse_mask(struct gsv_late_facts *late, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    const struct gsv_json_value *kept = gsv_json_member(json, "keep_only_token_ids");
    gpuserve_status st =
        read_skipped(late, gsv_json_member(json, "skiplist_words"), "MultiVectorMask", error);

    if (st == GPUSERVE_OK)
        st = read_skip_roles(late, gsv_json_member(json, "skiplist_tasks"), error);
    if (st == GPUSERVE_OK && kept && !gsv_json_is(kept, GSV_JSON_NULL) &&
        !(gsv_json_is(kept, GSV_JSON_ARRAY) && kept->n == 0))
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      "MultiVectorMask: keep_only_token_ids is not supported");
    return st;
}

gpuserve_status gsv_late_mask_add(const struct gsv_module_reader *r, const char *folder)
{
    struct gsv_late_facts *late = &r->modules->late;
    struct gsv_json_value *json;
    gpuserve_status st = gsv_read_optional_json(&json, r->dir, folder, "config.json", r->error);

    if (st != GPUSERVE_OK)
        return st;
    if (late->has_mask)
        st = gsv_fail(r->error, GPUSERVE_E_UNSUPPORTED, "a second MultiVectorMask module");
    late->has_mask = true;
    if (st == GPUSERVE_OK)
        st = parse_mask(late, json, r->error);
    gsv_json_free(&json);
    return st == GPUSERVE_OK ? st
                             : gsv_fail_in(r->error, st, "%s/%s", gsv_dir_path(r->dir), folder);
}

/* ---------------------------------------------------------------------------- lengths, expansion
 */

static gpuserve_status parse_expansion(struct gsv_late_facts *late,
                                       const struct gsv_json_value *json, const char *name,
                                       gpuserve_error *error)
{
    const char *strategy = "", *token = NULL;
    int64_t length = 0;
    gpuserve_status st;

    late->length = 0;
    late->attends = false;
    if (gsv_json_is(json, GSV_JSON_NULL)) /* queries are not expanded */
        return GPUSERVE_OK;
    st = gsv_json_string(json, "strategy", name, &strategy, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "token", name, &token, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "attend", name, &late->attends, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "length", name, 1, MAX_LENGTH, &length, error);
    if (st != GPUSERVE_OK)
        return st;
    if (strcmp(strategy, "fixed") != 0 && strcmp(strategy, "min") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: query_expansion has strategy '%.64s', known are fixed and min", name,
                        strategy);
    if (length == 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: query_expansion has no length", name);
    late->length = (int32_t)length;
    late->is_min = strcmp(strategy, "min") == 0;
    return token ? set_text(&late->token, token, error) : GPUSERVE_OK;
}

/* The settings of a Transformer module; keys that the file lacks leave what another file said. */
static gpuserve_status parse_settings(struct gsv_late_facts *late,
                                      const struct gsv_json_value *json, const char *name,
                                      gpuserve_error *error)
{
    const struct gsv_json_value *expansion = gsv_json_member(json, "query_expansion");
    int64_t query = late->limits[GSV_ROLE_QUERY], document = late->limits[GSV_ROLE_DOCUMENT];
    gpuserve_status st = gsv_json_int(json, "query_length", name, 1, MAX_LENGTH, &query, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "document_length", name, 1, MAX_LENGTH, &document, error);
    if (st == GPUSERVE_OK && expansion && !gsv_json_is(expansion, GSV_JSON_NULL) &&
        !gsv_json_is(expansion, GSV_JSON_OBJECT))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: query_expansion is not an object", name);
    late->limits[GSV_ROLE_QUERY] = (int32_t)query;
    late->limits[GSV_ROLE_DOCUMENT] = (int32_t)document;
    return st == GPUSERVE_OK && expansion ? parse_expansion(late, expansion, name, error) : st;
}

static bool has_any(const struct gsv_json_value *json, const char *const *keys)
{
    for (; *keys; keys++)
        if (gsv_json_member(json, *keys))
            return true;
    return false;
}

/* Queries of a PyLate model are expanded to query_length unless it says otherwise. */
static gpuserve_status parse_pylate_expansion(struct gsv_late_facts *late,
                                              const struct gsv_json_value *json, const char *name,
                                              gpuserve_error *error)
{
    static const char *const keys[] = { "query_length",
                                        "document_length",
                                        "do_query_expansion",
                                        "attend_to_expansion_tokens",
                                        "attend_to_mask_tokens",
                                        "query_prefix",
                                        "document_prefix",
                                        "skiplist_words",
                                        NULL };
    bool expands = true;
    gpuserve_status st = gsv_json_bool(json, "do_query_expansion", name, &expands, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "attend_to_mask_tokens", name, &late->attends, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "attend_to_expansion_tokens", name, &late->attends, error);
    if (st != GPUSERVE_OK || !expands || !has_any(json, keys))
        return st;
    late->length = late->limits[GSV_ROLE_QUERY] ? late->limits[GSV_ROLE_QUERY] : USUAL_LENGTH;
    late->limits[GSV_ROLE_QUERY] = 0;
    return st;
}

/* The first words of prompts that may be tokens of the vocabulary. */
static gpuserve_status read_prefixes(struct gsv_late_facts *late, const struct gsv_json_value *json,
                                     gpuserve_error *error)
{
    static const char *const keys[GSV_ROLES] = {
        [GSV_ROLE_QUERY] = "query_prefix", [GSV_ROLE_DOCUMENT] = "document_prefix"
    };
    gpuserve_status st = GPUSERVE_OK;

    for (int role = GSV_ROLE_QUERY; role < GSV_ROLES && st == GPUSERVE_OK; role++) {
        const char *prefix = gsv_json_get_string(gsv_json_member(json, keys[role]));

        if (prefix && *prefix)
            st = set_text(&late->prefixes[role], prefix, error);
    }
    return st;
}

static gpuserve_status parse_model_config(struct gsv_late_facts *late,
                                          const struct gsv_json_value *json, gpuserve_error *error)
{
    static const char name[] = "config_sentence_transformers.json";
    const struct gsv_json_value *words = gsv_json_member(json, "skiplist_words");
    const char *type = "";
    gpuserve_status st = parse_settings(late, json, name, error);

    if (st == GPUSERVE_OK && !gsv_json_member(json, "query_expansion"))
        st = parse_pylate_expansion(late, json, name, error);
    if (st == GPUSERVE_OK)
        st = read_prefixes(late, json, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "model_type", name, &type, error);
    if (st != GPUSERVE_OK || late->has_mask || strcmp(type, "ColBERT") != 0)
        return st;
    late->has_mask = true; /* PyLate lists no module for it */
    if (!words || gsv_json_is(words, GSV_JSON_NULL))
        return skip_characters(late, PUNCTUATION, error);
    late->skips[GSV_ROLE_DOCUMENT] = true;
    return read_skipped(late, words, name, error);
}

/* The text of a token of tokenizer_config.json: a string, or an object with `content`. */
static const char *token_of(const struct gsv_json_value *json, const char *key)
{
    const struct gsv_json_value *value = gsv_json_member(json, key);

    return gsv_json_get_string(
        gsv_json_is(value, GSV_JSON_OBJECT) ? gsv_json_member(value, "content") : value);
}

/* By default the mask token fills a query up, in a tokenizer without one the end token. */
static gpuserve_status choose_token(struct gsv_modules *modules, const struct gsv_dir *dir,
                                    gpuserve_error *error)
{
    struct gsv_late_facts *late = &modules->late;
    struct gsv_json_value *json;
    const char *token;
    gpuserve_status st;

    if (late->length == 0 || late->token)
        return GPUSERVE_OK;
    st = gsv_read_optional_json(&json, dir, modules->transformer, "tokenizer_config.json", error);
    if (st != GPUSERVE_OK)
        return st;
    token = token_of(json, "mask_token");
    if (!token)
        token = token_of(json, "eos_token");
    st = set_text(&late->token, token ? token : "[MASK]", error);
    gsv_json_free(&json);
    return st;
}

/* Without MultiVectorMask the reference leaves expansion tokens out that nothing attends to. */
static gpuserve_status finish(struct gsv_modules *modules, const struct gsv_dir *dir,
                              gpuserve_error *error)
{
    struct gsv_late_facts *late = &modules->late;
    int32_t longest = late->length;

    if (!late->has_mask && !late->attends)
        late->length = 0;
    if (late->length > 0 && !late->is_min)
        late->limits[GSV_ROLE_QUERY] = late->length;
    else if (late->length > 0 && late->limits[GSV_ROLE_QUERY] > 0 &&
             late->limits[GSV_ROLE_QUERY] < late->length)
        late->limits[GSV_ROLE_QUERY] = late->length;
    late->limits[GSV_ROLE_NONE] = modules->max_tokens;
    for (int role = GSV_ROLE_QUERY; role < GSV_ROLES; role++)
        longest = late->limits[role] > longest ? late->limits[role] : longest;
    /* A length of a role replaces max_seq_length, also by more. */
    if (modules->max_tokens > 0 && longest > modules->max_tokens)
        modules->max_tokens = longest;
    return choose_token(modules, dir, error);
}

/* Read one file into the settings, if the directory has it. */
static gpuserve_status read_file(struct gsv_modules *modules, const struct gsv_dir *dir,
                                 const char *folder, const char *name, bool is_model_config,
                                 gpuserve_error *error)
{
    struct gsv_json_value *json;
    gpuserve_status st = gsv_read_optional_json(&json, dir, folder, name, error);

    if (st != GPUSERVE_OK || !json)
        return st;
    st = is_model_config ? parse_model_config(&modules->late, json, error)
                         : parse_settings(&modules->late, json, name, error);
    gsv_json_free(&json);
    return st == GPUSERVE_OK ? st : gsv_fail_in(error, st, "%s", gsv_dir_path(dir));
}

/* Names that choose a role, also in directories without prompts of these names. */
static gpuserve_status add_role_prompts(struct gsv_modules *modules, const struct gsv_dir *dir,
                                        gpuserve_error *error)
{
    const gpuserve_status st = gsv_prompt_add(modules, dir, "query", "", error);

    return st == GPUSERVE_OK ? gsv_prompt_add(modules, dir, "document", "", error) : st;
}

gpuserve_status gsv_late_read(struct gsv_modules *modules, const struct gsv_dir *dir,
                              gpuserve_error *error)
{
    gpuserve_status st =
        read_file(modules, dir, "", "config_sentence_transformers.json", true, error);

    if (st == GPUSERVE_OK)
        st = read_file(modules, dir, modules->transformer, "sentence_bert_config.json", false,
                       error);
    if (st == GPUSERVE_OK)
        st = finish(modules, dir, error);
    return st == GPUSERVE_OK ? add_role_prompts(modules, dir, error) : st;
}

/* ------------------------------------------------------------------------------------- Stanford */

static gpuserve_status add_stanford_prefix(struct gsv_modules *modules, const struct gsv_dir *dir,
                                           enum gsv_role role, const char *token,
                                           gpuserve_error *error)
{
    static const char *const names[GSV_ROLES] = {
        [GSV_ROLE_QUERY] = "query", [GSV_ROLE_DOCUMENT] = "document"
    };
    const size_t size = strlen(token);
    char *prefix = gsv_alloc_array(size + 2, 1);

    if (!prefix)
        return nomem(error);
    memcpy(prefix, token, size);
    prefix[size] = ' ';
    modules->late.prefixes[role] = prefix;
    return gsv_prompt_add(modules, dir, names[role], prefix, error);
}

static gpuserve_status parse_metadata(struct gsv_modules *modules, const struct gsv_dir *dir,
                                      const struct gsv_json_value *json, gpuserve_error *error)
{
    static const char name[] = "artifact.metadata";
    struct gsv_late_facts *late = &modules->late;
    const char *query = "[unused0]", *document = "[unused1]";
    int64_t query_length = USUAL_LENGTH, document_length = 0;
    bool skips = true;
    gpuserve_status st = gsv_json_string(json, "query_token_id", name, &query, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "doc_token_id", name, &document, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "query_maxlen", name, 1, MAX_LENGTH, &query_length, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "doc_maxlen", name, 1, MAX_LENGTH, &document_length, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "attend_to_mask_tokens", name, &late->attends, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "mask_punctuation", name, &skips, error);
    if (st == GPUSERVE_OK)
        st = add_stanford_prefix(modules, dir, GSV_ROLE_QUERY, query, error);
    if (st == GPUSERVE_OK)
        st = add_stanford_prefix(modules, dir, GSV_ROLE_DOCUMENT, document, error);
    late->length = (int32_t)query_length;
    late->limits[GSV_ROLE_DOCUMENT] = (int32_t)document_length;
    late->has_mask = true;
    return st == GPUSERVE_OK && skips ? skip_characters(late, PUNCTUATION, error) : st;
}

gpuserve_status gsv_late_read_stanford(struct gsv_modules *modules, const struct gsv_dir *dir,
                                       gpuserve_error *error)
{
    struct gsv_json_value *json;
    gpuserve_status st = gsv_read_optional_json(&json, dir, "", "artifact.metadata", error);

    if (st != GPUSERVE_OK)
        return st;
    st = parse_metadata(modules, dir, json, error);
    gsv_json_free(&json);
    if (st == GPUSERVE_OK)
        st = finish(modules, dir, error);
    return st == GPUSERVE_OK ? st : gsv_fail_in(error, st, "%s", gsv_dir_path(dir));
}
