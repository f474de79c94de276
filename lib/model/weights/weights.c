/*
 * weights.c - reads, checks and packs the weights into device memory.
 *
 * The load is split into jobs: one chunk of a table, or one whole item of another kind. Worker
 * threads take the next job from an atomic counter. The first failure stops all threads. The error
 * of the lowest failed job is returned, so the message does not depend on timing.
 *
 * Streamed layers share memory: the loader loads one of them at a time and copies it to host
 * memory. The devices of a pipeline are loaded one after the other; they have one digest.
 *
 * INT8 with calibration skips the encoder's linears here; they are created afterwards on the
 * calling thread (smoothquant.c, then mixed_precision.c).
 */
#include "lib/model/weights/weights.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/weights/adapters.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LOAD_THREADS 8

struct weights_job {
    size_t item;
    size_t chunk; /* index of a table's chunk */
};

struct loader {
    struct gsv_net *net;
    struct gsv_hashes hashes;
    const struct gsv_net_options *options;
    struct gsv_reading reading;
    pthread_t caller;
    struct weights_job *jobs;
    size_t n_jobs;
    atomic_size_t next;
    atomic_bool stop;
    pthread_mutex_t lock; /* protects the fields below */
    gpuserve_status status;
    size_t failed_job;
    gpuserve_error error;
};

/* ----------------------------------------------------------------------------------------- jobs */

static bool smooths(const struct gsv_net *net, const struct gsv_net_options *options)
{
    return net->dtype == GPUSERVE_DTYPE_INT8 && options->calibration;
}

static gpuserve_status alloc_jobs(struct loader *loader, gpuserve_error *error)
{
    const struct gsv_spec *spec = loader->net->spec;
    size_t capacity = spec->n_items;

    for (size_t i = 0; i < spec->n_items; i++)
        capacity += gsv_chunk_count(&spec->items[i].weight[0]);
    loader->jobs = gsv_alloc_array(capacity, sizeof(*loader->jobs));
    return loader->jobs ? GPUSERVE_OK : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
}

/* The jobs of a streamed layer; -1: of all other items. */
static void list_jobs(struct loader *loader, int32_t streamed)
{
    const struct gsv_spec *spec = loader->net->spec;
    const int32_t *layer_of = loader->net->streaming.layer_of;

    loader->n_jobs = 0;
    atomic_store(&loader->next, 0);
    for (size_t i = 0; i < spec->n_items; i++) {
        const struct gsv_weight *item = &spec->items[i];
        const size_t chunks = item->kind == GSV_ITEM_TABLE ? gsv_chunk_count(&item->weight[0]) : 1;

        if ((layer_of && layer_of[i] != streamed) || !gsv_range_has(spec, loader->net->layers, i))
            continue;
        if (item->kind == GSV_ITEM_LINEAR && smooths(loader->net, loader->options))
            continue;
        if (item->kind == GSV_ITEM_RECURRENT && item->which > 0)
            continue; /* loaded with the first direction */
        for (size_t chunk = 0; chunk < chunks; chunk++)
            loader->jobs[loader->n_jobs++] = (struct weights_job){ i, chunk };
    }
}

/* Add the row of weight 1 to each row of a chunk that begins at element `begin` of the table. */
static gpuserve_status add_row(struct gsv_reader *reader, const struct gsv_weight *item,
                               size_t begin, size_t n, gpuserve_error *error)
{
    const size_t k = (size_t)item->k;
    float *row = gsv_alloc_array(k, sizeof(*row));
    gpuserve_status st = row ? gsv_read_tensor(reader, item, 1, row, error)
                             : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");

    for (size_t i = 0; i < n && st == GPUSERVE_OK; i++)
        reader->floats[i] += row[(begin + i) % k];
    free(row);
    return st;
}

