/*
 * vllm.c - vLLM's /classify, /score and /pooling, and llama.cpp's /embedding.
 *
 *   classify   {"input": text or list}       -> data [{label, probs, num_classes}]; with `heads`
 *                                               data [{heads: {NAME: {label, probs, num_classes}}}]
 *   score      {"text_1", "text_2"}          -> data [{score}]: a cross-encoder's, cosines, or
 *                                               MaxSim of a multi-vector model
 *   pooling    {"input": text or list}       -> data [{data: vector}]
 *   embedding  {"content": text or list}     -> [{index, embedding: [vector]}]; also as `input`
 *
 * `text_1` may be one text for all of `text_2`, or a list of the same length. `queries` and
 * `documents` are other names of the two.
 */
#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/inference/tasks.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

#include <time.h>

static void begin_list(struct gsv_exchange *exchange)
{
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "{\"id\":");
    gsv_put_text(to, exchange->id);
    gsv_buffer_format(to,
                      ",\"object\":\"list\",\"created\":%lld,\"model\":", (long long)time(NULL));
    gsv_put_text(to, exchange->served->name);
    gsv_buffer_text(to, ",\"data\":[");
}

static void end_list(struct gsv_exchange *exchange)
{
    gsv_buffer_format(&exchange->reply,
                      "],\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu,"
                      "\"completion_tokens\":0,\"prompt_tokens_details\":null}}",
                      exchange->usage.n_tokens, exchange->usage.n_tokens);
    gsv_reply_json(exchange);
}

/* Refuses vLLM's fields that would change the result. */
static bool check_form(struct gsv_exchange *exchange)
{
    static const struct gsv_unoffered unoffered[] = {
        { "messages", "the server takes only texts and token ids" },
        { "truncation_side", "use `truncation_direction`" },
        { 0 },
    };
    static const char *const paddings[] = { "do_not_pad", NULL };
    uint32_t padding;
    bool special = true;

    if (!gsv_option_unoffered(exchange, exchange->json, unoffered) ||
        !gsv_member_choice(exchange, exchange->json, "padding", paddings, &padding) ||
        !gsv_member_flag(exchange, exchange->json, "add_special_tokens", &special))
        return false;
    return special || gsv_refuse(exchange, GSV_P_UNSUPPORTED, "add_special_tokens",
                                 "`add_special_tokens`: false is not supported: send token ids "
                                 "instead");
}

/* `use_activation` of vLLM, earlier `activation`: false asks for the scores before it. */
static bool read_activation(struct gsv_exchange *exchange, bool *activation)
{
    return gsv_member_flag(exchange, exchange->json, "activation", activation) &&
           gsv_member_flag(exchange, exchange->json, "use_activation", activation);
}

/* `truncate_prompt_tokens` of vLLM: a limit, -1 for the model's. Reads `input`. */
static bool read_input(struct gsv_exchange *exchange, gpuserve_job *job, struct gsv_inputs *inputs)
{
    const json_t *body = exchange->json;
    bool truncates = false;
    int64_t limit = 0;

    if (!check_form(exchange) || !gsv_member_count(exchange, body, "truncate_prompt_tokens", -1,
                                                   (int64_t)exchange->served->max_tokens, &limit))
        return false;
    truncates = limit != 0;
    if (!gsv_option_truncation_or(exchange, body, truncates, job) ||
        !gsv_inputs_read(exchange, json_object_get(body, "input"), "input", 0, job, inputs))
        return false;
    return gsv_inputs_cut(
        exchange, inputs, job,
        &(struct gsv_cut){ "truncate_prompt_tokens", limit > 0 ? (size_t)limit : 0 });
}

/* ------------------------------------------------------------------------------------ classify */

/* "label":..,"probs":[..],"num_classes":n; `labels` of a head, or NULL: of the model's classifier.
 */
