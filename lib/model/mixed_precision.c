/*
 * mixed_precision.c - which products of an int8 net compute in higher precision.
 *
 * The probes run through the layers in full precision, and through the int8 net. As long as the
 * vectors of one of them are too far apart, more products are kept in higher precision. Errors of
 * early layers grow on their way through later ones, and the input of the second product of a
 * feed-forward has the largest outliers: so the products are kept in a fixed order, of which the
 * vectors tell how many. Where that fails, other orders are tried.
 *
 * There are many probes, as the errors of a few texts say little about those of others: of a model
 * with peaked attention one text in a hundred loses ten times what most lose. The probes that lost
 * the most are measured first, and the others only when these are near enough.
 *
 * The bits of a vector depend neither on the batch nor on threads, and neither does the choice.
 */
#include "lib/model/encoder.h"
#include "lib/model/layout.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/formats/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A stream with activations for the probes. */
struct probe {
    struct gpuserve_stream *stream;
    char *memory; /* device */
    struct gsv_activations at;
    uint64_t program; /* each batch issues other operations */
};

enum { MAX_WORST = 4 };

/* The probes that lost the most when all were measured last, as a batch of their own. */
struct worst {
    struct gpuserve_host_batch batch; /* no sequences: all are measured */
    int32_t *memory;
    int32_t texts[MAX_WORST]; /* which of the probes */
};

/* The orders in which products are kept. */
enum order {
    CONTRACT_FIRST, /* of all layers, then the other products layer by layer */
    LAYERS,         /* all products of the first layer, of the second ... */
    ATTENTION_FIRST,
    N_ORDERS
};

struct mixer {
    struct gsv_net *net;
    struct gsv_reader *reader;
    const struct gpuserve_host_batch *host; /* what is run: all probes, or the worst */
    const struct gpuserve_host_batch *all;
    struct worst worst;
    int32_t n_threads;
    uint32_t exact_dtype;
    struct probe probe;
    char *exact_weights; /* device: the largest product */
    int32_t columns;     /* of a vector */
    size_t row_bytes;    /* of hidden */
    float *want, *got;   /* host: vectors; `got` of what is run */
    float *cosines;      /* [all], of the last time that all were measured */
    float *sorted;       /* [all] */
    float expected;      /* the least cosine that other texts are expected to have */
    bool is_near_enough; /* the last time, when all or the worst were measured */
    enum order order;
    /* [n_products], by their places in the order: of the first n_made the one of the two kinds that
     * the net does not have now. */
    struct gpuserve_linear **other;
    int32_t n_made;
    uint64_t used; /* of the memory for kept products */
};

static size_t n_texts(const struct mixer *m)
{
    return (size_t)m->host->n_sequences;
}

/* ------------------------------------------------------------------------------ begin and end */

static struct gsv_exec_options work_options(const struct mixer *m, uint32_t dtype)
{
    return (struct gsv_exec_options){
        .dtype = dtype,
        .n_threads = m->n_threads,
        .max_tokens = m->host->n_tokens,
        .max_sequences = m->host->n_sequences,
        .max_seqlen = m->host->max_seqlen,
    };
}

static gpuserve_status open_probe(struct mixer *m, struct probe *probe, uint32_t dtype,
                                  gpuserve_error *error)
{
    const struct gpuserve_backend *backend = m->net->backend;
    const struct gsv_exec_options options = work_options(m, dtype);
    struct gsv_exec_layout layout;
    struct gpuserve_stream_options stream;
    void *memory;
    gpuserve_status st;

    if (!gsv_exec_layout(m->net->spec, backend, &options, &layout))
        return gsv_fail(error, GPUSERVE_E_INVALID, "the probe batch has no tokens");
    st = backend->memory_alloc(m->net->device, &memory, (size_t)layout.total_bytes, error);
    if (st != GPUSERVE_OK)
        return st;
    probe->memory = memory;
    probe->at.hidden = probe->memory + layout.hidden;
    probe->at.context = probe->memory + layout.context;
    probe->at.wide = probe->memory + layout.wide;
    stream = gsv_stream_options(m->net->spec, backend, &options, &layout);
    return backend->stream_create(m->net->device, &probe->stream, &stream, error);
}