/* Write the last row of a static table, which is not in the file. */
static gpuserve_status write_zero_row(const struct gsv_net *net, size_t item_index,
                                      gpuserve_error *error)
{
    const struct gsv_weight *item = &net->spec->items[item_index];
    const size_t k = (size_t)item->k, size = net->backend->table_size(net->dtype);
    float *row = gsv_alloc_array(k, sizeof(*row));
    gpuserve_status st = gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");

    if (row)
        st = net->backend->memory_write_table(
            net->device, net->addresses[item_index] + (size_t)(item->n - 1) * k * size, row, k,
            net->dtype, error);
    free(row);
    return st;
}

static gpuserve_status load_table_chunk(struct loader *loader, struct gsv_reader *reader,
                                        const struct weights_job *job, gpuserve_error *error)
{
    const struct gsv_net *net = loader->net;
    const struct gsv_weight *item = &net->spec->items[job->item];
    const size_t size = net->backend->table_size(net->dtype);
    size_t n;
    gpuserve_status st = gsv_read_chunk(reader, item, job->chunk, reader->floats, &n, error);

    if (st == GPUSERVE_OK && item->weight[1].count)
        st = add_row(reader, item, job->chunk * GSV_CHUNK_ELEMENTS, n, error);
    if (st == GPUSERVE_OK && item->zero_row && job->chunk == 0)
        st = write_zero_row(net, job->item, error);
    if (st != GPUSERVE_OK)
        return st;
    return net->backend->memory_write_table(
        net->device, net->addresses[job->item] + job->chunk * GSV_CHUNK_ELEMENTS * size,
        reader->floats, n, net->dtype, error);
}

static gpuserve_status divide_by_sum(const struct gsv_weight *item, float *values, size_t n,
                                     gpuserve_error *error)
{
    float sum = 0.0f;

    for (size_t i = 0; i < n; i++)
        sum += values[i];
    if (!(fabsf(sum) >= FLT_MIN && fabsf(sum) <= FLT_MAX))
        return gsv_fail(
            error, GPUSERVE_E_FORMAT, "%s: tensor '%s': the sum of its %zu elements is %g",
            gsv_weight_file_name(item->weight[0].file), item->weight[0].name, n, (double)sum);
    for (size_t i = 0; i < n; i++)
        values[i] /= sum;
    return GPUSERVE_OK;
}

static gpuserve_status load_floats(struct loader *loader, struct gsv_reader *reader,
                                   const struct weights_job *job, gpuserve_error *error)
{
    const struct gsv_net *net = loader->net;
    const struct gsv_weight *item = &net->spec->items[job->item];
    const size_t n = (size_t)item->n * (size_t)item->k;
    gpuserve_status st = gsv_read_whole(reader, item, error);

    if (st == GPUSERVE_OK && item->sums_to_one)
        st = divide_by_sum(item, reader->floats, n, error);
    if (st != GPUSERVE_OK)
        return st;
    for (size_t i = 0; i < n && item->plus_one; i++)
        reader->floats[i] += 1.0f;
    return net->backend->memory_write(net->device, net->addresses[job->item], reader->floats,
                                      n * sizeof(float), error);
}

static gpuserve_status load_linear(struct loader *loader, struct gsv_reader *reader,
                                   const struct weights_job *job, gpuserve_error *error)
{
    struct gsv_net *net = loader->net;
    const struct gsv_weight *item = &net->spec->items[job->item];
    struct gpuserve_linear_source source;
    const gpuserve_status st = gsv_read_linear(reader, item, &source, error);

    if (st != GPUSERVE_OK)
        return st;
    source.dtype = gsv_weight_dtype(item, net->backend, net->dtype);
    return net->backend->linear_create(net->device, &net->linears[job->item],
                                       net->addresses[job->item], &source, error);
}

