/*
 * lstm_cudnn.cu - a recurrent layer by cudnnRNNForward() (CUDNN variant).
 *
 *   weights -> cuDNN's weight space           rows -> x, by time step, longest sequence first
 *   h_0, c_0 -> in the order of the sequences
 *   cudnnRNNForward
 *   y -> rows                                 h_n, c_n -> in the caller's order
 *
 * Everything is in the scratch memory of the run. Sequences of length 0 have no place in cuDNN's
 * packed layout: they are the last ones, and keep their initial states.
 *
 *   Needs:  cuDNN 9.
 *   Oracle: kernels/ref/lstm.c.
 */
#include "kernels/cuda/compute/lstm.cuh"
#include "kernels/cuda/runtime/cudnn.cuh"
#include "kernels/cuda/runtime/stream.cuh"
#include "kernels/cuda/runtime/types.cuh"

#include <stdlib.h>

namespace
{

const int THREADS = 256;

/* ------------------------------------------------------------------------------------- kernels */

/* Where a row of cuDNN's packed layout is: offsets[step] + the sequence's index. */
struct packed_rows {
    const int32_t *offsets; /* [max_length] */
    int32_t n;              /* sequences of at least one step */
    int32_t max_length;
};

__device__ __forceinline__ int64_t thread_number()
{
    return static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
}

/* `in`: rows [n_rows, columns] to x; else y to rows. */
template <typename T, bool in>
__global__ void __launch_bounds__(THREADS)
    cudnn_rows(const struct gsv_lstm_run run, const struct packed_rows packed, T *data, float *rows,
               int columns)
{
    const int64_t i = thread_number();

    if (i >= static_cast<int64_t>(packed.n) * packed.max_length * columns)
        return;
    const int column = static_cast<int>(i % columns);
    const int step = static_cast<int>(i / columns % packed.max_length);
    const int sequence = static_cast<int>(i / columns / packed.max_length);
    const struct gpuserve_lstm_sequence s = run.sequences[sequence];

    if (step >= s.length)
        return;
    const int64_t at = (packed.offsets[step] + static_cast<int64_t>(sequence)) * columns + column;
    const int64_t row = (s.first + static_cast<int64_t>(step)) * columns + column;

    if (in)
        data[at] = gsv_from_float<T>(rows[row]);
    else
        rows[row] = gsv_to_float(data[at]);
}

/* `in`: the caller's states to [directions, n, hidden], zeros if there are none; else back. */
template <typename T, bool in>
__global__ void __launch_bounds__(THREADS)
    cudnn_states(const struct gsv_lstm_run run, int n, T *data, float *states)
{
    const int hidden = run.layer.hidden;
    const int64_t i = thread_number();

    if (i >= static_cast<int64_t>(run.layer.directions) * n * hidden)
        return;
    const int64_t sequence = i / hidden % n;
    const int64_t direction = i / hidden / n;
    const int64_t at =
        (direction * run.n_sequences + run.sequences[sequence].number) * hidden + i % hidden;

    if (in)
        data[i] = gsv_from_float<T>(states ? states[at] : 0.f);
    else
        states[at] = gsv_to_float(data[i]);
}

/* The final states of the sequences from `first` on are their initial ones. */
__global__ void __launch_bounds__(THREADS) cudnn_empty(const struct gsv_lstm_run run, int first)
{
    const int hidden = run.layer.hidden;
    const int n = run.n_sequences - first;
    const int64_t i = thread_number();

    if (i >= static_cast<int64_t>(run.layer.directions) * n * hidden)
        return;
    const int64_t sequence = first + i / hidden % n;
    const int64_t at =
        (i / hidden / n * run.n_sequences + run.sequences[sequence].number) * hidden + i % hidden;

    run.h_n[at] = run.h_0 ? run.h_0[at] : 0.f;
    run.c_n[at] = run.layer.cell == GPUSERVE_CELL_LSTM && run.c_0 ? run.c_0[at] : 0.f;
}

/* A matrix without the padding of its rows; from == NULL: zeros. */
template <typename T, typename From>
__global__ void __launch_bounds__(THREADS)
    cudnn_weights(T *to, const From *from, int rows, int columns, int64_t ld)
{
    const int64_t i = thread_number();

    if (i < static_cast<int64_t>(rows) * columns)
        to[i] = gsv_from_float<T>(from ? gsv_to_float(from[i / columns * ld + i % columns]) : 0.f);
}

unsigned blocks_for(int64_t n)
{
    return static_cast<unsigned>((n - 1) / THREADS + 1);
}

/* ---------------------------------------------------------------------------------- descriptors */

/* The cuDNN descriptors of one run. All zero: none is open. */
struct rnn {
    struct gsv_cudnn *cudnn;
    void *dropout, *descriptor, *x, *y, *state, *matrix, *bias;
    const char *failed; /* the call that failed */
    int status;
};

/* Notes the first failure. */
bool passes(struct rnn *r, const char *call, int status)
{
    if (r->status == GSV_CUDNN_STATUS_SUCCESS && status != GSV_CUDNN_STATUS_SUCCESS) {
        r->failed = call;
        r->status = status;
    }
    return status == GSV_CUDNN_STATUS_SUCCESS;
}

void close_rnn(struct rnn *r)
{
    const struct gsv_cudnn_functions *const f = &r->cudnn->f;

    if (r->bias)
        f->tensor_destroy(r->bias);
    if (r->matrix)
        f->tensor_destroy(r->matrix);
    if (r->state)
        f->tensor_destroy(r->state);
    if (r->y)
        f->data_destroy(r->y);
    if (r->x)
        f->data_destroy(r->x);
    if (r->descriptor)
        f->rnn_destroy(r->descriptor);
    if (r->dropout)
        f->dropout_destroy(r->dropout);
}

bool create_all(struct rnn *r)
{
    const struct gsv_cudnn_functions *const f = &r->cudnn->f;

    return passes(r, "cudnnCreateDropoutDescriptor", f->dropout_create(&r->dropout)) &&
           passes(r, "cudnnCreateRNNDescriptor", f->rnn_create(&r->descriptor)) &&
           passes(r, "cudnnCreateRNNDataDescriptor", f->data_create(&r->x)) &&
           passes(r, "cudnnCreateRNNDataDescriptor", f->data_create(&r->y)) &&
           passes(r, "cudnnCreateTensorDescriptor", f->tensor_create(&r->state)) &&
           passes(r, "cudnnCreateTensorDescriptor", f->tensor_create(&r->matrix)) &&
           passes(r, "cudnnCreateTensorDescriptor", f->tensor_create(&r->bias));
}

/* The sequences that have a step: the first ones. */
int32_t count_active(const struct gpuserve_op_lstm *op)
{
    int32_t n = op->n_sequences;

    while (n > 0 && op->host_sequences[n - 1].length == 0)
        n--;
    return n;
}

/* float32 is computed without TF32. Without dropout a descriptor of it needs no states. */
bool set_all(struct rnn *r, const struct gpuserve_op_lstm *op, int32_t n, const int *lengths)
{
    const struct gsv_cudnn_functions *const f = &r->cudnn->f;
    const struct gpuserve_lstm_layer *const layer = op->layer;
    const bool is_float = layer->element == GSV_ELEMENT_F32;
    const int type = is_float ? GSV_CUDNN_DATA_FLOAT : GSV_CUDNN_DATA_HALF;
    const int packed = GSV_CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED;
    const int dims[3] = { layer->directions, n, layer->hidden };
    const int strides[3] = { n * layer->hidden, layer->hidden, 1 };

    return passes(r, "cudnnSetDropoutDescriptor",
                  f->dropout_set(r->dropout, r->cudnn->handle, 0.f, NULL, 0, 0)) &&
           passes(r, "cudnnSetRNNDescriptor_v8",
                  f->rnn_set(r->descriptor, GSV_CUDNN_RNN_ALGO_STANDARD,
                             layer->cell == GPUSERVE_CELL_LSTM ? GSV_CUDNN_LSTM : GSV_CUDNN_GRU,
                             GSV_CUDNN_RNN_DOUBLE_BIAS,
                             layer->directions == 2 ? GSV_CUDNN_BIDIRECTIONAL
                                                    : GSV_CUDNN_UNIDIRECTIONAL,
                             GSV_CUDNN_LINEAR_INPUT, type, GSV_CUDNN_DATA_FLOAT,
                             is_float ? GSV_CUDNN_FMA_MATH : GSV_CUDNN_TENSOR_OP_MATH, layer->input,
                             layer->hidden, layer->hidden, 1, r->dropout,
                             GSV_CUDNN_RNN_PADDED_IO_DISABLED)) &&
           passes(r, "cudnnSetRNNDataDescriptor",
                  f->data_set(r->x, type, packed, lengths[0], n, layer->input, lengths, NULL)) &&
           passes(r, "cudnnSetRNNDataDescriptor",
                  f->data_set(r->y, type, packed, lengths[0], n, layer->directions * layer->hidden,
                              lengths, NULL)) &&
           passes(r, "cudnnSetTensorNdDescriptor", f->tensor_set(r->state, type, 3, dims, strides));
}

/* ------------------------------------------------------------------------------------- scratch */

/* Offsets in bytes. */
struct cudnn_plan {
    int32_t n, max_length;
    size_t weight_bytes, work_bytes;
    size_t weights, index, x, y, h, c, h_n, c_n, work, total;
};

bool take(struct cudnn_plan *plan, size_t *at, size_t rows, size_t columns, size_t size)
{
    size_t bytes;

    *at = plan->total;
    return gsv_mul_size(rows, columns, &bytes) && gsv_mul_size(bytes, size, &bytes) &&
           gsv_round_up(bytes, 256) != SIZE_MAX &&
           gsv_add_size(plan->total, gsv_round_up(bytes, 256), &plan->total);
}

bool take_all(struct cudnn_plan *plan, const struct gpuserve_op_lstm *op)
{
    const struct gpuserve_lstm_layer *const layer = op->layer;
    const size_t size = gsv_lstm_element_size(layer);
    const size_t rows = static_cast<size_t>(op->n_rows);
    const size_t states = static_cast<size_t>(layer->directions) * static_cast<size_t>(plan->n);
    const size_t hidden = static_cast<size_t>(layer->hidden);

    return take(plan, &plan->weights, plan->weight_bytes, 1, 1) &&
           take(plan, &plan->index,
                static_cast<size_t>(plan->n) + static_cast<size_t>(plan->max_length), 1,
                sizeof(int32_t)) &&
           take(plan, &plan->x, rows, static_cast<size_t>(layer->input), size) &&
           take(plan, &plan->y, rows, static_cast<size_t>(layer->directions) * hidden, size) &&
           take(plan, &plan->h, states, hidden, size) &&
           take(plan, &plan->c, states, hidden, size) &&
           take(plan, &plan->h_n, states, hidden, size) &&
           take(plan, &plan->c_n, states, hidden, size) &&
           take(plan, &plan->work, plan->work_bytes, 1, 1);
}

bool ask_sizes(struct rnn *r, struct cudnn_plan *plan)
{
    const struct gsv_cudnn *const c = r->cudnn;
    size_t reserve = 0; /* of training only */

    return passes(r, "cudnnGetRNNWeightSpaceSize",
                  c->f.weight_bytes(c->handle, r->descriptor, &plan->weight_bytes)) &&
           passes(r, "cudnnGetRNNTempSpaceSizes",
                  c->f.work_bytes(c->handle, r->descriptor, GSV_CUDNN_FWD_MODE_INFERENCE, r->x,
                                  &plan->work_bytes, &reserve));
}

/* The lengths of the n sequences, then where each step begins in the packed layout. Owned. NULL
 * when out of memory. */
int32_t *make_index(const struct gpuserve_op_lstm *op, int32_t n, int32_t max_length)
{
    const size_t count = static_cast<size_t>(n) + static_cast<size_t>(max_length);
    int32_t *const index = static_cast<int32_t *>(malloc(count * sizeof(int32_t)));
    int32_t active = n, at = 0;

    for (int32_t i = 0; index && i < n; i++)
        index[i] = op->host_sequences[i].length;
    for (int32_t step = 0; index && step < max_length; step++) {
        while (index[active - 1] <= step)
            active--;
        index[n + step] = at;
        at += active;
    }
    return index;
}

/* Opens the descriptors of a run and asks for its sizes. False: r->status is the failure, or
 * GSV_CUDNN_STATUS_SUCCESS if host memory ran out. */
bool open_rnn(struct rnn *r, struct gsv_cudnn *cudnn, const struct gpuserve_op_lstm *op,
              struct cudnn_plan *plan, int32_t **index)
{
    *r = {};
    *plan = {};
    r->cudnn = cudnn;
    plan->n = count_active(op);
    plan->max_length = plan->n > 0 ? op->host_sequences[0].length : 0;
    *index = plan->n > 0 ? make_index(op, plan->n, plan->max_length) : NULL;
    if (plan->n == 0)
        return true;
    return *index && create_all(r) && set_all(r, op, plan->n, *index) && ask_sizes(r, plan);
}

gpuserve_status tell(const struct rnn *r, const char *device, gpuserve_error *error)
{
    const bool is_refused = r->status / 1000 == GSV_CUDNN_STATUS_NOT_SUPPORTED / 1000;

    if (r->status == GSV_CUDNN_STATUS_SUCCESS)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the lengths of sequences");
    return gsv_fail(error, is_refused ? GPUSERVE_E_UNSUPPORTED : GPUSERVE_E_DEVICE,
                    "variant cudnn on %s: %s: %s", device, r->failed,
                    r->cudnn->f.text_of(r->status));
}

/* Opens the device's cuDNN at the first call. */
gpuserve_status open_cudnn(struct gpuserve_device *device, gpuserve_error *error)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    gpuserve_status status = gsv_cuda_use(device, error);
    char why[400] = "";

