/*
 * cudnn.cuh - the recurrent layers of cuDNN 9, loaded with dlopen().
 *
 * The prototypes and values are those of cudnn_ops_v9.h, cudnn_adv_v9.h and cudnn_graph_v9.h of
 * NVIDIA cuDNN 9, written with the types of their ABI: a handle or descriptor is a pointer, an
 * enumeration an int. A build so needs no header of cuDNN; with one, cudnn_loader.cu compares the
 * values.
 */
#ifndef GSV_CUDA_CUDNN_CUH
#define GSV_CUDA_CUDNN_CUH

#include <cuda_runtime.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Values that carry the name that they have in cuDNN. */
enum gsv_cudnn_value {
    GSV_CUDNN_STATUS_SUCCESS = 0,
    GSV_CUDNN_STATUS_NOT_SUPPORTED = 3000, /* to 3999 */
    GSV_CUDNN_DATA_FLOAT = 0,
    GSV_CUDNN_DATA_HALF = 2,
    GSV_CUDNN_TENSOR_OP_MATH = 1,
    GSV_CUDNN_FMA_MATH = 3,
    GSV_CUDNN_RNN_ALGO_STANDARD = 0,
    GSV_CUDNN_FWD_MODE_INFERENCE = 0,
    GSV_CUDNN_LSTM = 2,
    GSV_CUDNN_GRU = 3,
    GSV_CUDNN_RNN_DOUBLE_BIAS = 2,
    GSV_CUDNN_UNIDIRECTIONAL = 0,
    GSV_CUDNN_BIDIRECTIONAL = 1,
    GSV_CUDNN_LINEAR_INPUT = 0,
    GSV_CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED = 1,
    GSV_CUDNN_RNN_PADDED_IO_DISABLED = 0
};

struct gsv_cudnn_functions {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    const char *(*text_of)(int status);
    int (*dropout_create)(void **dropout);
    int (*dropout_destroy)(void *dropout);
    int (*dropout_set)(void *dropout, void *handle, float probability, void *states, size_t size,
                       unsigned long long seed);
    int (*rnn_create)(void **rnn);
    int (*rnn_destroy)(void *rnn);
    int (*rnn_set)(void *rnn, int algorithm, int cell, int bias, int direction, int input, int type,
                   int precision, int math, int32_t input_size, int32_t hidden_size,
                   int32_t projection, int32_t layers, void *dropout, uint32_t flags);
    int (*data_create)(void **data);
    int (*data_destroy)(void *data);
    int (*data_set)(void *data, int type, int layout, int max_length, int n, int width,
                    const int *lengths, void *padding);
    int (*tensor_create)(void **tensor);
    int (*tensor_destroy)(void *tensor);
    int (*tensor_set)(void *tensor, int type, int rank, const int *dims, const int *strides);
    int (*weight_bytes)(void *handle, void *rnn, size_t *size);
    int (*weight_at)(void *handle, void *rnn, int32_t layer, size_t size, const void *space,
                     int32_t product, void *matrix_tensor, void **matrix, void *bias_tensor,
                     void **bias);
    int (*work_bytes)(void *handle, void *rnn, int mode, void *data, size_t *work, size_t *reserve);
    int (*forward)(void *handle, void *rnn, int mode, const int32_t *lengths, void *x_data,
                   const void *x, void *y_data, void *y, void *h_tensor, const void *h_0, void *h_n,
                   void *c_tensor, const void *c_0, void *c_n, size_t weight_size,
                   const void *weights, size_t work_size, void *work, size_t reserve_size,
                   void *reserve);
};

/* One of each device, opened at the first use. */
struct gsv_cudnn {
    void *library; /* NULL in the emulator */
    struct gsv_cudnn_functions f;
    void *handle;
    pthread_mutex_t lock; /* of a call's stream and work */
};

/* The handle is of the current device. NULL if the library is not available or its initialization
 * fails, which is no error; `why` then has the cause. */
struct gsv_cudnn *gsv_cudnn_open(char *why, size_t size);
void gsv_cudnn_close(struct gsv_cudnn **cudnn);

#endif