static gpuserve_status do_job(struct loader *loader, struct gsv_reader *reader,
                              const struct weights_job *job, gpuserve_error *error)
{
    switch (loader->net->spec->items[job->item].kind) {
    case GSV_ITEM_TABLE:
        return load_table_chunk(loader, reader, job, error);
    case GSV_ITEM_SUM_TABLE:
        return gsv_load_sum_table(loader->net, reader, job->item, error);
    case GSV_ITEM_MAPPED_TABLE:
        return gsv_load_mapped_table(loader->net, reader, job->item, error);
    case GSV_ITEM_RELATIVE:
    case GSV_ITEM_ALIBI:
    case GSV_ITEM_ROTARY:
    case GSV_ITEM_POSITIONS:
    case GSV_ITEM_POSITION_INDEX:
        return gsv_load_positions(loader->net, reader, job->item, error);
    case GSV_ITEM_FLOATS:
        return load_floats(loader, reader, job, error);
    case GSV_ITEM_RECURRENT:
        return gsv_load_recurrent(loader->net, reader, job->item, error);
    default:
        return load_linear(loader, reader, job, error);
    }
}

/* -------------------------------------------------------------------------------------- threads */

static void note_failure(struct loader *loader, size_t job, gpuserve_status st,
                         const gpuserve_error *error)
{
    atomic_store(&loader->stop, true);
    pthread_mutex_lock(&loader->lock);
    if (loader->status == GPUSERVE_OK || job < loader->failed_job) {
        loader->status = st;
        loader->failed_job = job;
        gsv_error_copy(&loader->error, error);
    }
    pthread_mutex_unlock(&loader->lock);
}

static gpuserve_status make_reader(struct loader *loader, struct gsv_reader *reader,
                                   gpuserve_error *error)
{
    const gpuserve_status st = gsv_reader_init(reader, loader->net->spec, &loader->hashes, error);

    reader->reading = &loader->reading;
    reader->tells = pthread_equal(loader->caller, pthread_self());
    return st;
}

static void *work_off(void *argument)
{
    struct loader *loader = argument;
    struct gsv_reader reader;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st = make_reader(loader, &reader, &error);

    if (st != GPUSERVE_OK) {
        note_failure(loader, SIZE_MAX, st, &error);
        return NULL;
    }
    while (!atomic_load(&loader->stop)) {
        const size_t job = atomic_fetch_add(&loader->next, 1);

        if (job >= loader->n_jobs)
            break;
        st = do_job(loader, &reader, &loader->jobs[job], &error);
        if (st != GPUSERVE_OK)
            note_failure(loader, job, st, &error);
    }
    gsv_reader_reset(&reader);
    return NULL;
}

/* If a thread cannot be created, the others do its jobs. */
static void work_off_together(struct loader *loader, int32_t n_threads)
{
    pthread_t threads[MAX_LOAD_THREADS];
    int32_t n = 0;

    if (n_threads > MAX_LOAD_THREADS)
        n_threads = MAX_LOAD_THREADS;
    while (n < n_threads - 1 && pthread_create(&threads[n], NULL, work_off, loader) == 0)
        n++;
    work_off(loader);
    while (n > 0)
        pthread_join(threads[--n], NULL);
}

static gpuserve_status load_listed(struct loader *loader, gpuserve_error *error)
{
    work_off_together(loader, loader->options->n_threads);
    if (loader->status != GPUSERVE_OK)
        gsv_error_copy(error, &loader->error);
    return loader->status;
}

static gpuserve_status load_items(struct loader *loader, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    for (int32_t i = -1; i < loader->net->streaming.n && st == GPUSERVE_OK; i++) {
        list_jobs(loader, i);
        st = load_listed(loader, error);
        if (st == GPUSERVE_OK && i >= 0)
            st = gsv_streaming_save(loader->net, i, error);
    }
    return st;
}

/* ------------------------------------------------------------------------------------------ net */

