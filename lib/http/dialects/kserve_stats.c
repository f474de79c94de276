/*
 * kserve_stats.c - Triton's statistics extension: per model, since it was loaded.
 *
 * `inference_count` counts computed texts and `execution_count` batches, including those of the
 * host program. `batch_stats` has the batches by number of texts. `inference_stats` counts the jobs
 * of clients; there compute_infer includes the output phase that Triton reports separately.
 *
 * gsv_kserve_metrics() writes the same numbers with Triton's metric names, nv_inference_*.
 */
#include "lib/base/prometheus.h"
#include "lib/http/dialects/kserve.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/exchange.h"
#include "lib/http/protocol/request.h"

static void put_duration(struct gsv_buffer *to, const char *name, uint64_t count, uint64_t ns)
{
    gsv_buffer_format(to, "\"%s\":{\"count\":%llu,\"ns\":%llu}", name, (unsigned long long)count,
                      (unsigned long long)ns);
}

/* perf_analyzer requires all of them. */
static void put_requests(struct gsv_buffer *to, const struct gsv_model_stats *stats)
{
    const uint64_t n_ok = atomic_load(&stats->n_ok);
    const struct {
        const char *name;
        uint64_t count, us;
    } rows[] = { { "success", n_ok, atomic_load(&stats->total_us) },
                 { "fail", atomic_load(&stats->n_failed), 0 },
                 { "queue", n_ok, atomic_load(&stats->queue_us) },
                 { "compute_input", n_ok, atomic_load(&stats->tokenize_us) },
                 { "compute_infer", n_ok, atomic_load(&stats->compute_us) },
                 { "compute_output", n_ok, 0 } };

    gsv_buffer_text(to, "\"inference_stats\":{");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (i > 0)
            gsv_buffer_text(to, ",");
        put_duration(to, rows[i].name, rows[i].count, rows[i].us * 1000);
    }
    gsv_buffer_text(to, "}");
}

static void put_batches(struct gsv_buffer *to, const struct gsv_batches *batches)
{
    gsv_buffer_text(to, "\"batch_stats\":[");
    for (size_t i = 0; i < batches->n; i++) {
        const gpuserve_batch_counts *row = &batches->rows[i];

        gsv_buffer_format(to, "%s{\"batch_size\":%u,", i > 0 ? "," : "", row->n_texts);
        put_duration(to, "compute_input", row->batches, row->input_ns);
        gsv_buffer_text(to, ",");
        put_duration(to, "compute_infer", row->batches, row->infer_ns);
        gsv_buffer_text(to, ",");
        put_duration(to, "compute_output", row->batches, row->output_ns);
        gsv_buffer_text(to, "}");
    }
    gsv_buffer_text(to, "]");
}

/* False after gsv_refuse. */
static bool put_model(struct gsv_exchange *exchange, const struct gsv_served *served,
                      const char *name)
{
    struct gsv_buffer *to = &exchange->reply;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model_counts counts;
    struct gsv_batches batches;

    if (gsv_served_stats(served, &counts, &batches, &error) != GPUSERVE_OK)
        return gsv_refuse(exchange, GSV_P_INTERNAL, NULL, "%s", error.message);
    gsv_buffer_text(to, "{\"name\":");
    gsv_put_text(to, name);
    gsv_buffer_format(to,
                      ",\"version\":\"1\",\"last_inference\":%llu,\"inference_count\":%llu,"
                      "\"execution_count\":%llu,",
                      (unsigned long long)atomic_load(&served->stats.last_ms),
                      (unsigned long long)counts.items, (unsigned long long)counts.batches);
    put_requests(to, &served->stats);
    gsv_buffer_text(to, ",");
    put_batches(to, &batches);
    gsv_buffer_text(to, "}");
    gsv_batches_free(&batches);
    return true;
}

void gsv_kserve_model_stats(struct gsv_exchange *exchange)
{
    if (!gsv_kserve_model(exchange))
        return;
    gsv_buffer_text(&exchange->reply, "{\"model_stats\":[");
    if (!put_model(exchange, exchange->served, exchange->model_name))
        return;
    gsv_buffer_text(&exchange->reply, "]}");
    gsv_reply_json(exchange);
}

