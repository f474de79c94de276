/*
 * zero_shot.c - scores of zero-shot classification from the logits of text pairs.
 *
 *   logits [n_texts, n_candidates, n_labels] -> scores [n_texts, n_candidates]
 *
 * Equal to ZeroShotClassificationPipeline of transformers, also in the choice of the label against
 * entailment. A score is written at or before the place of its logits, after they are read, so
 * that `scores` may be `logits`. No state, except the model's labels.
 */
#include "lib/base/error.h"
#include "lib/runtime/models/handle.h"

#include <math.h>
#include <string.h>

/* Softmax of two logits: the probability of `a`. */
static float against(float a, float b)
{
    return 1.0f / (1.0f + expf(b - a));
}

/* Of one text: softmax over its candidates. */
static void softmax(float *scores, size_t n)
{
    float max_score = scores[0];
    double sum = 0;

    for (size_t i = 1; i < n; i++)
        max_score = fmaxf(max_score, scores[i]);
    for (size_t i = 0; i < n; i++) {
        scores[i] = expf(scores[i] - max_score);
        sum += (double)scores[i];
    }
    for (size_t i = 0; i < n; i++)
        scores[i] = (float)((double)scores[i] / sum);
}

static gpuserve_status check(const struct gsv_model_info *info, const float *logits,
                             size_t n_labels, size_t n_candidates, const float *scores,
                             gpuserve_error *error)
{
    if (info->properties.entailment_label < 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "the model does not support zero-shot classification: it is no classifier "
                        "of text pairs with a label that begins with \"entail\" and another one");
    if (n_labels != info->properties.n_labels)
        return gsv_fail(error, GPUSERVE_E_MISMATCH,
                        "the logits have %zu labels, the model has %zu: compute them again",
                        n_labels, info->properties.n_labels);
    if (!logits || !scores)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`%s` is NULL", logits ? "scores" : "logits");
    if (n_candidates == 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`n_candidates` is 0");
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_zero_shot_scores(gpuserve_model *handle, const float *logits,
                                                       size_t n_labels, size_t n_texts,
                                                       size_t n_candidates, int32_t multi_label,
                                                       float *scores, gpuserve_error *error)
{
    /* Loaded once: a swap during the call may change the labels. */
    const struct gsv_model_info *info = handle ? atomic_load(&handle->info) : NULL;
    gpuserve_status st = gsv_handle_check(handle, error);
    size_t entailment, other;

    if (st == GPUSERVE_OK)
        st = check(info, logits, n_labels, n_candidates, scores, error);
    if (st != GPUSERVE_OK)
        return st;
    entailment = (size_t)info->properties.entailment_label;
    other = entailment == 0 ? n_labels - 1 : 0;
    for (size_t i = 0; i < n_texts; i++) {
        for (size_t j = 0; j < n_candidates; j++) {
            const float *row = logits + (i * n_candidates + j) * n_labels;
            const float entails = row[entailment];

            scores[i * n_candidates + j] =
                multi_label || n_candidates == 1 ? against(entails, row[other]) : entails;
        }
        if (!multi_label && n_candidates > 1)
            softmax(scores + i * n_candidates, n_candidates);
    }
    return GPUSERVE_OK;
}