static gpuserve_status alloc_net(struct gsv_net *net, gpuserve_error *error)
{
    const struct gsv_spec *spec = net->spec;

    if (gsv_net_bytes(spec, net->backend, net->dtype) == GSV_TOO_MANY_BYTES)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "the %s backend does not support the requested dtype (%u)",
                        net->backend->name, net->dtype);
    if (!gsv_computes_in(&spec->facts, net->dtype))
        return gsv_fail_dtype(&spec->facts, error);
    net->addresses = gsv_alloc_array(spec->n_items, sizeof(*net->addresses));
    net->linears = gsv_alloc_array(spec->n_items, sizeof(struct gpuserve_linear *));
    net->recurrent = gsv_alloc_array(spec->n_items, sizeof(struct gpuserve_lstm_layer *));
    if (!net->addresses || !net->linears || !net->recurrent)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    return GPUSERVE_OK;
}

static gpuserve_status alloc_memory(struct gsv_net *net, gpuserve_error *error)
{
    const uint64_t bytes =
        net->streaming.n > 0
            ? gsv_streamed_net_bytes(net->spec, net->backend, net->dtype, net->streaming.n).device
            : gsv_range_bytes(net->spec, net->backend, net->dtype, net->layers);
    void *memory;
    const gpuserve_status st =
        net->backend->memory_alloc(net->device, &memory, (size_t)bytes, error);

    if (st != GPUSERVE_OK)
        return st;
    net->memory = memory;
    net->bytes = (size_t)bytes;
    return GPUSERVE_OK;
}

/* Sets the addresses of the net's items in net->memory; returns their bytes. */
static size_t set_addresses(struct gsv_net *net)
{
    const struct gsv_spec *spec = net->spec;
    size_t at = 0;

    gsv_streaming_set_addresses(net);
    for (size_t i = 0; i < spec->n_items; i++) {
        if ((net->streaming.n > 0 && net->streaming.layer_of[i] >= 0) ||
            !gsv_range_has(spec, net->layers, i))
            continue;
        net->addresses[i] = net->memory + at;
        at += gsv_weight_bytes(spec, net->backend, &spec->items[i], net->dtype);
    }
    return at;
}

static gpuserve_status smooth(struct loader *loader, gpuserve_error *error)
{
    struct gsv_reader reader;
    gpuserve_status st = make_reader(loader, &reader, error);

    if (st != GPUSERVE_OK)
        return st;
    st = gsv_net_smooth(loader->net, &reader, loader->options->calibration,
                        loader->options->n_threads, error);
    if (st == GPUSERVE_OK && loader->options->probes)
        st = gsv_net_mix(loader->net, &reader, loader->options->probes, loader->options->n_threads,
                         error);
    gsv_reader_reset(&reader);
    return st;
}

static gpuserve_status load_weights(struct gsv_net *net, const struct gsv_net_options *options,
                                    gpuserve_error *error)
{
    struct loader loader = { .net = net,
                             .options = options,
                             .reading = { .progress = options->progress,
                                          .progress_user = options->progress_user },
                             .caller = pthread_self(),
                             .lock = PTHREAD_MUTEX_INITIALIZER,
                             .error = GPUSERVE_ERROR_INIT };
    gpuserve_status st = gsv_hashes_init(&loader.hashes, net->spec, error);

    if (st == GPUSERVE_OK)
        st = alloc_jobs(&loader, error);
    for (int32_t i = 0; i <= net->n_before && st == GPUSERVE_OK; i++) {
        loader.net = i < net->n_before ? net->before[i] : net;
        st = load_items(&loader, error);
    }
    if (st == GPUSERVE_OK && smooths(net, options))
        st = smooth(&loader, error);
    if (st == GPUSERVE_OK)
        gsv_hashes_digest(&loader.hashes, net->spec, net->digest);
    gsv_hashes_reset(&loader.hashes);
    free(loader.jobs);
    return st;
}

/* A net without memory. On failure *out is NULL or to be freed. */
static gpuserve_status make_net(struct gsv_net **out, const struct gsv_spec *spec,
                                const struct gpuserve_backend *backend,
                                const struct gsv_pipeline_stage *stage,
                                const struct gsv_net_options *options, gpuserve_error *error)
{
    struct gsv_net *net = gsv_alloc_array(1, sizeof(*net));

    *out = net;
    if (!net)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    net->spec = spec;
    net->backend = backend;
    net->device = stage->device;
    net->layers = stage->layers;
    net->dtype = options->dtype;
    net->observer = options->observer;
    return alloc_net(net, error);
}