static void put_class(struct gsv_exchange *exchange, const float *row, size_t n,
                      const json_t *labels)
{
    struct gsv_buffer *to = &exchange->reply;
    size_t best = 0;

    for (size_t j = 1; j < n; j++)
        best = row[j] > row[best] ? j : best;
    gsv_buffer_text(to, "\"label\":");
    gsv_put_text(to, labels ? json_string_value(json_array_get(labels, best))
                            : gsv_served_label(exchange->served, best));
    gsv_buffer_text(to, ",\"probs\":");
    gsv_put_floats(to, row, n);
    gsv_buffer_format(to, ",\"num_classes\":%zu}", n);
}

static void put_head_class(struct gsv_exchange *exchange, const float *row, const json_t *labels)
{
    gsv_buffer_text(&exchange->reply, "{");
    put_class(exchange, row, json_array_size(labels), labels);
}

static void write_classes(struct gsv_exchange *exchange)
{
    struct gsv_buffer *to = &exchange->reply;

    begin_list(exchange);
    for (size_t i = 0; i < exchange->work.job.n_items; i++) {
        gsv_buffer_format(to, "%s{\"index\":%zu,", i > 0 ? "," : "", i);
        if (exchange->work.job.heads) {
            gsv_put_heads(exchange, gsv_call_row(exchange, i), put_head_class);
            gsv_buffer_text(to, "}");
        } else {
            put_class(exchange, gsv_call_row(exchange, i), exchange->work.columns, NULL);
        }
    }
    end_list(exchange);
}

static void classify(struct gsv_exchange *exchange)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    bool activation = true;
    struct gsv_inputs inputs;

    job.task = GPUSERVE_TASK_CLASSIFY;
    if (!gsv_request_body_model(exchange) || !gsv_require_classifier(exchange) ||
        !read_activation(exchange, &activation) || !gsv_heads_read(exchange, &job) ||
        !read_input(exchange, &job, &inputs))
        return;
    job.score = activation ? GPUSERVE_SCORE_DEFAULT : GPUSERVE_SCORE_RAW;
    gsv_call_start(exchange, &job, &inputs, write_classes);
}

/* --------------------------------------------------------------------------------------- score */

/* The texts of a request; text i of one side belongs to text i of the other, or to the only one. */
struct score_sides {
    const json_t *first, *second;
    const char *names[2];
    size_t n_first, n;
    bool is_raw; /* a cross-encoder's scores without the sigmoid */
    uint32_t truncation;
    /* The vectors of the first side, and where those of its texts begin: late interaction. */
    float **queries;   /* [n_first] */
    size_t *n_vectors; /* [n_first] */
};

static size_t side_count(const json_t *side)
{
    return json_is_array(side) ? json_array_size(side) : 1;
}

static const json_t *side_text(const json_t *side, size_t i)
{
    if (!json_is_array(side))
        return side;
    return json_array_get(side, json_array_size(side) == 1 ? 0 : i);
}

static bool check_side(struct gsv_exchange *exchange, const json_t *side, const char *name)
{
    const size_t n = side_count(side);

    if (!gsv_inputs_count(exchange, n, name))
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *text = side_text(side, i);

        if (!json_is_string(text))
            return gsv_refuse(exchange, GSV_P_INVALID, name,
                              "`%s` is neither a string nor a list of strings", name);
        if (json_string_length(text) == 0)
            return gsv_refuse(exchange, GSV_P_EMPTY, name, "`%s` cannot be empty: input %zu", name,
                              i);
    }
    return true;
}

