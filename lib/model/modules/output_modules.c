/*
 * output_modules.c - reads the modules that make the output of a transformer's token vectors or
 * logits: Pooling, SpladePooling and LogitScore.
 *
 *   1_Pooling/config.json         pooling modes, concatenated in a fixed order
 *   1_SpladePooling/config.json   of a sparse encoder, instead of a Pooling module
 *   1_LogitScore/config.json      the tokens whose logits a language model that reranks compares
 */
#include "lib/model/modules/modules.h"

#include "lib/base/error.h"
#include "lib/base/json_tree.h"

#include <string.h>

typedef gpuserve_status (*parse_fn)(struct gsv_modules *modules, const struct gsv_json_value *json,
                                    gpuserve_error *error);

/* Parse the config.json of a module's folder. */
static gpuserve_status read_config(const struct gsv_module_reader *r, const char *folder,
                                   parse_fn parse)
{
    struct gsv_json_value *json;
    gpuserve_status st = gsv_read_json(&json, r->dir, folder, "config.json", r->error);

    if (st != GPUSERVE_OK)
        return st;
    st = parse(r->modules, json, r->error);
    gsv_json_free(&json);
    return st == GPUSERVE_OK ? st
                             : gsv_fail_in(r->error, st, "%s/%s", gsv_dir_path(r->dir), folder);
}

/* -------------------------------------------------------------------------------------- Pooling */

/* In the order in which sentence-transformers concatenates them. */
static const struct {
    const char *flag; /* key in releases before 6 */
    const char *mode; /* value in release 6 */
    int32_t pooling;
} poolings[] = {
    { "pooling_mode_cls_token", "cls", GPUSERVE_POOL_CLS },
    { "pooling_mode_max_tokens", "max", GPUSERVE_POOL_MAX },
    { "pooling_mode_mean_tokens", "mean", GPUSERVE_POOL_MEAN },
    { "pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", GPUSERVE_POOL_MEAN_SQRT_LEN },
    { "pooling_mode_weightedmean_tokens", "weightedmean", GPUSERVE_POOL_WEIGHTED_MEAN },
    { "pooling_mode_lasttoken", "lasttoken", GPUSERVE_POOL_LAST },
};

static const size_t n_poolings = sizeof(poolings) / sizeof(poolings[0]);

static gpuserve_status parse_flags(const struct gsv_json_value *json, bool on[],
                                   gpuserve_error *error)
{
    for (size_t i = 0; i < n_poolings; i++) {
        const gpuserve_status st = gsv_json_bool(json, poolings[i].flag, "Pooling", &on[i], error);

        if (st != GPUSERVE_OK)
            return st;
    }
    return GPUSERVE_OK;
}

static gpuserve_status parse_mode(const struct gsv_json_value *mode, bool on[],
                                  gpuserve_error *error)
{
    const char *name = gsv_json_get_string(mode);

    for (size_t i = 0; name && i < n_poolings; i++) {
        if (strcmp(name, poolings[i].mode) == 0) {
            on[i] = true;
            return GPUSERVE_OK;
        }
    }
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "Pooling: pooling_mode '%.64s' is not supported",
                    name ? name : "(not a string)");
}

static gpuserve_status parse_modes(const struct gsv_json_value *modes, bool on[],
                                   gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    if (!gsv_json_is(modes, GSV_JSON_ARRAY))
        return parse_mode(modes, on, error);
    for (size_t i = 0; i < gsv_json_count(modes) && st == GPUSERVE_OK; i++)
        st = parse_mode(gsv_json_at(modes, i), on, error);
    return st;
}

gpuserve_status gsv_pooling_parse(struct gsv_modules *modules, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    const struct gsv_json_value *modes = gsv_json_member(json, "pooling_mode");
    bool on[sizeof(poolings) / sizeof(poolings[0])] = { false };
    bool include_prompt = true;
    gpuserve_status st = gsv_json_bool(json, "include_prompt", "Pooling", &include_prompt, error);

    if (st == GPUSERVE_OK)
        st = modes ? parse_modes(modes, on, error) : parse_flags(json, on, error);
    if (st != GPUSERVE_OK)
        return st;
    modules->skips_prompt = !include_prompt;
    modules->n_poolings = 0;
    for (size_t i = 0; i < n_poolings; i++)
        if (on[i])
            modules->poolings[modules->n_poolings++] = poolings[i].pooling;
    if (modules->n_poolings == 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "Pooling: no pooling mode is enabled");
    for (int32_t i = 0; i < modules->n_poolings && !include_prompt; i++)
        if (modules->poolings[i] == GPUSERVE_POOL_WEIGHTED_MEAN)
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            "Pooling: include_prompt false with 'weightedmean' is not supported");
    return GPUSERVE_OK;
}

gpuserve_status gsv_pooling_add(const struct gsv_module_reader *r, const char *folder)
{
    return read_config(r, folder, gsv_pooling_parse);
}

/* --------------------------------------------------------------------------------------
 * SpladePooling */

static gpuserve_status parse_splade(struct gsv_modules *modules, const struct gsv_json_value *json,
                                    gpuserve_error *error)
{
    const char *strategy = "max", *activation = "relu"; /* the defaults of the class */
    gpuserve_status st =
        gsv_json_string(json, "pooling_strategy", "SpladePooling", &strategy, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "activation_function", "SpladePooling", &activation, error);
    if (st != GPUSERVE_OK)
        return st;
    if (strcmp(strategy, "max") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "SpladePooling: pooling_strategy '%.64s' is not supported, only 'max' is",
                        strategy);
    modules->is_sparse = true;
    modules->log_twice = strcmp(activation, "log1p_relu") == 0;
    if (modules->log_twice || strcmp(activation, "relu") == 0)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    "SpladePooling: activation_function '%.64s' is not supported, only 'relu' and "
                    "'log1p_relu' are",
                    activation);
}

gpuserve_status gsv_splade_add(const struct gsv_module_reader *r, const char *folder)
{
    return read_config(r, folder, parse_splade);
}

/* -------------------------------------------------------------------------------------- LogitScore
 */

static gpuserve_status parse_logit_score(struct gsv_modules *modules,
                                         const struct gsv_json_value *json, gpuserve_error *error)
{
    const char *input = "causal_logits";
    int64_t yes = -1, no = -1;
    gpuserve_status st = gsv_json_string(json, "module_input_name", "LogitScore", &input, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_need(json, "true_token_id", GSV_JSON_INT, "LogitScore", error);
    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "true_token_id", "LogitScore", 0, INT32_MAX, &yes, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "false_token_id", "LogitScore", 0, INT32_MAX, &no, error);
    if (st == GPUSERVE_OK && strcmp(input, "causal_logits") != 0)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      "LogitScore: module_input_name '%.64s' is not supported", input);
    modules->scores_answers = true;
    modules->yes = (int32_t)yes;
    modules->no = (int32_t)no;
    return st;
}

gpuserve_status gsv_logit_score_add(const struct gsv_module_reader *r, const char *folder)
{
    return read_config(r, folder, parse_logit_score);
}
