/*
 * probe_loss.c - the loss of an INT8 net on the probe texts.
 *
 * A few texts say little about others: with peaked attention one in a hundred loses ten times as
 * much as most. The worst probes are measured first; the others only if these pass. Vectors are
 * bitwise independent of batch and threads, and so is the loss.
 */
#include "lib/model/int8/probe_loss.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/encoder/rows.h"
#include "lib/model/formats/checkpoint.h"
#include "lib/model/int8/keep_order.h"
#include "lib/model/weights/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Attention turned where the estimate for repeated texts loses so many times what the other one
 * does.
 */
#define TURNED 2.0f

static size_t n_texts(const struct gsv_probe_loss *loss)
{
    return (size_t)loss->host->n_sequences;
}

/* --------------------------------------------------------------------------- setup and teardown */

static gpuserve_status alloc_host(struct gsv_probe_loss *loss, gpuserve_error *error)
{
    const size_t vectors = n_texts(loss) * (size_t)loss->columns;

    loss->want = gsv_alloc_array(vectors, sizeof(float));
    loss->got = gsv_alloc_array(vectors, sizeof(float));
    loss->cosines = gsv_alloc_array(n_texts(loss), sizeof(float));
    loss->repeated = gsv_alloc_array(n_texts(loss), sizeof(float));
    loss->worst.memory = gsv_alloc_array(
        3 * (size_t)loss->host->n_tokens + GSV_MAX_WORST_PROBES + 1, sizeof(int32_t));
    if (!loss->want || !loss->got || !loss->cosines || !loss->repeated || !loss->worst.memory)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the int8 measurement");
    return GPUSERVE_OK;
}

size_t gsv_kept_product_bytes(const struct gsv_net *net, int32_t product, uint32_t dtype)
{
    return gsv_weight_bytes(net->spec, net->backend,
                            &net->spec->items[gsv_product_item(net->spec, product)], dtype);
}

static gpuserve_status prepare(struct gsv_probe_loss *loss, gpuserve_error *error)
{
    struct gsv_net *net = loss->net;
    size_t largest = 0;
    void *memory;
    gpuserve_status st;

    loss->exact_dtype = gsv_between_products(net->backend, GPUSERVE_DTYPE_INT8);
    loss->columns = net->spec->facts.dim > 0 ? net->spec->facts.dim : net->spec->config.hidden_size;
    loss->row_bytes =
        (size_t)net->spec->config.hidden_size * net->backend->activation_size(net->dtype);
    net->int8.n_layer_products = gsv_stage_count(net->spec);
    net->int8.n_products = net->int8.n_layer_products * net->spec->config.n_stored_layers;
    net->int8.n_probes = loss->host->n_sequences;
    net->int8.kept_dtype = loss->exact_dtype;
    for (int32_t i = 0; i < net->int8.n_products; i++)
        if (gsv_kept_product_bytes(net, i, loss->exact_dtype) > largest)
            largest = gsv_kept_product_bytes(net, i, loss->exact_dtype);
    st = alloc_host(loss, error);
    if (st == GPUSERVE_OK)
        st = net->backend->memory_alloc(net->device, &memory, largest, error);
    if (st != GPUSERVE_OK)
        return st;
    loss->exact_weights = memory;
    return gsv_staged_open(&loss->exact, net, loss->host, loss->exact_dtype, loss->n_threads,
                           error);
}

/* Free what only the full-precision run needs. */
static void end_exact(struct gsv_probe_loss *loss)
{
    gsv_staged_close(&loss->exact);
    if (loss->exact_weights)
        loss->net->backend->memory_free(loss->net->device, loss->exact_weights);
    loss->exact_weights = NULL;
}

/* ------------------------------------------------------------------------------- full precision */

