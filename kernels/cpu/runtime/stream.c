/*
 * stream.c - creates a stream: its memory and its thread pool.
 *
 * All buffers of a stream are in one allocation, cut by plan_of() at offsets aligned to 64 bytes:
 *
 *   struct | batch arrays | attention scratch per thread | converted rows, zero points and scales
 */
#include "kernels/cpu/runtime/cpu.h"

#include "kernels/hostmem.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <string.h>

/* Byte offsets of the parts in the stream's allocation. */
struct stream_plan {
    int32_t n_threads;
    size_t batch, scratch, scratch_floats;
    size_t bytes, byte_ld, ranges; /* INT8, INT16 and BFLOAT16 only */
    size_t rows;
    size_t total;
};

static size_t take(size_t *total, size_t size)
{
    const size_t at = *total;

    *total = at + gsv_round_up(size, 64);
    return at;
}

/* Products with position rows: four tables of distances, packed rows, products of a tile and of all
 * keys. */
static size_t position_floats(int32_t max_seqlen, size_t size, int32_t position_rows)
{
    const size_t tables = gsv_round_up(8 * (size_t)max_seqlen, 16);

    if (position_rows <= 0)
        return 0;
    return tables + gsv_round_up((size_t)position_rows, GSV_COLUMN_STEP) *
                        (size + GSV_TILE_ROWS + (size_t)max_seqlen);
}

/* float32: keys, values and scores of one head, products with position rows. 16 bits: also bias,
 * queries and outputs. */
size_t gsv_cpu_attention_floats(int32_t max_seqlen, int32_t head_size, int32_t position_rows)
{
    const size_t length = gsv_round_up((size_t)max_seqlen, GSV_COLUMN_STEP);
    const size_t size = gsv_round_up((size_t)head_size, GSV_COLUMN_STEP);
    const size_t whole =
        length * (2 * size + GSV_TILE_ROWS) + position_floats(max_seqlen, size, position_rows);
    const size_t halves = length * (size + GSV_COLUMN_STEP + 2) + size * 2 * GSV_COLUMN_STEP;

    return gsv_round_up(whole > halves ? whole : halves, 64 / sizeof(float));
}

/* True if streams of this dtype round the operands of attention to 16 bits: int8 and int16 where
 * the processor has such products, bfloat16 where they are in bfloat16. */
static bool rounds_attention(const struct gsv_cpu_isa *isa, uint32_t dtype)
{
    if (dtype == GPUSERVE_DTYPE_BFLOAT16)
        return isa->attention_16bit && isa->gemm_bf16;
    return isa->attention_16bit && (dtype == GPUSERVE_DTYPE_INT8 || dtype == GPUSERVE_DTYPE_INT16);
}

static struct stream_plan plan_of(const struct gpuserve_stream_options *o)
{
    struct stream_plan plan = { .total = gsv_round_up(sizeof(struct gpuserve_stream), 64) };
    const int32_t heads = o->n_heads > 0 ? o->n_heads : 1;
    const int32_t head_size = o->head_size > 0 ? o->head_size : (o->hidden_size - 1) / heads + 1;

    plan.n_threads = o->n_threads < 1 ? 1 : o->n_threads;
    if (plan.n_threads > GSV_MAX_POOL_THREADS)
        plan.n_threads = GSV_MAX_POOL_THREADS;
    plan.rows = (size_t)(o->max_tokens > o->max_sequences ? o->max_tokens : o->max_sequences);
    plan.batch = take(&plan.total, gsv_hostmem_batch_bytes(o->max_tokens, o->max_sequences));
    plan.scratch_floats = gsv_cpu_attention_floats(o->max_seqlen, head_size, o->position_rows);
    plan.scratch = take(&plan.total, (size_t)plan.n_threads * plan.scratch_floats * sizeof(float));
    if (o->dtype != GPUSERVE_DTYPE_INT8 && o->dtype != GPUSERVE_DTYPE_BFLOAT16 &&
        o->dtype != GPUSERVE_DTYPE_INT16)
        return plan;
    /* an INT8 net may keep products in bfloat16 or int16 */
    plan.byte_ld = gsv_round_up((size_t)o->max_columns, 64) * sizeof(uint16_t);
    plan.bytes = take(&plan.total, plan.rows * plan.byte_ld);
    plan.ranges = take(&plan.total, 2 * plan.rows * sizeof(float));
    return plan;
}

size_t gsv_cpu_stream_bytes(const struct gpuserve_stream_options *options)
{
    const struct stream_plan plan = plan_of(options);

    return plan.total + gsv_thread_pool_bytes(plan.n_threads);
}

gpuserve_status gsv_cpu_stream_create(struct gpuserve_device *device, struct gpuserve_stream **out,
                                      const struct gpuserve_stream_options *options,
                                      gpuserve_error *error)
{
    const struct stream_plan plan = plan_of(options);
    struct gpuserve_stream *stream = gsv_alloc_mapped(plan.total);
    char *memory = (char *)stream;
    gpuserve_status st;

    *out = NULL;
    if (!stream)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a stream of %zu bytes",
                        plan.total);
    memset(stream, 0, sizeof(*stream));
    stream->isa = device->isa;
    stream->n_threads = plan.n_threads;
    stream->batch_memory = memory + plan.batch;
    stream->scratch = (float *)(void *)(memory + plan.scratch);
    stream->scratch_floats = plan.scratch_floats;
    stream->attention = device->isa->attention;
    if (rounds_attention(device->isa, options->dtype))
        stream->attention = device->isa->attention_16bit;
    if (plan.byte_ld) {
        stream->bytes = (uint8_t *)(memory + plan.bytes);
        stream->byte_ld = plan.byte_ld;
        stream->min = (float *)(void *)(memory + plan.ranges);
        stream->step = stream->min + plan.rows;
    }
    st = gsv_thread_pool_create(&stream->thread_pool, plan.n_threads, error);
    if (st != GPUSERVE_OK) {
        gsv_free_mapped(stream);
        return st;
    }
    *out = stream;
    return GPUSERVE_OK;
}

void gsv_cpu_stream_destroy(struct gpuserve_stream **stream)
{
    if (!stream || !*stream)
        return;
    gsv_thread_pool_destroy(&(*stream)->thread_pool);
    gsv_free_mapped(*stream);
    *stream = NULL;
}