    if (status != GPUSERVE_OK)
        return status;
    pthread_mutex_lock(&lock);
    if (!device->cudnn)
        device->cudnn = gsv_cudnn_open(why, sizeof(why));
    if (!device->cudnn)
        status = gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "variant cudnn: %s", why);
    pthread_mutex_unlock(&lock);
    return status;
}

} /* namespace */

gpuserve_status gsv_cuda_lstm_cudnn_bytes(struct gpuserve_device *device,
                                          const struct gpuserve_op_lstm *op, size_t *size,
                                          gpuserve_error *error)
{
    gpuserve_status status;
    struct cudnn_plan plan;
    struct rnn r;
    int32_t *index;

    if (op->layer->cell == GPUSERVE_CELL_GRU_RESET_BEFORE)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "variant cudnn: cuDNN has no GRU with the reset gate before the product of "
                        "the new state");
    status = open_cudnn(device, error);
    if (status != GPUSERVE_OK)
        return status;
    pthread_mutex_lock(&device->cudnn->lock);
    if (!open_rnn(&r, device->cudnn, op, &plan, &index))
        status = tell(&r, device->name, error);
    else if (plan.n > 0 && !take_all(&plan, op))
        status =
            gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                     "an LSTM over %d rows: the size of its scratch memory overflows", op->n_rows);
    close_rnn(&r);
    pthread_mutex_unlock(&device->cudnn->lock);
    free(index);
    *size = plan.total;
    return status;
}

