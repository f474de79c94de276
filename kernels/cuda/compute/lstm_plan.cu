/*
 * lstm_plan.cu - divides a layer among the co-resident blocks of the fused LSTM kernel.
 *
 * A block keeps the recurrent weights of its units in shared memory and reads the hidden states of
 * all its rows at each step. More units per block mean fewer blocks to synchronize; fewer rows per
 * thread group mean less data to read per step. An exhaustive search estimates the time per step of
 * every division that fits. The estimate uses orders of magnitude of a large GPU; only the ranking
 * matters.
 */
#include "kernels/cuda/compute/lstm.cuh"

namespace
{

/* Nanoseconds; bytes per nanosecond of one multiprocessor; multiplications per nanosecond. */
const double SIGNAL_NS = 1000;
const double BLOCK_NS = 5;
const double ALONE_NS = 200;
const double FIXED_NS = 500;
const double FROM_L2 = 60;
const double FROM_SHARED = 200;
const double FLOAT_PRODUCTS = 100;

const int MAX_ROWS = 1024; /* per thread group */

int parts(int whole, int step)
{
    return (whole - 1) / step + 1;
}

int smaller(int a, int b)
{
    return a < b ? a : b;
}

int larger(int a, int b)
{
    return a > b ? a : b;
}

size_t element_size(enum gsv_element element)
{
    return element == GSV_ELEMENT_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Shared memory as carved by the kernel. */
size_t shared_of(const struct gpuserve_lstm_layer *layer, const struct gsv_lstm_plan *plan)
{
    const size_t gates = 4 * static_cast<size_t>(plan->units);
    const size_t weights =
        plan->resident
            ? gates * gsv_lstm_shared_ld(layer->units, layer->element == GSV_ELEMENT_F32) *
                  element_size(layer->element)
            : 0;
    const size_t sums =
        static_cast<size_t>(plan->slices) * plan->tiles * GSV_LSTM_TILE * gates * sizeof(float);
    const size_t rows =
        plan->rows * (sizeof(struct gpuserve_lstm_sequence) + plan->units * sizeof(float));

    return weights + sums + gates * sizeof(float) + rows;
}

/* Derives the remaining fields from a given division. */
void complete(const struct gpuserve_lstm_layer *layer, int n_sequences, struct gsv_lstm_plan *plan)
{
    const int groups = plan->units / GSV_LSTM_GROUP;

    plan->rows = smaller(parts(n_sequences, plan->row_blocks), MAX_ROWS);
    plan->tiles = smaller(parts(plan->rows, GSV_LSTM_TILE), GSV_LSTM_MAX_UNITS / plan->units);
    plan->slices =
        smaller(layer->units / GSV_LSTM_STEP, larger(1, GSV_LSTM_WARPS / (groups * plan->tiles)));
    /* Also enough threads for the gates of a pass. */
    plan->warps = smaller(GSV_LSTM_WARPS, larger(groups * plan->tiles * plan->slices,
                                                 plan->tiles * GSV_LSTM_TILE * plan->units /
                                                     (GSV_LSTM_ELEMENTS * 32)));
    plan->shared_bytes = shared_of(layer, plan);
}

double estimate(const struct gpuserve_lstm_layer *layer, int n_sequences,
                const struct gsv_lstm_plan *plan)
{
    const double size = static_cast<double>(element_size(layer->element));
    const double rows = parts(plan->rows, GSV_LSTM_TILE) * GSV_LSTM_TILE;
    const double tiles = rows / GSV_LSTM_TILE;
    const double weights = 4.0 * plan->units * layer->units;
    const double launches =
        parts(n_sequences, plan->row_blocks * plan->rows) * (layer->directions / plan->directions);
    double ns =
        FIXED_NS + (plan->unit_blocks > 1 ? SIGNAL_NS + BLOCK_NS * plan->unit_blocks : ALONE_NS);

    ns += rows * layer->units * size / FROM_L2;
    ns += tiles * weights * size / (plan->resident ? FROM_SHARED : FROM_L2);
    if (layer->element == GSV_ELEMENT_F32)
        ns += rows * weights / FLOAT_PRODUCTS;
    return launches * ns;
}

struct lstm_plan_search {
    const struct gpuserve_lstm_layer *layer;
    int n_sequences;
    int n_processors;
    size_t shared_bytes;
    struct gsv_lstm_plan best;
    double best_ns; /* 0: nothing found */
};

/* Tries all numbers of thread groups for one division of the units. */
void try_teams(struct lstm_plan_search *s, struct gsv_lstm_plan plan)
{
    const int max_blocks = s->n_processors / (plan.unit_blocks * plan.directions);

    for (plan.row_blocks = 1; plan.row_blocks <= smaller(max_blocks, s->n_sequences);
         plan.row_blocks++) {
        complete(s->layer, s->n_sequences, &plan);
        if (plan.shared_bytes > s->shared_bytes)
            continue;
        const double ns = estimate(s->layer, s->n_sequences, &plan);

        if (s->best_ns == 0 || ns < s->best_ns) {
            s->best_ns = ns;
            s->best = plan;
        }
    }
}

void try_all(struct lstm_plan_search *s, bool resident)
{
    const int groups = s->layer->units / GSV_LSTM_GROUP;

    for (int each = 1; each <= smaller(groups, GSV_LSTM_MAX_UNITS / GSV_LSTM_GROUP); each++) {
        struct gsv_lstm_plan plan = {};

        plan.units = each * GSV_LSTM_GROUP;
        plan.unit_blocks = parts(groups, each);
        plan.resident = resident;
        for (plan.directions = 1; plan.directions <= s->layer->directions; plan.directions++)
            try_teams(s, plan);
    }
}

} /* namespace */

bool gsv_lstm_make_plan(const struct gpuserve_lstm_layer *layer, int32_t n_sequences,
                        int n_processors, size_t shared_bytes, struct gsv_lstm_plan *plan)
{
    struct lstm_plan_search s = { layer, n_sequences, n_processors, shared_bytes, {}, 0 };

    try_all(&s, true);
    if (s.best_ns == 0)
        try_all(&s, false);
    *plan = s.best;
    return s.best_ns > 0;
}
