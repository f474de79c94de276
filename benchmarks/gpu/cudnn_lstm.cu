/*
 * cudnn_lstm.cu - P9: time of cudnnRNNForward for the LSTMs of lstm.py, as JSON lines.
 *
 * cuDNN is optional: it is loaded by dlopen, and its header is used if present at compile time.
 * Missing parts are reported in a line with "skipped". Results are not compared here; lstm.py
 * compares ours with torch, which uses cuDNN.
 *
 * Weights and inputs are constant, because the time does not depend on them. Of cuDNN's algorithms,
 * the fastest one that supports the sizes is reported.
 */
#include <stdio.h>
#include <stdlib.h>

#if defined(GSV_CUDA_EMU) || !__has_include(<cudnn.h>)

int main()
{
    puts("{\"stage\": \"lstm\", \"name\": \"cudnnRNNForward\", \"skipped\": \"compiled without "
         "cudnn.h\"}");
    return 0;
}

#else

#include <cuda_runtime.h>
#include <cudnn.h>
#include <dlfcn.h>

#include <algorithm>
#include <vector>

namespace
{

struct size {
    int input, hidden, directions, sequences, steps;
};

/* As in lstm.py; the first is the size of P9. */
const size SIZES[] = { { 1024, 1024, 1, 64, 100 },
                       { 512, 512, 2, 64, 100 },
                       { 256, 256, 1, 8, 200 } };
const cudnnRNNAlgo_t ALGORITHMS[] = { CUDNN_RNN_ALGO_STANDARD, CUDNN_RNN_ALGO_PERSIST_STATIC };
const int RUNS = 20;

[[noreturn]] void skip(const char *what, const char *why)
{
    printf("{\"stage\": \"lstm\", \"name\": \"cudnnRNNForward\", \"skipped\": \"%s: %s\"}\n", what,
           why);
    exit(0);
}

void *library;

template <typename Function> Function *find(const char *name)
{
    void *const at = dlsym(library, name);

    if (!at)
        skip(name, "libcudnn has it not");
    return reinterpret_cast<Function *>(at);
}

#define FIND(name) decltype(name) *const name##_ = find<decltype(name)>(#name)

struct memory {
    void *at = NULL;