/* ----------------------------------------------------------------------------------- computing */

namespace
{

struct cudnn_work {
    struct gpuserve_stream *stream;
    const struct gpuserve_op_lstm *op;
    const struct gsv_lstm_run *run;
    struct cudnn_plan plan;
    struct rnn rnn;
};

void *at(const struct cudnn_work *w, size_t offset)
{
    return static_cast<char *>(w->op->scratch) + offset;
}

/* The matrix and the bias of one product of a gate: that of the input, or with `recurrent` that of
 * h. A GRU's new state has a bias in both; any other gate has the sum of both in the first. */
template <typename T>
cudaError_t copy_gate(struct cudnn_work *w, int direction, int gate, bool recurrent)
{
    const struct gpuserve_lstm_layer *const layer = &w->run->layer;
    const bool is_gru = layer->cell != GPUSERVE_CELL_LSTM;
    const int gates = gpuserve_cell_gates(layer->cell);
    const int block = is_gru && gate == 2 && recurrent ? 3 : gate; /* of our layout */
    const int columns = recurrent ? layer->hidden : layer->input;
    const int64_t row = (static_cast<int64_t>(direction) * 4 + block) * layer->units;
    const bool has_bias = !recurrent || (is_gru && gate == 2);
    const struct gsv_cudnn *const c = w->rnn.cudnn;
    void *matrix = NULL, *bias = NULL;
    cudaError_t code;

    if (!passes(&w->rnn, "cudnnGetRNNWeightParams",
                c->f.weight_at(c->handle, w->rnn.descriptor, direction, w->plan.weight_bytes,
                               at(w, w->plan.weights), gate + (recurrent ? gates : 0),
                               w->rnn.matrix, &matrix, w->rnn.bias, &bias)))
        return cudaErrorNotSupported;
    code =
        GSV_LAUNCH((cudnn_weights<T, T>), blocks_for(static_cast<int64_t>(layer->hidden) * columns),
                   THREADS, 0, w->stream->queue, static_cast<T *>(matrix),
                   static_cast<const T *>(layer->weight) + row * gsv_lstm_ld(layer) +
                       (recurrent ? layer->in_up : 0),
                   layer->hidden, columns, gsv_lstm_ld(layer));
    if (code != cudaSuccess)
        return code;
    return GSV_LAUNCH((cudnn_weights<T, float>), blocks_for(layer->hidden), THREADS, 0,
                      w->stream->queue, static_cast<T *>(bias), has_bias ? layer->bias + row : NULL,
                      1, layer->hidden, 0);
}

template <typename T> cudaError_t copy_weights(struct cudnn_work *w)
{
    const struct gpuserve_lstm_layer *const layer = &w->run->layer;
    const int gates = gpuserve_cell_gates(layer->cell);
    cudaError_t code = cudaSuccess;

    for (int d = 0; d < layer->directions; d++)
        for (int i = 0; i < 2 * gates && code == cudaSuccess; i++)
            code = copy_gate<T>(w, d, i % gates, i >= gates);
    return code;
}

template <typename T, bool in>
cudaError_t copy_rows(const struct cudnn_work *w, void *data, float *rows, int columns)
{
    const int32_t *const index = static_cast<const int32_t *>(at(w, w->plan.index));
    const struct packed_rows packed = { index + w->plan.n, w->plan.n, w->plan.max_length };
    const int64_t n = static_cast<int64_t>(packed.n) * packed.max_length * columns;

    return n / THREADS >= INT32_MAX
               ? cudaErrorInvalidValue
               : GSV_LAUNCH((cudnn_rows<T, in>), blocks_for(n), THREADS, 0, w->stream->queue,
                            *w->run, packed, static_cast<T *>(data), rows, columns);
}

template <typename T, bool in>
cudaError_t copy_states(const struct cudnn_work *w, size_t offset, float *states)
{
    const int64_t n =
        static_cast<int64_t>(w->run->layer.directions) * w->plan.n * w->run->layer.hidden;

    return GSV_LAUNCH((cudnn_states<T, in>), blocks_for(n), THREADS, 0, w->stream->queue, *w->run,
                      w->plan.n, static_cast<T *>(at(w, offset)), states);
}

/* The kernels read the initial states only. */
template <typename T> cudaError_t copy_in(struct cudnn_work *w)
{
    const struct gpuserve_lstm_layer *const layer = &w->run->layer;
    cudaError_t code = copy_weights<T>(w);

    if (code == cudaSuccess)
        code =
            copy_rows<T, true>(w, at(w, w->plan.x), const_cast<float *>(w->run->in), layer->input);
    if (code == cudaSuccess)
        code = copy_states<T, true>(w, w->plan.h, const_cast<float *>(w->run->h_0));
    if (code == cudaSuccess && layer->cell == GPUSERVE_CELL_LSTM)
        code = copy_states<T, true>(w, w->plan.c, const_cast<float *>(w->run->c_0));
    return code;
}

template <typename T> cudaError_t copy_out(const struct cudnn_work *w)
{
    const struct gpuserve_lstm_layer *const layer = &w->run->layer;
    cudaError_t code =
        copy_rows<T, false>(w, at(w, w->plan.y), w->run->out, layer->directions * layer->hidden);

    if (code == cudaSuccess)
        code = copy_states<T, false>(w, w->plan.h_n, w->run->h_n);
    if (code == cudaSuccess && layer->cell == GPUSERVE_CELL_LSTM)
        code = copy_states<T, false>(w, w->plan.c_n, w->run->c_n);
    return code;
}

bool call_forward(struct cudnn_work *w)
{
    const struct gsv_cudnn *const c = w->rnn.cudnn;
    const struct cudnn_plan *const p = &w->plan;
    const bool has_cell = w->run->layer.cell == GPUSERVE_CELL_LSTM;

    return passes(&w->rnn, "cudnnSetStream", c->f.set_stream(c->handle, w->stream->queue)) &&
           passes(&w->rnn, "cudnnRNNForward",
                  c->f.forward(c->handle, w->rnn.descriptor, GSV_CUDNN_FWD_MODE_INFERENCE,
                               static_cast<const int32_t *>(at(w, p->index)), w->rnn.x, at(w, p->x),
                               w->rnn.y, at(w, p->y), w->rnn.state, at(w, p->h), at(w, p->h_n),
                               has_cell ? w->rnn.state : NULL, has_cell ? at(w, p->c) : NULL,
                               has_cell ? at(w, p->c_n) : NULL, p->weight_bytes, at(w, p->weights),
                               p->work_bytes, at(w, p->work), 0, NULL));
}

template <typename T> cudaError_t run_layer(struct cudnn_work *w)
{
    cudaError_t code = copy_in<T>(w);

    if (code == cudaSuccess && !call_forward(w)) {
        code = cudaGetLastError();
        code = code == cudaSuccess ? cudaErrorNotSupported : code;
    }
    return code == cudaSuccess ? copy_out<T>(w) : code;
}

/* Sequences without steps keep their states. */
cudaError_t finish_empty(const struct cudnn_work *w)
{
    const int64_t n = static_cast<int64_t>(w->run->layer.directions) *
                      (w->run->n_sequences - w->plan.n) * w->run->layer.hidden;

    return n == 0 ? cudaSuccess
                  : GSV_LAUNCH(cudnn_empty, blocks_for(n), THREADS, 0, w->stream->queue, *w->run,
                               w->plan.n);
}

} /* namespace */

