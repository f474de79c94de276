/*
 * zero_shot.c - zero-shot classification with a model of natural language inference (NLI) or with
 * an embedder. The hypothesis of a label is "This example is LABEL.".
 *
 *   NLI        pairs (text, hypothesis) -> logits -> gpuserve_zero_shot_scores()
 *   embedder   text, hypotheses -> unit vectors -> cosines. With multi_label a score is
 *              (1 + cosine) / 2. Otherwise it is the softmax of the cosines at temperature 0.05, a
 *              common value for sentence embeddings.
 */
#include "lib/http/inference/tasks.h"

#include "lib/http/inference/inputs.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/protocol/request.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"

#include <math.h>
#include <string.h>

/* The template is copied for each label. */
enum { MAX_TEMPLATE_BYTES = 4096 };

static const float temperature = 0.05f;

struct zero_shot {
    const json_t *labels;
    bool multi_label;
};

static void exclude_each_other(struct gsv_ranked *ranked, size_t n)
{
    const float max_score = ranked[0].score; /* sorted, best first */
    float sum = 0;

    for (size_t i = 0; i < n; i++) {
        ranked[i].score = expf((ranked[i].score - max_score) / temperature);
        sum += ranked[i].score;
    }
    for (size_t i = 0; i < n; i++)
        ranked[i].score /= sum;
}

/* Sorted labels. */
static void write_ranked(struct gsv_exchange *exchange, const struct gsv_ranked *ranked, size_t n)
{
    const struct zero_shot *wanted = exchange->state;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < n; i++) {
        const json_t *label = json_array_get(wanted->labels, ranked[i].index);

        gsv_buffer_text(to, i > 0 ? ",{\"label\":" : "{\"label\":");
        gsv_put_bytes(to, json_string_value(label), json_string_length(label));
        gsv_buffer_text(to, ",\"score\":");
        gsv_put_float(to, ranked[i].score);
        gsv_buffer_text(to, "}");
    }
    gsv_buffer_text(to, "]");
    gsv_reply_json(exchange);
}

static void score_vectors(struct gsv_exchange *exchange)
{
    const struct zero_shot *wanted = exchange->state;
    const size_t n = json_array_size(wanted->labels);
    struct gsv_ranked *ranked = gsv_exchange_alloc(exchange, n, sizeof(*ranked));

    if (!ranked)
        return;
    for (size_t i = 0; i < n; i++) {
        const float cosine = gpuserve_dot(gsv_call_row(exchange, 0), gsv_call_row(exchange, i + 1),
                                          exchange->work.columns);

        ranked[i] = (struct gsv_ranked){ i, wanted->multi_label ? (1 + cosine) / 2 : cosine };
    }
    gsv_rank(ranked, n);
    if (!wanted->multi_label)
        exclude_each_other(ranked, n);
    write_ranked(exchange, ranked, n);
}

static void score_logits(struct gsv_exchange *exchange)
{
    const struct zero_shot *wanted = exchange->state;
    const size_t n = json_array_size(wanted->labels);
    float *scores = exchange->work.job.output;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const gpuserve_status st =
        gpuserve_zero_shot_scores(exchange->served->model, scores, exchange->work.columns, 1, n,
                                  wanted->multi_label, scores, &error);
    struct gsv_ranked *ranked;

    if (st != GPUSERVE_OK) {
        if (st == GPUSERVE_E_MISMATCH)
            gsv_refuse_swapped(exchange);
        else
            gsv_refuse_error(exchange, st, &error);
        return;
    }
    ranked = gsv_rank_labels(exchange, scores, n);
    if (ranked)
        write_ranked(exchange, ranked, n);
}

/* Replaces {} in the template by the label: input i, or the second text of pair i. */
static bool set_label(struct gsv_exchange *exchange, struct gsv_inputs *inputs, size_t i,
                      const char *template, const json_t *label, size_t index)
{
    const char *gap = strstr(template, "{}");
    struct gsv_buffer text = { 0 };
    char *kept;

    if (json_string_length(label) == 0) /* also if it is not a string */
        return gsv_refuse(exchange, GSV_P_INVALID, "candidate_labels",
                          "`candidate_labels`: item %zu is not a string", index);
    gsv_buffer_add(&text, template, (size_t)(gap - template));
    gsv_buffer_add(&text, json_string_value(label), json_string_length(label));
    gsv_buffer_text(&text, gap + 2);
    if (text.failed) {
        gsv_buffer_reset(&text);
        return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory for the labels");
    }
    kept = gsv_exchange_copy_text(exchange, text.bytes, text.size);
    if (kept && inputs->pairs)
        gsv_inputs_set_pair(inputs, i, kept, text.size);
    else if (kept)
        gsv_inputs_set(inputs, i, kept, text.size);
    gsv_buffer_reset(&text);
    return kept != NULL;
}

