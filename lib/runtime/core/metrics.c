/*
 * metrics.c - counters and histograms of a context, and the list of its open models.
 */
#include "lib/runtime/core/metrics.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/runtime/core/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct gsv_bounds gsv_bounds_time = {
    20, { 10,    25,    50,     100,    250,    500,     1000,    2500,    5000,     10000,
          25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, 60000000 }
};
const struct gsv_bounds gsv_bounds_tokens = {
    17, { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536 }
};
const struct gsv_bounds gsv_bounds_texts = {
    13, { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096 }
};

void gsv_metrics_init(struct gsv_metrics *metrics)
{
    pthread_mutex_init(&metrics->lock, NULL);
}

void gsv_metrics_reset(struct gsv_metrics *metrics)
{
    pthread_mutex_destroy(&metrics->lock);
}

static void add(struct gsv_histogram *histogram, const struct gsv_bounds *bounds, uint64_t value,
                uint64_t times)
{
    const uint64_t scale = bounds == &gsv_bounds_time ? 1000 : 1;
    uint32_t bucket = 0;

    while (bucket < bounds->n && value > bounds->upper[bucket] * scale)
        bucket++;
    atomic_fetch_add(&histogram->counts[bucket], times);
    atomic_fetch_add(&histogram->sum, value * times);
}

void gsv_histogram_add(struct gsv_histogram *histogram, const struct gsv_bounds *bounds,
                       uint64_t value)
{
    add(histogram, bounds, value, 1);
}

void gsv_metrics_request(struct gsv_metrics *metrics, const struct gsv_request_facts *facts)
{
    const enum gsv_task_family family =
        facts->task == GPUSERVE_TASK_CLASSIFY || facts->task == GPUSERVE_TASK_TOKEN_LABELS
            ? GSV_FAMILY_CLASSIFY
            : GSV_FAMILY_EMBED;
    const size_t status = (size_t)facts->status < GSV_STATUS_COUNT ? (size_t)facts->status
                                                                   : (size_t)GPUSERVE_E_INTERNAL;
    const bool is_ok = facts->status == GPUSERVE_OK;
    const size_t n_texts = facts->n_items > 0 ? facts->n_items : 1;

    atomic_fetch_add(&metrics->requests[family][status], 1);
    atomic_fetch_add(&metrics->texts[family][is_ok], n_texts);
    for (int time = 0; time < GSV_TIMES; time++) {
        if (time != GSV_TIME_TOTAL && !facts->was_queued)
            continue;
        add(&metrics->times[family][is_ok][time], &gsv_bounds_time, facts->ns[time], 1);
        if (is_ok && n_texts > 1)
            add(&metrics->more_texts[family][time], &gsv_bounds_time, facts->ns[time], n_texts - 1);
    }
}

static void add_to_size(struct gsv_model_metrics *model, const struct gsv_batch_facts *facts)
{
    struct gsv_batch_row *row;

    if (facts->sequences - 1 >= model->n_rows) /* also rejects 0 sequences */
        return;
    row = &model->rows[facts->sequences - 1];
    atomic_fetch_add(&row->batches, 1);
    for (int time = 0; time < GSV_BATCH_TIMES; time++)
        atomic_fetch_add(&row->ns[time], facts->ns[time]);
}

void gsv_metrics_batch(struct gsv_metrics *metrics, struct gsv_model_metrics *model,
                       const struct gsv_batch_facts *facts)
{
    struct gsv_computed *computed = &model->computed[facts->is_ok];

    atomic_fetch_add(&metrics->batches, 1);
    atomic_fetch_add(&metrics->items, facts->sequences);
    atomic_fetch_add(&metrics->tokens, facts->tokens);
    atomic_fetch_add(&metrics->padding_saved, facts->sequences * facts->longest - facts->tokens);
    atomic_fetch_add(&metrics->compute_ns, facts->all_ns);
    gsv_histogram_add(&metrics->batch_texts, &gsv_bounds_texts, facts->sequences);
    gsv_histogram_add(&metrics->batch_tokens, &gsv_bounds_tokens, facts->tokens);
    atomic_fetch_add(&computed->batches, 1);
    atomic_fetch_add(&computed->items, facts->sequences);
    atomic_fetch_add(&computed->tokens, facts->tokens);
    atomic_fetch_add(&computed->compute_ns, facts->all_ns);
    if (facts->is_ok)
        add_to_size(model, facts);
}