cudaError_t gsv_cuda_lstm_cudnn(struct gpuserve_stream *stream, const struct gpuserve_op_lstm *op,
                                const struct gsv_lstm_run *run, struct gsv_lstm_cudnn_run *kept)
{
    struct cudnn_work w = { stream, op, run, {}, {} };
    struct gsv_cudnn *const cudnn = stream->device->cudnn;
    cudaError_t code = cudaErrorNotSupported;

    pthread_mutex_lock(&cudnn->lock);
    if (open_rnn(&w.rnn, cudnn, op, &w.plan, &kept->index) &&
        (w.plan.n == 0 || take_all(&w.plan, op))) {
        code = finish_empty(&w);
        if (code == cudaSuccess && w.plan.n > 0)
            code = cudaMemcpyAsync(
                at(&w, w.plan.index), kept->index,
                (static_cast<size_t>(w.plan.n) + static_cast<size_t>(w.plan.max_length)) *
                    sizeof(int32_t),
                cudaMemcpyHostToDevice, stream->queue);
        if (code == cudaSuccess && w.plan.n > 0)
            code =
                run->layer.element == GSV_ELEMENT_F32 ? run_layer<float>(&w) : run_layer<half>(&w);
    }
    close_rnn(&w.rnn);
    pthread_mutex_unlock(&cudnn->lock);
    kept->failed = w.rnn.failed ? w.rnn.failed : "the launch of lstm";
    return code;
}
