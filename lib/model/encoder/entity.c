/*
 * entity.c - runs an entity head: words and labels in, starts, ends and queries out.
 *
 *   words -> LSTM -> project_start, project_end -> half of out_project each
 *   labels -> prompt_rep_layer -> the other layer of out_project, transposed
 *
 * The reference computes W relu(A s + B e + a) + b for each span and multiplies it by each label's
 * vector p. Here A s + a and B e are computed once for each word, and W' p and b p once for each
 * label. A span then costs one sum of `inner` columns, and a label one dot product.
 *
 * Rows are float32. The LSTM runs outside of batches, each product in a batch of its own stream.
 */
#include "lib/model/encoder/encoder.h"
#include "lib/model/weights/weights.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

enum buffer {
    BUFFER_ROWS,   /* [n_rows, width]: the input; the LSTM's layers alternate with the next one */
    BUFFER_OTHER,  /* [n_rows, width] */
    BUFFER_INNER,  /* [n_rows, widest]: between two layers */
    BUFFER_RESULT, /* [n_rows, widest] */
    BUFFER_STATES, /* the next three: of the LSTM */
    BUFFER_CELLS,
    BUFFER_SEQUENCES,
    BUFFER_SCRATCH,
    N_BUFFERS
};

struct entity_layout {
    uint64_t at[N_BUFFERS], total;
    int32_t n_rows, widest;
};

struct gsv_entity_exec {
    const struct gsv_net *net; /* borrowed */
    struct gpuserve_stream *stream;
    struct entity_layout layout;
    char *memory;        /* device memory */
    int32_t *zeros;      /* host, [n_rows]: ids of a batch, which nothing reads */
    int32_t *cu_seqlens; /* host, [n_rows + 1]: each row of a batch is a sequence */
    struct gpuserve_lstm_sequence *sequences; /* host, [n_rows] */
};

/* ---------------------------------------------------------------------------------------- sizes
 */

static uint64_t add_buffer(struct entity_layout *layout, uint64_t rows, uint64_t bytes)
{
    const uint64_t at = layout->total;

    layout->total =
        gsv_add_bytes(at, gsv_round_up((size_t)gsv_mul_bytes(rows, bytes), GSV_ITEM_ALIGNMENT));
    return at;
}

static struct entity_layout layout_of(const struct gsv_spec *spec,
                                      const struct gpuserve_backend *backend)
{
    const struct gsv_entity_facts *facts = &spec->facts.entity;
    const struct gsv_recurrent *recurrent = &spec->config.recurrent;
    const uint64_t width = (uint64_t)facts->width;
    struct entity_layout layout = { .widest = facts->inner };
    struct gpuserve_lstm_source source;
    uint64_t rows;

    layout.n_rows = facts->max_words > GSV_ENTITY_ROWS ? facts->max_words : GSV_ENTITY_ROWS;
    rows = (uint64_t)layout.n_rows;
    layout.at[BUFFER_ROWS] =
        add_buffer(&layout, rows, (facts->by_token ? 3 : 1) * width * sizeof(float));
    layout.at[BUFFER_OTHER] = add_buffer(&layout, rows, width * sizeof(float));
    layout.at[BUFFER_INNER] = add_buffer(&layout, rows, (uint64_t)layout.widest * sizeof(float));
    layout.at[BUFFER_RESULT] = add_buffer(&layout, rows, (uint64_t)layout.widest * sizeof(float));
    if (!recurrent->over_words)
        return layout;
    layout.at[BUFFER_STATES] = add_buffer(&layout, rows, width * sizeof(float));
    layout.at[BUFFER_CELLS] = add_buffer(&layout, rows, width * sizeof(float));
    layout.at[BUFFER_SEQUENCES] = add_buffer(&layout, rows, sizeof(struct gpuserve_lstm_sequence));
    source = gsv_recurrent_source(&spec->config, 0); /* all layers have the same size */
    layout.at[BUFFER_SCRATCH] =
        add_buffer(&layout, 1, backend->lstm_max_bytes(&source, layout.n_rows, layout.n_rows));
    return layout;
}

