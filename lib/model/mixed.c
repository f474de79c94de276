/*
 * mixed.c - which parts of an int8 net compute in higher precision.
 *
 *   1. The probes run through the layers in full precision, part by part. Each part also runs in
 *      int8 from the same input: the relative distance of the two outputs is the part's error.
 *   2. The probes run through the int8 net. A text's loss is 1 - cosine of the two vectors.
 *   3. A text that loses too much divides its excess among the parts by the squares of their
 *      errors. The part with the largest sum is kept, until the shares that are left are small
 *      enough; then step 2 measures again.
 *
 * An int8 vector's bits depend neither on the batch nor on threads, and neither does the choice.
 */
#include "lib/model/encoder.h"
#include "lib/model/layout.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A stream with activations for the probes. */
struct lane {
    struct gpuserve_stream *stream;
    char *memory; /* device */
    struct gsv_activations at;
    uint64_t program; /* each batch issues other operations */
};

struct mixer {
    struct gsv_net *net;
    struct gsv_reader *reader;
    const struct gpuserve_host_batch *host;
    int32_t n_threads;
    uint32_t exact_dtype;
    struct lane exact, int8;
    char *exact_weights; /* device: the largest part */
    int32_t columns;     /* of a vector */
    size_t row_bytes;    /* of hidden */
    uint64_t room;       /* left for kept parts */
    /* Host. Hidden states in full precision before and after a part, and in int8 after it; vectors;
     * error [part][text]; loss and what it would be [text]. */
    char *before, *after, *rounded;
    float *row; /* two of hidden */
    float *want, *got;
    float *error;
    float *loss, *rest;
};

static size_t n_texts(const struct mixer *m)
{
    return (size_t)m->host->n_sequences;
}

/* ------------------------------------------------------------------------------ begin and end */

static struct gsv_work_options work_options(const struct mixer *m, uint32_t dtype)
{
    return (struct gsv_work_options){
        .dtype = dtype,
        .n_threads = m->n_threads,
        .max_tokens = m->host->n_tokens,
        .max_sequences = m->host->n_sequences,
        .max_seqlen = m->host->max_seqlen,
    };
}

static gpuserve_status open_lane(struct mixer *m, struct lane *lane, uint32_t dtype,
                                 gpuserve_error *error)
{
    const struct gpuserve_backend *backend = m->net->backend;
    const struct gsv_work_options options = work_options(m, dtype);
    struct gsv_work_layout layout;
    struct gpuserve_stream_options stream;
    void *memory;
    gpuserve_status st;

    if (!gsv_work_layout(m->net->spec, backend, &options, &layout))
        return gsv_fail(error, GPUSERVE_E_INVALID, "the probe batch has no tokens");
    st = backend->memory_alloc(m->net->device, &memory, (size_t)layout.total_bytes, error);
    if (st != GPUSERVE_OK)
        return st;
    lane->memory = memory;
    lane->at.hidden = lane->memory + layout.hidden;
    lane->at.context = lane->memory + layout.context;
    lane->at.wide = lane->memory + layout.wide;
    stream = gsv_stream_options(m->net->spec, backend, &options, &layout);
    return backend->stream_create(m->net->device, &lane->stream, &stream, error);
}

static void close_lane(struct mixer *m, struct lane *lane)
{
    m->net->backend->stream_destroy(&lane->stream);
    if (lane->memory)
        m->net->backend->memory_free(m->net->device, lane->memory);
    lane->memory = NULL;
}

static gpuserve_status alloc_host(struct mixer *m, gpuserve_error *error)
{
    const size_t tokens = (size_t)m->host->n_tokens, texts = n_texts(m);
    const size_t vectors = texts * (size_t)m->columns;

    m->before = gsv_alloc_array(tokens, m->row_bytes);
    m->after = gsv_alloc_array(tokens, m->row_bytes);
    m->rounded = gsv_alloc_array(tokens, m->row_bytes);
    m->row = gsv_alloc_array(2 * (size_t)m->net->spec->config.hidden_size, sizeof(float));
    m->want = gsv_alloc_array(vectors, sizeof(float));
    m->got = gsv_alloc_array(vectors, sizeof(float));
    m->error = gsv_alloc_array(texts * (size_t)m->net->int8.n_parts, sizeof(float));
    m->loss = gsv_alloc_array(2 * texts, sizeof(float));
    if (!m->before || !m->after || !m->rounded || !m->row || !m->want || !m->got || !m->error ||
        !m->loss)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for measuring int8");
    m->rest = m->loss + texts;
    return GPUSERVE_OK;
}