/* The nets of a pipeline's devices before the last one, with memory and without weights. */
static gpuserve_status make_nets_before(struct gsv_net *net, const struct gsv_net_options *options,
                                        gpuserve_error *error)
{
    const int32_t n = options->n_stages - 1;
    gpuserve_status st = GPUSERVE_OK;

    if (n < 1)
        return GPUSERVE_OK;
    net->before = gsv_alloc_array((size_t)n, sizeof(*net->before));
    if (!net->before)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    while (net->n_before < n && st == GPUSERVE_OK) {
        struct gsv_net **before = &net->before[net->n_before];

        st = make_net(before, net->spec, net->backend, &options->stages[net->n_before++], options,
                      error);
        if (st == GPUSERVE_OK)
            st = alloc_memory(*before, error);
        if (st == GPUSERVE_OK)
            (void)set_addresses(*before);
    }
    return st;
}

static gpuserve_status load_net(struct gsv_net *net, const struct gsv_net_options *options,
                                gpuserve_error *error)
{
    gpuserve_status st = make_nets_before(net, options, error);
    size_t bytes;

    if (st == GPUSERVE_OK && options->packed && gsv_net_restore(net, options)) {
        set_addresses(net);
        return GPUSERVE_OK;
    }
    if (st == GPUSERVE_OK && options->calibrate)
        st = options->calibrate(options->calibrate_user, error);
    if (st == GPUSERVE_OK && options->n_streamed > 0)
        st = gsv_streaming_init(net, options->n_streamed, error);
    if (st == GPUSERVE_OK)
        st = alloc_memory(net, error);
    if (st != GPUSERVE_OK)
        return st;
    bytes = set_addresses(net);
    if (options->packed) /* no stale heap bytes between the items of a file */
        memset(net->memory, 0, bytes);
    return load_weights(net, options, error);
}

gpuserve_status gsv_net_load(struct gsv_net **out, const struct gsv_spec *spec,
                             const struct gpuserve_backend *backend, struct gpuserve_device *device,
                             const struct gsv_net_options *options, gpuserve_error *error)
{
    const struct gsv_pipeline_stage whole = { device, { 0, spec->config.n_layers } };
    const struct gsv_pipeline_stage *stage =
        options->n_stages > 1 ? &options->stages[options->n_stages - 1] : &whole;
    struct gsv_net *net;
    gpuserve_status st = make_net(&net, spec, backend, stage, options, error);

    *out = NULL;
    if (st == GPUSERVE_OK)
        st = load_net(net, options, error);
    if (st != GPUSERVE_OK) {
        gsv_net_free(&net);
        return st;
    }
    *out = net;
    return GPUSERVE_OK;
}

void gsv_net_free(struct gsv_net **out)
{
    struct gsv_net *net = out ? *out : NULL;

    if (!net)
        return;
    for (size_t i = 0; net->linears && i < net->spec->n_items; i++)
        net->backend->linear_destroy(&net->linears[i]);
    for (size_t i = 0; net->recurrent && i < net->spec->n_items; i++)
        net->backend->lstm_layer_destroy(&net->recurrent[i]);
    if (net->mapped)
        gsv_net_unmap(net);
    else if (net->memory)
        net->backend->memory_free(net->device, net->memory);
    gsv_streaming_reset(net);
    for (int32_t i = 0; i < net->n_before; i++)
        gsv_net_free(&net->before[i]);
    free(net->before);
    free(net->linears);
    free(net->recurrent);
    free(net->addresses);
    free(net);
    *out = NULL;
}

const struct gsv_int8_facts *gsv_net_int8(const struct gsv_net *net)
{
    return &net->int8;
}

void gsv_net_digest(const struct gsv_net *net, uint64_t digest[2])
{
    memcpy(digest, net->digest, sizeof(net->digest));
}
