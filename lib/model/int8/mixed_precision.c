/*
 * mixed_precision.c - selects the products of an INT8 net that compute in higher precision.
 *
 * While the cosine of any probe is too low, more products are kept in higher precision
 * (exponential, then binary search). Errors of early layers grow in later ones, and the input of
 * the second feed-forward product has the largest outliers. So products are kept in a fixed order,
 * and the search finds how many. If that fails, other orders are tried. Then those of the set that
 * are not needed return to INT8, by halves of it.
 *
 * Kept products have weights of 16 bits, half the memory of float32: int16 on processors that
 * multiply it faster than bfloat16, then bfloat16, then float16. If that does not suffice,
 * attention that rounds to 16 bits computes in float32; then kept products are float32, too.
 *
 * The selection depends on the losses alone (probe_loss.c), which batch and threads do not change.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/int8/keep_order.h"
#include "lib/model/int8/probe_loss.h"
#include "lib/model/weights/weights.h"

#include <stdlib.h>

struct mixer {
    struct gsv_net *net;
    struct gsv_probe_loss loss;
    uint32_t kept_dtype; /* of the kept products in this trial */
    enum gsv_product_order order;
    /* [n_products] by index in the order. For the first n_made products: the linear, INT8 or higher
     * precision, that the net does not use now. */
    struct gpuserve_linear **other;
    int32_t n_made;
    uint64_t used; /* bytes used of the memory for kept products */
};

/* The result of a measurement of all probes. */
struct reached {
    float cosine, expected;
};

/* Up to one part in COARSE more products are kept than necessary, which saves runs of all probes.
 */
#define COARSE 8
#define PARTS 8 /* of the kept products, which return to INT8 together */
#define NONE_PASSES (-1)

/* The number of products, in this order, that fit into the reserved memory. */
static int32_t max_kept(const struct mixer *m)
{
    uint64_t free_bytes = gsv_kept_bytes(m->net->spec, m->net->backend);
    int32_t n = 0;

    while (n < m->net->int8.n_products &&
           gsv_kept_product_bytes(m->net, gsv_kept_product(m->net->spec, m->order, n),
                                  m->kept_dtype) <= free_bytes)
        free_bytes -= gsv_kept_product_bytes(m->net, gsv_kept_product(m->net->spec, m->order, n++),
                                             m->kept_dtype);
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
            st = gsv_make_linear(
                &m->loss, gsv_product_item(net->spec, gsv_kept_product(m->net->spec, m->order, at)),
                m->kept_dtype, net->memory + begin + m->used, &m->other[at], error);
            if (st != GPUSERVE_OK)
                return st;
            m->used += gsv_kept_product_bytes(m->net, gsv_kept_product(m->net->spec, m->order, at),
                                              m->kept_dtype);
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

    return st == GPUSERVE_OK ? gsv_measure_worst(&m->loss, error) : st;
}

/* Find nearly the smallest number of kept products above `low` that passes for the worst probes:
 * exponential search with steps 1, 2, 4, ..., then binary search. NONE_PASSES even with the
 * maximum: all probes fail then, too. */
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
    } while (high < max && st == GPUSERVE_OK && !m->loss.is_near_enough);
    *found = m->loss.is_near_enough ? high : NONE_PASSES;
    if (*found == NONE_PASSES)
        return st;
    while (high - low > 1 && st == GPUSERVE_OK) {
        const int32_t middle = low + (high - low) / 2;

        st = keep_and_measure(m, middle, error);
        if (m->loss.is_near_enough)
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

    return st == GPUSERVE_OK ? gsv_measure_all(&m->loss, error) : st;
}

static struct reached reached_by(const struct mixer *m)
{
    return (struct reached){ m->net->int8.cosine, m->loss.expected };
}

/* The result of an earlier measurement, which passed, of the products that are kept now. */
static void set_passed(struct mixer *m, struct reached reached)
{
    m->net->int8.cosine = reached.cosine;
    m->loss.expected = reached.expected;
    m->loss.is_near_enough = true;
}

/* Binary search between `low`, which fails, and `high`, which passes for all probes and was just
 * measured. It ends within an eighth of the smallest number: each step runs all probes. The result
 * is kept. */
