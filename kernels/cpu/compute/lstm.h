/*
 * lstm.h - one layer of an LSTM or a GRU on the CPU: declarations shared by lstm.c and lstm_rows.c.
 */
#ifndef GSV_CPU_LSTM_H
#define GSV_CPU_LSTM_H

#include "kernels/cpu/runtime/cpu.h"

#include <stdbool.h>

#define GSV_LSTM_CHUNK 12 /* steps whose input products are computed at a time; whole tiles */

struct gpuserve_lstm_layer {
    int32_t input, hidden, directions;
    int32_t gates;                 /* blocks of weight rows: 4, of a GRU 3 */
    uint32_t cell;                 /* gpuserve_cell */
    struct gpuserve_linear *ih[2]; /* with the bias */
    struct gpuserve_linear *hh[2]; /* GRU: with b_hn */
    struct gpuserve_linear *hn[2]; /* RESET_BEFORE: the last block of hh, which has the others */
};

/* Columns of all gates. */
static inline int32_t gsv_cpu_lstm_columns(const struct gpuserve_lstm_layer *layer)
{
    return layer->gates * layer->hidden;
}

/* One direction of a run. Row i of sums, h and c belongs to sequence i, longest first. */
struct gsv_cpu_lstm_job {
    const struct gpuserve_op_lstm *op;
    const struct gsv_cpu_isa *isa;
    int32_t direction;
    int32_t step; /* STEPS only, as the next one */
    bool by_steps;
    float *add;   /* input products: by groups [n, GSV_LSTM_CHUNK, columns]; else all,
                     [n_rows, directions, columns]; STEPS: [n, columns] */
    float *sums;  /* [n, columns] */
    float *h, *c; /* [n, hidden] */
    float *in;    /* STEPS: [n, input] */
};

/* The input row of sequence i at a step. */
static inline size_t gsv_cpu_lstm_row(const struct gsv_cpu_lstm_job *job, int32_t i, int32_t step)
{
    const struct gpuserve_lstm_sequence *s = &job->op->sequences[i];

    return (size_t)(s->first + (job->direction ? s->length - 1 - step : step));
}

/* The gates of row i at a step; only_reset: only c = s(r) * h, the input of the product with `hn`.
 * `add` has the row's input products. */
static inline void gsv_cpu_lstm_gates(const struct gsv_cpu_lstm_job *job, int32_t i, int32_t step,
                                      const float *add, bool only_reset)
{
    const struct gpuserve_lstm_layer *l = job->op->layer;
    const size_t hidden = (size_t)l->hidden, at = (size_t)i * hidden;
    const size_t r = gsv_cpu_lstm_row(job, i, step) * (size_t)l->directions;
    const struct gsv_lstm_gates gates = {
        .sums = job->sums + (size_t)i * (size_t)gsv_cpu_lstm_columns(l),
        .add = add,
        .c = job->c + at,
        .h = job->h + at,
        .out = job->op->out + (r + (size_t)job->direction) * hidden,
        .reset_before = l->cell == GPUSERVE_CELL_GRU_RESET_BEFORE,
        .n = l->hidden,
    };

    if (only_reset)
        job->isa->gru_reset(&gates);
    else if (l->cell == GPUSERVE_CELL_LSTM)
        job->isa->lstm_gates(&gates);
    else
        job->isa->gru_gates(&gates);
}

/* lstm_rows.c: run the recurrence of all directions, jobs[directions], with groups of sequences
 * spread over the threads. The initial states must be in h and c. */
void gsv_cpu_lstm_rows(struct gpuserve_stream *stream, const struct gsv_cpu_lstm_job *jobs);

/* True if gsv_cpu_lstm_rows() is faster than one product for each step over all threads. */
bool gsv_cpu_lstm_fits_rows(const struct gpuserve_lstm_layer *layer);

#endif
