/*
 * plan_bytes.c - counts the memory of a model before its weights are read.
 *
 * The byte counts follow in closed form from the headers. For each device they are exact: packed
 * weights, activations and scratch of each stream. For the host they are an upper bound. In a
 * pipeline they also decide which layers a device gets.
 */
#include "lib/runtime/plan/load_plan.h"

#include "lib/base/alloc.h"

/* Weights beyond this do not stay in the caches of a processor: each batch reads them from memory.
 */
#define CACHED_BYTES (UINT64_C(64) << 20)
/* Products of a layer up to this stay in the second-level cache of a core, with the rows of
 * CACHED_TOKENS tokens. The rows of more tokens leave it between two products. */
#define CACHED_LAYER_BYTES (UINT64_C(4) << 20)
#define CACHED_TOKENS 256
#define MAX_SEQUENCES 4096
#define SPARSE_TOKENS_A_TEXT 16
#define THREAD_BYTES 32    /* what a worker thread is told */
#define SEQUENCE_BYTES 192 /* a part, a coalesced item and their entries in the in-flight table */
#define QUEUE_BYTES_A_TOKEN 5 /* id and type */
#define HEAD_BLOCK_BYTES 64   /* alignment of the scores of a head */

/* Maximum texts of a batch: one for every two tokens; fewer for a sparse model, whose rows are as
 * wide as its vocabulary. */
static int32_t sequences_limit(const struct gsv_spec_facts *facts, int32_t max_tokens)
{
    const int32_t n =
        max_tokens / (facts->is_sparse && !facts->weighs_tokens ? SPARSE_TOKENS_A_TEXT : 2);

    return n > MAX_SEQUENCES ? MAX_SEQUENCES : n > 1 ? n : 1;
}

static void size_batches(struct gsv_plan *plan, int32_t batch_tokens)
{
    struct gsv_exec_options *narrow = &plan->narrow;

    narrow->dtype = plan->dtype;
    narrow->n_threads = 1;
    narrow->max_tokens = batch_tokens > plan->max_tokens ? batch_tokens : plan->max_tokens;
    narrow->max_sequences = sequences_limit(plan->facts, narrow->max_tokens);
    narrow->max_seqlen = plan->max_tokens;
    narrow->deterministic = plan->deterministic;
    plan->wide = *narrow;
    plan->wide.n_threads = plan->n_workers;
}

size_t gsv_plan_output_floats(const struct gsv_plan *plan)
{
    const struct gsv_spec_facts *facts = plan->facts;
    const size_t sparse = facts->is_sparse && !facts->weighs_tokens ? (size_t)facts->vocab_size : 0;
    const size_t labels =
        facts->n_head_labels > facts->n_labels ? facts->n_head_labels : facts->n_labels;
    const size_t dense = (size_t)facts->dim > labels ? (size_t)facts->dim : labels;
    const size_t rows = (size_t)plan->narrow.max_sequences * (sparse > dense ? sparse : dense);
    const size_t vector = (size_t)facts->token_dim;
    const size_t columns =
        facts->labels_tokens && facts->n_labels > vector ? facts->n_labels : vector;
    const size_t tokens = (size_t)plan->narrow.max_tokens * columns;

    return rows > tokens ? rows : tokens;
}

/* Host bytes of one call of an entity head: vectors, starts and ends of words, and the same of
 * labels. */
static uint64_t entity_host_bytes(const struct gsv_spec_facts *facts)
{
    const uint64_t rows = 2 * ((uint64_t)facts->entity.max_words + GSV_ENTITY_ROWS);

    if (facts->entity.width == 0)
        return 0;
    return rows * ((uint64_t)facts->entity.width + 2 * (uint64_t)facts->entity.inner) *
           sizeof(float);
}

