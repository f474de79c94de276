/*
 * lstm_gates, gru_gates, gru_reset: the elementwise part of one step of an LSTM or a GRU for one
 * sequence: from the gate sums to the states c and h. Gate order: input, forget, cell, output;
 * reset, update, new.
 */
#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vmath.h"

GSV_INLINE vf load(const float *p, int lanes)
{
    return lanes == GSV_VL ? vf_load(p) : vf_load_part(p, lanes);
}

GSV_INLINE void store(float *p, vf v, int lanes)
{
    if (lanes == GSV_VL)
        vf_store(p, v);
    else
        vf_store_part(p, v, lanes);
}

/* Sums of gate `number` for `lanes` units from j on. */
GSV_INLINE vf gate(const struct gsv_lstm_gates *g, int number, int32_t j, int lanes)
{
    const size_t at = (size_t)number * (size_t)g->n + (size_t)j;

    return load(g->sums + at, lanes) + load(g->add + at, lanes);
}

GSV_INLINE void lstm_units(const struct gsv_lstm_gates *g, int32_t j, int lanes)
{
    const vf in = vf_sigmoid(gate(g, 0, j, lanes));
    const vf forget = vf_sigmoid(gate(g, 1, j, lanes));
    const vf cell = vf_tanh(gate(g, 2, j, lanes));
    const vf out = vf_sigmoid(gate(g, 3, j, lanes));
    const vf c = vf_fma(forget, load(g->c + j, lanes), in * cell);
    const vf h = out * vf_tanh(c);

    store(g->c + j, c, lanes);
    store(g->h + j, h, lanes);
    store(g->out + j, h, lanes);
}

void GSV_VARIANT(gsv_lstm_gates)(const struct gsv_lstm_gates *g)
{
    int32_t j = 0;

    for (; j + GSV_VL <= g->n; j += GSV_VL)
        lstm_units(g, j, GSV_VL);
    if (j < g->n)
        lstm_units(g, j, g->n - j);
}

/* The two products of the new state meet behind the reset gate. */
GSV_INLINE vf new_state(const struct gsv_lstm_gates *g, int32_t j, int lanes)
{
    const size_t at = 2 * (size_t)g->n + (size_t)j;
    const vf reset = vf_sigmoid(gate(g, 0, j, lanes));

    return vf_tanh(vf_fma(reset, load(g->sums + at, lanes), load(g->add + at, lanes)));
}

GSV_INLINE void gru_units(const struct gsv_lstm_gates *g, int32_t j, int lanes)
{
    const vf update = vf_sigmoid(gate(g, 1, j, lanes));
    const vf fresh = g->reset_before ? vf_tanh(gate(g, 2, j, lanes)) : new_state(g, j, lanes);
    const vf h = vf_fma(update, load(g->h + j, lanes) - fresh, fresh);

    store(g->h + j, h, lanes);
    store(g->out + j, h, lanes);
}

void GSV_VARIANT(gsv_gru_gates)(const struct gsv_lstm_gates *g)
{
    int32_t j = 0;

    for (; j + GSV_VL <= g->n; j += GSV_VL)
        gru_units(g, j, GSV_VL);
    if (j < g->n)
        gru_units(g, j, g->n - j);
}

void GSV_VARIANT(gsv_gru_reset)(const struct gsv_lstm_gates *g)
{
    for (int32_t j = 0; j < g->n; j += GSV_VL) {
        const int lanes = g->n - j < GSV_VL ? g->n - j : GSV_VL;

        store(g->c + j, vf_sigmoid(gate(g, 0, j, lanes)) * load(g->h + j, lanes), lanes);
    }
}
