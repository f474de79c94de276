/*
 * cudnn.h - the part of cuDNN 9 that the emulator implements; replaces NVIDIA's header.
 *
 * Handles and descriptors are pointers and enumerations are ints, as in the ABI. The functions are
 * in tests/cudaemu/runtime/cudnn.cpp.
 */
#ifndef GSV_EMU_CUDNN_H
#define GSV_EMU_CUDNN_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

GSV_EMU_CUDA int cudnnCreate(void **handle);
GSV_EMU_CUDA int cudnnDestroy(void *handle);
GSV_EMU_CUDA int cudnnSetStream(void *handle, cudaStream_t stream);
GSV_EMU_CUDA const char *cudnnGetErrorString(int status);
GSV_EMU_CUDA int cudnnCreateDropoutDescriptor(void **dropout);
GSV_EMU_CUDA int cudnnDestroyDropoutDescriptor(void *dropout);
GSV_EMU_CUDA int cudnnSetDropoutDescriptor(void *dropout, void *handle, float probability,
                                           void *states, size_t size, unsigned long long seed);
GSV_EMU_CUDA int cudnnCreateRNNDescriptor(void **rnn);
GSV_EMU_CUDA int cudnnDestroyRNNDescriptor(void *rnn);
GSV_EMU_CUDA int cudnnSetRNNDescriptor_v8(void *rnn, int algorithm, int cell, int bias,
                                          int direction, int input, int type, int precision,
                                          int math, int32_t input_size, int32_t hidden_size,
                                          int32_t projection, int32_t layers, void *dropout,
                                          uint32_t flags);
GSV_EMU_CUDA int cudnnCreateRNNDataDescriptor(void **data);
GSV_EMU_CUDA int cudnnDestroyRNNDataDescriptor(void *data);
GSV_EMU_CUDA int cudnnSetRNNDataDescriptor(void *data, int type, int layout, int max_length, int n,
                                           int width, const int *lengths, void *padding);
GSV_EMU_CUDA int cudnnCreateTensorDescriptor(void **tensor);
GSV_EMU_CUDA int cudnnDestroyTensorDescriptor(void *tensor);
GSV_EMU_CUDA int cudnnSetTensorNdDescriptor(void *tensor, int type, int rank, const int *dims,
                                            const int *strides);
GSV_EMU_CUDA int cudnnGetRNNWeightSpaceSize(void *handle, void *rnn, size_t *size);
GSV_EMU_CUDA int cudnnGetRNNWeightParams(void *handle, void *rnn, int32_t layer, size_t size,
                                         const void *space, int32_t product, void *matrix_tensor,
                                         void **matrix, void *bias_tensor, void **bias);
GSV_EMU_CUDA int cudnnGetRNNTempSpaceSizes(void *handle, void *rnn, int mode, void *data,
                                           size_t *work, size_t *reserve);
GSV_EMU_CUDA int cudnnRNNForward(void *handle, void *rnn, int mode, const int32_t *lengths,
                                 void *x_data, const void *x, void *y_data, void *y, void *h_tensor,
                                 const void *h_0, void *h_n, void *c_tensor, const void *c_0,
                                 void *c_n, size_t weight_size, const void *weights,
                                 size_t work_size, void *work, size_t reserve_size, void *reserve);

#endif
