/*
 * mixed_precision.c - selects the products of an INT8 net that compute in higher precision.
 *
 * Probe texts run in full precision, layer by layer, and through the INT8 net. While the cosine of
 * any probe is too low, more products are kept in higher precision (exponential, then binary
 * search). Errors of early layers grow in later ones, and the input of the second feed-forward
 * product has the largest outliers. So products are kept in a fixed order, and the search finds how
 * many. If that fails, other orders are tried. Kept products have weights of 16 bits, half the
 * memory of float32: int16 on processors that multiply it faster than bfloat16, then bfloat16, then
 * float16. If that does not suffice, attention that rounds to 16 bits computes in float32; then
 * kept products are float32, too.
 *
 * A few texts say little about others: with peaked attention one in a hundred loses ten times as
 * much as most. The worst probes are measured first; the others only if these pass.
 *
 * Vectors are bitwise independent of batch and threads, and so is the selection.
 */
#include "lib/model/encoder/rows.h"
#include "lib/model/weights/weights.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/formats/checkpoint.h"
#include "lib/model/int8/int8.h"
#include "lib/model/int8/keep_order.h"
#include "lib/model/int8/staged_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct mixer {
    struct gsv_net *net;
    struct gsv_reader *reader;
    const struct gpuserve_host_batch *host; /* the batch to run: all probes, or the worst */
    const struct gpuserve_host_batch *all;
    struct gsv_worst_probes worst;
    int32_t n_threads;
    uint32_t exact_dtype; /* of full precision, the reference */
    uint32_t kept_dtype;  /* of the kept products in this trial */
    struct gsv_staged_run exact;
    char *exact_weights; /* device memory for the largest product */
    int32_t columns;     /* columns of a vector */
    size_t row_bytes;    /* bytes of a row of the hidden states */
    float *want, *got;   /* host memory: vectors in full precision, and of the last run */
    float *cosines;      /* [all] of the last measurement of all probes */
    float *repeated;     /* [all] the cosines of the probes that repeat one word */
    double variance;     /* of the losses without kept products */
    float expected;      /* estimated lowest cosine of other texts */
    bool is_near_enough; /* result of the last measurement, of all probes or the worst */
    enum gsv_product_order order;
    /* [n_products] by index in the order. For the first n_made products: the linear, INT8 or higher
     * precision, that the net does not use now. */
    struct gpuserve_linear **other;
    int32_t n_made;
    uint64_t used; /* bytes used of the memory for kept products */
};

/* Up to one part in COARSE more products are kept than necessary, which saves runs of all probes.
 */
#define COARSE 8

static size_t n_texts(const struct mixer *m)
{
    return (size_t)m->host->n_sequences;
}

/* --------------------------------------------------------------------------- setup and teardown */

static gpuserve_status alloc_host(struct mixer *m, gpuserve_error *error)
{
    const size_t vectors = n_texts(m) * (size_t)m->columns;
    const size_t products = (size_t)m->net->int8.n_products;

    m->want = gsv_alloc_array(vectors, sizeof(float));
    m->got = gsv_alloc_array(vectors, sizeof(float));
    m->cosines = gsv_alloc_array(n_texts(m), sizeof(float));
    m->repeated = gsv_alloc_array(n_texts(m), sizeof(float));
    m->worst.memory =
        gsv_alloc_array(3 * (size_t)m->host->n_tokens + GSV_MAX_WORST_PROBES + 1, sizeof(int32_t));
    m->other = gsv_alloc_array(products, sizeof(struct gpuserve_linear *));
    if (!m->want || !m->got || !m->cosines || !m->repeated || !m->worst.memory || !m->other)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the int8 measurement");
    return GPUSERVE_OK;
}

