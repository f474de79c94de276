/*
 * similarity.c - embeds the source and all sentences in one job; the reply holds dot products of
 * normalized vectors.
 */
#include "lib/http/inference/tasks.h"

#include "lib/http/inference/inputs.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/inference/inference_call.h"

static void write_cosines(struct gsv_exchange *exchange)
{
    struct gsv_buffer *to = &exchange->reply;
    const float *source = gsv_call_row(exchange, 0);

    gsv_buffer_text(to, "[");
    for (size_t i = 1; i < exchange->work.job.n_items; i++) {
        gsv_buffer_text(to, i > 1 ? "," : "");
        gsv_put_float(to, gpuserve_dot(source, gsv_call_row(exchange, i), exchange->work.columns));
    }
    gsv_buffer_text(to, "]");
    gsv_reply_json(exchange);
}

static bool set(struct gsv_exchange *exchange, struct gsv_inputs *inputs, size_t i,
                const json_t *text, const char *name)
{
    if (!json_is_string(text))
        return gsv_refuse(exchange, GSV_P_INVALID, name, "`%s`: input %zu is not a string", name,
                          i);
    if (json_string_length(text) == 0)
        return gsv_refuse(exchange, GSV_P_EMPTY, name, "`%s` cannot be empty: input %zu", name, i);
    gsv_inputs_set(inputs, i, json_string_value(text), json_string_length(text));
    return true;
}

void gsv_similarity(struct gsv_exchange *exchange)
{
    static const char *const known[] = { "truncate", "truncation_direction", "prompt_name", NULL };
    const json_t *given = json_object_get(exchange->json, "inputs");
    const json_t *sentences = json_object_get(given, "sentences");
    const json_t *parameters = json_object_get(exchange->json, "parameters");
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;

    if (!gsv_require_embedder(exchange) ||
        !gsv_option_known(exchange, parameters, "parameters", known) ||
        !gsv_option_truncation(exchange, parameters, &job) ||
        !gsv_option_prompt(exchange, parameters, &job))
        return;
    if (!json_is_array(sentences)) {
        gsv_refuse(exchange, GSV_P_INVALID, "sentences",
                   "`inputs.sentences` is not a list of strings");
        return;
    }
    if (!gsv_inputs_count(exchange, json_array_size(sentences), "sentences") ||
        !gsv_inputs_make(exchange, json_array_size(sentences) + 1, false, &inputs) ||
        !set(exchange, &inputs, 0, json_object_get(given, "source_sentence"), "source_sentence"))
        return;
    for (size_t i = 1; i < inputs.n; i++) {
        if (!set(exchange, &inputs, i, json_array_get(sentences, i - 1), "sentences"))
            return;
    }
    job.normalize = GPUSERVE_NORMALIZE_YES;
    gsv_call_start(exchange, &job, &inputs, write_cosines);
}