/* Host bytes in which the scores of several heads become rows; each execution has its own. */
static uint64_t head_host_bytes(const struct gsv_plan *plan)
{
    const struct gsv_spec_facts *facts = plan->facts;
    const uint64_t n_texts = (uint64_t)plan->narrow.max_sequences;
    const uint64_t n_execs = (uint64_t)plan->n_workers * gsv_plan_stages(plan) + plan->has_wide;

    if (facts->n_label_heads < 2)
        return 0;
    return n_execs * (n_texts * facts->n_head_labels * sizeof(float) +
                      facts->n_label_heads * HEAD_BLOCK_BYTES);
}

/* Host bytes of workers, queue and cache, without the tokenizer. */
static uint64_t runtime_bytes(const struct gsv_plan *plan)
{
    const uint64_t numbers = plan->facts->is_late ? 4 : 3; /* of a token */
    const uint64_t batch = (uint64_t)plan->narrow.max_tokens * numbers * sizeof(int32_t) +
                           (uint64_t)plan->narrow.max_sequences * SEQUENCE_BYTES +
                           (uint64_t)gsv_plan_output_floats(plan) * sizeof(float);

    return (uint64_t)plan->n_workers * batch + entity_host_bytes(plan->facts) +
           (uint64_t)gsv_plan_threads(plan) * THREAD_BYTES + head_host_bytes(plan) +
           (uint64_t)plan->narrow.max_sequences * sizeof(struct gsv_batch_row) +
           plan->max_queue_tokens * QUEUE_BYTES_A_TOKEN + plan->cache_bytes +
           plan->facts->adapter_bytes;
}

int32_t gsv_plan_entity_threads(const struct gsv_plan *plan)
{
    return plan->device.is_cpu ? plan->n_workers : 1;
}

/* Activations and streams on a device: those of the execution contexts, and of the entity head. */
struct scratch {
    uint64_t work, stream, head_work, head_stream;
};

static uint64_t scratch_bytes(const struct gsv_plan *plan, const struct scratch *scratch,
                              size_t device)
{
    const uint64_t bytes = gsv_add_bytes(scratch->work, scratch->stream);
    const bool has_head = (device + 1) % gsv_plan_stages(plan) == 0; /* the last of a pipeline */

    return has_head ? gsv_add_bytes(bytes, gsv_add_bytes(scratch->head_work, scratch->head_stream))
                    : bytes;
}

/* Divide the layers, so that they fit into what is `available`. */
static bool divide(struct gsv_plan *plan, const struct scratch *scratch,
                   const struct gsv_capacity *available)
{
    uint64_t free_bytes[GSV_MAX_CUDA];

    for (size_t i = 0; i < plan->n_devices; i++) {
        const uint64_t bytes = scratch_bytes(plan, scratch, i);

        free_bytes[i] = available->devices[i] > bytes ? available->devices[i] - bytes : 0;
    }
    return gsv_pipeline_split(plan->spec, plan->device.backend, plan->dtype, free_bytes,
                              (int32_t)plan->n_devices, plan->layers);
}

/* The layers of a pipeline's devices: within the memory that is free now, else within that which
 * could be, else anywhere. */
static void divide_layers(struct gsv_plan *plan, const struct scratch *scratch)
{
    if (!divide(plan, scratch, &plan->available) && !divide(plan, scratch, &plan->max_available))
        (void)gsv_pipeline_split(plan->spec, plan->device.backend, plan->dtype, NULL,
                                 (int32_t)plan->n_devices, plan->layers);
}

/* Set the bytes of each device; returns those of all weights. */
static uint64_t count_devices(struct gsv_plan *plan, uint64_t weights,
                              const struct scratch *scratch)
{
    const bool is_pipeline = gsv_plan_is_pipeline(plan);
    uint64_t total = 0;

    if (is_pipeline)
        divide_layers(plan, scratch);
    for (size_t i = 0; i < plan->n_devices; i++) {
        const uint64_t own = is_pipeline ? gsv_range_bytes(plan->spec, plan->device.backend,
                                                           plan->dtype, plan->layers[i])
                                         : weights;

        plan->device_bytes[i] = gsv_add_bytes(own, scratch_bytes(plan, scratch, i));
        total = gsv_add_bytes(total, own);
    }
    return total;
}