static bool check_question(struct gsv_exchange *exchange, const json_t *text, const json_t *labels,
                           const char *template)
{
    if (!json_is_string(text) || !json_is_array(labels) || !strstr(template, "{}"))
        return gsv_refuse(exchange, GSV_P_INVALID, "inputs",
                          "`inputs` must be a string, `candidate_labels` a list of strings and "
                          "`hypothesis_template` a string with {} in it");
    return strlen(template) <= MAX_TEMPLATE_BYTES ||
           gsv_refuse(exchange, GSV_P_TOO_LARGE, "hypothesis_template",
                      "`hypothesis_template` has %zu bytes, the limit is %d", strlen(template),
                      MAX_TEMPLATE_BYTES);
}

static bool start_vectors(struct gsv_exchange *exchange, const json_t *text, const char *template,
                          gpuserve_job *job)
{
    const json_t *labels = ((const struct zero_shot *)exchange->state)->labels;
    struct gsv_inputs inputs;

    if (!gsv_inputs_make(exchange, json_array_size(labels) + 1, false, &inputs))
        return false;
    gsv_inputs_set(&inputs, 0, json_string_value(text), json_string_length(text));
    for (size_t i = 1; i < inputs.n; i++) {
        if (!set_label(exchange, &inputs, i, template, json_array_get(labels, i - 1), i - 1))
            return false;
    }
    job->normalize = GPUSERVE_NORMALIZE_YES;
    return gsv_call_start(exchange, job, &inputs, score_vectors);
}

/* The text is repeated for each label: limits the total as for a body with explicit pairs. */
static bool check_pairs(struct gsv_exchange *exchange, size_t text_size, size_t n_labels)
{
    const uint64_t max_bytes = exchange->server->options.max_body_bytes;

    return n_labels == 0 || text_size <= max_bytes / n_labels ||
           gsv_refuse(exchange, GSV_P_TOO_LARGE, "inputs",
                      "`inputs` has %zu bytes, times %zu labels %zu bytes, the limit is %llu "
                      "(--max-body-bytes)",
                      text_size, n_labels, text_size * n_labels, (unsigned long long)max_bytes);
}

static bool start_pairs(struct gsv_exchange *exchange, const json_t *text, const char *template,
                        gpuserve_job *job)
{
    const json_t *labels = ((const struct zero_shot *)exchange->state)->labels;
    struct gsv_inputs inputs;

    if (!check_pairs(exchange, json_string_length(text), json_array_size(labels)) ||
        !gsv_inputs_make(exchange, json_array_size(labels), true, &inputs))
        return false;
    for (size_t i = 0; i < inputs.n; i++) {
        gsv_inputs_set(&inputs, i, json_string_value(text), json_string_length(text));
        if (!set_label(exchange, &inputs, i, template, json_array_get(labels, i), i))
            return false;
    }
    job->task = GPUSERVE_TASK_CLASSIFY;
    job->score = GPUSERVE_SCORE_RAW;
    return gsv_call_start(exchange, job, &inputs, score_logits);
}

static bool is_nli(const struct gsv_exchange *exchange)
{
    return exchange->served->properties.entailment_label >= 0;
}

static bool check_model(struct gsv_exchange *exchange)
{
    return is_nli(exchange) || exchange->served->can_embed ||
           gsv_refuse(exchange, GSV_P_UNSUPPORTED, "model",
                      "model \"%s\" does not support zero-shot classification: it computes no "
                      "embeddings, and is no classifier of text pairs with a label that begins "
                      "with \"entail\"",
                      exchange->served->name);
}

void gsv_zero_shot(struct gsv_exchange *exchange)
{
    static const char *const known[] = { "candidate_labels",     "multi_label",
                                         "hypothesis_template",  "truncate",
                                         "truncation_direction", NULL };
    const json_t *parameters = json_object_get(exchange->json, "parameters");
    const json_t *text = json_object_get(exchange->json, "inputs");
    struct zero_shot *wanted = gsv_exchange_alloc(exchange, 1, sizeof(*wanted));
    const char *template = "This example is {}.";
    gpuserve_job job = GPUSERVE_JOB_INIT;

    exchange->state = wanted;
    if (!wanted || !check_model(exchange) ||
        !gsv_option_known(exchange, parameters, "parameters", known) ||
        !gsv_option_truncation(exchange, parameters, &job) ||
        !gsv_member_flag(exchange, parameters, "multi_label", &wanted->multi_label) ||
        !gsv_member_text(exchange, parameters, "hypothesis_template", &template))
        return;
    wanted->labels = json_object_get(parameters, "candidate_labels");
    if (!check_question(exchange, text, wanted->labels, template) ||
        !gsv_inputs_count(exchange, json_array_size(wanted->labels), "candidate_labels"))
        return;
    if (is_nli(exchange))
        start_pairs(exchange, text, template, &job);
    else
        start_vectors(exchange, text, template, &job);
}
