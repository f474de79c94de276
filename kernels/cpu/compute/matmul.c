/*
 * matmul: C = alpha * op(A) op(B) + beta * C, on the inner loops of the models' products.
 *
 *   scratch   zeros for the bias, op(B) * alpha packed into panels, and op(A) in rows if it is
 *             transposed, badly strided or rounded
 *
 * k is split into chunks so that a chunk of a tile's rows stays in the L1 cache. Each chunk after
 * the first is added to C. The chunks depend on k alone, so the bits of C do not depend on the
 * number of threads.
 */
#include "kernels/cpu/runtime/cpu.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

#include <string.h>

#define DEPTH 512        /* of a chunk, in lanes: one float32 or two bfloat16 */
#define TASK_ROWS 168    /* a multiple of every tile's height */
#define TASK_PANELS 8    /* half a megabyte of packed B: half of an L2 cache */
#define PACK_ROWS 64     /* rows of A copied by one task */
#define ROW_STEP 16      /* pads a copied row to whole vectors */
#define CACHE_STRIDE 256 /* floats: rows at multiples of this stride share cache sets */

struct cpu_matmul_plan {
    size_t lanes;        /* of k */
    size_t columns;      /* n rounded up to whole panels of any width */
    size_t bias, panels; /* offsets in bytes */
    size_t rows, words;  /* op(A) in float32 (if copies_rows), and in bfloat16 */
    size_t row_ld;       /* row stride in floats; word_ld in bfloat16 words */
    size_t word_ld;
    size_t total;
};

static bool is_bf16(const struct gpuserve_op_matmul *op)
{
    return op->dtype == GPUSERVE_DTYPE_BFLOAT16;
}

/* Reserves count * each * size bytes; false on overflow. */
static bool take(struct cpu_matmul_plan *plan, size_t *at, size_t count, size_t each, size_t size)
{
    size_t bytes;

    *at = plan->total;
    return gsv_mul_size(count, each, &bytes) && gsv_mul_size(bytes, size, &bytes) &&
           gsv_round_up(bytes, 64) != SIZE_MAX &&
           gsv_add_size(plan->total, gsv_round_up(bytes, 64), &plan->total);
}

/* True for rows that are transposed, or whose stride maps all rows of a tile to few cache sets. */
static bool copies_rows(const struct gpuserve_op_matmul *op)
{
    return op->transpose_a || (op->a_stride % CACHE_STRIDE == 0 && !is_bf16(op));
}

static bool make_plan(const struct gpuserve_op_matmul *op, struct cpu_matmul_plan *plan)
{
    const size_t m = (size_t)op->m, k = (size_t)op->k;
    bool fits;

    memset(plan, 0, sizeof(*plan));
    plan->lanes = is_bf16(op) ? (k + 1) / 2 : k;
    plan->columns = gsv_round_up((size_t)op->n, GSV_COLUMN_STEP);
    plan->row_ld = gsv_round_up(k, ROW_STEP) + ROW_STEP;
    if (plan->row_ld % CACHE_STRIDE == 0)
        plan->row_ld += ROW_STEP;
    plan->word_ld = gsv_round_up(k, GSV_BF16_STEP);
    fits = take(plan, &plan->bias, plan->columns, 1, sizeof(float)) &&
           take(plan, &plan->panels, plan->columns, plan->lanes, sizeof(float));
    if (copies_rows(op))
        fits = fits && take(plan, &plan->rows, m, plan->row_ld, sizeof(float));
    if (is_bf16(op))
        fits = fits && take(plan, &plan->words, m, plan->word_ld, sizeof(uint16_t));
    return fits;
}

static gpuserve_status choose(struct gpuserve_device *device, struct gpuserve_op_matmul *op,
                              gpuserve_error *error)
{
    const bool rounds = is_bf16(op) && device->isa->gemm_bf16;

    if (op->dtype != GPUSERVE_DTYPE_FLOAT32 && !rounds)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "dtype is %s; this processor (%s) supports float32%s",
                        is_bf16(op)                           ? "bfloat16"
                        : op->dtype == GPUSERVE_DTYPE_FLOAT16 ? "float16"
                                                              : "tf32",
                        device->isa->name, device->isa->gemm_bf16 ? " and bfloat16" : "");
    if (op->variant == GPUSERVE_MATMUL_AUTO)
        op->variant = GPUSERVE_MATMUL_SIMD;
    if (op->variant == GPUSERVE_MATMUL_TENSOR_CORE || op->variant == GPUSERVE_MATMUL_CUBLAS) {
        gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                 "the CPU has no variant %s; its variants are naive, tiled and simd",
                 op->variant == GPUSERVE_MATMUL_CUBLAS ? "cublas" : "tensor_core");
        return gsv_hint(error, GPUSERVE_E_UNSUPPORTED,
                        "set the variant to \"auto\", or choose a CUDA device");
    }
    if (rounds && op->variant != GPUSERVE_MATMUL_SIMD)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "the CPU's variants naive and tiled support float32, not bfloat16");
    return GPUSERVE_OK;
}

