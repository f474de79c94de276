/*
 * cudnn.cpp - the recurrent layers of cuDNN, in float64 one step and one sequence at a time.
 *
 * One layer of an LSTM or a GRU in one or both directions, as cuDNN's documentation writes their
 * equations, with two biases, over packed data by time step. Rejects what cuDNN rejects: sequences
 * that are not sorted or empty, sizes that do not match the descriptors, a workspace that is too
 * small, memory of the host.
 *
 * The weight space has all biases before all matrices, and the matrices from the last to the first:
 * a caller that does not ask for their places fails.
 */
#include <cmath>
#include <cstring>
#include <vector>

#include <cuda_fp16.h>
#include <cudnn.h>

#include "state.h"

namespace
{

enum { SUCCESS = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, INTERNAL = 4000, FAILED = 5000 };
enum { FLOAT = 0, HALF = 2, LSTM = 2, GRU = 3, PACKED = 1, DOUBLE_BIAS = 2 };

struct handle {
    cudaStream_t stream = nullptr;
};

struct dropout {
    float probability = -1; /* not set */
};

struct rnn {
    bool is_set = false;
    int cell = 0, type = 0, directions = 1, input = 0, hidden = 0;
};

struct data {
    int type = -1, width = 0;
    std::vector<int> lengths;
};

struct tensor {
    int type = -1;
    std::vector<int> dims, strides;
};

int to_status(cudaError_t error)
{
    return error == cudaSuccess                 ? SUCCESS
           : error == cudaErrorMemoryAllocation ? INTERNAL
           : error == cudaErrorInvalidValue     ? BAD_PARAM
                                                : FAILED;
}

template <typename T> int create(const char *name, void **object)
{
    gsv_emu_entry entry(name);

    *object = nullptr;
    if (entry.failed())
        return to_status(entry.error());
    *object = new T;
    gsv_emu.counters.live_objects++;
    return SUCCESS;
}

template <typename T> int destroy(const char *name, void *object)
{
    gsv_emu_entry entry(name);

    gsv_emu.counters.live_objects -= object ? 1 : 0;
    delete static_cast<T *>(object);
    return to_status(entry.error());
}

size_t element_size(int type)
{
    return type == FLOAT ? sizeof(float) : sizeof(uint16_t);
}

double load(const void *from, int type, size_t i)
{
    if (type == FLOAT)
        return static_cast<double>(static_cast<const float *>(from)[i]);
    return static_cast<double>(gsv_emu_half_to_float(static_cast<const uint16_t *>(from)[i]));
}

void store(void *to, int type, size_t i, double value)
{
    if (type == FLOAT)
        static_cast<float *>(to)[i] = static_cast<float>(value);
    else
        static_cast<uint16_t *>(to)[i] = gsv_emu_float_to_half(static_cast<float>(value));
}

bool on_device(const void *p, size_t size)
{
    const gsv_emu_allocation *const found = p ? gsv_emu_find(p, size) : nullptr;

    return found && found->device;
}

int gates_of(const rnn &r)
{
    return r.cell == LSTM ? 4 : 3;
}

size_t align(size_t n)
{
    return (n + 63) / 64 * 64;
}

size_t input_bytes(const rnn &r)
{
    return align(static_cast<size_t>(r.hidden) * static_cast<size_t>(r.input) *
                 element_size(r.type));
}

size_t hidden_bytes(const rnn &r)
{
    return align(static_cast<size_t>(r.hidden) * static_cast<size_t>(r.hidden) *
                 element_size(r.type));
}

size_t bias_bytes(const rnn &r)
{
    return align(static_cast<size_t>(r.hidden) * element_size(r.type));
}

size_t space_bytes(const rnn &r)
{
    const size_t pairs = static_cast<size_t>(r.directions * gates_of(r));

    return pairs * (2 * bias_bytes(r) + input_bytes(r) + hidden_bytes(r));
}

/* The place of a product's bias. */
size_t bias_at(const rnn &r, int direction, int product)
{
    return static_cast<size_t>(direction * 2 * gates_of(r) + product) * bias_bytes(r);
}

/* From the end: recurrent matrices and those of the input alternate. */
size_t matrix_at(const rnn &r, int direction, int product)
{
    const int gates = gates_of(r);
    const size_t pair = static_cast<size_t>(direction * gates + product % gates) + 1;
    const size_t begin = space_bytes(r) - pair * (input_bytes(r) + hidden_bytes(r));

    return product < gates ? begin : begin + input_bytes(r);
}

/* --- forward ------------------------------------------------------------------------------------
 */

struct forward {
    rnn r;
    std::vector<int> lengths;
    const int32_t *device_lengths;
    const void *x, *h_0, *c_0, *weights;
    void *y, *h_n, *c_n;
};

double sigmoid(double v)
{
    return 1 / (1 + exp(-v));
}

/* Row `unit` of a product with `v`, and its bias. */
double multiply(const forward &f, int direction, int product, int unit,
                const std::vector<double> &v)
{
    const char *const space = static_cast<const char *>(f.weights);
    const void *const matrix = space + matrix_at(f.r, direction, product);
    double sum =
        load(space + bias_at(f.r, direction, product), f.r.type, static_cast<size_t>(unit));

    for (size_t i = 0; i < v.size(); i++)
        sum += load(matrix, f.r.type, static_cast<size_t>(unit) * v.size() + i) * v[i];
    return sum;
}

/* Products: i, f, c', o of the input, then of h. */
void lstm_step(const forward &f, int direction, const std::vector<double> &x,
               std::vector<double> *h, std::vector<double> *c)
{
    const std::vector<double> before = *h;

    for (int j = 0; j < f.r.hidden; j++) {
        double sums[4];

        for (int g = 0; g < 4; g++)
            sums[g] = multiply(f, direction, g, j, x) + multiply(f, direction, 4 + g, j, before);
        double &cell = (*c)[static_cast<size_t>(j)];
        cell = sigmoid(sums[1]) * cell + sigmoid(sums[0]) * tanh(sums[2]);
        (*h)[static_cast<size_t>(j)] = sigmoid(sums[3]) * tanh(cell);
    }
}

/* Products: r, i, h' of the input, then of h. */
void gru_step(const forward &f, int direction, const std::vector<double> &x, std::vector<double> *h)
{
    const std::vector<double> before = *h;

    for (int j = 0; j < f.r.hidden; j++) {
        const double reset =
            sigmoid(multiply(f, direction, 0, j, x) + multiply(f, direction, 3, j, before));
        const double update =
            sigmoid(multiply(f, direction, 1, j, x) + multiply(f, direction, 4, j, before));
        const double fresh =
            tanh(multiply(f, direction, 2, j, x) + reset * multiply(f, direction, 5, j, before));

        (*h)[static_cast<size_t>(j)] =
            (1 - update) * fresh + update * before[static_cast<size_t>(j)];
    }
}

std::vector<double> load_state(const forward &f, const void *from, int direction, size_t sequence)
{
    const size_t hidden = static_cast<size_t>(f.r.hidden);
    std::vector<double> state(hidden);

    for (size_t j = 0; from && j < hidden; j++)
        state[j] =
            load(from, f.r.type,
                 (static_cast<size_t>(direction) * f.lengths.size() + sequence) * hidden + j);
    return state;
}

void store_state(const forward &f, void *to, int direction, size_t sequence,
                 const std::vector<double> &state)
{
    for (size_t j = 0; to && j < state.size(); j++)
        store(to, f.r.type,
              (static_cast<size_t>(direction) * f.lengths.size() + sequence) * state.size() + j,
              state[j]);
}

/* The row of each step of a sequence in the packed layout. */
std::vector<size_t> rows_of(const forward &f, size_t sequence)
{
    std::vector<size_t> rows;
    size_t begin = 0;

    for (int step = 0; step < f.lengths[sequence]; step++) {
        rows.push_back(begin + sequence);
        for (const int length : f.lengths)
            begin += length > step ? 1 : 0;
    }
    return rows;
}

void run_sequence(const forward &f, int direction, size_t sequence)
{
    const std::vector<size_t> rows = rows_of(f, sequence);
    const size_t input = static_cast<size_t>(f.r.input), hidden = static_cast<size_t>(f.r.hidden);
    std::vector<double> h = load_state(f, f.h_0, direction, sequence);
    std::vector<double> c = load_state(f, f.c_0, direction, sequence);

    for (size_t i = 0; i < rows.size(); i++) {
        const size_t row = rows[direction ? rows.size() - 1 - i : i];
        std::vector<double> x(input);

        for (size_t j = 0; j < input; j++)
            x[j] = load(f.x, f.r.type, row * input + j);
        if (f.r.cell == LSTM)
            lstm_step(f, direction, x, &h, &c);
        else
            gru_step(f, direction, x, &h);
        for (size_t j = 0; j < hidden; j++)
            store(f.y, f.r.type,
                  (row * static_cast<size_t>(f.r.directions) + static_cast<size_t>(direction)) *
                          hidden +
                      j,
                  h[j]);
    }
    store_state(f, f.h_n, direction, sequence, h);
    store_state(f, f.c_n, direction, sequence, c);
}

cudaError_t run(const forward &f)
{
    for (size_t i = 0; i < f.lengths.size(); i++)
        if (f.device_lengths[i] != f.lengths[i])
            return cudaErrorIllegalAddress;
    for (int d = 0; d < f.r.directions; d++)
        for (size_t i = 0; i < f.lengths.size(); i++)
            run_sequence(f, d, i);
    return cudaSuccess;
}

/* --- checks -------------------------------------------------------------------------------------
 */

size_t rows_in(const data &d)
{
    size_t n = 0;

    for (const int length : d.lengths)
        n += static_cast<size_t>(length);
    return n;
}

size_t work_bytes(const rnn &r, const data &d)
{
    return rows_in(d) * static_cast<size_t>(r.hidden) * 16 + 256;
}

bool fits_state(const tensor &t, const rnn &r, const data &x)
{
    const int n = static_cast<int>(x.lengths.size());

    return t.type == r.type && t.dims == std::vector<int>{ r.directions, n, r.hidden } &&
           t.strides == std::vector<int>{ n * r.hidden, r.hidden, 1 };
}

bool is_consistent(const rnn &r, const data &x, const data &y, const tensor *h, const tensor *c)
{
    return r.is_set && x.type == r.type && y.type == r.type && x.lengths == y.lengths &&
           x.width == r.input && y.width == r.directions * r.hidden && h && fits_state(*h, r, x) &&
           (r.cell == GRU || (c && fits_state(*c, r, x)));
}

bool is_on_device(const forward &f, size_t rows, size_t weight_size)
{
    const size_t size = element_size(f.r.type);
    const size_t hidden = static_cast<size_t>(f.r.directions) * static_cast<size_t>(f.r.hidden);
    const size_t state = f.lengths.size() * hidden * size;
    const bool has_cell = f.r.cell == LSTM;

    return on_device(f.device_lengths, f.lengths.size() * sizeof(int32_t)) &&
           on_device(f.x, rows * static_cast<size_t>(f.r.input) * size) &&
           on_device(f.y, rows * hidden * size) && on_device(f.weights, weight_size) &&
           (!f.h_0 || on_device(f.h_0, state)) && (!f.h_n || on_device(f.h_n, state)) &&
           (!has_cell || !f.c_0 || on_device(f.c_0, state)) &&
           (!has_cell || !f.c_n || on_device(f.c_n, state));
}

} /* namespace */