static size_t product_bytes(const struct gsv_net *net, int32_t product, uint32_t dtype)
{
    return gsv_weight_bytes(net->spec, net->backend,
                            &net->spec->items[gsv_product_item(net->spec, product)], dtype);
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
    net->int8.n_layer_products = gsv_stage_count(net->spec);
    net->int8.n_products = net->int8.n_layer_products * net->spec->config.n_stored_layers;
    net->int8.n_probes = m->host->n_sequences;
    net->int8.kept_dtype = m->exact_dtype;
    for (int32_t i = 0; i < net->int8.n_products; i++)
        if (product_bytes(net, i, m->exact_dtype) > largest)
            largest = product_bytes(net, i, m->exact_dtype);
    st = alloc_host(m, error);
    if (st == GPUSERVE_OK)
        st = net->backend->memory_alloc(net->device, &memory, largest, error);
    if (st != GPUSERVE_OK)
        return st;
    m->exact_weights = memory;
    return gsv_staged_open(&m->exact, net, m->host, m->exact_dtype, m->n_threads, error);
}

/* Free what only the full-precision run needs. */
static void end_exact(struct mixer *m)
{
    gsv_staged_close(&m->exact);
    if (m->exact_weights)
        m->net->backend->memory_free(m->net->device, m->exact_weights);
    m->exact_weights = NULL;
}

/* ------------------------------------------------------------------------------- full precision */

static gpuserve_status make_linear(struct mixer *m, int32_t index, uint32_t dtype, char *memory,
                                   struct gpuserve_linear **linear, gpuserve_error *error)
{
    const struct gsv_weight *item = &m->net->spec->items[index];
    struct gpuserve_linear_source source;
    const gpuserve_status st = gsv_read_linear(m->reader, item, &source, error);

    if (st != GPUSERVE_OK)
        return st;
    source.dtype = dtype;
    return m->net->backend->linear_create(m->net->device, linear, memory, &source, error);
}

/* Run a product in full precision, with a linear created for this call. */
static gpuserve_status run_exact(struct mixer *m, int32_t step, gpuserve_error *error)
{
    const int32_t stages = gsv_stage_count(m->net->spec);
    const int32_t index = gsv_stage_item(m->net->spec, step / stages, step % stages);
    struct gpuserve_linear **link = &m->net->linears[index];
    struct gpuserve_linear *rounded = *link;
    gpuserve_status st;

    *link = NULL;
    st = make_linear(m, index, m->exact_dtype, m->exact_weights, link, error);
    if (st == GPUSERVE_OK)
        st = gsv_staged_step(&m->exact, step, error);
    m->net->backend->linear_destroy(link);
    *link = rounded;
    return st;
}

/* -------------------------------------------------------------------------------------- vectors */

/* Run the net; the hidden state of each text's probe token. */
static gpuserve_status run_tokens(struct mixer *m, struct gsv_exec *work, float *vectors,
                                  gpuserve_error *error)
{
    const size_t columns = (size_t)m->columns;
    const struct gsv_run run = {
        .task = GPUSERVE_TASK_TOKEN_VECTORS,
        .raw = true,
        .output = gsv_alloc_mapped((size_t)m->host->n_tokens * columns * sizeof(float)),
    };
    gpuserve_status st;

    if (!run.output)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the int8 measurement");
    st = gsv_net_run(work, m->host, &run, error);
    for (size_t t = 0; t < n_texts(m) && st == GPUSERVE_OK; t++)
        memcpy(vectors + t * columns,
               run.output + gsv_probe_token(m->net->spec, m->host, t) * columns,
               columns * sizeof(float));
    gsv_free_mapped(run.output);
    return st;
}

/* The vectors of the net in its current state, or from given full-precision hidden states. */
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
        return run_tokens(m, work, vectors, error);
    for (size_t t = 0; t < n_texts(m); t++) {
        const char *from = hidden + gsv_probe_token(m->net->spec, m->host, t) * m->row_bytes;
        float *to = vectors + t * (size_t)m->columns;

        if (m->row_bytes == (size_t)m->columns * sizeof(float))
            memcpy(to, from, m->row_bytes);
        else
            gsv_floats_from_f16(to, from, (size_t)m->columns);
    }
    return GPUSERVE_OK;
}