gpuserve_status gsv_cpu_matmul_bytes(struct gpuserve_device *device, struct gpuserve_op_matmul *op,
                                     size_t *size, gpuserve_error *error)
{
    struct cpu_matmul_plan plan;
    const gpuserve_status st = choose(device, op, error);

    *size = 0;
    if (st != GPUSERVE_OK || op->variant != GPUSERVE_MATMUL_SIMD)
        return st;
    if (!make_plan(op, &plan))
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "a product of %d x %d by %d x %d: the size of its scratch memory overflows",
                        (int)op->m, (int)op->k, (int)op->k, (int)op->n);
    *size = plan.total;
    return GPUSERVE_OK;
}

struct matmul_job {
    const struct gpuserve_op_matmul *op;
    const struct gsv_cpu_isa *isa;
    struct cpu_matmul_plan plan;
    char *scratch;
    int32_t n_panels;
    int32_t row_tasks;
};

static float *floats_at(const struct matmul_job *job, size_t offset)
{
    return (float *)(void *)(job->scratch + offset);
}

static uint16_t *words_at(const struct matmul_job *job, size_t offset)
{
    return (uint16_t *)(void *)(job->scratch + offset);
}

/* -------------------------------------------------------------------------------------- packing */

/* Row i of op(B) * alpha, columns [column, column + width), zeros past the end. */
static void read_row(const struct gpuserve_op_matmul *op, int64_t i, int64_t column, int32_t width,
                     float *to)
{
    const int64_t left = op->n - column;
    const int32_t within = i >= op->k ? 0 : left < width ? (int32_t)left : width;
    const float *from =
        op->transpose_b ? op->b + column * op->b_stride + i : op->b + i * op->b_stride + column;
    const int64_t step = op->transpose_b ? op->b_stride : 1;

    if (within == width && step == 1) {
        for (int32_t j = 0; j < width; j++)
            to[j] = op->alpha * from[j];
        return;
    }
    for (int32_t j = 0; j < width; j++)
        to[j] = j < within ? op->alpha * from[j * step] : 0.0f;
}

/* Writes lane `lane` of a panel: two rows of op(B) from row i on, as bfloat16. */
static void pair_rows(const struct gpuserve_op_matmul *op, int64_t i, int64_t column,
                      const struct gsv_panel_layout *panel, size_t lane, uint16_t *to)
{
    float upper[GSV_COLUMN_STEP], lower[GSV_COLUMN_STEP];

    read_row(op, i, column, (int32_t)panel->columns, upper);
    read_row(op, i + 1, column, (int32_t)panel->columns, lower);
    for (size_t j = 0; j < panel->columns; j++) {
        uint16_t *pair = to + 2 * gsv_lane_at(panel, lane, j);

        pair[0] = gsv_bf16_of(upper[j]);
        pair[1] = gsv_bf16_of(lower[j]);
    }
}

/* Packs one panel, all chunks of k: each chunk is a panel of isa.h over its lanes. */
static void pack_panel(void *job_, int32_t thread, int32_t panel)
{
    const struct matmul_job *job = job_;
    const uint32_t dtype = is_bf16(job->op) ? GPUSERVE_DTYPE_BFLOAT16 : GPUSERVE_DTYPE_FLOAT32;
    const int32_t width = job->isa->panel, lanes = (int32_t)job->plan.lanes;
    const int64_t column = (int64_t)panel * width;

    (void)thread;
    for (int32_t lane = 0; lane < lanes; lane++) {
        const int32_t chunk = lane / DEPTH * DEPTH;
        const size_t depth = (size_t)gsv_min(DEPTH, lanes - chunk), within = (size_t)(lane - chunk);
        const struct gsv_panel_layout layout = gsv_panel_layout(job->isa, dtype, depth);
        const size_t at = (size_t)chunk * job->plan.columns + (size_t)panel * depth * (size_t)width;

        if (is_bf16(job->op))
            pair_rows(job->op, 2 * (int64_t)lane, column, &layout, within,
                      words_at(job, job->plan.panels) + 2 * at);
        else
            read_row(job->op, lane, column, width,
                     floats_at(job, job->plan.panels) + at + gsv_lane_at(&layout, within, 0));
    }
}

/* Packs PACK_ROWS rows of op(A): transposes or copies them, then rounds them, as the plan
 * requires. */