void gsv_kserve_stats(struct gsv_exchange *exchange)
{
    struct gsv_models *models = exchange->server->models;
    const char *comma = "";
    bool good = true;

    gsv_buffer_text(&exchange->reply, "{\"model_stats\":[");
    for (size_t i = 0; i < models->n && good; i++) {
        struct gsv_served *served = gsv_models_hold(models, &models->entries[i]);

        if (!served)
            continue;
        gsv_buffer_text(&exchange->reply, comma);
        good = put_model(exchange, served, models->entries[i].name);
        gsv_served_release(served);
        comma = ",";
    }
    if (!good)
        return;
    gsv_buffer_text(&exchange->reply, "]}");
    gsv_reply_json(exchange);
}

/* -------------------------------------------------------------------------------------- metrics */

enum {
    SUCCESS,
    FAILURE,
    COUNT,
    EXEC_COUNT,
    REQUEST_US,
    QUEUE_US,
    INPUT_US,
    INFER_US,
    OUTPUT_US,
    N_METRICS
};

struct metrics_row {
    const char *name;
    uint64_t values[N_METRICS];
};

/* False: the model is not loaded, or its batches cannot be read. */
static bool read_row(struct gsv_models *models, struct gsv_entry *entry, struct metrics_row *row)
{
    struct gsv_served *served = gsv_models_hold(models, entry);
    struct gsv_batches batches = { 0 };
    gpuserve_model_counts counts;
    bool good = served && gsv_served_stats(served, &counts, &batches, NULL) == GPUSERVE_OK;

    if (good) {
        const struct gsv_model_stats *stats = &served->stats;

        *row = (struct metrics_row){ .name = entry->name };
        row->values[SUCCESS] = atomic_load(&stats->n_ok);
        row->values[FAILURE] = atomic_load(&stats->n_failed);
        row->values[COUNT] = counts.items;
        row->values[EXEC_COUNT] = counts.batches;
        row->values[REQUEST_US] = atomic_load(&stats->total_us);
        row->values[QUEUE_US] = atomic_load(&stats->queue_us);
        row->values[INPUT_US] = atomic_load(&stats->tokenize_us);
        row->values[INFER_US] = atomic_load(&stats->compute_us);
        gsv_batches_free(&batches);
    }
    gsv_served_release(served);
    return good;
}

void gsv_kserve_metrics(struct gsv_exchange *exchange)
{
    static const struct {
        const char *name, *help;
    } heads[N_METRICS] = {
        { "nv_inference_request_success", "Successful jobs." },
        { "nv_inference_request_failure", "Failed jobs." },
        { "nv_inference_count", "Computed texts." },
        { "nv_inference_exec_count", "Computed batches." },
        { "nv_inference_request_duration_us", "Time of jobs, in microseconds." },
        { "nv_inference_queue_duration_us", "Time of jobs in the queue, in microseconds." },
        { "nv_inference_compute_input_duration_us", "Tokenization time, in microseconds." },
        { "nv_inference_compute_infer_duration_us",
          "Time of jobs in the model, with the output phase, in microseconds." },
        { "nv_inference_compute_output_duration_us", "0: the output phase is in compute_infer." },
    };
    struct gsv_models *models = exchange->server->models;
    struct metrics_row *rows = gsv_exchange_alloc(exchange, models->n, sizeof(*rows));
    struct gsv_buffer *to = &exchange->reply;
    size_t n = 0;

    for (size_t i = 0; i < models->n && rows; i++)
        n += read_row(models, &models->entries[i], &rows[n]);
    for (size_t i = 0; i < N_METRICS && rows; i++) {
        gsv_page_head(to, heads[i].name, "counter", heads[i].help);
        for (size_t j = 0; j < n; j++) {
            gsv_buffer_format(to, "%s{", heads[i].name);
            gsv_page_label(to, "model", rows[j].name);
            gsv_buffer_format(to, ",version=\"1\"} %llu\n", (unsigned long long)rows[j].values[i]);
        }
    }
}
