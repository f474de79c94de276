/*
 * embedding_outputs.c - the outputs of an embedding request and their number formats: the field
 * `outputs`, compact vectors, the ranges of int8 and uint8.
 *
 * A job makes the vectors of a single precision itself; of several it makes floats, which are
 * converted for the reply.
 *
 *   gsv_compact_start -> ranges given or known: gsv_call_start(job)
 *                     -> else: gsv_call_start(calibration texts) -> on_calibrated -> the job
 *
 * Two first requests at a time may both calibrate; the results are equal and one of them is kept.
 */
#include "lib/http/inference/embedding.h"

#include "lib/base/error.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/inference/tasks.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/protocol/request.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCALAR (1u << GPUSERVE_PRECISION_INT8 | 1u << GPUSERVE_PRECISION_UINT8)
#define MAX_ENTRIES 16

/* --------------------------------------------------------------------------------- precisions */

static const char *const precisions[] = {
    [GPUSERVE_PRECISION_FLOAT32] = "float", [GPUSERVE_PRECISION_FLOAT16] = "float16",
    [GPUSERVE_PRECISION_INT8] = "int8",     [GPUSERVE_PRECISION_UINT8] = "uint8",
    [GPUSERVE_PRECISION_BINARY] = "binary", [GPUSERVE_PRECISION_UBINARY] = "ubinary",
};

bool gsv_precision_named(const char *name, uint32_t *precision)
{
    for (uint32_t i = 0; name && i < sizeof(precisions) / sizeof(precisions[0]); i++) {
        if (strcmp(name, precisions[i]) == 0) {
            *precision = i;
            return true;
        }
    }
    return false;
}

const char *gsv_precision_name(uint32_t precision)
{
    return precisions[precision];
}

static const float *find_ranges(const struct gsv_exchange *exchange, uint32_t normalize,
                                size_t columns)
{
    const char *fingerprint = gpuserve_model_fingerprint(exchange->served->model);
    const struct gsv_ranges *one = atomic_load(&exchange->served->ranges);

    while (one && (one->columns != columns || one->normalize != normalize ||
                   strcmp(one->fingerprint, fingerprint) != 0))
        one = one->next;
    return one ? one->values : NULL;
}

/* Keeps computed ranges for later requests, unless the list is full. `values` [2, columns]. */
static void keep_ranges(struct gsv_exchange *exchange, const float *values, uint32_t normalize)
{
    const size_t columns = exchange->work.columns;
    _Atomic(struct gsv_ranges *) *list = &exchange->served->ranges;
    struct gsv_ranges *one = malloc(sizeof(*one) + 2 * columns * sizeof(float));

    if (!one)
        return; /* the next request calibrates again */
    snprintf(one->fingerprint, sizeof(one->fingerprint), "%s", exchange->work.result.fingerprint);
    one->normalize = normalize;
    one->columns = columns;
    memcpy(one->values, values, 2 * columns * sizeof(float));
    one->next = atomic_load(list);
    do {
        one->depth = one->next ? one->next->depth + 1 : 1;
        if (one->depth > MAX_ENTRIES) {
            free(one);
            return;
        }
    } while (!atomic_compare_exchange_weak(list, &one->next, one));
}

static void on_calibrated(struct gsv_exchange *exchange)
{
    struct gsv_compact *compact = exchange->compact;
    const struct gsv_call *work = &exchange->work;
    const float margin = GPUSERVE_CALIBRATION_MARGIN_PERCENT / 100.0f;
    float *ranges = gsv_exchange_alloc(exchange, 2 * work->columns, sizeof(*ranges));
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (!ranges)
        return;
    if (gpuserve_vector_ranges(work->job.output, work->job.n_items, work->columns, margin, ranges,
                               &error) != GPUSERVE_OK) {
        gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "the model has no ranges for int8: %s",
                   error.message);
        return;
    }
    keep_ranges(exchange, ranges, compact->job.normalize);
    compact->ranges = ranges;
    exchange->usage = compact->usage; /* the client does not pay for the calibration */
    compact->start(exchange);
}

