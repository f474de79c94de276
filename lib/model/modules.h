/*
 * modules.h - what sentence-transformers adds to a transformer: which folder holds what, pooling,
 * Dense layers, normalization, the token limit and prompts.
 */
#ifndef GSV_MODEL_MODULES_H
#define GSV_MODEL_MODULES_H

#include "lib/model/formats/checkpoint.h"
#include "lib/model/model.h"

struct gsv_dense_module {
    char *folder; /* owned */
    struct gsv_dense_spec spec;
};

struct gsv_modules {
    bool present;      /* there is a modules.json */
    char *transformer; /* folder of config.json and the weights, "" mostly; owned */
    int32_t poolings[GSV_MAX_POOLINGS];
    int32_t n_poolings;
    struct gsv_dense_module dense[GSV_MAX_DENSE];
    int32_t n_dense;
    bool skips_prompt; /* Pooling leaves the prompt's tokens out */
    bool is_sparse;    /* a SpladePooling instead of a Pooling module */
    bool log_twice;    /* its activation is log(1 + log(1 + relu)) */
    bool normalize;
    int32_t max_tokens;         /* 0: nothing is said */
    bool do_lower_case;         /* of sentence_bert_config.json: before the tokenizer */
    struct gsv_prompt *prompts; /* owned */
    size_t n_prompts;
    const char *default_prompt; /* a name of prompts, or NULL */
};

/* A directory without modules.json is a bare transformer: mean pooling, no normalization, as
 * sentence-transformers takes it. */
gpuserve_status gsv_modules_read(struct gsv_modules *modules, const struct gsv_dir *dir,
                                 gpuserve_error *error);
void gsv_modules_reset(struct gsv_modules *modules);

/* A Pooling module's config.json, old or new. */
gpuserve_status gsv_pooling_parse(struct gsv_modules *modules, const struct gsv_json_value *json,
                                  gpuserve_error *error);
/* A Dense module's. */
gpuserve_status gsv_dense_parse(struct gsv_dense_spec *spec, const struct gsv_json_value *json,
                                gpuserve_error *error);

#endif
