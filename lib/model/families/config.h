/*
 * config.h - config.json of a transformer: family, sizes, positions, activation and labels.
 */
#ifndef GSV_MODEL_CONFIG_H
#define GSV_MODEL_CONFIG_H

#include "lib/base/dir.h"
#include "lib/base/json_tree.h"
#include "lib/model/families/family.h"

#include <gpuserve/gpuserve.h>

struct gsv_config {
    const struct gsv_family *family;
    char *architecture; /* owned */
    char *model_type;   /* owned */
    bool classifies;    /* ...ForSequenceClassification */
    bool labels_tokens; /* ...ForTokenClassification */
    bool is_masked;     /* ...ForMaskedLM */
    int32_t vocab_size, hidden_size, n_layers, n_heads, intermediate_size;
    int32_t max_positions, first_position, type_vocab_size;
    int32_t activation; /* gpuserve_activation of the feed-forward layers */
    float eps;
    int32_t n_relative_buckets; /* MPNet only */
    char **labels;              /* owned; NULL if the file has no labels */
    size_t n_labels;
    int32_t score; /* gpuserve_score; DEFAULT if the file does not specify it */
};

gpuserve_status gsv_config_read(struct gsv_config *config, const struct gsv_dir *dir,
                                const char *folder, gpuserve_error *error);
/* Parse the JSON; `config` must be zeroed. */
gpuserve_status gsv_config_parse(struct gsv_config *config, const struct gsv_json_value *json,
                                 gpuserve_error *error);
void gsv_config_reset(struct gsv_config *config);

/* Copy n strings into a new array, freed with gsv_labels_free(); also used by head.c. */
gpuserve_status gsv_labels_copy(char ***labels, size_t *n_labels,
                                const struct gsv_json_value *const *texts, size_t n,
                                const char *shown, gpuserve_error *error);
void gsv_labels_free(char **labels, size_t n_labels);

#endif