static size_t largest_part(const struct gsv_net *net)
{
    size_t largest = 0;

    for (int32_t part = 0; part < net->int8.n_parts; part++) {
        const size_t bytes = gsv_part_bytes(net->spec, net->backend, part);

        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

static gpuserve_status mixer_init(struct mixer *m, gpuserve_error *error)
{
    struct gsv_net *net = m->net;
    void *memory;
    gpuserve_status st;

    m->exact_dtype = gsv_between_products(net->backend, GPUSERVE_DTYPE_INT8);
    m->columns = net->spec->facts.dim > 0 ? net->spec->facts.dim : net->spec->config.hidden_size;
    m->row_bytes =
        (size_t)net->spec->config.hidden_size * net->backend->activation_size(net->dtype);
    m->room = gsv_kept_bytes(net->spec, net->backend);
    net->int8.n_parts = 2 * net->spec->config.n_layers;
    net->int8.n_probes = m->host->n_sequences;
    net->int8.kept_dtype = m->exact_dtype;
    st = alloc_host(m, error);
    if (st == GPUSERVE_OK)
        st = net->backend->memory_alloc(net->device, &memory, largest_part(net), error);
    if (st != GPUSERVE_OK)
        return st;
    m->exact_weights = memory;
    st = open_lane(m, &m->exact, m->exact_dtype, error);
    return st == GPUSERVE_OK ? open_lane(m, &m->int8, GPUSERVE_DTYPE_INT8, error) : st;
}

static void end_measuring(struct mixer *m)
{
    close_lane(m, &m->exact);
    close_lane(m, &m->int8);
    if (m->exact_weights)
        m->net->backend->memory_free(m->net->device, m->exact_weights);
    m->exact_weights = NULL;
    free(m->before);
    free(m->after);
    free(m->rounded);
    m->before = m->after = m->rounded = NULL;
}

static void mixer_reset(struct mixer *m)
{
    end_measuring(m);
    free(m->row);
    free(m->want);
    free(m->got);
    free(m->error);
    free(m->loss);
}

/* ------------------------------------------------------------------------------------- linears */

/* The item of a part's first or second product. */
static int32_t linear_index(const struct gsv_net *net, int32_t part, int which)
{
    const enum gsv_stage stage = (enum gsv_stage)(part % 2 * 2 + which);

    return net->spec->first_layer + part / 2 * GSV_LAYER_ITEMS + gsv_stage_linear(stage);
}

/* Both products of a part in full precision at `memory`. */
static gpuserve_status make_exact(struct mixer *m, int32_t part, char *memory,
                                  struct gpuserve_linear *linears[2], gpuserve_error *error)
{
    struct gsv_net *net = m->net;
    gpuserve_status st = GPUSERVE_OK;

    for (int i = 0; i < 2 && st == GPUSERVE_OK; i++) {
        const struct gsv_item *item = &net->spec->items[linear_index(net, part, i)];
        struct gpuserve_linear_source source;

        st = gsv_read_linear(m->reader, item, &source, error);
        if (st != GPUSERVE_OK)
            break;
        source.dtype = m->exact_dtype;
        st = net->backend->linear_create(net->device, &linears[i], memory, &source, error);
        memory += gsv_item_bytes(net->spec, net->backend, item, m->exact_dtype);
    }
    return st;
}

static void exchange_linears(struct gsv_net *net, int32_t part, struct gpuserve_linear *linears[2])
{
    for (int i = 0; i < 2; i++) {
        struct gpuserve_linear **place = &net->linears[linear_index(net, part, i)];
        struct gpuserve_linear *was = *place;

        *place = linears[i];
        linears[i] = was;
    }
}

static void destroy_linears(struct gsv_net *net, struct gpuserve_linear *linears[2])
{
    for (int i = 0; i < 2; i++)
        net->backend->linear_destroy(&linears[i]);
}

/* -------------------------------------------------------------------------------- errors of parts */

/* One batch: the embedding when `part` is -1, else both products and what is behind them. */
static gpuserve_status run_part(struct mixer *m, struct lane *lane, int32_t part,
                                gpuserve_error *error)
{
    const struct gpuserve_backend *backend = m->net->backend;
    struct gpuserve_batch batch;
    int32_t replayed = 0;
    float one;
    gpuserve_status st =
        backend->batch_begin(lane->stream, lane->program++, m->host, &batch, &replayed, error);

    if (st != GPUSERVE_OK)
        return st;
    if (part < 0)
        st = gsv_encode_embed(m->net, lane->stream, &batch, &lane->at);
    for (int i = 0; part >= 0 && i < 2 && st == GPUSERVE_OK; i++)
        st = gsv_encode_stage(m->net, lane->stream, &batch, &lane->at, part / 2,
                              (enum gsv_stage)(part % 2 * 2 + i));
    if (st != GPUSERVE_OK)
        return gsv_give_up_batch(backend, lane->stream, st, error);
    st = backend->batch_end(lane->stream, &one, lane->at.hidden, sizeof(one), error);
    return st == GPUSERVE_OK ? backend->stream_wait(lane->stream, error) : st;
}

static gpuserve_status read_hidden(struct mixer *m, const struct lane *lane, char *to,
                                   gpuserve_error *error)
{
    return m->net->backend->memory_read(m->net->device, to, lane->at.hidden,
                                        (size_t)m->host->n_tokens * m->row_bytes, error);
}

/* A row of activations as floats. */
static void widen_row(const struct mixer *m, const char *hidden, size_t row, float *to)
{
    const size_t columns = (size_t)m->net->spec->config.hidden_size;
    const char *from = hidden + row * m->row_bytes;

    if (m->row_bytes == columns * sizeof(float))
        memcpy(to, from, m->row_bytes);
    else
        gsv_floats_from_f16(to, from, columns);
}

/* |a - b|^2 / |a|^2 of a row. */
static float distance_of_row(const struct mixer *m, size_t row)
{
    const size_t columns = (size_t)m->net->spec->config.hidden_size;
    float *a = m->row, *b = m->row + columns;
    double apart = 0.0, length = 0.0;

    widen_row(m, m->after, row, a);
    widen_row(m, m->rounded, row, b);
    for (size_t i = 0; i < columns; i++) {
        apart += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        length += (double)a[i] * (double)a[i];
    }
    return length > 0.0 ? (float)(apart / length) : 0.0f;
}

static void note_errors(struct mixer *m, int32_t part)
{
    float *errors = m->error + (size_t)part * n_texts(m);

    for (size_t t = 0; t < n_texts(m); t++) {
        const size_t begin = (size_t)m->host->cu_seqlens[t];
        const size_t end = (size_t)m->host->cu_seqlens[t + 1];

        for (size_t row = begin; row < end; row++)
            errors[t] += distance_of_row(m, row) / (float)(end - begin);
    }
}

static gpuserve_status measure_part(struct mixer *m, int32_t part, gpuserve_error *error)
{
    struct gpuserve_linear *linears[2] = { NULL, NULL };
    char *was;
    gpuserve_status st = make_exact(m, part, m->exact_weights, linears, error);

    if (st == GPUSERVE_OK) {
        exchange_linears(m->net, part, linears);
        st = run_part(m, &m->exact, part, error);
        exchange_linears(m->net, part, linears);
    }
    destroy_linears(m->net, linears);
    if (st == GPUSERVE_OK)
        st = read_hidden(m, &m->exact, m->after, error);
    if (st == GPUSERVE_OK)
        st = m->net->backend->memory_write(m->net->device, m->int8.at.hidden, m->before,
                                           (size_t)m->host->n_tokens * m->row_bytes, error);
    if (st == GPUSERVE_OK)
        st = run_part(m, &m->int8, part, error);
    if (st == GPUSERVE_OK)
        st = read_hidden(m, &m->int8, m->rounded, error);
    if (st == GPUSERVE_OK)
        note_errors(m, part);
    was = m->before;
    m->before = m->after;
    m->after = was;
    return st;
}

/* All parts, one after the other; `before` is the last hidden state then. */
static gpuserve_status measure_parts(struct mixer *m, gpuserve_error *error)
{
    gpuserve_status st = run_part(m, &m->exact, -1, error);

    if (st == GPUSERVE_OK)
        st = read_hidden(m, &m->exact, m->before, error);
    for (int32_t part = 0; part < m->net->int8.n_parts && st == GPUSERVE_OK; part++)
        st = measure_part(m, part, error);
    return st;
}

/* ---------------------------------------------------------------------------------------- vectors */

/* Of a model that does not embed, the first token's hidden state counts. */
static gpuserve_status first_tokens(struct mixer *m, struct gsv_work *work, float *vectors,
                                    gpuserve_error *error)
{
    const size_t columns = (size_t)m->columns;
    const struct gsv_run run = {
        .task = GPUSERVE_TASK_TOKEN_VECTORS,
        .output = gsv_alloc_array((size_t)m->host->n_tokens * columns, sizeof(float)),
    };
    gpuserve_status st;

    if (!run.output)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for measuring int8");
    st = gsv_net_run(work, m->host, &run, error);
    for (size_t t = 0; t < n_texts(m) && st == GPUSERVE_OK; t++)
        memcpy(vectors + t * columns, run.output + (size_t)m->host->cu_seqlens[t] * columns,
               columns * sizeof(float));
    free(run.output);
    return st;
}

/* The vectors of the net as it is; or of hidden states, when these are given. */
static gpuserve_status run_work(struct mixer *m, struct gsv_work *work, const char *hidden,
                                float *vectors, gpuserve_error *error)
{
    const struct gsv_run run = { .task = GPUSERVE_TASK_EMBED,
                                 .dimensions = m->columns,
                                 .output = vectors };

    if (m->net->spec->facts.dim > 0)
        return hidden ? gsv_work_embed(work, m->host, hidden, &run, error)
                      : gsv_net_run(work, m->host, &run, error);
    if (!hidden)
        return first_tokens(m, work, vectors, error);
    for (size_t t = 0; t < n_texts(m); t++)
        widen_row(m, hidden, (size_t)m->host->cu_seqlens[t], vectors + t * (size_t)m->columns);
    return GPUSERVE_OK;
}

/* Each time in a new work: a stream may have recorded the linears of before. */
static gpuserve_status make_vectors(struct mixer *m, const char *hidden, float *vectors,
                                    gpuserve_error *error)
{
    const struct gsv_work_options options = work_options(m, GPUSERVE_DTYPE_INT8);
    struct gsv_work *work;
    gpuserve_status st = gsv_work_create(&work, m->net, &options, error);

    if (st == GPUSERVE_OK)
        st = run_work(m, work, hidden, vectors, error);
    gsv_work_free(&work);
    return st;
}

static float cosine(const float *a, const float *b, size_t n)
{
    double dot = 0.0, aa = 0.0, bb = 0.0;

    for (size_t i = 0; i < n; i++) {
        dot += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    if (aa == 0.0 && bb == 0.0)
        return 1.0f;
    return (float)(dot / sqrt(aa * bb));
}

/* Each text's loss, and the least cosine; a NaN is the worst there can be. */
static gpuserve_status measure_vectors(struct mixer *m, gpuserve_error *error)
{
    const size_t columns = (size_t)m->columns;
    float least = 1.0f;
    gpuserve_status st = make_vectors(m, NULL, m->got, error);

    for (size_t t = 0; t < n_texts(m) && st == GPUSERVE_OK; t++) {
        const float c = cosine(m->want + t * columns, m->got + t * columns, columns);
        const float sound = c >= -1.0f ? c : -1.0f;

        m->loss[t] = 1.0f - sound;
        least = sound < least ? sound : least;
    }
    m->net->int8.cosine = least;
    return st;
}

/* ----------------------------------------------------------------------------------------- choice */

/* Of what a text loses more than it may, the share of a part that is not kept. */
static float excess_share(const struct mixer *m, int32_t part, size_t text)
{
    const struct gsv_int8_facts *facts = &m->net->int8;
    const float excess = m->rest[text] - (float)(1.0 - GSV_INT8_TARGET);
    float sum = 0.0f;

    if (excess <= 0.0f)
        return 0.0f;
    for (int32_t i = 0; i < facts->n_parts; i++)
        sum += gsv_int8_keeps(facts, i) ? 0.0f : m->error[(size_t)i * n_texts(m) + text];
    return sum > 0.0f ? excess * m->error[(size_t)part * n_texts(m) + text] / sum : 0.0f;
}

/* The part that takes most of all excess, for each byte that it takes; -1: no part is left or has
 * room. */
static int32_t worst_part(const struct mixer *m)
{
    const struct gsv_net *net = m->net;
    int32_t worst = -1;
    float most = 0.0f;

    for (int32_t part = 0; part < net->int8.n_parts; part++) {
        const size_t bytes = gsv_part_bytes(net->spec, net->backend, part);
        float sum = 0.0f;

        if (gsv_int8_keeps(&net->int8, part) || bytes > m->room)
            continue;
        for (size_t t = 0; t < n_texts(m); t++)
            sum += excess_share(m, part, t);
        sum /= (float)bytes;
        if (sum > most || worst < 0) {
            most = sum;
            worst = part;
        }
    }
    return worst;
}

static gpuserve_status keep_part(struct mixer *m, int32_t part, gpuserve_error *error)
{
    struct gsv_net *net = m->net;
    struct gpuserve_linear *linears[2] = { NULL, NULL };
    gpuserve_status st = make_exact(m, part, net->memory + net->bytes - m->room, linears, error);

    if (st == GPUSERVE_OK) {
        exchange_linears(net, part, linears);
        net->int8.kept[part / 64] |= UINT64_C(1) << part % 64;
        net->int8.n_kept++;
        m->room -= gsv_part_bytes(net->spec, net->backend, part);
    }
    destroy_linears(net, linears);
    return st;
}

/* What the texts will lose without a part. */
static void forecast(struct mixer *m, int32_t part)
{
    for (size_t t = 0; t < n_texts(m); t++) {
        float sum = 0.0f;

        for (int32_t i = 0; i < m->net->int8.n_parts; i++)
            sum += gsv_int8_keeps(&m->net->int8, i) ? 0.0f : m->error[(size_t)i * n_texts(m) + t];
        if (sum > 0.0f)
            m->rest[t] *= 1.0f - m->error[(size_t)part * n_texts(m) + t] / sum;
    }
}

static bool is_near_enough(const float *loss, size_t n)
{
    for (size_t t = 0; t < n; t++) {
        if (loss[t] > (float)(1.0 - GSV_INT8_TARGET))
            return false;
    }
    return true;
}

/* One part at least, and as many as the forecast asks for; false: there is no room for one. */
static gpuserve_status keep_worst(struct mixer *m, bool *some, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    *some = false;
    memcpy(m->rest, m->loss, n_texts(m) * sizeof(*m->rest));
    do {
        const int32_t part = worst_part(m);

        if (part < 0)
            return st;
        forecast(m, part);
        st = keep_part(m, part, error);
        *some = st == GPUSERVE_OK;
    } while (st == GPUSERVE_OK && !is_near_enough(m->rest, n_texts(m)));
    return st;
}

static gpuserve_status refuse(const struct gsv_net *net, gpuserve_error *error)
{
    gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
             "int8 vectors of this model have a cosine of %.4f to full precision on the worst of "
             "%d probe texts, below %.3f, with %d of %d parts kept in higher precision",
             (double)net->int8.cosine, net->int8.n_probes, GSV_INT8_BOUND,
             net->int8.n_kept, net->int8.n_parts);
    return gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "load it in float32 or bfloat16");
}

static gpuserve_status choose(struct mixer *m, gpuserve_error *error)
{
    bool some = true;
    gpuserve_status st = measure_vectors(m, error);

    while (st == GPUSERVE_OK && some && !is_near_enough(m->loss, n_texts(m))) {
        st = keep_worst(m, &some, error);
        if (st == GPUSERVE_OK && some)
            st = measure_vectors(m, error);
    }
    if (st == GPUSERVE_OK && m->net->int8.cosine < (float)GSV_INT8_BOUND)
        return refuse(m->net, error);
    return st;
}

gpuserve_status gsv_net_mix(struct gsv_net *net, struct gsv_reader *reader,
                            const struct gpuserve_host_batch *probes, int32_t n_threads,
                            gpuserve_error *error)
{
    struct mixer m = { .net = net, .reader = reader, .host = probes, .n_threads = n_threads };
    gpuserve_status st = mixer_init(&m, error);

    if (st == GPUSERVE_OK)
        st = measure_parts(&m, error);
    if (st == GPUSERVE_OK)
        st = make_vectors(&m, m.before, m.want, error);
    end_measuring(&m);
    if (st == GPUSERVE_OK)
        st = choose(&m, error);
    net->int8.is_measured = st == GPUSERVE_OK;
    mixer_reset(&m);
    return st;
}