static void close_probe(struct mixer *m, struct probe *probe)
{
    m->net->backend->stream_destroy(&probe->stream);
    if (probe->memory)
        m->net->backend->memory_free(m->net->device, probe->memory);
    probe->memory = NULL;
}

static gpuserve_status alloc_host(struct mixer *m, gpuserve_error *error)
{
    const size_t vectors = n_texts(m) * (size_t)m->columns;
    const size_t products = (size_t)m->net->int8.n_products;

    m->want = gsv_alloc_array(vectors, sizeof(float));
    m->got = gsv_alloc_array(vectors, sizeof(float));
    m->cosines = gsv_alloc_array(n_texts(m), sizeof(float));
    m->sorted = gsv_alloc_array(n_texts(m), sizeof(float));
    m->worst.memory =
        gsv_alloc_array(3 * (size_t)m->host->n_tokens + MAX_WORST + 1, sizeof(int32_t));
    m->other = gsv_alloc_array(products, sizeof(struct gpuserve_linear *));
    if (!m->want || !m->got || !m->cosines || !m->sorted || !m->worst.memory || !m->other)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the int8 measurement");
    return GPUSERVE_OK;
}

/* The item of a product. */
static int32_t item_of(const struct gsv_net *net, int32_t product)
{
    return net->spec->first_layer + product / GSV_STAGE_COUNT * GSV_LAYER_ITEMS +
           gsv_stage_linear((enum gsv_stage)(product % GSV_STAGE_COUNT));
}

static size_t exact_bytes(const struct gsv_net *net, int32_t product)
{
    return gsv_weight_bytes(net->spec, net->backend, &net->spec->items[item_of(net, product)],
                            gsv_between_products(net->backend, GPUSERVE_DTYPE_INT8));
}

static gpuserve_status mixer_init(struct mixer *m, gpuserve_error *error)
{
    struct gsv_net *net = m->net;
    size_t largest = 0;
    void *memory;
    gpuserve_status st;

    m->exact_dtype = gsv_between_products(net->backend, GPUSERVE_DTYPE_INT8);
    m->columns = net->spec->facts.dim > 0 ? net->spec->facts.dim : net->spec->config.hidden_size;
    m->row_bytes =
        (size_t)net->spec->config.hidden_size * net->backend->activation_size(net->dtype);
    net->int8.n_products = GSV_STAGE_COUNT * net->spec->config.n_layers;
    net->int8.n_probes = m->host->n_sequences;
    net->int8.kept_dtype = m->exact_dtype;
    for (int32_t i = 0; i < net->int8.n_products; i++)
        largest = exact_bytes(net, i) > largest ? exact_bytes(net, i) : largest;
    st = alloc_host(m, error);
    if (st == GPUSERVE_OK)
        st = net->backend->memory_alloc(net->device, &memory, largest, error);
    if (st != GPUSERVE_OK)
        return st;
    m->exact_weights = memory;
    return open_probe(m, &m->probe, m->exact_dtype, error);
}

/* What only the vectors in full precision need. */
static void end_exact(struct mixer *m)
{
    close_probe(m, &m->probe);
    if (m->exact_weights)
        m->net->backend->memory_free(m->net->device, m->exact_weights);
    m->exact_weights = NULL;
}

/* ------------------------------------------------------------------------------ full precision */

static gpuserve_status make_exact(struct mixer *m, int32_t product, char *memory,
                                  struct gpuserve_linear **linear, gpuserve_error *error)
{
    const struct gsv_weight *item = &m->net->spec->items[item_of(m->net, product)];
    struct gpuserve_linear_source source;
    const gpuserve_status st = gsv_read_linear(m->reader, item, &source, error);

    if (st != GPUSERVE_OK)
        return st;
    source.dtype = m->exact_dtype;
    return m->net->backend->linear_create(m->net->device, linear, memory, &source, error);
}

