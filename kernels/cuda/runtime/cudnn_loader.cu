/*
 * cudnn_loader.cu - loads cuDNN at run time and creates a handle.
 *
 * In the emulator the functions are linked instead of loaded.
 */
#include "kernels/cuda/runtime/cudnn.cuh"

#include "kernels/cuda/runtime/cublaslt.cuh"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define LIBRARY_NAME "libcudnn.so.9"

#ifdef GSV_CUDA_EMU
#include <cudnn.h>

static bool load_functions(struct gsv_cudnn *cudnn, char *why, size_t size)
{
    (void)why;
    (void)size;
    cudnn->f = { cudnnCreate,
                 cudnnDestroy,
                 cudnnSetStream,
                 cudnnGetErrorString,
                 cudnnCreateDropoutDescriptor,
                 cudnnDestroyDropoutDescriptor,
                 cudnnSetDropoutDescriptor,
                 cudnnCreateRNNDescriptor,
                 cudnnDestroyRNNDescriptor,
                 cudnnSetRNNDescriptor_v8,
                 cudnnCreateRNNDataDescriptor,
                 cudnnDestroyRNNDataDescriptor,
                 cudnnSetRNNDataDescriptor,
                 cudnnCreateTensorDescriptor,
                 cudnnDestroyTensorDescriptor,
                 cudnnSetTensorNdDescriptor,
                 cudnnGetRNNWeightSpaceSize,
                 cudnnGetRNNWeightParams,
                 cudnnGetRNNTempSpaceSizes,
                 cudnnRNNForward };
    return true;
}

#else

#if __has_include(<cudnn.h>)
#include <cudnn.h>

#define SAME(name) static_assert(GSV_##name == static_cast<int>(name), #name)
SAME(CUDNN_STATUS_SUCCESS);
SAME(CUDNN_DATA_FLOAT);
SAME(CUDNN_DATA_HALF);
SAME(CUDNN_TENSOR_OP_MATH);
SAME(CUDNN_FMA_MATH);
SAME(CUDNN_RNN_ALGO_STANDARD);
SAME(CUDNN_FWD_MODE_INFERENCE);
SAME(CUDNN_LSTM);
SAME(CUDNN_GRU);
SAME(CUDNN_RNN_DOUBLE_BIAS);
SAME(CUDNN_UNIDIRECTIONAL);
SAME(CUDNN_BIDIRECTIONAL);
SAME(CUDNN_LINEAR_INPUT);
SAME(CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED);
SAME(CUDNN_RNN_PADDED_IO_DISABLED);
#endif

template <typename F> static bool load(void *library, const char *name, F *function)
{
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != NULL;
}

static bool load_descriptors(void *library, struct gsv_cudnn_functions *f)
{
    return load(library, "cudnnCreateDropoutDescriptor", &f->dropout_create) &&
           load(library, "cudnnDestroyDropoutDescriptor", &f->dropout_destroy) &&
           load(library, "cudnnSetDropoutDescriptor", &f->dropout_set) &&
           load(library, "cudnnCreateRNNDescriptor", &f->rnn_create) &&
           load(library, "cudnnDestroyRNNDescriptor", &f->rnn_destroy) &&
           load(library, "cudnnSetRNNDescriptor_v8", &f->rnn_set) &&
           load(library, "cudnnCreateRNNDataDescriptor", &f->data_create) &&
           load(library, "cudnnDestroyRNNDataDescriptor", &f->data_destroy) &&
           load(library, "cudnnSetRNNDataDescriptor", &f->data_set) &&
           load(library, "cudnnCreateTensorDescriptor", &f->tensor_create) &&
           load(library, "cudnnDestroyTensorDescriptor", &f->tensor_destroy) &&
           load(library, "cudnnSetTensorNdDescriptor", &f->tensor_set);
}

static bool load_functions(struct gsv_cudnn *cudnn, char *why, size_t size)
{
    void *const library = gsv_cuda_open_library(LIBRARY_NAME);
    struct gsv_cudnn_functions *const f = &cudnn->f;

    cudnn->library = library;
    if (!library) {
        gsv_cuda_tell_missing(LIBRARY_NAME, why, size);
        return false;
    }
    snprintf(why, size, LIBRARY_NAME " does not export a required function");
    return load(library, "cudnnCreate", &f->create) && load(library, "cudnnDestroy", &f->destroy) &&
           load(library, "cudnnSetStream", &f->set_stream) &&
           load(library, "cudnnGetErrorString", &f->text_of) && load_descriptors(library, f) &&
           load(library, "cudnnGetRNNWeightSpaceSize", &f->weight_bytes) &&
           load(library, "cudnnGetRNNWeightParams", &f->weight_at) &&
           load(library, "cudnnGetRNNTempSpaceSizes", &f->work_bytes) &&
           load(library, "cudnnRNNForward", &f->forward);
}

#endif

struct gsv_cudnn *gsv_cudnn_open(char *why, size_t size)
{
    struct gsv_cudnn *cudnn = static_cast<struct gsv_cudnn *>(calloc(1, sizeof(*cudnn)));
    int status;

    snprintf(why, size, "out of memory");
    if (!cudnn)
        return NULL;
    pthread_mutex_init(&cudnn->lock, NULL);
    if (!load_functions(cudnn, why, size)) {
        gsv_cudnn_close(&cudnn);
        return NULL;
    }
    status = cudnn->f.create(&cudnn->handle);
    if (status != GSV_CUDNN_STATUS_SUCCESS) {
        snprintf(why, size, "cudnnCreate: %s", cudnn->f.text_of(status));
        cudnn->handle = NULL;
        gsv_cudnn_close(&cudnn);
    }
    return cudnn;
}

void gsv_cudnn_close(struct gsv_cudnn **cudnn)
{
    struct gsv_cudnn *const c = cudnn ? *cudnn : NULL;

    if (!c)
        return;
    *cudnn = NULL;
    if (c->handle)
        c->f.destroy(c->handle);
    if (c->library)
        dlclose(c->library);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