    explicit memory(size_t bytes)
    {
        const cudaError_t code = cudaMalloc(&at, std::max<size_t>(bytes, 1));

        if (code != cudaSuccess || cudaMemset(at, 0x11, bytes) != cudaSuccess)
            skip("cudaMalloc", cudaGetErrorString(code));
    }
    ~memory()
    {
        cudaFree(at);
    }
};

/* Median milliseconds; negative if cuDNN does not support it. */
float time_one(cudnnHandle_t handle, const size &s, cudnnDataType_t type, cudnnRNNAlgo_t algorithm)
{
    FIND(cudnnCreateDropoutDescriptor);
    FIND(cudnnDropoutGetStatesSize);
    FIND(cudnnSetDropoutDescriptor);
    FIND(cudnnCreateRNNDescriptor);
    FIND(cudnnSetRNNDescriptor_v8);
    FIND(cudnnCreateRNNDataDescriptor);
    FIND(cudnnSetRNNDataDescriptor);
    FIND(cudnnCreateTensorDescriptor);
    FIND(cudnnSetTensorNdDescriptor);
    FIND(cudnnGetRNNWeightSpaceSize);
    FIND(cudnnGetRNNTempSpaceSizes);
    FIND(cudnnRNNForward);
    const size_t element = type == CUDNN_DATA_HALF ? 2 : 4;
    const size_t rows = static_cast<size_t>(s.sequences) * s.steps;
    const int dims[3] = { s.directions, s.sequences, s.hidden };
    const int strides[3] = { s.sequences * s.hidden, s.hidden, 1 };
    const std::vector<int> lengths(s.sequences, s.steps);
    cudnnDropoutDescriptor_t dropout;
    cudnnRNNDescriptor_t rnn;
    cudnnRNNDataDescriptor_t in, out;
    cudnnTensorDescriptor_t state;
    size_t states_bytes = 0, weight_bytes = 0, work_bytes = 0, reserve_bytes = 0;

    if (cudnnCreateDropoutDescriptor_(&dropout) || cudnnCreateRNNDescriptor_(&rnn) ||
        cudnnCreateRNNDataDescriptor_(&in) || cudnnCreateRNNDataDescriptor_(&out) ||
        cudnnCreateTensorDescriptor_(&state) || cudnnDropoutGetStatesSize_(handle, &states_bytes))
        return -1;
    const memory states(states_bytes);
    if (cudnnSetDropoutDescriptor_(dropout, handle, 0.f, states.at, states_bytes, 1) ||
        cudnnSetRNNDescriptor_v8_(
            rnn, algorithm, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS,
            s.directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
            type, CUDNN_DATA_FLOAT, type == CUDNN_DATA_HALF ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH,
            s.input, s.hidden, s.hidden, 1, dropout, CUDNN_RNN_PADDED_IO_DISABLED) ||
        cudnnSetRNNDataDescriptor_(in, type, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, s.steps,
                                   s.sequences, s.input, lengths.data(), NULL) ||
        cudnnSetRNNDataDescriptor_(out, type, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, s.steps,
                                   s.sequences, s.directions * s.hidden, lengths.data(), NULL) ||
        cudnnSetTensorNdDescriptor_(state, type, 3, dims, strides) ||
        cudnnGetRNNWeightSpaceSize_(handle, rnn, &weight_bytes) ||
        cudnnGetRNNTempSpaceSizes_(handle, rnn, CUDNN_FWD_MODE_INFERENCE, in, &work_bytes,
                                   &reserve_bytes))
        return -1;
    const memory x(rows * s.input * element), y(rows * s.directions * s.hidden * element);
    const memory weights(weight_bytes), work(work_bytes), reserve(reserve_bytes);
    const memory on_device(lengths.size() * sizeof(int));
    std::vector<float> times;
    cudaEvent_t begin, end;

    cudaMemcpy(on_device.at, lengths.data(), lengths.size() * sizeof(int), cudaMemcpyHostToDevice);
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int i = 0; i < RUNS + 3; i++) { /* three warm-up runs */
        float ms = 0;

        cudaEventRecord(begin);
        if (cudnnRNNForward_(handle, rnn, CUDNN_FWD_MODE_INFERENCE,
                             static_cast<const int *>(on_device.at), in, x.at, out, y.at, state,
                             NULL, NULL, state, NULL, NULL, weight_bytes, weights.at, work_bytes,
                             work.at, reserve_bytes, reserve.at))
            return -1;
        cudaEventRecord(end);
        if (cudaEventSynchronize(end) != cudaSuccess ||
            cudaEventElapsedTime(&ms, begin, end) != cudaSuccess)
            return -1;
        if (i >= 3)
            times.push_back(ms);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

void say(const size &s, const char *dtype, float ms, bool large)
{
    printf("{\"stage\": \"lstm\", \"name\": \"cudnnRNNForward\", \"size\": [%d, %d, %d, %d, %d], "
           "\"dtype\": \"%s\", \"ms\": %.4f, \"large\": %s}\n",
           s.input, s.hidden, s.directions, s.sequences, s.steps, dtype, static_cast<double>(ms),
           large ? "true" : "false");
}

} /* namespace */

int main()
{
    cudnnHandle_t handle;
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);

    library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        skip("libcudnn.so.9", "the loader does not find it");
    if (code != cudaSuccess || count == 0)
        skip("cudaGetDeviceCount", cudaGetErrorString(code));
    FIND(cudnnCreate);
    FIND(cudnnGetErrorString);
    const cudnnStatus_t status = cudnnCreate_(&handle);
    if (status != CUDNN_STATUS_SUCCESS)
        skip("cudnnCreate", cudnnGetErrorString_(status));
    for (const size &s : SIZES) {
        for (const cudnnDataType_t type : { CUDNN_DATA_FLOAT, CUDNN_DATA_HALF }) {
            float best = -1;

            for (const cudnnRNNAlgo_t algorithm : ALGORITHMS) {
                const float ms = time_one(handle, s, type, algorithm);

                best = ms >= 0 && (best < 0 || ms < best) ? ms : best;
            }
            if (best >= 0)
                say(s, type == CUDNN_DATA_HALF ? "float16" : "float32", best,
                    &s == SIZES && type == CUDNN_DATA_HALF);
        }
    }
    return 0;
}

#endif