/* One batch: a product and what is behind it, or the embedding when `product` is -1. */
static gpuserve_status run_product(struct mixer *m, int32_t product, gpuserve_error *error)
{
    const struct gpuserve_backend *backend = m->net->backend;
    struct probe *probe = &m->probe;
    struct gpuserve_batch batch;
    int32_t replayed = 0;
    float one;
    gpuserve_status st =
        backend->batch_begin(probe->stream, probe->program++, m->host, &batch, &replayed, error);

    if (st != GPUSERVE_OK)
        return st;
    st = product < 0 ? gsv_encode_embed(m->net, probe->stream, &batch, &probe->at)
                     : gsv_encode_stage(m->net, probe->stream, &batch, &probe->at,
                                        product / GSV_STAGE_COUNT,
                                        (enum gsv_stage)(product % GSV_STAGE_COUNT));
    if (st != GPUSERVE_OK)
        return gsv_give_up_batch(backend, probe->stream, st, error);
    st = backend->batch_end(probe->stream, &one, probe->at.hidden, sizeof(one), error);
    return st == GPUSERVE_OK ? backend->stream_wait(probe->stream, error) : st;
}

/* A product in full precision, made for this once. */
static gpuserve_status run_exact(struct mixer *m, int32_t product, gpuserve_error *error)
{
    struct gpuserve_linear **place = &m->net->linears[item_of(m->net, product)];
    struct gpuserve_linear *rounded = *place;
    gpuserve_status st;

    *place = NULL;
    st = make_exact(m, product, m->exact_weights, place, error);
    if (st == GPUSERVE_OK)
        st = run_product(m, product, error);
    m->net->backend->linear_destroy(place);
    *place = rounded;
    return st;
}

/* ---------------------------------------------------------------------------------------- vectors
 */

/* A row of hidden as floats. */
static void widen_row(const struct mixer *m, const char *from, float *to)
{
    const size_t columns = (size_t)m->columns;

    if (m->row_bytes == columns * sizeof(float))
        memcpy(to, from, m->row_bytes);
    else
        gsv_floats_from_f16(to, from, columns);
}

/* Of a model that does not embed, the first token's hidden state counts. */
static gpuserve_status first_tokens(struct mixer *m, struct gsv_exec *work, float *vectors,
                                    gpuserve_error *error)
{
    const size_t columns = (size_t)m->columns;
    const struct gsv_run run = {
        .task = GPUSERVE_TASK_TOKEN_VECTORS,
        .output = gsv_alloc_array((size_t)m->host->n_tokens * columns, sizeof(float)),
    };
    gpuserve_status st;

    if (!run.output)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the int8 measurement");
    st = gsv_net_run(work, m->host, &run, error);
    for (size_t t = 0; t < n_texts(m) && st == GPUSERVE_OK; t++)
        memcpy(vectors + t * columns, run.output + (size_t)m->host->cu_seqlens[t] * columns,
               columns * sizeof(float));
    free(run.output);
    return st;
}

/* The vectors of the net as it is; or of hidden states, when these are given. */
static gpuserve_status run_work(struct mixer *m, struct gsv_exec *work, const char *hidden,
                                float *vectors, gpuserve_error *error)
{
    const struct gsv_run run = { .task = GPUSERVE_TASK_EMBED,
                                 .dimensions = m->columns,
                                 .output = vectors };

    if (m->net->spec->facts.dim > 0)
        return hidden ? gsv_exec_embed(work, m->host, hidden, &run, error)
                      : gsv_net_run(work, m->host, &run, error);
    if (!hidden)
        return first_tokens(m, work, vectors, error);
    for (size_t t = 0; t < n_texts(m); t++)
        widen_row(m, hidden + (size_t)m->host->cu_seqlens[t] * m->row_bytes,
                  vectors + t * (size_t)m->columns);
    return GPUSERVE_OK;
}

/* Each time in a new work: a stream may have recorded the linears of before. */
static gpuserve_status make_vectors(struct mixer *m, const char *hidden, float *vectors,
                                    gpuserve_error *error)
{
    const struct gsv_exec_options options = work_options(m, GPUSERVE_DTYPE_INT8);
    struct gsv_exec *work;
    gpuserve_status st = gsv_exec_create(&work, m->net, &options, error);

    if (st == GPUSERVE_OK)
        st = run_work(m, work, hidden, vectors, error);
    gsv_exec_free(&work);
    return st;
}