void gsv_metrics_item(struct gsv_metrics *metrics, uint64_t tokens, bool truncated)
{
    gsv_histogram_add(&metrics->text_tokens, &gsv_bounds_tokens, tokens);
    if (truncated)
        atomic_fetch_add(&metrics->truncated_items, 1);
}

bool gsv_metrics_model_init(struct gsv_model_metrics *model, uint32_t sequences_limit)
{
    model->rows = gsv_alloc_array(sequences_limit, sizeof(*model->rows));
    model->n_rows = model->rows ? sequences_limit : 0;
    return model->rows != NULL;
}

void gsv_metrics_model_reset(struct gsv_model_metrics *model)
{
    free(model->rows);
    model->rows = NULL;
    model->n_rows = 0;
}

void gsv_metrics_model_add(struct gsv_metrics *metrics, struct gsv_model_metrics *model,
                           const char *name)
{
    size_t length = strnlen(name, sizeof(model->name) - 1);

    length = gsv_utf8_valid_length(name, length);
    memcpy(model->name, name, length);
    model->name[length] = '\0';
    pthread_mutex_lock(&metrics->lock);
    model->next = metrics->models;
    metrics->models = model;
    pthread_mutex_unlock(&metrics->lock);
}

void gsv_metrics_model_remove(struct gsv_metrics *metrics, struct gsv_model_metrics *model)
{
    struct gsv_model_metrics **at = &metrics->models;

    pthread_mutex_lock(&metrics->lock);
    while (*at && *at != model)
        at = &(*at)->next;
    if (*at)
        *at = model->next;
    pthread_mutex_unlock(&metrics->lock);
}

void gsv_metrics_model_set_memory(struct gsv_metrics *metrics, struct gsv_model_metrics *model,
                                  const char *device, const struct gsv_memory *memory)
{
    pthread_mutex_lock(&metrics->lock);
    snprintf(model->device, sizeof(model->device), "%s", device);
    model->memory = *memory;
    pthread_mutex_unlock(&metrics->lock);
}

void gsv_metrics_memory(struct gsv_metrics *metrics, struct gsv_memory *memory)
{
    memset(memory, 0, sizeof(*memory));
    pthread_mutex_lock(&metrics->lock);
    for (const struct gsv_model_metrics *m = metrics->models; m; m = m->next) {
        memory->weights += m->memory.weights;
        memory->workspace += m->memory.workspace;
        memory->stream += m->memory.stream;
        memory->host += m->memory.host;
    }
    pthread_mutex_unlock(&metrics->lock);
}

uint32_t gsv_metrics_sharers(const char *list, const char *device)
{
    const size_t length = strlen(device);
    uint32_t n = 0;
    bool is_there = false;

    for (const char *at = list;; at++) {
        const size_t word = strcspn(at, ",");

        n++;
        is_there = is_there || (word == length && strncmp(at, device, length) == 0);
        at += word;
        if (*at == '\0')
            return is_there ? n : 0;
    }
}

uint64_t gsv_metrics_held(struct gsv_metrics *metrics, const char *device)
{
    const bool is_cpu = strcmp(device, "cpu") == 0;
    uint64_t held = 0;

    pthread_mutex_lock(&metrics->lock);
    for (const struct gsv_model_metrics *m = metrics->models; m; m = m->next) {
        const uint32_t sharers = gsv_metrics_sharers(m->device, device);

        if (sharers > 0)
            held += (m->memory.weights + m->memory.workspace + m->memory.stream) / sharers;
        if (is_cpu)
            held += m->memory.host;
    }
    pthread_mutex_unlock(&metrics->lock);
    return held;
}