static bool start_calibration(struct gsv_exchange *exchange, struct gsv_compact *compact)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs texts;
    size_t n = 0;

    while (gpuserve_calibration_text(n))
        n++;
    if (!gsv_inputs_make(exchange, n, false, &texts))
        return false;
    for (size_t i = 0; i < n; i++)
        gsv_inputs_set(&texts, i, gpuserve_calibration_text(i),
                       strlen(gpuserve_calibration_text(i)));
    job.task = GPUSERVE_TASK_EMBED;
    job.dimensions = compact->job.dimensions;
    job.normalize = compact->job.normalize;
    job.truncation = GPUSERVE_TRUNCATE_RIGHT;
    exchange->compact = compact;
    compact->usage = exchange->usage;
    return gsv_call_start(exchange, &job, &texts, on_calibrated);
}

bool gsv_compact_calibrate(struct gsv_exchange *exchange, struct gsv_compact *compact,
                           const gpuserve_job *job, bool (*start)(struct gsv_exchange *exchange))
{
    const struct gsv_served *served = exchange->served;
    const size_t columns = job->dimensions ? job->dimensions : served->dim;

    if (!(compact->precisions & SCALAR))
        return start(exchange);
    if (served->given_ranges && served->ranges_dim != columns)
        return gsv_refuse(exchange, GSV_P_UNSUPPORTED, NULL,
                          "int8 and uint8 vectors of model \"%s\" have %zu dimensions, which its "
                          "ranges were given for (--ranges), not %zu",
                          served->name, served->ranges_dim, columns);
    compact->ranges = served->given_ranges;
    if (compact->ranges)
        return start(exchange);
    compact->ranges = find_ranges(exchange, job->normalize, columns);
    if (compact->ranges)
        return start(exchange);
    compact->job = *job;
    compact->start = start;
    return start_calibration(exchange, compact);
}

void gsv_compact_job(const struct gsv_exchange *exchange, const struct gsv_compact *compact,
                     gpuserve_job *job)
{
    for (uint32_t one = GPUSERVE_PRECISION_FLOAT16; one <= GPUSERVE_PRECISION_UBINARY; one++) {
        if (compact->precisions != 1u << one || job->n_more > 0 || exchange->served->dim < 2)
            continue;
        job->precision = one;
        job->ranges = compact->ranges;
    }
}

static bool start_job(struct gsv_exchange *exchange)
{
    struct gsv_compact *compact = exchange->compact;

    gsv_compact_job(exchange, compact, &compact->job);
    return gsv_call_start(exchange, &compact->job, &compact->inputs, compact->finish);
}

bool gsv_compact_start(struct gsv_exchange *exchange, struct gsv_compact *compact,
                       const gpuserve_job *job, const struct gsv_inputs *inputs, gsv_handler finish)
{
    compact->job = *job;
    compact->inputs = *inputs;
    compact->finish = finish;
    exchange->compact = compact;
    return gsv_compact_calibrate(exchange, compact, job, start_job);
}

static void put_bytes_as_numbers(struct gsv_buffer *to, const uint8_t *bytes, size_t n,
                                 bool is_signed)
{
    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < n; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_number(to, is_signed ? (int8_t)bytes[i] : bytes[i]);
    }
    gsv_buffer_text(to, "]");
}

static void put_bytes(struct gsv_buffer *to, const uint8_t *bytes, size_t n, uint32_t precision,
                      bool base64)
{
    if (base64)
        gsv_put_base64(to, bytes, n);
    else
        put_bytes_as_numbers(to, bytes, n,
                             precision == GPUSERVE_PRECISION_INT8 ||
                                 precision == GPUSERVE_PRECISION_BINARY);
}

