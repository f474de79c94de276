/*
 * toolkit_loader.cuh - opens a library of the CUDA toolkit at run time.
 */
#ifndef GSV_CUDA_TOOLKIT_LOADER_CUH
#define GSV_CUDA_TOOLKIT_LOADER_CUH

#include <stddef.h>

/* Searches `name` in the loader's path, /usr/local/nvidia/lib64, the toolkit folder, and the
 * nvidia-* Python packages next to the plugin or in the active environment. Opens the first one
 * found; NULL if none can be loaded. Close with dlclose(). */
void *gsv_cuda_open_library(const char *name);

/* After a NULL result: writes the searched places, or why an existing library cannot be loaded.
 * Truncated to `size`. */
void gsv_cuda_tell_missing(const char *name, char *text, size_t size);

#endif
