/*
 * library.cuh - a library of the CUDA toolkit, opened at run time.
 */
#ifndef GSV_CUDA_LIBRARY_CUH
#define GSV_CUDA_LIBRARY_CUH

/* `name` from the loader's path, the toolkit's folder, /usr/local/nvidia/lib64, or the nvidia-*
 * packages of Python beside the plugin or in the active environment; NULL where it is in none.
 * Closed by dlclose(). */
void *gsv_cuda_open_library(const char *name);

#endif