void gsv_put_compact(struct gsv_exchange *exchange, const struct gsv_compact *compact, size_t i,
                     uint32_t precision, bool base64)
{
    const float *row = gsv_call_row(exchange, i);
    const size_t columns = exchange->work.columns;
    const size_t bytes = gpuserve_quantized_bytes(precision, columns);
    struct gsv_buffer *to = &exchange->reply;
    uint8_t *made;

    if (precision == GPUSERVE_PRECISION_FLOAT32 && !base64) {
        gsv_put_floats(to, row, columns);
        return;
    }
    if (exchange->work.job.precision != GPUSERVE_PRECISION_FLOAT32) {
        put_bytes(to, (const uint8_t *)exchange->work.job.output + i * bytes, bytes, precision,
                  base64);
        return;
    }
    made = malloc(bytes + 1);
    if (!made || gpuserve_quantize(row, 1, columns, precision, compact->ranges, made, bytes,
                                   NULL) != GPUSERVE_OK)
        to->failed = true;
    else
        put_bytes(to, made, bytes, precision, base64);
    free(made);
}

/* ------------------------------------------------------------------------------------ outputs */

/* Names in requests and replies. */
static const struct {
    const char *name;
    uint32_t task;
} kinds[] = {
    { "dense", GPUSERVE_TASK_EMBED },
    { "sparse", GPUSERVE_TASK_SPARSE },
    { "colbert", GPUSERVE_TASK_TOKEN_VECTORS },
    { "labels", GPUSERVE_TASK_CLASSIFY },
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))
enum { LABELS = 3 };

static bool has(const struct gsv_exchange *exchange, size_t kind)
{
    return gsv_served_has(exchange->served, kinds[kind].task);
}

/* Names the outputs of the model, or all of them. */
static void name_kinds(const struct gsv_exchange *exchange, bool of_model, char *names, size_t size)
{
    size_t length = 0;

    names[0] = '\0';
    for (size_t i = 0; i < N_KINDS && length < size; i++)
        if (!of_model || has(exchange, i))
            length += (size_t)snprintf(names + length, size - length, "%s%s", length ? ", " : "",
                                       kinds[i].name);
}

static bool refuse_kind(struct gsv_exchange *exchange, size_t i, const char *name, bool is_known)
{
    char names[64];

    name_kinds(exchange, is_known, names, sizeof(names));
    if (is_known)
        return gsv_refuse(exchange, GSV_P_UNSUPPORTED, "outputs",
                          "`outputs`: item %zu is \"%s\", which model \"%s\" does not have: it has "
                          "%s",
                          i, name, exchange->served->name, names);
    return gsv_refuse(exchange, GSV_P_INVALID, "outputs",
                      "`outputs`: item %zu is \"%.40s\", known are %s", i, name, names);
}

/* The kind that an item names; N_KINDS after gsv_refuse. */
static size_t find_kind(struct gsv_exchange *exchange, size_t i, const json_t *item)
{
    const char *name = json_string_value(item);
    size_t kind = 0;

    if (!name) {
        gsv_refuse(exchange, GSV_P_INVALID, "outputs", "`outputs`: item %zu is not a string", i);
        return N_KINDS;
    }
    while (kind < N_KINDS && strcmp(name, kinds[kind].name) != 0)
        kind++;
    if (kind == N_KINDS || !has(exchange, kind)) {
        refuse_kind(exchange, i, name, kind < N_KINDS);
        return N_KINDS;
    }
    return kind;
}

static bool read_set(struct gsv_exchange *exchange, const json_t *list, bool wanted[N_KINDS])
{
    json_t *item;
    size_t i;

    if (!json_is_array(list) || json_array_size(list) == 0)
        return gsv_refuse(exchange, GSV_P_INVALID, "outputs",
                          "`outputs` is not a list of one or more names of outputs");
    json_array_foreach(list, i, item)
    {
        const size_t kind = find_kind(exchange, i, item);

        if (kind == N_KINDS)
            return false;
        if (wanted[kind])
            return gsv_refuse(exchange, GSV_P_INVALID, "outputs",
                              "`outputs`: item %zu is \"%s\" again", i, kinds[kind].name);
        wanted[kind] = true;
    }
    return true;
}