bool gsv_plan_count(struct gsv_plan *plan, int32_t batch_tokens)
{
    const struct gpuserve_backend *backend = plan->device.backend;
    const uint64_t n_execs = (uint64_t)plan->n_workers / plan->n_replicas; /* on each device */
    const struct gsv_streamed_bytes weights =
        gsv_streamed_net_bytes(plan->spec, backend, plan->dtype, plan->n_streamed);
    uint64_t work, stream, wide_work = 0, wide_stream = 0, on_devices;
    struct gsv_memory *memory = &plan->memory;
    struct scratch scratch;

    size_batches(plan, batch_tokens);
    /* In float32 a short batch computes several times as long as it reads the weights. */
    plan->prefers_wide = plan->has_wide && plan->dtype != GPUSERVE_DTYPE_FLOAT32 &&
                         gsv_product_bytes(plan->spec, backend, plan->dtype) > CACHED_BYTES;
    gsv_exec_bytes(plan->spec, backend, &plan->narrow, &work, &stream);
    if (plan->has_wide)
        gsv_exec_bytes(plan->spec, backend, &plan->wide, &wide_work, &wide_stream);
    gsv_entity_bytes(plan->spec, backend, gsv_plan_entity_threads(plan), &scratch.head_work,
                     &scratch.head_stream);
    scratch.work = gsv_mul_bytes(n_execs, work);
    scratch.stream = gsv_mul_bytes(n_execs, stream);
    memory->weights = count_devices(plan, weights.device, &scratch);
    plan->streamed_bytes = weights.host;
    wide_work = gsv_add_bytes(wide_work, gsv_mul_bytes(plan->n_replicas, scratch.head_work));
    wide_stream = gsv_add_bytes(wide_stream, gsv_mul_bytes(plan->n_replicas, scratch.head_stream));
    memory->workspace = gsv_add_bytes(gsv_mul_bytes(plan->n_devices, scratch.work), wide_work);
    memory->stream = gsv_add_bytes(gsv_mul_bytes(plan->n_devices, scratch.stream), wide_stream);
    memory->host = gsv_add_bytes(gsv_mul_bytes(plan->n_replicas, weights.host),
                                 gsv_tokenizer_bytes(plan->tokenizer) + runtime_bytes(plan));
    if (gsv_plan_is_pipeline(plan))
        memory->host = gsv_add_bytes(
            memory->host,
            gsv_mul_bytes((uint64_t)plan->n_workers,
                          gsv_pipeline_host_bytes(plan->spec, backend, &plan->narrow)));
    on_devices = gsv_add_bytes(gsv_add_bytes(memory->weights, memory->workspace), memory->stream);
    plan->total_bytes = gsv_add_bytes(on_devices, memory->host);
    if (plan->device.is_cpu)
        plan->device_bytes[0] = plan->total_bytes;
    return plan->total_bytes < GSV_TOO_MANY_BYTES;
}

int32_t gsv_plan_cached_tokens(const struct gsv_plan *plan)
{
    const uint64_t bytes = gsv_product_bytes(plan->spec, plan->device.backend, plan->dtype);
    const int32_t layers = bytes > 0 ? gsv_stored_layers(plan->spec) : 0;

    return plan->device.is_cpu && layers > 0 && bytes / (uint64_t)layers <= CACHED_LAYER_BYTES
               ? CACHED_TOKENS
               : 0;
}

bool gsv_plan_fits(const struct gsv_plan *plan, const struct gsv_capacity *available)
{
    for (size_t i = 0; i < plan->n_devices; i++)
        if (plan->device_bytes[i] > available->devices[i])
            return false;
    return plan->total_bytes <= available->all;
}

int32_t gsv_plan_largest_batch(const struct gsv_plan *plan, const struct gsv_capacity *available)
{
    struct gsv_plan probe = *plan;
    int32_t low = 0, high = GSV_MAX_BATCH_TOKENS; /* the bytes only grow with the batch */

    while (low < high) {
        const int32_t middle = low + (high - low + 1) / 2;

        if (gsv_plan_count(&probe, middle) && gsv_plan_fits(&probe, available))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
