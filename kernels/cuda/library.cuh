/*
 * library.cuh - a library of the CUDA toolkit, opened at run time.
 */
#ifndef GSV_CUDA_LIBRARY_CUH
#define GSV_CUDA_LIBRARY_CUH

/* `name` from the loader's path, /usr/local/nvidia/lib64, the toolkit's folder, or the nvidia-*
 * Python packages beside the plugin; NULL where it is in none. Closed by dlclose(). */
void *gsv_cuda_open_library(const char *name);

#endif