/* Compute vectors in a new gsv_exec each time: a stream may have recorded the previous linears. */
static gpuserve_status make_vectors(struct mixer *m, const char *hidden, float *vectors,
                                    gpuserve_error *error)
{
    const struct gsv_exec_options options =
        gsv_staged_options(m->host, GPUSERVE_DTYPE_INT8, m->n_threads);
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
    const int32_t stages = gsv_stage_count(m->net->spec);
    char *hidden = gsv_alloc_mapped(bytes); /* not of a heap, which would keep its pages */
    gpuserve_status st =
        hidden ? gsv_staged_step(&m->exact, -1, error)
               : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the int8 measurement");

    for (int32_t i = 0; i < m->net->spec->config.n_layers * stages && st == GPUSERVE_OK; i++)
        st = run_exact(m, i, error);
    if (st == GPUSERVE_OK)
        st = m->net->backend->memory_read(
            m->net->device, hidden, gsv_token_input(m->net->spec, &m->exact.at), bytes, error);
    end_exact(m);
    if (st == GPUSERVE_OK)
        st = make_vectors(m, hidden, m->want, error);
    gsv_free_mapped(hidden);
    return st;
}

/* ------------------------------------------------------------------------------------ measuring */

/* Measure all probes. */
static gpuserve_status measure_all(struct mixer *m, gpuserve_error *error)
{
    const size_t columns = (size_t)m->columns;
    float min = 1.0f;
    const gpuserve_status st = make_vectors(m, NULL, m->got, error);

    if (st != GPUSERVE_OK)
        return st;
    for (size_t t = 0; t < n_texts(m); t++) {
        m->cosines[t] = gsv_probe_cosine(m->want + t * columns, m->got + t * columns, columns);
        min = fminf(min, m->cosines[t]);
    }
    m->net->int8.cosine = min;
    if (m->net->int8.n_kept == 0)
        m->variance = gsv_model_variance(m->cosines, n_texts(m));
    m->expected = fminf(gsv_expected_min(m->cosines, n_texts(m), m->variance),
                        gsv_expected_repeated_min(m->all, m->cosines, m->repeated));
    m->is_near_enough = min >= (float)GSV_INT8_TARGET && m->expected >= (float)GSV_INT8_BOUND;
    gsv_choose_worst(&m->worst, m->all, m->cosines);
    return GPUSERVE_OK;
}

/* Measure only the worst probes: if they fail, all probes fail. */
static gpuserve_status measure_worst(struct mixer *m, gpuserve_error *error)
{
    const size_t columns = (size_t)m->columns;
    float min = 1.0f;
    gpuserve_status st;

    m->host = &m->worst.batch;
    st = make_vectors(m, NULL, m->got, error);
    for (size_t i = 0; i < n_texts(m) && st == GPUSERVE_OK; i++)
        min = fminf(min, gsv_probe_cosine(m->want + (size_t)m->worst.texts[i] * columns,
                                          m->got + i * columns, columns));
    m->is_near_enough = min >= (float)GSV_INT8_TARGET;
    m->host = m->all;
    return st;
}

/* ------------------------------------------------------------------------------------ selection */

/* The number of products, in this order, that fit into the reserved memory. */
static int32_t max_kept(const struct mixer *m)
{
    uint64_t free_bytes = gsv_kept_bytes(m->net->spec, m->net->backend);
    int32_t n = 0;

    while (n < m->net->int8.n_products &&
           product_bytes(m->net, gsv_kept_product(m->net->spec, m->order, n), m->kept_dtype) <=
               free_bytes)
        free_bytes -=
            product_bytes(m->net, gsv_kept_product(m->net->spec, m->order, n++), m->kept_dtype);
    return n;
}