static gpuserve_status make_exact_vectors(struct mixer *m, gpuserve_error *error)
{
    const size_t bytes = (size_t)m->host->n_tokens * m->row_bytes;
    char *hidden = gsv_alloc_array(bytes, 1);
    gpuserve_status st =
        hidden ? run_product(m, -1, error)
               : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the int8 measurement");

    for (int32_t i = 0; i < m->net->int8.n_products && st == GPUSERVE_OK; i++)
        st = run_exact(m, i, error);
    if (st == GPUSERVE_OK)
        st = m->net->backend->memory_read(m->net->device, hidden, m->probe.at.hidden, bytes, error);
    end_exact(m);
    if (st == GPUSERVE_OK)
        st = make_vectors(m, hidden, m->want, error);
    free(hidden);
    return st;
}

/* Of two equal directions, and of two zero vectors, 1; NaN counts as the least there can be. */
static float cosine(const float *a, const float *b, size_t n)
{
    double dot = 0.0, aa = 0.0, bb = 0.0, result;

    for (size_t i = 0; i < n; i++) {
        dot += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    if (aa == 0.0 && bb == 0.0)
        return 1.0f;
    result = dot / sqrt(aa * bb);
    return result >= -1.0 ? (float)result : -1.0f;
}

/* -------------------------------------------------------------------------------------- measuring
 */

/* Another sequence of the batch; its arrays have room for all probes. */
static void add_to_worst(struct mixer *m, int32_t text)
{
    struct gpuserve_host_batch *to = &m->worst.batch;
    const size_t room = (size_t)m->all->n_tokens, at = (size_t)to->n_tokens;
    const size_t begin = (size_t)m->all->cu_seqlens[text];
    const int32_t n = m->all->cu_seqlens[text + 1] - m->all->cu_seqlens[text];
    int32_t *memory = m->worst.memory;

    memcpy(memory + at, m->all->ids + begin, (size_t)n * sizeof(int32_t));
    memcpy(memory + room + at, m->all->type_ids + begin, (size_t)n * sizeof(int32_t));
    memcpy(memory + 2 * room + at, m->all->positions + begin, (size_t)n * sizeof(int32_t));
    m->worst.texts[to->n_sequences++] = text;
    to->n_tokens += n;
    memory[3 * room + (size_t)to->n_sequences] = to->n_tokens;
    to->max_seqlen = n > to->max_seqlen ? n : to->max_seqlen;
}

/* After all were measured. */
static void choose_worst(struct mixer *m)
{
    int32_t *memory = m->worst.memory;
    const size_t room = (size_t)m->all->n_tokens;

    memory[3 * room] = 0;
    m->worst.batch = (struct gpuserve_host_batch){ .ids = memory,
                                                   .type_ids = memory + room,
                                                   .positions = memory + 2 * room,
                                                   .cu_seqlens = memory + 3 * room };
    while (m->worst.batch.n_sequences < MAX_WORST &&
           m->worst.batch.n_sequences < m->all->n_sequences) {
        int32_t found = 0;

        for (int32_t t = 1; t < m->all->n_sequences; t++)
            found = m->cosines[t] < m->cosines[found] ? t : found;
        add_to_worst(m, found);
        m->cosines[found] = 2.0f; /* chosen */
    }
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* The least cosine of other texts, estimated. Where the worst probe lost about as much as a tenth
 * of the probes did, many other texts lose hardly more; where it stands alone, some lose more by
 * about as much again. The factor is from random models: tests/python/random_models.py. */
static float expected_min(struct mixer *m)
{
    const size_t n = n_texts(m);
    float worst, tenth;

    memcpy(m->sorted, m->cosines, n * sizeof(float));
    qsort(m->sorted, n, sizeof(float), compare_floats);
    worst = fmaxf(0.0f, 1.0f - m->sorted[0]);
    tenth = fmaxf(1e-6f, 1.0f - m->sorted[n / 10]);
    return fmaxf(-1.0f, 1.0f - worst * fmaxf(1.0f, worst / tenth / 1.35f));
}

/* Of all probes. */
static gpuserve_status measure_all(struct mixer *m, gpuserve_error *error)
{
    const size_t columns = (size_t)m->columns;
    float least = 1.0f;
    const gpuserve_status st = make_vectors(m, NULL, m->got, error);

    if (st != GPUSERVE_OK)
        return st;
    for (size_t t = 0; t < n_texts(m); t++) {
        m->cosines[t] = cosine(m->want + t * columns, m->got + t * columns, columns);
        least = fminf(least, m->cosines[t]);
    }
    m->net->int8.cosine = least;
    m->expected = expected_min(m);
    m->is_near_enough = least >= (float)GSV_INT8_TARGET && m->expected >= (float)GSV_INT8_BOUND;
    choose_worst(m);
    return GPUSERVE_OK;
}

/* Of those that lost the most: if they are not near enough, all are not. */
static gpuserve_status measure_worst(struct mixer *m, gpuserve_error *error)
{
    const size_t columns = (size_t)m->columns;
    float least = 1.0f;
    gpuserve_status st;

    m->host = &m->worst.batch;
    st = make_vectors(m, NULL, m->got, error);
    for (size_t i = 0; i < n_texts(m) && st == GPUSERVE_OK; i++)
        least = fminf(least, cosine(m->want + (size_t)m->worst.texts[i] * columns,
                                    m->got + i * columns, columns));
    m->is_near_enough = least >= (float)GSV_INT8_TARGET;
    m->host = m->all;
    return st;
}

/* ----------------------------------------------------------------------------------------- choice
 */

/* Product number `at` of the order. */
static int32_t product_at(const struct mixer *m, int32_t at)
{
    const int32_t n = m->net->spec->config.n_layers;

    if (m->order == LAYERS)
        return at;
    if (m->order == ATTENTION_FIRST)
        return at < 2 * n ? at / 2 * GSV_STAGE_COUNT + at % 2
                          : (at - 2 * n) / 2 * GSV_STAGE_COUNT + GSV_STAGE_CONTRACT - at % 2;
    return at < n ? at * GSV_STAGE_COUNT + GSV_STAGE_CONTRACT
                  : (at - n) / 3 * GSV_STAGE_COUNT + (at - n) % 3;
}

/* How many products of the order the memory is enough for. */
static int32_t max_kept(const struct mixer *m)
{
    uint64_t room = gsv_kept_bytes(m->net->spec, m->net->backend);
    int32_t n = 0;

    while (n < m->net->int8.n_products && exact_bytes(m->net, product_at(m, n)) <= room)
        room -= exact_bytes(m->net, product_at(m, n++));
    return n;
}

/* Exchange the two kinds of product number `at`. */
static void exchange(struct mixer *m, int32_t at)
{
    struct gsv_int8_facts *facts = &m->net->int8;
    const int32_t product = product_at(m, at);
    struct gpuserve_linear **place = &m->net->linears[item_of(m->net, product)];
    struct gpuserve_linear *was = *place;

    *place = m->other[at];
    m->other[at] = was;
    facts->kept[product / 64] ^= UINT64_C(1) << product % 64;
    facts->n_kept += gsv_int8_keeps(facts, product) ? 1 : -1;
}

/* The first `n` products of the order are kept and no other. */
static gpuserve_status keep(struct mixer *m, int32_t n, gpuserve_error *error)
{
    struct gsv_net *net = m->net;
    const uint64_t begin = net->bytes - gsv_kept_bytes(net->spec, net->backend);
    gpuserve_status st = GPUSERVE_OK;

    while (net->int8.n_kept > n)
        exchange(m, net->int8.n_kept - 1);
    while (net->int8.n_kept < n && st == GPUSERVE_OK) {
        const int32_t at = net->int8.n_kept;

        if (at == m->n_made) {
            st = make_exact(m, product_at(m, at), net->memory + begin + m->used, &m->other[at],
                            error);
            if (st != GPUSERVE_OK)
                return st;
            m->used += exact_bytes(net, product_at(m, at));
            m->n_made++;
        }
        exchange(m, at);
    }
    return st;
}

/* What the net does not use: int8 products in place of which others are kept, or the other way. */
static void drop_other(struct mixer *m)
{
    for (int32_t i = 0; i < m->n_made; i++)
        m->net->backend->linear_destroy(&m->other[i]);
    m->n_made = 0;
    m->used = 0;
}

static gpuserve_status keep_and_measure(struct mixer *m, int32_t n, gpuserve_error *error)
{
    const gpuserve_status st = keep(m, n, error);

    return st == GPUSERVE_OK ? measure_worst(m, error) : st;
}

/* About the fewest products, more than `low`, that do for the worst probes: 1, 2, 4, ... more, and
 * then between the last two. All that there are when these do not. */
static gpuserve_status search(struct mixer *m, int32_t low, int32_t *found, gpuserve_error *error)
{
    const int32_t most = max_kept(m);
    int32_t high = low, step = 1;
    gpuserve_status st = GPUSERVE_OK;

    do {
        low = high;
        high = step > most - high ? most : high + step;
        step *= 2;
        st = keep_and_measure(m, high, error);
    } while (high < most && st == GPUSERVE_OK && !m->is_near_enough);
    *found = high;
    if (!m->is_near_enough)
        return st;
    while (high - low > 1 && st == GPUSERVE_OK) {
        const int32_t middle = low + (high - low) / 2;

        st = keep_and_measure(m, middle, error);
        if (m->is_near_enough)
            high = middle;
        else
            low = middle;
    }
    *found = high;
    return st;
}

/* What does for the worst probes must do for all. If it does not, others are the worst now. */
static gpuserve_status try_order(struct mixer *m, gpuserve_error *error)
{
    const int32_t most = max_kept(m);
    int32_t n = 0;
    gpuserve_status st = GPUSERVE_OK;

    m->is_near_enough = false;
    while (n < most && st == GPUSERVE_OK && !m->is_near_enough) {
        st = search(m, n, &n, error);
        if (st == GPUSERVE_OK)
            st = keep(m, n, error);
        if (st == GPUSERVE_OK)
            st = measure_all(m, error);
    }
    return st;
}

/* What the best of all trials reached. */
struct reached {
    float cosine, expected;
};

static gpuserve_status refuse(const struct gsv_net *net, const struct reached *best,
                              gpuserve_error *error)
{
    gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
             "int8 is too imprecise for this model: on the worst of %d probe texts the cosine to "
             "full precision is %.4f (min %.4f), and on other texts the estimated min cosine is "
             "%.4f (min %.3f), even with half of the weights in %s",
             net->int8.n_probes, (double)best->cosine, GSV_INT8_TARGET, (double)best->expected,
             GSV_INT8_BOUND,
             net->int8.kept_dtype == GPUSERVE_DTYPE_FLOAT32 ? "float32" : "float16");
    return gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "load it in float32");
}

