/*
 * compact.c - converts embeddings to compact types; calibrates the ranges of int8 and uint8.
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

#include "lib/http/inference/inference_call.h"
#include "lib/http/models/model_registry.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCALAR (1u << GPUSERVE_PRECISION_INT8 | 1u << GPUSERVE_PRECISION_UINT8)
#define MAX_ENTRIES 16

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