static gpuserve_status reduce(struct mixer *m, int32_t low, int32_t high, gpuserve_error *error)
{
    struct reached passed = reached_by(m);
    gpuserve_status st = GPUSERVE_OK;

    while (high - low > 1 + high / COARSE && st == GPUSERVE_OK) {
        const int32_t middle = low + (high - low) / 2;
        st = keep_and_measure_all(m, middle, error);
        if (m->loss.is_near_enough) {
            high = middle;
            passed = reached_by(m);
        } else {
            low = middle;
        }
    }
    if (st == GPUSERVE_OK)
        st = keep(m, high, error);
    if (st == GPUSERVE_OK)
        set_passed(m, passed);
    return st;
}

/* Search with the worst probes, then verify with all. If that fails, the search continues with the
 * probes that are worst now, in steps of 1, 2, 4, ... at least. */
static gpuserve_status try_order(struct mixer *m, gpuserve_error *error)
{
    const int32_t max = max_kept(m);
    int32_t low = 0, high = 0, step = 1;
    gpuserve_status st = GPUSERVE_OK;

    m->loss.is_near_enough = false;
    while (high < max && st == GPUSERVE_OK && !m->loss.is_near_enough) {
        int32_t found = high;

        low = high;
        st = search(m, low, &found, error);
        if (st != GPUSERVE_OK || found == NONE_PASSES)
            break;
        high = found - low < step ? (low + step < max ? low + step : max) : found;
        low = high == found ? found - 1 : low; /* fails for the worst probes, or for all */
        step *= 2;
        st = keep_and_measure_all(m, high, error);
    }
    return st == GPUSERVE_OK && m->loss.is_near_enough ? reduce(m, low, high, error) : st;
}

static gpuserve_status refuse(const struct mixer *m, const struct reached *best,
                              gpuserve_error *error)
{
    const struct gsv_net *net = m->net;

    gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
             "int8 is too imprecise for this model: on the worst of %d probe texts the cosine to "
             "full precision is %.4f (min %.4f), and on other texts the estimated min cosine is "
             "%.4f (min %.3f), even with half of the weights in %s",
             net->int8.n_probes, (double)best->cosine, GSV_INT8_TARGET, (double)best->expected,
             GSV_INT8_BOUND, m->loss.exact_dtype == GPUSERVE_DTYPE_FLOAT32 ? "float32" : "float16");
    return gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "load it in float32");
}

static void note(const struct mixer *m, struct reached *best)
{
    if (m->loss.expected > best->expected)
        *best = (struct reached){ m->net->int8.cosine, m->loss.expected };
}