bool gsv_output_set_read(struct gsv_exchange *exchange, struct gsv_output_set *set,
                         gpuserve_job *job)
{
    const json_t *list = gsv_member_given(exchange->json, "outputs");
    const size_t sparse_dim = exchange->served->properties.sparse_dim;
    bool wanted[N_KINDS] = { false }, is_first = true;

    job->task = GPUSERVE_TASK_EMBED;
    set->has_dense = true;
    if (list && !read_set(exchange, list, wanted))
        return false;
    if (!wanted[LABELS] && gsv_member_given(exchange->json, "heads"))
        return gsv_refuse(exchange, GSV_P_INVALID, "heads",
                          "`heads` is of the output labels, which `outputs` does not have");
    if (!list)
        return gsv_require_embedder(exchange);
    set->is_given = true;
    set->has_dense = wanted[0];
    set->first_vector = exchange->served->properties.first_vector;
    for (size_t kind = 0; kind < N_KINDS; kind++) {
        if (!wanted[kind])
            continue;
        if (is_first)
            job->task = kinds[kind].task;
        else
            set->more[job->n_more++].task = kinds[kind].task;
        is_first = false;
    }
    job->more = set->more;
    if (!gsv_heads_read(exchange, job))
        return false;
    if (!wanted[1])
        return true;
    set->indices = gsv_exchange_alloc(exchange, sparse_dim, sizeof(*set->indices));
    set->values = gsv_exchange_alloc(exchange, sparse_dim, sizeof(*set->values));
    return set->indices && set->values;
}

bool gsv_output_set_form(struct gsv_exchange *exchange, const struct gsv_output_set *set,
                         gpuserve_job *job)
{
    static const char *const fields[] = { "dimensions", "output_dimension", "normalize",
                                          "normalized" };

    if (set->has_dense)
        return true;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (gsv_member_given(exchange->json, fields[i]))
            return gsv_refuse(exchange, GSV_P_INVALID, fields[i],
                              "`%s` is of the dense output, which `outputs` does not have",
                              fields[i]);
    }
    job->dimensions = 0;
    job->normalize = GPUSERVE_NORMALIZE_DEFAULT;
    return true;
}

/* -------------------------------------------------------------------------------------- tokens */

static bool by_token(const gpuserve_job *job)
{
    bool found = job->task == GPUSERVE_TASK_TOKEN_VECTORS;

    for (size_t i = 0; i < job->n_more; i++)
        found = found || job->more[i].task == GPUSERVE_TASK_TOKEN_VECTORS;
    return found;
}

/* The tokens of text i behind a prompt, as the job will cut it. */
static bool count_one(struct gsv_exchange *exchange, const gpuserve_job *job, const json_t *prompt,
                      const struct gsv_inputs *inputs, size_t i, size_t *n)
{
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_buffer whole = { 0 };
    gpuserve_status st = GPUSERVE_E_NOMEM;

    options.truncation = job->truncation;
    options.max_tokens = (uint32_t)exchange->served->max_tokens;
    if (prompt)
        gsv_buffer_add(&whole, json_string_value(prompt), json_string_length(prompt));
    gsv_buffer_add(&whole, inputs->texts[i], inputs->sizes[i]);
    if (!whole.failed)
        st = gpuserve_tokenize(exchange->served->model, whole.bytes ? whole.bytes : "", whole.size,
                               NULL, NULL, 0, n, &options, &error);
    gsv_buffer_reset(&whole);
    if (st != GPUSERVE_OK)
        gsv_fail_in(&error, st, "input %zu", i);
    if (st == GPUSERVE_E_TOO_LARGE)
        return gsv_refuse_length(exchange, error.message, false);
    if (st == GPUSERVE_E_NOMEM)
        return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory for a text");
    return st == GPUSERVE_OK || gsv_refuse_tokens(exchange, st, &error);
}

