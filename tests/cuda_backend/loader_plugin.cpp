/*
 * loader_plugin.cpp - the loader of toolkit libraries in a shared object of its own, which a test
 * copies to where a wheel has the plugin.
 */
#include "kernels/cuda/runtime/toolkit_loader.cu"

extern "C" __attribute__((visibility("default"))) void *test_open_library(const char *name);

extern "C" void *test_open_library(const char *name)
{
    return gsv_cuda_open_library(name);
}