/* Try all orders with kept products in `dtype`. */
static gpuserve_status try_dtype(struct mixer *m, uint32_t dtype, struct reached *best,
                                 gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    m->kept_dtype = m->net->int8.kept_dtype = dtype;
    for (int order = 0; order < GSV_N_ORDERS && st == GPUSERVE_OK && !m->loss.is_near_enough;
         order++) {
        m->order = (enum gsv_product_order)order;
        st = try_order(m, error);
        if (st != GPUSERVE_OK || m->loss.is_near_enough)
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
    return m->loss.exact_dtype == GPUSERVE_DTYPE_FLOAT32 &&
           m->net->backend->activation_size(dtype) == sizeof(float);
}

/* As try_dtype(), if the device has products in the dtype and it holds the weights: linear_create
 * refuses them otherwise. */
static gpuserve_status try_if_present(struct mixer *m, uint32_t dtype, struct reached *best,
                                      gpuserve_error *error)
{
    gpuserve_status st;

    if (m->loss.is_near_enough || !fits_between(m, dtype))
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

    if (m->loss.is_near_enough || !fits_between(m, GPUSERVE_DTYPE_FLOAT16))
        return GPUSERVE_OK;
    facts->exact_attention = true;
    st = gsv_measure_all(&m->loss, error);
    if (st != GPUSERVE_OK || m->loss.is_near_enough)
        return st;
    note(m, best);
    facts->exact_attention =
        facts->cosine != rounded->cosine || m->loss.expected != rounded->expected;
    return facts->exact_attention ? try_if_present(m, GPUSERVE_DTYPE_FLOAT16, best, error) : st;
}

/* Exchanges the products at [begin, end) of the order that are kept, or are not. */
static void exchange_all(struct mixer *m, int32_t begin, int32_t end, bool kept)
{
    for (int32_t at = begin; at < end; at++)
        if (gsv_int8_keeps(&m->net->int8, gsv_kept_product(m->net->spec, m->order, at)) == kept)
            exchange(m, at);
}

/* Keeps [begin, end) again. */
static void restore(struct mixer *m, int32_t begin, int32_t end, struct reached before)
{
    exchange_all(m, begin, end, false);
    set_passed(m, before);
}

/* The kept products at [begin, end) of the order that are not needed return to INT8: all, or by
 * halves of `smallest` products or more; the last ones, which the order finds less important,
 * first.
 */
static gpuserve_status thin(struct mixer *m, int32_t begin, int32_t end, int32_t smallest,
                            gpuserve_error *error)
{
    const struct reached before = reached_by(m);
    const int32_t middle = begin + (end - begin) / 2;
    gpuserve_status st;

    exchange_all(m, begin, end, true);
    st = gsv_measure_worst(&m->loss, error);
    if (st == GPUSERVE_OK && m->loss.is_near_enough)
        st = gsv_measure_all(&m->loss, error);
    if (st != GPUSERVE_OK || m->loss.is_near_enough)
        return st;
    restore(m, begin, end, before);
    if (m->loss.has_turned || end - begin <= smallest)
        return GPUSERVE_OK;
    st = thin(m, middle, end, smallest, error);
    return st == GPUSERVE_OK && !m->loss.has_turned ? thin(m, begin, middle, smallest, error) : st;
}

/* thin() of both halves of the kept products, down to a part in PARTS. A net whose attention turns
 * for some sets keeps what the search found. */
static gpuserve_status thin_all(struct mixer *m, gpuserve_error *error)
{
    const struct reached before = reached_by(m);
    const int32_t n = m->net->int8.n_kept, middle = n / 2, smallest = (n + PARTS - 1) / PARTS;
    gpuserve_status st = GPUSERVE_OK;

    if (!m->loss.has_turned)
        st = thin(m, middle, n, smallest, error);
    if (st == GPUSERVE_OK && !m->loss.has_turned && middle > 0)
        st = thin(m, 0, middle, smallest, error);
    if (m->loss.has_turned)
        restore(m, 0, n, before);
    return st;
}

/* From the fastest to the most exact. Products in bfloat16 round their inputs where the processor
 * has instructions for them; those in float16 round the weights alone. */
static gpuserve_status choose(struct mixer *m, gpuserve_error *error)
{
    struct reached best = { -1.0f, -2.0f }, rounded;
    gpuserve_status st = gsv_measure_all(&m->loss, error);

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
    if (st == GPUSERVE_OK && !m->loss.is_near_enough)
        st = try_dtype(m, m->loss.exact_dtype, &best, error);
    if (st == GPUSERVE_OK && !m->loss.is_near_enough) {
        st = keep_and_measure_all(m, max_kept(m), error); /* for the message */
        note(m, &best);
        return st == GPUSERVE_OK ? refuse(m, &best, error) : st;
    }
    return st == GPUSERVE_OK && m->net->int8.n_kept > 1 ? thin_all(m, error) : st;
}

gpuserve_status gsv_net_mix(struct gsv_net *net, struct gsv_reader *reader,
                            const struct gpuserve_host_batch *probes, int32_t n_threads,
                            gpuserve_error *error)
{
    struct mixer m = { .net = net };
    gpuserve_status st = gsv_probe_loss_open(&m.loss, net, reader, probes, n_threads, error);

    if (st == GPUSERVE_OK) {
        m.other = gsv_alloc_array((size_t)net->int8.n_products, sizeof(*m.other));
        st = m.other ? choose(&m, error)
                     : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the int8 measurement");
    }
    net->int8.is_measured = st == GPUSERVE_OK;
    drop_other(&m);
    free(m.other);
    gsv_probe_loss_close(&m.loss);
    return st;
}