gpuserve_status gsv_make_linear(struct gsv_probe_loss *loss, int32_t index, uint32_t dtype,
                                char *memory, struct gpuserve_linear **linear,
                                gpuserve_error *error)
{
    const struct gsv_weight *item = &loss->net->spec->items[index];
    struct gpuserve_linear_source source;
    const gpuserve_status st = gsv_read_linear(loss->reader, item, &source, error);

    if (st != GPUSERVE_OK)
        return st;
    source.dtype = dtype;
    return loss->net->backend->linear_create(loss->net->device, linear, memory, &source, error);
}

/* Run a product in full precision, with a linear created for this call. */
static gpuserve_status run_exact(struct gsv_probe_loss *loss, int32_t step, gpuserve_error *error)
{
    const int32_t stages = gsv_stage_count(loss->net->spec);
    const int32_t index = gsv_stage_item(loss->net->spec, step / stages, step % stages);
    struct gpuserve_linear **link = &loss->net->linears[index];
    struct gpuserve_linear *rounded = *link;
    gpuserve_status st;

    *link = NULL;
    st = gsv_make_linear(loss, index, loss->exact_dtype, loss->exact_weights, link, error);
    if (st == GPUSERVE_OK)
        st = gsv_staged_step(&loss->exact, step, error);
    loss->net->backend->linear_destroy(link);
    *link = rounded;
    return st;
}

/* -------------------------------------------------------------------------------------- vectors */

/* Run the net; the hidden state of each text's probe token. */
static gpuserve_status run_tokens(struct gsv_probe_loss *loss, struct gsv_exec *work,
                                  float *vectors, gpuserve_error *error)
{
    const size_t columns = (size_t)loss->columns;
    const struct gsv_run run = {
        .task = GPUSERVE_TASK_TOKEN_VECTORS,
        .raw = true,
        .output = gsv_alloc_mapped((size_t)loss->host->n_tokens * columns * sizeof(float)),
    };
    gpuserve_status st;

    if (!run.output)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the int8 measurement");
    st = gsv_net_run(work, loss->host, &run, error);
    for (size_t t = 0; t < n_texts(loss) && st == GPUSERVE_OK; t++)
        memcpy(vectors + t * columns,
               run.output + gsv_probe_token(loss->net->spec, loss->host, t) * columns,
               columns * sizeof(float));
    gsv_free_mapped(run.output);
    return st;
}

/* The vectors of the net in its current state, or from given full-precision hidden states. */
static gpuserve_status run_work(struct gsv_probe_loss *loss, struct gsv_exec *work,
                                const char *hidden, float *vectors, gpuserve_error *error)
{
    const struct gsv_run run = { .task = GPUSERVE_TASK_EMBED,
                                 .dimensions = loss->columns,
                                 .output = vectors };

    if (loss->net->spec->facts.dim > 0)
        return hidden ? gsv_exec_embed(work, loss->host, hidden, &run, error)
                      : gsv_net_run(work, loss->host, &run, error);
    if (!hidden)
        return run_tokens(loss, work, vectors, error);
    for (size_t t = 0; t < n_texts(loss); t++) {
        const char *from =
            hidden + gsv_probe_token(loss->net->spec, loss->host, t) * loss->row_bytes;
        float *to = vectors + t * (size_t)loss->columns;

        if (loss->row_bytes == (size_t)loss->columns * sizeof(float))
            memcpy(to, from, loss->row_bytes);
        else
            gsv_floats_from_f16(to, from, (size_t)loss->columns);
    }
    return GPUSERVE_OK;
}

/* Compute vectors in a new gsv_exec each time: a stream may have recorded the previous linears. */
static gpuserve_status make_vectors(struct gsv_probe_loss *loss, const char *hidden, float *vectors,
                                    gpuserve_error *error)
{
    const struct gsv_exec_options options =
        gsv_staged_options(loss->host, GPUSERVE_DTYPE_INT8, loss->n_threads);
    struct gsv_exec *work;
    gpuserve_status st = gsv_exec_create(&work, loss->net, &options, error);

    if (st == GPUSERVE_OK)
        st = run_work(loss, work, hidden, vectors, error);
    gsv_exec_free(&work);
    return st;
}