/* Swap the INT8 and the higher-precision linear of the product at index `at`. */
static void exchange(struct mixer *m, int32_t at)
{
    struct gsv_int8_facts *facts = &m->net->int8;
    const int32_t product = gsv_kept_product(m->net->spec, m->order, at);
    struct gpuserve_linear **link = &m->net->linears[gsv_product_item(m->net->spec, product)];
    struct gpuserve_linear *was = *link;

    *link = m->other[at];
    m->other[at] = was;
    facts->kept[product / 64] ^= UINT64_C(1) << product % 64;
    facts->n_kept += gsv_int8_keeps(facts, product) ? 1 : -1;
}

/* Keep exactly the first `n` products of the order in higher precision. */
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
            st = make_linear(
                m, gsv_product_item(net->spec, gsv_kept_product(m->net->spec, m->order, at)),
                m->kept_dtype, net->memory + begin + m->used, &m->other[at], error);
            if (st != GPUSERVE_OK)
                return st;
            m->used +=
                product_bytes(m->net, gsv_kept_product(m->net->spec, m->order, at), m->kept_dtype);
            m->n_made++;
        }
        exchange(m, at);
    }
    return st;
}

/* Destroy the linears that the net does not use, INT8 or higher precision. */
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

/* Find nearly the smallest number of kept products above `low` that passes for the worst probes:
 * exponential search with steps 1, 2, 4, ..., then binary search. The maximum if none passes. */
static gpuserve_status search(struct mixer *m, int32_t low, int32_t *found, gpuserve_error *error)
{
    const int32_t max = max_kept(m);
    int32_t high = low, step = 1;
    gpuserve_status st = GPUSERVE_OK;

    do {
        low = high;
        high = step > max - high ? max : high + step;
        step *= 2;
        st = keep_and_measure(m, high, error);
    } while (high < max && st == GPUSERVE_OK && !m->is_near_enough);
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

static gpuserve_status keep_and_measure_all(struct mixer *m, int32_t n, gpuserve_error *error)
{
    const gpuserve_status st = keep(m, n, error);

    return st == GPUSERVE_OK ? measure_all(m, error) : st;
}

/* Binary search between `low`, which fails, and `high`, which passes for all probes. It ends
 * within an eighth of the smallest number: each step runs all probes. The result is kept. */
static gpuserve_status reduce(struct mixer *m, int32_t low, int32_t high, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    while (high - low > 1 + high / COARSE && st == GPUSERVE_OK) {
        const int32_t middle = low + (high - low) / 2;
        st = keep_and_measure_all(m, middle, error);
        if (m->is_near_enough)
            high = middle;
        else
            low = middle;
    }
    if (st == GPUSERVE_OK && m->net->int8.n_kept != high)
        st = keep_and_measure_all(m, high, error);
    return st;
}

/* Search with the worst probes, then verify with all. If that fails, the search continues with the
 * probes that are worst now, in steps of 1, 2, 4, ... at least. */
static gpuserve_status try_order(struct mixer *m, gpuserve_error *error)
{
    const int32_t max = max_kept(m);
    int32_t low = 0, high = 0, step = 1;
    gpuserve_status st = GPUSERVE_OK;

    m->is_near_enough = false;
    while (high < max && st == GPUSERVE_OK && !m->is_near_enough) {
        int32_t found = high;

        low = high;
        st = search(m, low, &found, error);
        high = found - low < step ? (low + step < max ? low + step : max) : found;
        low = high == found ? found - 1 : low; /* fails for the worst probes, or for all */
        step *= 2;
        if (st == GPUSERVE_OK)
            st = keep_and_measure_all(m, high, error);
    }
    return st == GPUSERVE_OK && m->is_near_enough ? reduce(m, low, high, error) : st;
}

/* The best result of all trials. */
struct reached {
    float cosine, expected;
};

static gpuserve_status refuse(const struct mixer *m, const struct reached *best,
                              gpuserve_error *error)
{
    const struct gsv_net *net = m->net;

    gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
             "int8 is too imprecise for this model: on the worst of %d probe texts the cosine to "
             "full precision is %.4f (min %.4f), and on other texts the estimated min cosine is "
             "%.4f (min %.3f), even with half of the weights in %s",
             net->int8.n_probes, (double)best->cosine, GSV_INT8_TARGET, (double)best->expected,
             GSV_INT8_BOUND, m->exact_dtype == GPUSERVE_DTYPE_FLOAT32 ? "float32" : "float16");
    return gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "load it in float32");
}