static bool read_sides(struct gsv_exchange *exchange, struct score_sides *sides)
{
    static const char *const names[][2] = { { "queries", "documents" },
                                            { "queries", "items" },
                                            { "data_1", "data_2" },
                                            { "text_1", "text_2" } };
    size_t form = 0;

    while (form < 3 && !(json_object_get(exchange->json, names[form][0]) &&
                         json_object_get(exchange->json, names[form][1])))
        form++;
    sides->names[0] = names[form][0];
    sides->names[1] = names[form][1];
    sides->first = json_object_get(exchange->json, sides->names[0]);
    sides->second = json_object_get(exchange->json, sides->names[1]);
    if (!check_side(exchange, sides->first, sides->names[0]) ||
        !check_side(exchange, sides->second, sides->names[1]))
        return false;
    sides->n_first = side_count(sides->first);
    sides->n = side_count(sides->second);
    if (sides->n_first != 1 && sides->n_first != sides->n)
        return gsv_refuse(exchange, GSV_P_INVALID, sides->names[0],
                          "`%s` has %zu texts and `%s` %zu: one text, or as many", sides->names[0],
                          sides->n_first, sides->names[1], sides->n);
    return true;
}

static void write_score(struct gsv_exchange *exchange, size_t i, float score)
{
    gsv_buffer_format(&exchange->reply,
                      "%s{\"index\":%zu,\"object\":\"score\",\"score\":", i > 0 ? "," : "", i);
    gsv_put_float(&exchange->reply, score);
    gsv_buffer_text(&exchange->reply, "}");
}

static void write_pair_scores(struct gsv_exchange *exchange)
{
    begin_list(exchange);
    for (size_t i = 0; i < exchange->work.job.n_items; i++)
        write_score(exchange, i, gsv_call_row(exchange, i)[0]);
    end_list(exchange);
}

/* The rows are those of the first side, then those of the second. */
static void write_cosines(struct gsv_exchange *exchange)
{
    const struct score_sides *sides = exchange->state;

    begin_list(exchange);
    for (size_t i = 0; i < sides->n; i++)
        write_score(exchange, i,
                    gpuserve_dot(gsv_call_row(exchange, sides->n_first == 1 ? 0 : i),
                                 gsv_call_row(exchange, sides->n_first + i),
                                 exchange->work.columns));
    end_list(exchange);
}

static void set_text(struct gsv_inputs *inputs, size_t i, const json_t *text)
{
    gsv_inputs_set(inputs, i, json_string_value(text), json_string_length(text));
}

static void score_pairs(struct gsv_exchange *exchange, const struct score_sides *sides,
                        gpuserve_job *job)
{
    struct gsv_inputs inputs;

    job->task = GPUSERVE_TASK_CLASSIFY;
    job->score = sides->is_raw ? GPUSERVE_SCORE_RAW : GPUSERVE_SCORE_SIGMOID;
    if (!gsv_inputs_make(exchange, sides->n, true, &inputs))
        return;
    for (size_t i = 0; i < sides->n; i++) {
        const json_t *second = side_text(sides->second, i);

        set_text(&inputs, i, side_text(sides->first, i));
        gsv_inputs_set_pair(&inputs, i, json_string_value(second), json_string_length(second));
    }
    gsv_call_start(exchange, job, &inputs, write_pair_scores);
}

static void score_cosines(struct gsv_exchange *exchange, const struct score_sides *sides,
                          gpuserve_job *job)
{
    struct gsv_inputs inputs;

    job->normalize = GPUSERVE_NORMALIZE_YES;
    if (!gsv_require_embedder(exchange) ||
        !gsv_inputs_make(exchange, sides->n_first + sides->n, false, &inputs))
        return;
    for (size_t i = 0; i < sides->n_first; i++)
        set_text(&inputs, i, side_text(sides->first, i));
    for (size_t i = 0; i < sides->n; i++)
        set_text(&inputs, sides->n_first + i, side_text(sides->second, i));
    gsv_call_start(exchange, job, &inputs, write_cosines);
}

static void write_max_sims(struct gsv_exchange *exchange)
{
    const struct score_sides *sides = exchange->state;

    begin_list(exchange);
    for (size_t i = 0; i < sides->n; i++) {
        const size_t query = sides->n_first == 1 ? 0 : i;
        size_t n;
        const float *document = gsv_late_vectors(exchange, i, &n);

        write_score(exchange, i,
                    gpuserve_max_sim(sides->queries[query], sides->n_vectors[query], document, n,
                                     exchange->work.columns));
    }
    end_list(exchange);
}

