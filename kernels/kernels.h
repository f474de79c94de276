/*
 * kernels.h - the backends that are compiled into libgpuserve.
 *
 * Both implement the table of <gpuserve/sys/backend.h> for host memory. `ref` is plain scalar C,
 * never optimised: the oracle that every other backend is tested against. `cpu` is the production
 * backend; it selects its instruction set when the device is opened.
 */
#ifndef GSV_KERNELS_H
#define GSV_KERNELS_H

#include <gpuserve/sys/backend.h>

const struct gpuserve_backend *gsv_backend_ref(void);
const struct gpuserve_backend *gsv_backend_cpu(void);

#endif