static struct gpuserve_stream_options options_of(const struct entity_layout *layout,
                                                 int32_t n_threads, bool deterministic)
{
    return (struct gpuserve_stream_options){
        .struct_size = sizeof(struct gpuserve_stream_options),
        .dtype = GPUSERVE_DTYPE_FLOAT32,
        .n_threads = n_threads,
        .max_tokens = layout->n_rows,
        .max_sequences = layout->n_rows,
        .max_seqlen = 1, /* no attention */
        .max_columns = layout->widest,
        .hidden_size = 1,
        .n_heads = 1,
        .flags = deterministic ? GPUSERVE_STREAM_DETERMINISTIC : 0,
        .output_bytes = (size_t)layout->n_rows * (size_t)layout->widest * sizeof(float),
    };
}

void gsv_entity_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                      int32_t n_threads, uint64_t *activations, uint64_t *stream)
{
    struct entity_layout layout;
    struct gpuserve_stream_options options;

    *activations = *stream = 0;
    if (spec->facts.entity.width == 0)
        return;
    layout = layout_of(spec, backend);
    options = options_of(&layout, n_threads, false); /* takes the same memory */
    *activations = layout.total;
    *stream = backend->stream_bytes(&options);
}

/* ------------------------------------------------------------------------------------ life cycle
 */

static gpuserve_status allocate(struct gsv_entity_exec *exec, int32_t n_threads, bool deterministic,
                                gpuserve_error *error)
{
    const struct gsv_net *net = exec->net;
    const struct gpuserve_stream_options options =
        options_of(&exec->layout, n_threads, deterministic);
    const size_t n = (size_t)exec->layout.n_rows;
    void *memory;
    gpuserve_status st;

    exec->zeros = gsv_alloc_array(n, sizeof(*exec->zeros));
    exec->cu_seqlens = gsv_alloc_array(n + 1, sizeof(*exec->cu_seqlens));
    exec->sequences = gsv_alloc_array(n, sizeof(*exec->sequences));
    if (!exec->zeros || !exec->cu_seqlens || !exec->sequences || exec->layout.total >= SIZE_MAX)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for an entity head");
    for (size_t i = 0; i <= n; i++)
        exec->cu_seqlens[i] = (int32_t)i;
    st = net->backend->memory_alloc(net->device, &memory, (size_t)exec->layout.total, error);
    if (st != GPUSERVE_OK)
        return st;
    exec->memory = memory;
    return net->backend->stream_create(net->device, &exec->stream, &options, error);
}

gpuserve_status gsv_entity_exec_create(struct gsv_entity_exec **out, const struct gsv_net *net,
                                       int32_t n_threads, bool deterministic, gpuserve_error *error)
{
    struct gsv_entity_exec *exec = gsv_alloc_array(1, sizeof(*exec));
    gpuserve_status st;

    *out = NULL;
    if (!exec)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for an entity head");
    exec->net = net;
    exec->layout = layout_of(net->spec, net->backend);
    st = allocate(exec, n_threads, deterministic, error);
    if (st == GPUSERVE_OK)
        *out = exec;
    else
        gsv_entity_exec_free(&exec);
    return st;
}

void gsv_entity_exec_free(struct gsv_entity_exec **out)
{
    struct gsv_entity_exec *exec = out ? *out : NULL;

    if (!exec)
        return;
    exec->net->backend->stream_destroy(&exec->stream);
    if (exec->memory)
        exec->net->backend->memory_free(exec->net->device, exec->memory);
    free(exec->zeros);
    free(exec->cu_seqlens);
    free(exec->sequences);
    free(exec);
    *out = NULL;
}

/* ------------------------------------------------------------------------------------- products
 */

static float *buffer_at(const struct gsv_entity_exec *exec, enum buffer buffer)
{
    return (float *)(void *)(exec->memory + exec->layout.at[buffer]);
}

/* One product on rows, from one buffer to another. */
struct entity_product {
    int32_t item;
    enum buffer in, out;
};

static gpuserve_status multiply(struct gsv_entity_exec *exec, const struct entity_product *product,
                                int32_t rows)
{
    const struct gsv_net *net = exec->net;
    const struct gsv_weight *item = &net->spec->items[product->item];
    const struct gpuserve_op_linear op = {
        .weight = net->linears[product->item],
        .in = buffer_at(exec, product->in),
        .out = buffer_at(exec, product->out),
        .rows = rows,
        .in_ld = item->k,
        .out_ld = item->n,
        .activation = item->activation,
    };

    return net->backend->linear(exec->stream, &op);
}