static void pack_rows(void *job_, int32_t thread, int32_t task)
{
    const struct matmul_job *job = job_;
    const struct gpuserve_op_matmul *op = job->op;
    const int32_t row = task * PACK_ROWS, row_end = gsv_min(op->m, row + PACK_ROWS);
    struct gsv_round_bf16 round = { op->a, NULL, (size_t)op->a_stride, job->plan.word_ld, op->k };

    (void)thread;
    if (copies_rows(op)) {
        float *to = floats_at(job, job->plan.rows);

        for (int64_t i = 0; op->transpose_a && i < op->k; i++) {
            for (int32_t r = row; r < row_end; r++)
                to[(size_t)r * job->plan.row_ld + (size_t)i] = op->a[i * op->a_stride + r];
        }
        for (int64_t r = row; !op->transpose_a && r < row_end; r++)
            memcpy(to + (size_t)r * job->plan.row_ld, op->a + r * op->a_stride,
                   (size_t)op->k * sizeof(float));
        round.in = to;
        round.in_ld = job->plan.row_ld;
    }
    if (is_bf16(op)) {
        round.out = words_at(job, job->plan.words);
        job->isa->round_bf16(&round, row, row_end);
    }
}

/* ------------------------------------------------------------------------------------ computing */

/* Multiplies C by beta before the first chunk is added. */
static void scale_rows(const struct gpuserve_op_matmul *op, const struct gsv_span *span,
                       int32_t panel)
{
    const int32_t column_end = gsv_min(op->n, span->panel_end * panel);

    if (op->beta == 0.0f || op->beta == 1.0f)
        return;
    for (int32_t r = span->row; r < span->row_end; r++) {
        for (int32_t j = span->panel * panel; j < column_end; j++)
            op->c[r * op->c_stride + j] *= op->beta;
    }
}

static void run_chunk(const struct matmul_job *job, const struct gsv_span *span, size_t chunk)
{
    const struct gpuserve_op_matmul *op = job->op;
    const size_t depth = job->plan.lanes - chunk < DEPTH ? job->plan.lanes - chunk : DEPTH;
    const struct gsv_finish finish = {
        .bias = floats_at(job, job->plan.bias),
        .residual = chunk > 0 || op->beta != 0.0f ? op->c : NULL,
        .out = op->c,
        .out_ld = (size_t)op->c_stride,
        .n = op->n,
        .activation = GPUSERVE_ACT_NONE,
    };

    if (is_bf16(op)) {
        const struct gsv_gemm_bf16 gemm = {
            .in = words_at(job, job->plan.words) + 2 * chunk,
            .weight = words_at(job, job->plan.panels) + 2 * chunk * job->plan.columns,
            .in_ld = job->plan.word_ld,
            .k = (int32_t)(2 * depth),
            .finish = finish,
        };

        job->isa->gemm_bf16(&gemm, span);
    } else {
        const struct gsv_gemm_f32 gemm = {
            .in = (copies_rows(op) ? floats_at(job, job->plan.rows) : op->a) + chunk,
            .weight = floats_at(job, job->plan.panels) + chunk * job->plan.columns,
            .in_ld = copies_rows(op) ? job->plan.row_ld : (size_t)op->a_stride,
            .k = (int32_t)depth,
            .finish = finish,
        };

        job->isa->gemm_f32(&gemm, span);
    }
}

static void multiply_task(void *job_, int32_t thread, int32_t task)
{
    const struct matmul_job *job = job_;
    struct gsv_span span;

    (void)thread;
    span.row = task % job->row_tasks * TASK_ROWS;
    span.row_end = gsv_min(job->op->m, span.row + TASK_ROWS);
    span.panel = task / job->row_tasks * TASK_PANELS;
    span.panel_end = gsv_min(job->n_panels, span.panel + TASK_PANELS);
    scale_rows(job->op, &span, job->isa->panel);
    for (size_t chunk = 0; chunk < job->plan.lanes; chunk += DEPTH)
        run_chunk(job, &span, chunk);
}

static void run_simd(struct gpuserve_stream *stream, const struct gpuserve_op_matmul *op)
{
    struct matmul_job job = { .op = op, .isa = stream->isa, .scratch = op->scratch };

    (void)make_plan(op, &job.plan); /* checked when the scratch size was computed */
    job.n_panels = gsv_parts(op->n, stream->isa->panel);
    job.row_tasks = gsv_parts(op->m, TASK_ROWS);
    memset(job.scratch + job.plan.bias, 0, job.plan.columns * sizeof(float));
    gsv_thread_pool_run(stream->thread_pool, job.n_panels, pack_panel, &job);
    if (copies_rows(op) || is_bf16(op))
        gsv_thread_pool_run(stream->thread_pool, gsv_parts(op->m, PACK_ROWS), pack_rows, &job);
    gsv_thread_pool_run(stream->thread_pool, job.row_tasks * gsv_parts(job.n_panels, TASK_PANELS),
                        multiply_task, &job);
}

gpuserve_status gsv_cpu_matmul(struct gpuserve_stream *stream, struct gpuserve_op_matmul *op,
                               gpuserve_error *error)
{
    const uint64_t begin = gsv_now_ns();

    (void)error;
    if (op->variant == GPUSERVE_MATMUL_NAIVE)
        gsv_cpu_matmul_naive(op);
    else if (op->variant == GPUSERVE_MATMUL_TILED)
        gsv_cpu_matmul_tiled(op);
    else
        run_simd(stream, op);
    op->seconds = gsv_seconds_since(begin);
    return GPUSERVE_OK;
}
