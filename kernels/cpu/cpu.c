/*
 * cpu.c - the CPU backend. For now the reference's operations under its own name.
 */
#include "kernels/kernels.h"

#include <pthread.h>

static struct gpuserve_backend backend;

static void fill(void)
{
    backend = *gsv_backend_ref();
    backend.name = "cpu";
}

const struct gpuserve_backend *gsv_backend_cpu(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, fill);
    return &backend;
}
