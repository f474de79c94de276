/*
 * lora_config.c - reads adapter_config.json: the base, the class, and the scales of a LoRA adapter.
 *
 * Settings that change the formula and are not implemented are refused by name.
 */
#include "lib/model/formats/lora.h"

#include "lib/base/error.h"
#include "lib/base/json_tree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MODEL_NAME_BYTES 4096

static gpuserve_status read_config(struct gsv_json_value **json, const struct gsv_dir *dir,
                                   gpuserve_error *error)
{
    return gsv_read_optional_json(json, dir, "", GSV_LORA_CONFIG, error);
}

static bool has_adapter(const struct gsv_dir *dir)
{
    return gsv_dir_has_own(dir, "adapter_model.safetensors") ||
           gsv_dir_has_own(dir, "adapter_model.bin");
}

gpuserve_status gsv_lora_base(char **base, const struct gsv_dir *dir, gpuserve_error *error)
{
    const char *name = NULL, *revision = NULL;
    struct gsv_json_value *json;
    gpuserve_status st = read_config(&json, dir, error);

    *base = NULL;
    if (json && !has_adapter(dir) && gsv_dir_has_own(dir, "config.json"))
        gsv_json_free(&json); /* left over by the training of a whole model */
    if (!json)
        return st;
    st = gsv_json_string(json, "base_model_name_or_path", GSV_LORA_CONFIG, &name, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "revision", GSV_LORA_CONFIG, &revision, error);
    if (st == GPUSERVE_OK && (!name || !*name || strlen(name) > MAX_MODEL_NAME_BYTES))
        st = gsv_fail(error, GPUSERVE_E_FORMAT, GSV_LORA_CONFIG ": \"base_model_name_or_path\" %s",
                      name && *name ? "is too long" : "is missing");
    if (st == GPUSERVE_OK) {
        const size_t bytes = strlen(name) + (revision ? strlen(revision) : 0) + 2;

        *base = malloc(bytes);
        if (*base)
            snprintf(*base, bytes, "%s%s%s", name, revision ? "@" : "", revision ? revision : "");
        else
            st = gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model's name");
    }
    gsv_json_free(&json);
    return st == GPUSERVE_OK ? st : gsv_fail_in(error, st, "%s", gsv_dir_path(dir));
}

gpuserve_status gsv_lora_class(const char **ending, const struct gsv_dir *dir,
                               gpuserve_error *error)
{
    static const struct {
        const char *task, *ending;
    } classes[] = { { "SEQ_CLS", "ForSequenceClassification" },
                    { "TOKEN_CLS", "ForTokenClassification" },
                    { "FEATURE_EXTRACTION", NULL },
                    { "CAUSAL_LM", NULL } };
    const size_t n = sizeof(classes) / sizeof(classes[0]);
    struct gsv_json_value *json = NULL;
    const char *task = NULL;
    gpuserve_status st = GPUSERVE_OK;
    size_t i = 0;

    *ending = NULL;
    if (gsv_dir_has_own(dir, GSV_LORA_CONFIG) && !gsv_dir_has_own(dir, "config.json"))
        st = read_config(&json, dir, error);
    if (!json)
        return st;
    st = gsv_json_string(json, "task_type", GSV_LORA_CONFIG, &task, error);
    while (task && i < n && strcmp(task, classes[i].task) != 0)
        i++;
    if (st == GPUSERVE_OK && task && i == n)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      "%s/" GSV_LORA_CONFIG ": \"task_type\" is \"%.64s\"; supported: SEQ_CLS, "
                      "TOKEN_CLS, FEATURE_EXTRACTION, CAUSAL_LM",
                      gsv_dir_path(dir), task);
    else if (st == GPUSERVE_OK && task)
        *ending = classes[i].ending;
    gsv_json_free(&json);
    return st;
}

/* True for null, false, 0, and empty lists and objects. */
static bool is_unset(const struct gsv_json_value *value)
{
    if (!value || value->kind == GSV_JSON_NULL)
        return true;
    if (value->kind == GSV_JSON_BOOL)
        return !value->is.boolean;
    if (value->kind == GSV_JSON_INT)
        return value->is.whole == 0;
    return (value->kind == GSV_JSON_ARRAY || value->kind == GSV_JSON_OBJECT) && value->n == 0;
}

static gpuserve_status fail_value(const char *key, const char *value, gpuserve_error *error)
{
    const gpuserve_status st = gsv_fail(
        error, GPUSERVE_E_UNSUPPORTED, GSV_LORA_CONFIG ": \"%s\"%s%.64s%s is not supported", key,
        value ? " = \"" : "", value ? value : "", value ? "\"" : "");

    return gsv_hint(
        error, st, "merge the adapter into its base with PEFT's merge_and_unload(), and save that");
}