bool gsv_output_set_count(struct gsv_exchange *exchange, const struct gsv_output_set *set,
                          const gpuserve_job *job, struct gsv_inputs *inputs)
{
    const json_t *facts = exchange->served->facts;
    const json_t *prompt =
        job->prompt_name ? json_object_get(json_object_get(facts, "prompts"), job->prompt_name)
                         : json_object_get(facts, "default_prompt_text");

    if (!set->is_given || !by_token(job) || !inputs->texts)
        return true;
    inputs->offsets = gsv_exchange_alloc(exchange, inputs->n + 1, sizeof(*inputs->offsets));
    for (size_t i = 0; inputs->offsets && i < inputs->n; i++) {
        size_t n = 0;

        if (!count_one(exchange, job, json_is_string(prompt) ? prompt : NULL, inputs, i, &n))
            return false;
        inputs->offsets[i + 1] = inputs->offsets[i] + n;
    }
    return inputs->offsets != NULL;
}

/* --------------------------------------------------------------------------------------- reply */

static void put_sparse(struct gsv_buffer *to, const struct gsv_output_set *set, const float *row,
                       size_t columns)
{
    const size_t n = gpuserve_sparse_compact(row, columns, set->indices, set->values, columns);

    gsv_buffer_text(to, ",\"sparse\":{\"indices\":[");
    for (size_t i = 0; i < n; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_number(to, set->indices[i]);
    }
    gsv_buffer_text(to, "],\"values\":");
    gsv_put_floats(to, set->values, n);
    gsv_buffer_text(to, "}");
}

static void put_vectors(struct gsv_buffer *to, const float *rows, size_t n, size_t columns,
                        bool base64)
{
    gsv_buffer_text(to, ",\"colbert\":");
    if (!base64) {
        gsv_put_rows(to, rows, n, columns);
        return;
    }
    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < n; i++) {
        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_base64(to, rows + i * columns, columns * sizeof(float));
    }
    gsv_buffer_text(to, "]");
}

static void put_scores(struct gsv_exchange *exchange, const float *row)
{
    if (exchange->work.job.heads) {
        gsv_buffer_text(&exchange->reply, ",");
        gsv_put_heads(exchange, row, gsv_put_head_labels);
    } else {
        gsv_buffer_text(&exchange->reply, ",\"labels\":");
        gsv_put_labels(exchange, row, 0);
    }
}

static void put_kind(struct gsv_exchange *exchange, const struct gsv_output_set *set, uint32_t task,
                     size_t i, bool base64)
{
    const size_t *offsets = exchange->work.job.token_offsets;
    struct gsv_buffer *to = &exchange->reply;
    size_t columns;
    const float *rows = gsv_call_rows(exchange, task, &columns);

    if (task == GPUSERVE_TASK_SPARSE) {
        put_sparse(to, set, rows + i * columns, columns);
    } else if (task == GPUSERVE_TASK_CLASSIFY) {
        put_scores(exchange, rows + i * columns);
    } else if (task == GPUSERVE_TASK_TOKEN_VECTORS) {
        const size_t n = offsets[i + 1] - offsets[i];
        const size_t first = set->first_vector < n ? set->first_vector : n;

        put_vectors(to, rows + (offsets[i] + first) * columns, n - first, columns, base64);
    }
}

void gsv_put_output_set(struct gsv_exchange *exchange, const struct gsv_output_set *set, size_t i,
                        bool base64)
{
    const gpuserve_job *job = &exchange->work.job;

    if (!set->is_given)
        return;
    put_kind(exchange, set, job->task, i, base64);
    for (size_t k = 0; k < job->n_more; k++)
        put_kind(exchange, set, job->more[k].task, i, base64);
}