/* Run `n` products in order as one batch, and read the output of the last one. */
static gpuserve_status run_products(struct gsv_entity_exec *exec,
                                    const struct entity_product *products, size_t n, int32_t rows,
                                    float *to, gpuserve_error *error)
{
    const struct gsv_net *net = exec->net;
    const struct entity_product *last = &products[n - 1];
    const size_t bytes = (size_t)rows * (size_t)net->spec->items[last->item].n * sizeof(float);
    const struct gpuserve_host_batch host = {
        .n_tokens = rows,
        .n_sequences = rows,
        .max_seqlen = 1,
        .ids = exec->zeros,
        .type_ids = exec->zeros,
        .positions = exec->zeros,
        .cu_seqlens = exec->cu_seqlens,
    };
    struct gpuserve_batch batch;
    int32_t replayed = 0;
    gpuserve_status st = net->backend->batch_begin(
        exec->stream, (uint64_t)(uint32_t)products[0].item << 32 | (uint32_t)last->item, &host,
        &batch, &replayed, error);

    if (st != GPUSERVE_OK)
        return st;
    for (size_t i = 0; i < n && !replayed && st == GPUSERVE_OK; i++)
        st = multiply(exec, &products[i], rows);
    if (st != GPUSERVE_OK)
        return gsv_abandon_batch(net->backend, exec->stream, st, error);
    st = net->backend->batch_end(exec->stream, to, buffer_at(exec, last->out), bytes, error);
    return st == GPUSERVE_OK ? net->backend->stream_wait(exec->stream, error) : st;
}

static gpuserve_status write_rows(struct gsv_entity_exec *exec, const float *rows, int32_t n,
                                  int32_t columns, gpuserve_error *error)
{
    const struct gsv_net *net = exec->net;

    return net->backend->memory_write(net->device, buffer_at(exec, BUFFER_ROWS), rows,
                                      (size_t)n * (size_t)columns * sizeof(float), error);
}

/* ----------------------------------------------------------------------------------------- LSTM
 */

