/*
 * onednn.c - oneDNN's matmul through its C API, version 2 (descriptors are structs) or 3 (handles).
 */
#include "benchmarks/kernels/onednn.h"

#if defined(HAVE_ONEDNN)
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COPIES 8

#if DNNL_VERSION_MAJOR >= 3
#define DESC(d) (d)
typedef const_dnnl_memory_desc_t desc_ref;
#else
#define DESC(d) (&(d))
typedef const dnnl_memory_desc_t *desc_ref;
#endif

static dnnl_engine_t engine;
static dnnl_stream_t stream;

struct onednn_product {
    dnnl_primitive_t primitive;
    dnnl_memory_t in, bias, out, weight[MAX_COPIES];
};

static int make_desc(dnnl_memory_desc_t *desc, int32_t rows, int32_t cols, dnnl_data_type_t type,
                     dnnl_format_tag_t tag)
{
    const dnnl_dims_t dims = { rows, cols };

#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_tag(desc, 2, dims, type, tag) == dnnl_success;
#else
    return dnnl_memory_desc_init_by_tag(desc, 2, dims, type, tag) == dnnl_success;
#endif
}

struct descs {
    dnnl_memory_desc_t in, weight, plain_weight, bias, out;
};

static int make_descs(struct descs *d, int bytes, int32_t rows, int32_t n, int32_t k)
{
    return make_desc(&d->in, rows, k, bytes ? dnnl_u8 : dnnl_f32, dnnl_ab) &&
           make_desc(&d->weight, k, n, bytes ? dnnl_s8 : dnnl_f32, dnnl_format_tag_any) &&
           make_desc(&d->plain_weight, k, n, bytes ? dnnl_s8 : dnnl_f32, dnnl_ba) &&
           make_desc(&d->bias, 1, n, dnnl_f32, dnnl_ab) &&
           make_desc(&d->out, rows, n, bytes ? dnnl_s32 : dnnl_f32, dnnl_ab);
}

static dnnl_primitive_attr_t make_attributes(int gelu)
{
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops;

    if (dnnl_primitive_attr_create(&attr) != dnnl_success)
        return NULL;
    if (!gelu || dnnl_post_ops_create(&ops) != dnnl_success)
        return attr;
#if DNNL_VERSION_MAJOR >= 3
    dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_gelu_erf, 0.0f, 0.0f);
#else
    dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_gelu_erf, 0.0f, 0.0f);
#endif
    dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
    return attr;
}

static int make_primitive_desc(dnnl_primitive_desc_t *pd, const struct descs *d, int bytes,
                               int gelu)
{
    dnnl_primitive_attr_t attr = make_attributes(gelu && !bytes);
    dnnl_status_t st;
#if DNNL_VERSION_MAJOR >= 3
    st = dnnl_matmul_primitive_desc_create(pd, engine, d->in, d->weight, bytes ? NULL : d->bias,
                                           d->out, attr);
#else
    dnnl_matmul_desc_t matmul;

    st = dnnl_matmul_desc_init(&matmul, &d->in, &d->weight, bytes ? NULL : &d->bias, &d->out);
    if (st == dnnl_success)
        st = dnnl_primitive_desc_create(pd, &matmul, attr, engine, NULL);
#endif
    dnnl_primitive_attr_destroy(attr);
    return st == dnnl_success;
}

/* Zeroed memory owned by oneDNN. */
static dnnl_memory_t make_memory(desc_ref desc)
{
    dnnl_memory_t memory = NULL;
    void *data = NULL;

    if (dnnl_memory_create(&memory, desc, engine, DNNL_MEMORY_ALLOCATE) != dnnl_success)
        return NULL;
    dnnl_memory_get_data_handle(memory, &data);
    if (data)
        memset(data, 0, dnnl_memory_desc_get_size(desc));
    return memory;
}

static void pack_weight(dnnl_memory_t to, desc_ref to_desc, const struct descs *d, int bytes,
                        const float *weight, size_t count)
{
    dnnl_memory_t from = make_memory(DESC(d->plain_weight));
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t reorder;
    void *data;

    dnnl_memory_get_data_handle(from, &data);
    for (size_t i = 0; i < count; i++) {
        if (bytes)
            ((int8_t *)data)[i] = (int8_t)(weight[i] * 127.0f);
        else
            ((float *)data)[i] = weight[i];
    }
    if (dnnl_reorder_primitive_desc_create(&pd, DESC(d->plain_weight), engine, to_desc, engine,
                                           NULL) == dnnl_success &&
        dnnl_primitive_create(&reorder, pd) == dnnl_success) {
        const dnnl_exec_arg_t args[] = { { DNNL_ARG_FROM, from }, { DNNL_ARG_TO, to } };

        dnnl_primitive_execute(reorder, stream, 2, args);
        dnnl_stream_wait(stream);
        dnnl_primitive_destroy(reorder);
        dnnl_primitive_desc_destroy(pd);
    }
    dnnl_memory_destroy(from);
}

struct onednn_product *onednn_open(int bytes, int32_t rows, int32_t n, int32_t k, int gelu,
                                   const float *weight, int copies)
{
    struct onednn_product *p = calloc(1, sizeof(*p));
    dnnl_primitive_desc_t pd;
    struct descs d;
    desc_ref packed;

    if (!engine && (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success ||
                    dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success))
        engine = NULL;
    if (!p || !engine || copies > MAX_COPIES || !make_descs(&d, bytes, rows, n, k) ||
        !make_primitive_desc(&pd, &d, bytes, gelu)) {
        free(p);
        return NULL;
    }
    packed = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    for (int i = 0; i < copies; i++) {
        p->weight[i] = make_memory(packed);
        pack_weight(p->weight[i], packed, &d, bytes, weight, (size_t)n * (size_t)k);
    }
    p->in = make_memory(DESC(d.in));
    p->bias = bytes ? NULL : make_memory(DESC(d.bias));
    p->out = make_memory(DESC(d.out));
    dnnl_primitive_create(&p->primitive, pd);
    dnnl_primitive_desc_destroy(pd);
    return p;
}

void onednn_run(struct onednn_product *p, int copy)
{
    const dnnl_exec_arg_t args[] = { { DNNL_ARG_SRC, p->in },
                                     { DNNL_ARG_WEIGHTS, p->weight[copy] },
                                     { DNNL_ARG_DST, p->out },
                                     { DNNL_ARG_BIAS, p->bias } };

    dnnl_primitive_execute(p->primitive, stream, p->bias ? 4 : 3, args);
    dnnl_stream_wait(stream);
}

void onednn_close(struct onednn_product *p)
{
    if (!p)
        return;
    for (int i = 0; i < MAX_COPIES && p->weight[i]; i++)
        dnnl_memory_destroy(p->weight[i]);
    dnnl_memory_destroy(p->in);
    dnnl_memory_destroy(p->out);
    if (p->bias)
        dnnl_memory_destroy(p->bias);
    dnnl_primitive_destroy(p->primitive);
    free(p);
}

void onednn_set_threads(int n)
{
    omp_set_num_threads(n);
}

#else

struct onednn_product *onednn_open(int bytes, int32_t rows, int32_t n, int32_t k, int gelu,
                                   const float *weight, int copies)
{
    (void)bytes, (void)rows, (void)n, (void)k, (void)gelu, (void)weight, (void)copies;
    return 0;
}

void onednn_run(struct onednn_product *product, int copy)
{
    (void)product, (void)copy;
}

void onednn_close(struct onednn_product *product)
{
    (void)product;
}

void onednn_set_threads(int n)
{
    (void)n;
}

#endif
