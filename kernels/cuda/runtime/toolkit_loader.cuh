/*
 * toolkit_loader.cuh - a library of the CUDA toolkit, opened at run time.
 */
#ifndef GSV_CUDA_TOOLKIT_LOADER_CUH
#define GSV_CUDA_TOOLKIT_LOADER_CUH

#include <stddef.h>

/* `name` from the loader's path, /usr/local/nvidia/lib64, the toolkit's folder, or the nvidia-*
 * packages of Python beside the plugin or in the active environment, the first that has it; NULL
 * where it is in none. Closed by dlclose(). */
void *gsv_cuda_open_library(const char *name);

/* After that gave NULL: what was looked for and where, or why the one that is there is no use. Cut
 * off where it is longer than `size`. */
void gsv_cuda_tell_missing(const char *name, char *text, size_t size);

#endif