/* Descending length; sequences of equal length keep their order. */
static int by_length(const void *a_, const void *b_)
{
    const struct gpuserve_lstm_sequence *a = a_, *b = b_;

    if (a->length != b->length)
        return a->length < b->length ? 1 : -1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static gpuserve_status write_sequences(struct gsv_entity_exec *exec, const int32_t *cu_words,
                                       int32_t n, gpuserve_error *error)
{
    const struct gsv_net *net = exec->net;

    for (int32_t i = 0; i < n; i++)
        exec->sequences[i] = (struct gpuserve_lstm_sequence){
            .first = cu_words[i] - cu_words[0],
            .length = cu_words[i + 1] - cu_words[i],
            .number = i,
        };
    qsort(exec->sequences, (size_t)n, sizeof(*exec->sequences), by_length);
    return net->backend->memory_write(net->device, buffer_at(exec, BUFFER_SEQUENCES),
                                      exec->sequences, (size_t)n * sizeof(*exec->sequences), error);
}

/* Run all layers on the rows of n texts. *rows becomes the buffer of the last layer's output. */
static gpuserve_status run_lstm(struct gsv_entity_exec *exec, const int32_t *cu_words, int32_t n,
                                enum buffer *rows, gpuserve_error *error)
{
    const struct gsv_net *net = exec->net;
    const struct gsv_recurrent *recurrent = &net->spec->config.recurrent;
    gpuserve_status st = write_sequences(exec, cu_words, n, error);

    for (int32_t i = 0; i < recurrent->n_layers && st == GPUSERVE_OK; i++) {
        const enum buffer out = *rows == BUFFER_ROWS ? BUFFER_OTHER : BUFFER_ROWS;
        struct gpuserve_op_lstm op = {
            .layer = net->recurrent[net->spec->recurrent + i * recurrent->directions],
            .in = buffer_at(exec, *rows),
            .out = buffer_at(exec, out),
            .h_n = buffer_at(exec, BUFFER_STATES),
            .c_n = buffer_at(exec, BUFFER_CELLS),
            .sequences = (const void *)buffer_at(exec, BUFFER_SEQUENCES),
            .host_sequences = exec->sequences,
            .scratch = buffer_at(exec, BUFFER_SCRATCH),
            .n_rows = cu_words[n] - cu_words[0],
            .n_sequences = n,
            .variant = GPUSERVE_LSTM_AUTO,
        };
        size_t size; /* at most that of the layout */

        st = net->backend->lstm_bytes(net->device, &op, &size, error);
        if (st == GPUSERVE_OK)
            st = net->backend->lstm(exec->stream, &op, error);
        *rows = out;
    }
    return st;
}

/* ---------------------------------------------------------------------------------- public calls
 */

/* Texts from `first` on whose words fit in the buffers; at least one. */
static int32_t take_texts(const struct gsv_entity_exec *exec, const struct gsv_entity_texts *texts,
                          int32_t first)
{
    int32_t end = first + 1;

    while (end < texts->n_texts &&
           texts->cu_words[end + 1] - texts->cu_words[first] <= exec->layout.n_rows)
        end++;
    return end - first;
}

/* The products of some texts' words, from `rows`. */
static gpuserve_status multiply_words(struct gsv_entity_exec *exec, enum buffer rows, int32_t n,
                                      float *starts, float *ends, gpuserve_error *error)
{
    const struct gsv_entity_items *items = &exec->net->spec->entity;
    const enum buffer middle = rows == BUFFER_ROWS ? BUFFER_OTHER : BUFFER_ROWS;
    const struct entity_product pair = { items->word_pair, rows, BUFFER_RESULT };
    const struct entity_product start[] = { { items->start[0], rows, BUFFER_INNER },
                                            { items->start[1], BUFFER_INNER, middle },
                                            { items->start[2], middle, BUFFER_RESULT } };
    const struct entity_product end[] = { { items->end[0], rows, BUFFER_INNER },
                                          { items->end[1], BUFFER_INNER, middle },
                                          { items->end[2], middle, BUFFER_RESULT } };
    gpuserve_status st;

    if (exec->net->spec->facts.entity.by_token)
        return run_products(exec, &pair, 1, n, starts, error);
    st = run_products(exec, start, 3, n, starts, error);
    return st == GPUSERVE_OK ? run_products(exec, end, 3, n, ends, error) : st;
}

gpuserve_status gsv_entity_words(struct gsv_entity_exec *exec, const struct gsv_entity_texts *texts,
                                 float *starts, float *ends, gpuserve_error *error)
{
    const struct gsv_spec *spec = exec->net->spec;
    const size_t width = (size_t)spec->facts.entity.width;
    const size_t columns =
        spec->facts.entity.by_token ? 2 * width : (size_t)spec->facts.entity.inner;
    gpuserve_status st = GPUSERVE_OK;

    for (int32_t i = 0, taken; i < texts->n_texts && st == GPUSERVE_OK; i += taken) {
        const int32_t *cu_words = &texts->cu_words[i];
        const size_t first = (size_t)cu_words[0];
        enum buffer rows = BUFFER_ROWS;
        int32_t n;

        taken = take_texts(exec, texts, i);
        n = cu_words[taken] - cu_words[0];
        if (n == 0)
            continue;
        if (n > exec->layout.n_rows)
            return gsv_fail(error, GPUSERVE_E_INVALID, "text %d has %d words, the limit is %d", i,
                            n, spec->facts.entity.max_words);
        st = write_rows(exec, texts->words + first * width, n, (int32_t)width, error);
        if (st == GPUSERVE_OK && spec->config.recurrent.over_words)
            st = run_lstm(exec, cu_words, taken, &rows, error);
        if (st == GPUSERVE_OK)
            st = multiply_words(exec, rows, n, starts + first * columns,
                                ends ? ends + first * columns : NULL, error);
    }
    return st;
}

/* At most n_rows labels. */
static gpuserve_status multiply_labels(struct gsv_entity_exec *exec, const float *labels, int32_t n,
                                       float *queries, float *offsets, gpuserve_error *error)
{
    const struct gsv_entity_facts *facts = &exec->net->spec->facts.entity;
    const struct gsv_entity_items *items = &exec->net->spec->entity;
    const struct entity_product pair = { items->label_pair, BUFFER_ROWS, BUFFER_RESULT };
    const struct entity_product query[] = { { items->prompt[0], BUFFER_ROWS, BUFFER_INNER },
                                            { items->prompt[1], BUFFER_INNER, BUFFER_OTHER },
                                            { items->query, BUFFER_OTHER, BUFFER_RESULT } };
    const struct entity_product bias = { items->query_bias, BUFFER_OTHER, BUFFER_RESULT };
    gpuserve_status st = write_rows(exec, labels, n, facts->width, error);

    if (st != GPUSERVE_OK)
        return st;
    if (facts->by_token)
        return run_products(exec, &pair, 1, n, queries, error);
    st = run_products(exec, query, 3, n, queries, error);
    return st == GPUSERVE_OK ? run_products(exec, &bias, 1, n, offsets, error) : st;
}

gpuserve_status gsv_entity_labels(struct gsv_entity_exec *exec, const float *labels, int32_t n,
                                  float *queries, float *offsets, gpuserve_error *error)
{
    const struct gsv_entity_facts *facts = &exec->net->spec->facts.entity;
    const size_t width = (size_t)facts->width;
    const size_t columns = facts->by_token ? 2 * width : (size_t)facts->inner;
    gpuserve_status st = GPUSERVE_OK;

    for (int32_t i = 0; i < n && st == GPUSERVE_OK; i += exec->layout.n_rows) {
        const int32_t left = n - i;

        st = multiply_labels(exec, labels + (size_t)i * width,
                             left < exec->layout.n_rows ? left : exec->layout.n_rows,
                             queries + (size_t)i * columns, offsets ? offsets + i : NULL, error);
    }
    return st;
}

/* The input of a word with a label: the first row of each, and the product of their second rows. */
static void join_pair(const float *word, const float *label, size_t width, float *to)
{
    memcpy(to, word, width * sizeof(float));
    memcpy(to + width, label, width * sizeof(float));
    for (size_t i = 0; i < width; i++)
        to[2 * width + i] = word[width + i] * label[width + i];
}

gpuserve_status gsv_entity_pairs(struct gsv_entity_exec *exec, const float *words, int32_t n_words,
                                 const float *labels, int32_t n_labels, float *logits,
                                 gpuserve_error *error)
{
    const size_t width = (size_t)exec->net->spec->facts.entity.width;
    const struct gsv_entity_items *items = &exec->net->spec->entity;
    const struct entity_product products[] = { { items->pair[0], BUFFER_ROWS, BUFFER_INNER },
                                               { items->pair[1], BUFFER_INNER, BUFFER_RESULT } };
    const size_t n = (size_t)n_words * (size_t)n_labels, max_rows = (size_t)exec->layout.n_rows;
    float *rows = gsv_alloc_array(max_rows, 3 * width * sizeof(*rows));
    gpuserve_status st = GPUSERVE_OK;

    if (!rows)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for an entity head");
    for (size_t i = 0; i < n && st == GPUSERVE_OK; i += max_rows) {
        const size_t taken = n - i < max_rows ? n - i : max_rows;

        for (size_t j = 0; j < taken; j++)
            join_pair(words + (i + j) / (size_t)n_labels * 2 * width,
                      labels + (i + j) % (size_t)n_labels * 2 * width, width, rows + j * 3 * width);
        st = write_rows(exec, rows, (int32_t)taken, (int32_t)(3 * width), error);
        if (st == GPUSERVE_OK)
            st = run_products(exec, products, 2, (int32_t)taken, logits + i * 3, error);
    }
    free(rows);
    return st;
}

void gsv_entity_span(const float *start, const float *end, int32_t inner, float *span)
{
    for (int32_t i = 0; i < inner; i++) {
        const float sum = start[i] + end[i];

        span[i] = sum > 0.0f ? sum : 0.0f;
    }
}

/* Partial sums in a fixed order, which compilers vectorize without reordering. */
float gsv_entity_score(const float *span, const float *query, float offset, int32_t inner)
{
    float sums[16] = { 0 }, total = 0.0f;
    int32_t i = 0;

    for (; i + 16 <= inner; i += 16)
        for (int32_t j = 0; j < 16; j++)
            sums[j] += span[i + j] * query[i + j];
    for (; i < inner; i++)
        sums[i % 16] += span[i] * query[i];
    for (int32_t j = 0; j < 16; j++)
        total += sums[j];
    return total + offset;
}
