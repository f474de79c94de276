/*
 * prompts.c - reads config_sentence_transformers.json: prompts, the default prompt, PyLate's
 * prefixes, and the activation of a cross-encoder.
 */
#include "lib/model/modules/modules.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PROMPTS 1000

static struct gsv_prompt *find_prompt(const struct gsv_modules *modules, const char *name)
{
    for (size_t i = 0; i < modules->n_prompts; i++)
        if (strcmp(modules->prompts[i].name, name) == 0)
            return &modules->prompts[i];
    return NULL;
}

static gpuserve_status add_prompt(struct gsv_modules *modules, const struct gsv_dir *dir,
                                  const char *name, const char *text, size_t size,
                                  gpuserve_error *error)
{
    struct gsv_prompt *more =
        realloc(modules->prompts, (modules->n_prompts + 1) * sizeof(*modules->prompts));
    struct gsv_prompt *prompt;

    if (!more)
        return gsv_modules_nomem(dir, error);
    modules->prompts = more;
    prompt = &more[modules->n_prompts++];
    memset(prompt, 0, sizeof(*prompt));
    prompt->name = gsv_copy_text(name, strlen(name));
    prompt->text = gsv_copy_text(text, size);
    return prompt->name && prompt->text ? GPUSERVE_OK : gsv_modules_nomem(dir, error);
}

static gpuserve_status add_prompts(struct gsv_modules *modules, const struct gsv_dir *dir,
                                   const struct gsv_json_value *prompts, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    if (!prompts || gsv_json_is(prompts, GSV_JSON_NULL))
        return GPUSERVE_OK;
    if (!gsv_json_is(prompts, GSV_JSON_OBJECT) || prompts->n > MAX_PROMPTS)
        return gsv_fail(
            error, GPUSERVE_E_FORMAT,
            "%s/config_sentence_transformers.json: prompts is not an object with at most %d fields",
            gsv_dir_path(dir), MAX_PROMPTS);
    for (size_t i = 0; i < prompts->n && st == GPUSERVE_OK; i++) {
        const struct gsv_json_value *text = prompts->is.fields[i];

        if (!gsv_json_is(text, GSV_JSON_STRING))
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s/config_sentence_transformers.json: prompt '%.64s' is not a string",
                            gsv_dir_path(dir), text->key);
        st = add_prompt(modules, dir, text->key, gsv_json_get_string(text), text->n, error);
    }
    return st;
}

static char *join_text(const char *a, const char *b)
{
    const size_t before = strlen(a), after = strlen(b);
    char *joined = gsv_alloc_array(before + after + 1, 1);

    if (!joined)
        return NULL;
    memcpy(joined, a, before);
    memcpy(joined + before, b, after + 1);
    return joined;
}

/* PyLate names the prefixes of queries and documents by other keys; they precede the prompts. */
static gpuserve_status add_prefix(struct gsv_modules *modules, const struct gsv_dir *dir,
                                  const struct gsv_json_value *prefix, const char *name,
                                  gpuserve_error *error)
{
    const char *text = gsv_json_get_string(prefix);
    struct gsv_prompt *prompt = find_prompt(modules, name);
    char *joined;

    if (!text || (prompt && strncmp(prompt->text, text, prefix->n) == 0))
        return GPUSERVE_OK;
    if (!prompt)
        return add_prompt(modules, dir, name, text, prefix->n, error);
    joined = join_text(text, prompt->text);
    if (!joined)
        return gsv_modules_nomem(dir, error);
    free(prompt->text);
    prompt->text = joined;
    return GPUSERVE_OK;
}

gpuserve_status gsv_prompt_add(struct gsv_modules *modules, const struct gsv_dir *dir,
                               const char *name, const char *text, gpuserve_error *error)
{
    return find_prompt(modules, name) ? GPUSERVE_OK
                                      : add_prompt(modules, dir, name, text, strlen(text), error);
}

gpuserve_status gsv_route_prompts_add(struct gsv_modules *modules, const struct gsv_dir *dir,
                                      gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    for (int32_t i = 0; i < modules->n_routes && st == GPUSERVE_OK; i++)
        st = gsv_prompt_add(modules, dir, modules->routes[i], "", error);
    return st;
}

static gpuserve_status set_default_prompt(struct gsv_modules *modules, const struct gsv_dir *dir,
                                          const struct gsv_json_value *json, gpuserve_error *error)
{
    const char *name = NULL;
    const gpuserve_status st = gsv_json_string(json, "default_prompt_name",
                                               "config_sentence_transformers.json", &name, error);

    if (st != GPUSERVE_OK || !name)
        return st;
    if (find_prompt(modules, name))
        modules->default_prompt = find_prompt(modules, name)->name;
    if (!modules->default_prompt)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s/config_sentence_transformers.json: default_prompt_name '%.64s' is not "
                        "one of the %zu prompts",
                        gsv_dir_path(dir), name, modules->n_prompts);
    return GPUSERVE_OK;
}

/* The activation of a cross-encoder, the name of a Python class. */
static gpuserve_status read_activation(struct gsv_modules *modules,
                                       const struct gsv_json_value *json, gpuserve_error *error)
{
    const char *type = "", *activation = "";
    gpuserve_status st =
        gsv_json_string(json, "model_type", "config_sentence_transformers.json", &type, error);

    if (st == GPUSERVE_OK && strcmp(type, "CrossEncoder") == 0)
        st = gsv_json_string(json, "activation_fn", "config_sentence_transformers.json",
                             &activation, error);
    if (strcmp(gsv_class_name(activation), "Sigmoid") == 0)
        modules->score = GPUSERVE_SCORE_SIGMOID;
    else if (strcmp(gsv_class_name(activation), "Identity") == 0)
        modules->score = GPUSERVE_SCORE_RAW;
    return st;
}

gpuserve_status gsv_prompts_read(struct gsv_modules *modules, const struct gsv_dir *dir,
                                 gpuserve_error *error)
{
    struct gsv_json_value *json;
    gpuserve_status st =
        gsv_read_optional_json(&json, dir, "", "config_sentence_transformers.json", error);

    if (st != GPUSERVE_OK || !json)
        return st;
    st = add_prompts(modules, dir, gsv_json_member(json, "prompts"), error);
    if (st == GPUSERVE_OK)
        st = add_prefix(modules, dir, gsv_json_member(json, "query_prefix"), "query", error);
    if (st == GPUSERVE_OK)
        st = add_prefix(modules, dir, gsv_json_member(json, "document_prefix"), "document", error);
    if (st == GPUSERVE_OK)
        st = set_default_prompt(modules, dir, json, error);
    if (st == GPUSERVE_OK)
        st = read_activation(modules, json, error);
    gsv_json_free(&json);
    return st;
}
