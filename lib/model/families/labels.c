/*
 * labels.c - reads the labels of config.json and how their scores are computed.
 */
#include "lib/model/families/config.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LABELS 100000

void gsv_labels_free(char **labels, size_t n_labels)
{
    for (size_t i = 0; labels && i < n_labels; i++)
        free(labels[i]);
    free(labels);
}

gpuserve_status gsv_labels_copy(char ***out, size_t *n_out,
                                const struct gsv_json_value *const *texts, size_t n,
                                const char *shown, gpuserve_error *error)
{
    char **labels;

    if (n == 0 || n > MAX_LABELS)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: %zu labels, expected 1 to %d", shown, n,
                        MAX_LABELS);
    labels = gsv_alloc_array(n, sizeof(*labels));
    if (!labels)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", shown);
    for (size_t i = 0; i < n; i++) {
        if (!gsv_json_is(texts[i], GSV_JSON_STRING)) {
            gsv_labels_free(labels, n);
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: label %zu is not a string", shown, i);
        }
        labels[i] = gsv_copy_text(texts[i]->is.text, texts[i]->n);
        if (!labels[i]) {
            gsv_labels_free(labels, n);
            return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", shown);
        }
    }
    *out = labels;
    *n_out = n;
    return GPUSERVE_OK;
}

/* Order {"0": "no", "1": "yes"} by number. */
static gpuserve_status order_labels(const struct gsv_json_value **texts,
                                    const struct gsv_json_value *id2label, gpuserve_error *error)
{
    for (size_t i = 0; i < id2label->n; i++) {
        char key[24];

        snprintf(key, sizeof(key), "%zu", i);
        texts[i] = gsv_json_member(id2label, key);
        if (!texts[i])
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            GSV_CONFIG_NAME ": id2label has %zu labels, but label %zu is missing",
                            id2label->n, i);
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_config_labels(struct gsv_config *config, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    const struct gsv_json_value *id2label = gsv_json_member(json, "id2label");
    const struct gsv_json_value **texts;
    gpuserve_status st;

    /* The labels of an adapter's base are those of another classifier. */
    if (!id2label || gsv_json_is(id2label, GSV_JSON_NULL) || config->adapter_class)
        return GPUSERVE_OK;
    if (!gsv_json_is(id2label, GSV_JSON_OBJECT))
        return gsv_fail(error, GPUSERVE_E_FORMAT, GSV_CONFIG_NAME ": id2label is not an object");
    texts = gsv_alloc_array(id2label->n, sizeof(*texts));
    if (!texts)
        return gsv_fail(error, GPUSERVE_E_NOMEM, GSV_CONFIG_NAME ": out of memory");
    st = order_labels(texts, id2label, error);
    if (st == GPUSERVE_OK)
        st = gsv_labels_copy(&config->labels, &config->n_labels, texts, id2label->n,
                             GSV_CONFIG_NAME ": id2label", error);
    free(texts);
    return st;
}

/* The activation of a sentence-transformers cross-encoder, the name of a Python class; "" if
 * absent. */
static const char *cross_encoder_activation(const struct gsv_json_value *json)
{
    const struct gsv_json_value *settings = gsv_json_member(json, "sentence_transformers");
    const char *name = gsv_json_get_string(gsv_json_member(settings, "activation_fn"));

    if (!name)
        name = gsv_json_get_string(gsv_json_member(json, "sbert_ce_default_activation_function"));
    return name ? name : "";
}

gpuserve_status gsv_config_score(struct gsv_config *config, const struct gsv_json_value *json,
                                 gpuserve_error *error)
{
    const char *type = NULL;
    const char *activation = cross_encoder_activation(json);
    const gpuserve_status st = gsv_json_string(json, "problem_type", GSV_CONFIG_NAME, &type, error);

    if (st != GPUSERVE_OK)
        return st;
    if (strstr(activation, "Sigmoid"))
        config->score = GPUSERVE_SCORE_SIGMOID;
    else if (strstr(activation, "Identity"))
        config->score = GPUSERVE_SCORE_RAW;
    else if (!type)
        config->score = GPUSERVE_SCORE_DEFAULT;
    else if (strcmp(type, "single_label_classification") == 0)
        config->score = GPUSERVE_SCORE_SOFTMAX;
    else if (strcmp(type, "multi_label_classification") == 0)
        config->score = GPUSERVE_SCORE_SIGMOID;
    else if (strcmp(type, "regression") == 0)
        config->score = GPUSERVE_SCORE_RAW;
    else
        return gsv_fail(error, GPUSERVE_E_FORMAT, GSV_CONFIG_NAME ": unknown problem_type '%.64s'",
                        type);
    return GPUSERVE_OK;
}