static void note(const struct mixer *m, struct reached *best)
{
    if (m->expected > best->expected)
        *best = (struct reached){ m->net->int8.cosine, m->expected };
}

static gpuserve_status choose(struct mixer *m, gpuserve_error *error)
{
    struct reached best = { -1.0f, -2.0f };
    gpuserve_status st = measure_all(m, error);

    note(m, &best);
    for (int order = 0; order < N_ORDERS && st == GPUSERVE_OK && !m->is_near_enough; order++) {
        m->order = (enum order)order;
        st = try_order(m, error);
        if (st != GPUSERVE_OK || m->is_near_enough)
            break;
        note(m, &best);
        st = keep(m, 0, error);
        drop_other(m);
    }
    return st == GPUSERVE_OK && !m->is_near_enough ? refuse(m->net, &best, error) : st;
}

gpuserve_status gsv_net_mix(struct gsv_net *net, struct gsv_reader *reader,
                            const struct gpuserve_host_batch *probes, int32_t n_threads,
                            gpuserve_error *error)
{
    struct mixer m = {
        .net = net, .reader = reader, .host = probes, .all = probes, .n_threads = n_threads
    };
    gpuserve_status st = mixer_init(&m, error);

    if (st == GPUSERVE_OK)
        st = make_exact_vectors(&m, error);
    if (st == GPUSERVE_OK)
        st = choose(&m, error);
    net->int8.is_measured = st == GPUSERVE_OK;
    end_exact(&m);
    drop_other(&m);
    free(m.want);
    free(m.got);
    free(m.cosines);
    free(m.sorted);
    free(m.worst.memory);
    free(m.other);
    return st;
}