static bool make_side(struct gsv_exchange *exchange, const json_t *side, size_t n,
                      struct gsv_inputs *inputs)
{
    if (!gsv_inputs_make(exchange, n, false, inputs))
        return false;
    for (size_t i = 0; i < n; i++)
        set_text(inputs, i, side_text(side, i));
    return true;
}

static bool start_side(struct gsv_exchange *exchange, const json_t *side, size_t n, uint32_t role,
                       gsv_handler done)
{
    const struct score_sides *sides = exchange->state;
    struct gsv_inputs inputs;

    return make_side(exchange, side, n, &inputs) &&
           gsv_late_vectors_start(exchange, &inputs, role, sides->truncation, done);
}

/* All documents have one query: the job makes the scores. */
static bool start_scores(struct gsv_exchange *exchange, const struct score_sides *sides)
{
    struct gsv_inputs inputs;

    return make_side(exchange, sides->second, sides->n, &inputs) &&
           gsv_max_sim_start(exchange, &inputs, sides->queries[0], sides->n_vectors[0],
                             sides->truncation, write_pair_scores);
}

static void on_queries(struct gsv_exchange *exchange)
{
    const struct score_sides *sides = exchange->state;

    for (size_t i = 0; i < sides->n_first; i++)
        sides->queries[i] = gsv_late_vectors(exchange, i, &sides->n_vectors[i]);
    if (sides->n_first == 1 && gsv_scores_max_sim(exchange, sides->n_vectors[0]))
        start_scores(exchange, sides);
    else
        start_side(exchange, sides->second, sides->n, GPUSERVE_ROLE_DOCUMENT, write_max_sims);
}

static void score_max_sims(struct gsv_exchange *exchange, struct score_sides *sides)
{
    sides->queries = gsv_exchange_alloc(exchange, sides->n_first, sizeof(*sides->queries));
    sides->n_vectors = gsv_exchange_alloc(exchange, sides->n_first, sizeof(*sides->n_vectors));
    if (sides->queries && sides->n_vectors)
        start_side(exchange, sides->first, sides->n_first, GPUSERVE_ROLE_QUERY, on_queries);
}

static void score(struct gsv_exchange *exchange)
{
    struct score_sides *sides = gsv_exchange_alloc(exchange, 1, sizeof(*sides));
    gpuserve_job job = GPUSERVE_JOB_INIT;
    bool activation = true;
    int64_t limit = 0;

    exchange->state = sides;
    if (!sides || !gsv_request_body_model(exchange) || !check_form(exchange) ||
        !read_activation(exchange, &activation) || !read_sides(exchange, sides) ||
        !gsv_member_count(exchange, exchange->json, "truncate_prompt_tokens", -1, -1, &limit) ||
        !gsv_option_truncation_or(exchange, exchange->json, limit != 0, &job))
        return;
    sides->is_raw = !activation;
    sides->truncation = job.truncation;
    if (exchange->served->properties.rerank_method == GPUSERVE_RERANK_CROSS_ENCODER)
        score_pairs(exchange, sides, &job);
    else if (exchange->served->properties.rerank_method == GPUSERVE_RERANK_MAX_SIM)
        score_max_sims(exchange, sides);
    else
        score_cosines(exchange, sides, &job);
}

/* ------------------------------------------------------------------------- pooling, embedding */

static void write_pooled(struct gsv_exchange *exchange)
{
    struct gsv_buffer *to = &exchange->reply;
    const size_t bytes = exchange->work.columns * sizeof(float);

    begin_list(exchange);
    for (size_t i = 0; i < exchange->work.job.n_items; i++) {
        gsv_buffer_format(to, "%s{\"index\":%zu,\"object\":\"pooling\",\"data\":", i > 0 ? "," : "",
                          i);
        if (exchange->state)
            gsv_put_base64(to, gsv_call_row(exchange, i), bytes);
        else
            gsv_put_floats(to, gsv_call_row(exchange, i), exchange->work.columns);
        gsv_buffer_text(to, "}");
    }
    end_list(exchange);
}