/* Settings that change the formula or the base's weights. */
static gpuserve_status refuse_variants(const struct gsv_json_value *json, gpuserve_error *error)
{
    static const char *const keys[] = { "use_qalora",
                                        "use_bdlora",
                                        "lora_bias",
                                        "layer_replication",
                                        "target_parameters",
                                        "trainable_token_indices",
                                        "alora_invocation_tokens",
                                        "arrow_config",
                                        "kasa_config",
                                        "velora_config",
                                        "monteclora_config" };
    static const char *const starts[] = { "gaussian", "eva", "orthogonal" };
    const struct gsv_json_value *init = gsv_json_member(json, "init_lora_weights");
    const char *type = gsv_json_get_string(gsv_json_member(json, "peft_type"));
    bool is_known = !gsv_json_get_string(init);

    if (!type || strcmp(type, "LORA") != 0)
        return fail_value("peft_type", type ? type : "(none)", error);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (!is_unset(gsv_json_member(json, keys[i])))
            return fail_value(keys[i], NULL, error);
    /* Others, such as PiSSA, subtract the start of the factors from the base. */
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]) && !is_known; i++)
        is_known = strcmp(gsv_json_get_string(init), starts[i]) == 0;
    return is_known ? GPUSERVE_OK
                    : fail_value("init_lora_weights", gsv_json_get_string(init), error);
}

/* True if the pattern, a module name or its end, names the module. PEFT reads patterns as regular
 * expressions: refused by has_expression(). */
static bool names_module(const char *pattern, const char *module)
{
    const size_t n = strlen(module), m = strlen(pattern);

    return n >= m && strcmp(module + n - m, pattern) == 0 && (n == m || module[n - m - 1] == '.');
}

static bool has_expression(const char *pattern)
{
    return strpbrk(pattern, "*+?[](){}|^$\\") != NULL;
}

static gpuserve_status parse_settings(struct gsv_lora_settings *settings, gpuserve_error *error)
{
    const struct gsv_json_value *json = settings->json;
    gpuserve_status st = refuse_variants(json, error);

    settings->alpha = 8.0;
    settings->alphas = gsv_json_member(json, "alpha_pattern");
    if (st == GPUSERVE_OK)
        st = gsv_json_double(json, "lora_alpha", GSV_LORA_CONFIG, -1e6, 1e6, &settings->alpha,
                             error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "use_rslora", GSV_LORA_CONFIG, &settings->is_rank_stabilized,
                           error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "use_dora", GSV_LORA_CONFIG, &settings->has_magnitudes, error);
    for (size_t i = 0; st == GPUSERVE_OK && gsv_json_is(settings->alphas, GSV_JSON_OBJECT) &&
                       i < settings->alphas->n;
         i++)
        if (has_expression(settings->alphas->is.fields[i]->key))
            st = fail_value("alpha_pattern", settings->alphas->is.fields[i]->key, error);
    return st;
}

gpuserve_status gsv_lora_settings_read(struct gsv_lora_settings *settings,
                                       const struct gsv_dir *dir, gpuserve_error *error)
{
    gpuserve_status st;

    *settings = (struct gsv_lora_settings){ 0 };
    st = gsv_read_json(&settings->json, dir, "", GSV_LORA_CONFIG, error);
    if (st != GPUSERVE_OK)
        return st;
    st = parse_settings(settings, error);
    if (st == GPUSERVE_OK)
        return st;
    gsv_lora_settings_reset(settings);
    return gsv_fail_in(error, st, "%s", gsv_dir_path(dir));
}

void gsv_lora_settings_reset(struct gsv_lora_settings *settings)
{
    gsv_json_free(&settings->json);
}

gpuserve_status gsv_lora_scale(float *scale, const struct gsv_lora_settings *settings,
                               const char *module, size_t rank, gpuserve_error *error)
{
    const bool has_alphas = gsv_json_is(settings->alphas, GSV_JSON_OBJECT);
    double alpha = settings->alpha;
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; has_alphas && i < settings->alphas->n; i++) {
        const char *key = settings->alphas->is.fields[i]->key;

        if (!names_module(key, module))
            continue;
        st = gsv_json_double(settings->alphas, key, GSV_LORA_CONFIG ": alpha_pattern", -1e6, 1e6,
                             &alpha, error);
        break;
    }
    *scale = (float)(alpha / (settings->is_rank_stabilized ? sqrt((double)rank) : (double)rank));
    return st;
}