static gpuserve_status make_exact_vectors(struct gsv_probe_loss *loss, gpuserve_error *error)
{
    const size_t bytes = (size_t)loss->host->n_tokens * loss->row_bytes;
    const int32_t stages = gsv_stage_count(loss->net->spec);
    char *hidden = gsv_alloc_mapped(bytes); /* not of a heap, which would keep its pages */
    gpuserve_status st =
        hidden ? gsv_staged_step(&loss->exact, -1, error)
               : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the int8 measurement");

    for (int32_t i = 0; i < loss->net->spec->config.n_layers * stages && st == GPUSERVE_OK; i++)
        st = run_exact(loss, i, error);
    if (st == GPUSERVE_OK)
        st = loss->net->backend->memory_read(loss->net->device, hidden,
                                             gsv_token_input(loss->net->spec, &loss->exact.at),
                                             bytes, error);
    end_exact(loss);
    if (st == GPUSERVE_OK)
        st = make_vectors(loss, hidden, loss->want, error);
    gsv_free_mapped(hidden);
    return st;
}

/* ------------------------------------------------------------------------------------ measuring */

/* Measure all probes. */
gpuserve_status gsv_measure_all(struct gsv_probe_loss *loss, gpuserve_error *error)
{
    const size_t columns = (size_t)loss->columns;
    float min = 1.0f, others, repeated;
    const gpuserve_status st = make_vectors(loss, NULL, loss->got, error);

    if (st != GPUSERVE_OK)
        return st;
    for (size_t t = 0; t < n_texts(loss); t++) {
        loss->cosines[t] =
            gsv_probe_cosine(loss->want + t * columns, loss->got + t * columns, columns);
        min = fminf(min, loss->cosines[t]);
    }
    loss->net->int8.cosine = min;
    if (loss->net->int8.n_kept == 0)
        loss->variance = gsv_model_variance(loss->cosines, n_texts(loss));
    others = gsv_expected_min(loss->cosines, n_texts(loss), loss->variance);
    repeated = gsv_expected_repeated_min(loss->all, loss->cosines, loss->repeated);
    loss->has_turned = loss->has_turned || 1.0f - repeated > TURNED * (1.0f - others);
    loss->expected = fminf(others, repeated);
    loss->is_near_enough = min >= (float)GSV_INT8_TARGET && loss->expected >= (float)GSV_INT8_BOUND;
    gsv_choose_worst(&loss->worst, loss->all, loss->cosines);
    return GPUSERVE_OK;
}

/* Measure only the worst probes: if they fail, all probes fail. */
gpuserve_status gsv_measure_worst(struct gsv_probe_loss *loss, gpuserve_error *error)
{
    const size_t columns = (size_t)loss->columns;
    float min = 1.0f;
    gpuserve_status st;

    loss->host = &loss->worst.batch;
    st = make_vectors(loss, NULL, loss->got, error);
    for (size_t i = 0; i < n_texts(loss) && st == GPUSERVE_OK; i++)
        min = fminf(min, gsv_probe_cosine(loss->want + (size_t)loss->worst.texts[i] * columns,
                                          loss->got + i * columns, columns));
    loss->is_near_enough = min >= (float)GSV_INT8_TARGET;
    loss->host = loss->all;
    return st;
}

gpuserve_status gsv_probe_loss_open(struct gsv_probe_loss *loss, struct gsv_net *net,
                                    struct gsv_reader *reader,
                                    const struct gpuserve_host_batch *probes, int32_t n_threads,
                                    gpuserve_error *error)
{
    gpuserve_status st;

    *loss = (struct gsv_probe_loss){
        .net = net, .reader = reader, .host = probes, .all = probes, .n_threads = n_threads
    };
    st = prepare(loss, error);
    return st == GPUSERVE_OK ? make_exact_vectors(loss, error) : st;
}

void gsv_probe_loss_close(struct gsv_probe_loss *loss)
{
    end_exact(loss);
    free(loss->want);
    free(loss->got);
    free(loss->cosines);
    free(loss->repeated);
    free(loss->worst.memory);
}
