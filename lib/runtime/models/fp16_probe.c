/*
 * fp16_probe.c - detects activations that overflow the range of float16.
 *
 * Weights trained in bfloat16 or float32 may produce activations above 65,504. An infinity in any
 * layer becomes NaN in the next LayerNorm, and attention spreads it to every token of its text. So
 * checking the outputs is enough. Every task is run, because each has layers of its own.
 */
#include "lib/runtime/models/load_steps.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/number.h"

#include <stdlib.h>

/* Overflows come from the special tokens and the most frequent words. */
#define MAX_TOKENS 96

/* As many of the first texts as fit MAX_TOKENS and the batch limits. */
static struct gpuserve_host_batch first_texts(const struct gpuserve_host_batch *all,
                                              const struct gsv_plan *plan)
{
    const int32_t capacity = plan->narrow.max_tokens,
                  max_tokens = MAX_TOKENS < capacity ? MAX_TOKENS : capacity;
    struct gpuserve_host_batch batch = *all;

    batch.n_sequences = batch.n_tokens = batch.max_seqlen = 0;
    while (batch.n_sequences < all->n_sequences && batch.n_sequences < plan->narrow.max_sequences) {
        const int32_t end = all->cu_seqlens[batch.n_sequences + 1], length = end - batch.n_tokens;

        if (end > max_tokens && (batch.n_sequences > 0 || end > capacity))
            break;
        batch.n_sequences++;
        batch.n_tokens = end;
        batch.max_seqlen = length > batch.max_seqlen ? length : batch.max_seqlen;
    }
    return batch;
}

static gpuserve_status run_task(bool *overflows, const struct gsv_plan *plan, struct gsv_exec *work,
                                const struct gpuserve_host_batch *batch, uint32_t task,
                                float *output, gpuserve_error *error)
{
    const struct gsv_run run = {
        .task = task, .dimensions = plan->facts->dim, .score = GPUSERVE_SCORE_RAW, .output = output
    };
    const int32_t n_rows =
        gsv_runs_by_token(plan->facts, task) ? batch->n_tokens : batch->n_sequences;
    const size_t n = (size_t)n_rows * (size_t)gsv_run_columns(plan->facts, &run);
    const gpuserve_status st = gsv_net_run(work, batch, &run, error);

    if (st == GPUSERVE_OK && !gsv_all_finite(output, n))
        *overflows = true;
    return st;
}

static gpuserve_status run_tasks(bool *overflows, const struct gsv_plan *plan,
                                 struct gsv_exec *work, const struct gpuserve_host_batch *batch,
                                 float *output, gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = plan->facts;
    gpuserve_status st = GPUSERVE_OK;

    if (facts->dim > 0)
        st = run_task(overflows, plan, work, batch, GPUSERVE_TASK_EMBED, output, error);
    if (st == GPUSERVE_OK && gsv_classifies(facts))
        st = run_task(overflows, plan, work, batch, GPUSERVE_TASK_CLASSIFY, output, error);
    if (st == GPUSERVE_OK && facts->labels_tokens)
        st = run_task(overflows, plan, work, batch, GPUSERVE_TASK_TOKEN_LABELS, output, error);
    if (st == GPUSERVE_OK && facts->is_late)
        st = run_task(overflows, plan, work, batch, GPUSERVE_TASK_TOKEN_VECTORS, output, error);
    if (st == GPUSERVE_OK && facts->is_sparse)
        st = run_task(overflows, plan, work, batch, GPUSERVE_TASK_SPARSE, output, error);
    return st;
}

gpuserve_status gsv_probe_overflow(bool *overflows, const struct gsv_plan *plan,
                                   const struct gsv_net *net, gpuserve_error *error)
{
    struct gsv_calibration texts;
    struct gpuserve_host_batch batch;
    struct gsv_exec *work = NULL;
    float *output = NULL;
    gpuserve_status st = gsv_calibration_make(&texts, plan, error);

    *overflows = false;
    if (st != GPUSERVE_OK)
        return st;
    batch = first_texts(&texts.batch, plan);
    if (batch.n_sequences > 0) {
        output = gsv_alloc_array(gsv_plan_output_floats(plan), sizeof(*output));
        st = output ? gsv_exec_create(&work, net, &plan->narrow, error)
                    : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a first batch");
        if (st == GPUSERVE_OK)
            st = run_tasks(overflows, plan, work, &batch, output, error);
        gsv_exec_free(&work);
        free(output);
    }
    gsv_calibration_reset(&texts);
    return st;
}