/* Validates the parameters of /pooling that support only one value. */
static bool check_pooling(struct gsv_exchange *exchange)
{
    static const struct {
        const char *key, *const values[3];
    } fixed[] = {
        { "task", { "embed", NULL } },
        { "embed_dtype", { "float32", NULL } },
        { "endianness", { "native", "little", NULL } },
    };

    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        uint32_t value;

        if (!gsv_member_choice(exchange, exchange->json, fixed[i].key, fixed[i].values, &value))
            return false;
    }
    return true;
}

static void pooling(struct gsv_exchange *exchange)
{
    static const char *const formats[] = { "float", "base64", NULL };
    static char base64[] = "base64";
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;
    bool activation = true;
    uint32_t format = 0;

    if (!gsv_request_body_model(exchange) || !gsv_require_embedder(exchange) ||
        !check_pooling(exchange) ||
        !gsv_member_choice(exchange, exchange->json, "encoding_format", formats, &format) ||
        !gsv_option_vector(exchange, exchange->json, &job) ||
        !gsv_member_flag(exchange, exchange->json, "use_activation", &activation) ||
        !read_input(exchange, &job, &inputs))
        return;
    if (!activation)
        job.normalize = GPUSERVE_NORMALIZE_NO;
    exchange->state = format == 1 ? base64 : NULL;
    gsv_call_start(exchange, &job, &inputs, write_pooled);
}

static void write_embedding_rows(struct gsv_exchange *exchange)
{
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < exchange->work.job.n_items; i++) {
        gsv_buffer_format(to, "%s{\"index\":%zu,\"embedding\":[", i > 0 ? "," : "", i);
        gsv_put_floats(to, gsv_call_row(exchange, i), exchange->work.columns);
        gsv_buffer_text(to, "]}");
    }
    gsv_buffer_text(to, "]");
    gsv_reply_json(exchange);
}

/* `embd_normalize`: 2 is the L2 norm, llama.cpp's default; -1 is none. Other norms are refused. */
static void embedding(struct gsv_exchange *exchange)
{
    const char *name = json_object_get(exchange->json, "input") ? "input" : "content";
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs inputs;
    int64_t norm = 2;

    if (!gsv_request_body_model(exchange) || !gsv_require_embedder(exchange) ||
        !gsv_inputs_from_llama(exchange, name) ||
        !gsv_member_count(exchange, exchange->json, "embd_normalize", -1, 2, &norm) ||
        !gsv_option_truncation(exchange, exchange->json, &job) ||
        !gsv_inputs_read(exchange, json_object_get(exchange->json, name), name, 0, &job, &inputs))
        return;
    if (norm != 2 && norm != -1) {
        gsv_refuse(exchange, GSV_P_UNSUPPORTED, "embd_normalize",
                   "`embd_normalize` is %lld: 2 (L2 norm) and -1 (none) are supported",
                   (long long)norm);
        return;
    }
    job.normalize = norm == 2 ? GPUSERVE_NORMALIZE_YES : GPUSERVE_NORMALIZE_NO;
    gsv_call_start(exchange, &job, &inputs, write_embedding_rows);
}

const struct gsv_route gsv_vllm_routes[] = {
    { "POST", "/classify", GSV_OPENAI, GSV_JSON_BODY, classify },
    { "POST", "/v1/classify", GSV_OPENAI, GSV_JSON_BODY, classify },
    { "POST", "/score", GSV_OPENAI, GSV_JSON_BODY, score },
    { "POST", "/v1/score", GSV_OPENAI, GSV_JSON_BODY, score },
    { "POST", "/pooling", GSV_OPENAI, GSV_JSON_BODY, pooling },
    { "POST", "/embedding", GSV_OPENAI, GSV_JSON_BODY, embedding, "llama.cpp" },
    { 0 },
};