static void note(const struct mixer *m, struct reached *best)
{
    if (m->expected > best->expected)
        *best = (struct reached){ m->net->int8.cosine, m->expected };
}

/* Try all orders with kept products in `dtype`. */
static gpuserve_status try_dtype(struct mixer *m, uint32_t dtype, struct reached *best,
                                 gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    m->kept_dtype = m->net->int8.kept_dtype = dtype;
    for (int order = 0; order < GSV_N_ORDERS && st == GPUSERVE_OK && !m->is_near_enough; order++) {
        m->order = (enum gsv_product_order)order;
        st = try_order(m, error);
        if (st != GPUSERVE_OK || m->is_near_enough)
            break;
        note(m, best);
        st = keep(m, 0, error);
        drop_other(m);
    }
    return st;
}

/* True if activations in this dtype are those between the products. */
static bool fits_between(const struct mixer *m, uint32_t dtype)
{
    return m->exact_dtype == GPUSERVE_DTYPE_FLOAT32 &&
           m->net->backend->activation_size(dtype) == sizeof(float);
}

/* As try_dtype(), if the device has products in the dtype and it holds the weights: linear_create
 * refuses them otherwise. */
static gpuserve_status try_if_present(struct mixer *m, uint32_t dtype, struct reached *best,
                                      gpuserve_error *error)
{
    gpuserve_status st;

    if (m->is_near_enough || !fits_between(m, dtype))
        return GPUSERVE_OK;
    st = try_dtype(m, dtype, best, error);
    if (st != GPUSERVE_E_UNSUPPORTED)
        return st;
    st = keep(m, 0, error);
    drop_other(m);
    return st;
}

/* Attention in float32, and kept products in float16 again. `rounded` is the result without kept
 * products before: the same result shows that attention rounds nothing on this device. */
static gpuserve_status try_exact_attention(struct mixer *m, const struct reached *rounded,
                                           struct reached *best, gpuserve_error *error)
{
    struct gsv_int8_facts *facts = &m->net->int8;
    gpuserve_status st;

    if (m->is_near_enough || !fits_between(m, GPUSERVE_DTYPE_FLOAT16))
        return GPUSERVE_OK;
    facts->exact_attention = true;
    st = measure_all(m, error);
    if (st != GPUSERVE_OK || m->is_near_enough)
        return st;
    note(m, best);
    facts->exact_attention = facts->cosine != rounded->cosine || m->expected != rounded->expected;
    return facts->exact_attention ? try_if_present(m, GPUSERVE_DTYPE_FLOAT16, best, error) : st;
}

/* From the fastest to the most exact. Products in bfloat16 round their inputs where the processor
 * has instructions for them; those in float16 round the weights alone. */
static gpuserve_status choose(struct mixer *m, gpuserve_error *error)
{
    struct reached best = { -1.0f, -2.0f }, rounded;
    gpuserve_status st = measure_all(m, error);

    note(m, &best);
    rounded = best;
    if (st == GPUSERVE_OK)
        st = try_if_present(m, GPUSERVE_DTYPE_INT16, &best, error);
    if (st == GPUSERVE_OK)
        st = try_if_present(m, GPUSERVE_DTYPE_BFLOAT16, &best, error);
    if (st == GPUSERVE_OK)
        st = try_if_present(m, GPUSERVE_DTYPE_FLOAT16, &best, error);
    if (st == GPUSERVE_OK)
        st = try_exact_attention(m, &rounded, &best, error);
    if (st == GPUSERVE_OK && !m->is_near_enough)
        st = try_dtype(m, m->exact_dtype, &best, error);
    return st == GPUSERVE_OK && !m->is_near_enough ? refuse(m, &best, error) : st;
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
    free(m.repeated);
    free(m.worst.memory);
    free(m.other);
    return st;
}