extern "C" {

int cudnnCreate(void **object)
{
    return create<handle>("cudnnCreate", object);
}

int cudnnDestroy(void *object)
{
    return destroy<handle>("cudnnDestroy", object);
}

int cudnnSetStream(void *object, cudaStream_t stream)
{
    gsv_emu_entry entry("cudnnSetStream");

    if (entry.failed())
        return to_status(entry.error());
    static_cast<handle *>(object)->stream = stream;
    return SUCCESS;
}

const char *cudnnGetErrorString(int status)
{
    switch (status) {
    case SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case INTERNAL:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    default:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}

int cudnnCreateDropoutDescriptor(void **object)
{
    return create<dropout>("cudnnCreateDropoutDescriptor", object);
}

int cudnnDestroyDropoutDescriptor(void *object)
{
    return destroy<dropout>("cudnnDestroyDropoutDescriptor", object);
}

int cudnnSetDropoutDescriptor(void *object, void *handle, float probability, void *states,
                              size_t size, unsigned long long seed)
{
    gsv_emu_entry entry("cudnnSetDropoutDescriptor");

    (void)seed;
    if (entry.failed())
        return to_status(entry.error());
    if (!handle || probability < 0 || probability > 1 || (states && size == 0))
        return BAD_PARAM;
    static_cast<dropout *>(object)->probability = probability;
    return SUCCESS;
}

int cudnnCreateRNNDescriptor(void **object)
{
    return create<rnn>("cudnnCreateRNNDescriptor", object);
}

int cudnnDestroyRNNDescriptor(void *object)
{
    return destroy<rnn>("cudnnDestroyRNNDescriptor", object);
}

int cudnnSetRNNDescriptor_v8(void *object, int algorithm, int cell, int bias, int direction,
                             int input, int type, int precision, int math, int32_t input_size,
                             int32_t hidden_size, int32_t projection, int32_t layers,
                             void *dropout_object, uint32_t flags)
{
    gsv_emu_entry entry("cudnnSetRNNDescriptor_v8");
    const dropout *const of = static_cast<const dropout *>(dropout_object);

    if (entry.failed())
        return to_status(entry.error());
    if (input_size < 1 || hidden_size < 1 || !of || of->probability < 0)
        return BAD_PARAM;
    /* Half needs tensor cores, as math types go; FMA (3) is of float alone. */
    if (algorithm != 0 || (cell != LSTM && cell != GRU) || bias != DOUBLE_BIAS || direction > 1 ||
        input != 0 || (type != FLOAT && type != HALF) || precision != FLOAT ||
        math != (type == HALF ? 1 : 3) || projection != hidden_size || layers != 1 || flags != 0 ||
        of->probability != 0)
        return NOT_SUPPORTED;
    rnn *const r = static_cast<rnn *>(object);
    r->is_set = true;
    r->cell = cell;
    r->type = type;
    r->directions = direction + 1;
    r->input = input_size;
    r->hidden = hidden_size;
    return SUCCESS;
}

int cudnnCreateRNNDataDescriptor(void **object)
{
    return create<data>("cudnnCreateRNNDataDescriptor", object);
}

int cudnnDestroyRNNDataDescriptor(void *object)
{
    return destroy<data>("cudnnDestroyRNNDataDescriptor", object);
}

int cudnnSetRNNDataDescriptor(void *object, int type, int layout, int max_length, int n, int width,
                              const int *lengths, void *padding)
{
    gsv_emu_entry entry("cudnnSetRNNDataDescriptor");

    (void)padding;
    if (entry.failed())
        return to_status(entry.error());
    if (layout != PACKED)
        return NOT_SUPPORTED;
    if (n < 1 || width < 1 || max_length < 1 || !lengths)
        return BAD_PARAM;
    for (int i = 0; i < n; i++)
        if (lengths[i] < 1 || lengths[i] > max_length || (i > 0 && lengths[i] > lengths[i - 1]))
            return BAD_PARAM;
    data *const d = static_cast<data *>(object);
    d->type = type;
    d->width = width;
    d->lengths.assign(lengths, lengths + n);
    return SUCCESS;
}

int cudnnCreateTensorDescriptor(void **object)
{
    return create<tensor>("cudnnCreateTensorDescriptor", object);
}

int cudnnDestroyTensorDescriptor(void *object)
{
    return destroy<tensor>("cudnnDestroyTensorDescriptor", object);
}

int cudnnSetTensorNdDescriptor(void *object, int type, int rank, const int *dims,
                               const int *strides)
{
    gsv_emu_entry entry("cudnnSetTensorNdDescriptor");
    tensor *const t = static_cast<tensor *>(object);

    if (entry.failed())
        return to_status(entry.error());
    if (rank < 3 || rank > 8)
        return BAD_PARAM;
    t->type = type;
    t->dims.assign(dims, dims + rank);
    t->strides.assign(strides, strides + rank);
    return SUCCESS;
}

int cudnnGetRNNWeightSpaceSize(void *object, void *rnn_object, size_t *size)
{
    gsv_emu_entry entry("cudnnGetRNNWeightSpaceSize");
    const rnn *const r = static_cast<const rnn *>(rnn_object);

    if (entry.failed())
        return to_status(entry.error());
    if (!object || !r->is_set)
        return BAD_PARAM;
    *size = space_bytes(*r);
    return SUCCESS;
}

int cudnnGetRNNWeightParams(void *object, void *rnn_object, int32_t layer, size_t size,
                            const void *space, int32_t product, void *matrix_tensor, void **matrix,
                            void *bias_tensor, void **bias)
{
    gsv_emu_entry entry("cudnnGetRNNWeightParams");
    const rnn *const r = static_cast<const rnn *>(rnn_object);
    char *const begin = static_cast<char *>(const_cast<void *>(space));

    if (entry.failed())
        return to_status(entry.error());
    if (!object || !r->is_set || layer < 0 || layer >= r->directions || product < 0 ||
        product >= 2 * gates_of(*r) || size != space_bytes(*r) || !matrix_tensor || !bias_tensor)
        return BAD_PARAM;
    *matrix = begin + matrix_at(*r, layer, product);
    *bias = begin + bias_at(*r, layer, product);
    return SUCCESS;
}

int cudnnGetRNNTempSpaceSizes(void *object, void *rnn_object, int mode, void *data_object,
                              size_t *work, size_t *reserve)
{
    gsv_emu_entry entry("cudnnGetRNNTempSpaceSizes");
    const rnn *const r = static_cast<const rnn *>(rnn_object);
    const data *const d = static_cast<const data *>(data_object);

    if (entry.failed())
        return to_status(entry.error());
    if (!object || !r->is_set || d->lengths.empty() || mode != 0)
        return BAD_PARAM;
    *work = work_bytes(*r, *d);
    *reserve = 0;
    return SUCCESS;
}

int cudnnRNNForward(void *object, void *rnn_object, int mode, const int32_t *lengths, void *x_data,
                    const void *x, void *y_data, void *y, void *h_tensor, const void *h_0,
                    void *h_n, void *c_tensor, const void *c_0, void *c_n, size_t weight_size,
                    const void *weights, size_t work_size, void *work, size_t reserve_size,
                    void *reserve)
{
    gsv_emu_entry entry("cudnnRNNForward");
    gsv_emu_operation operation = { gsv_emu_work::product, 0, nullptr, nullptr, {} };
    const data *const in = static_cast<const data *>(x_data);
    const rnn *const r = static_cast<const rnn *>(rnn_object);

    (void)reserve_size;
    (void)reserve;
    if (entry.failed())
        return to_status(entry.error());
    if (!object || mode != 0 ||
        !is_consistent(*r, *in, *static_cast<const data *>(y_data),
                       static_cast<const tensor *>(h_tensor),
                       static_cast<const tensor *>(c_tensor)) ||
        weight_size != space_bytes(*r) || work_size < work_bytes(*r, *in))
        return BAD_PARAM;
    const forward f = { *r, in->lengths, lengths, x, h_0, c_0, weights, y, h_n, c_n };
    if (!is_on_device(f, rows_in(*in), weight_size) || !on_device(work, work_size))
        return to_status(entry.finish(cudaErrorIllegalAddress));
    operation.run = [f] { return run(f); };
    return to_status(entry.finish(gsv_emu_enqueue(
        gsv_emu_stream(static_cast<const handle *>(object)->stream), std::move(operation))));
}

} // extern "C"
