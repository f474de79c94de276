/*
 * emu_kernel.h - emulator part of kernels/cuda/runtime/launch.cuh.
 */
#ifndef GSV_EMU_KERNEL_H
#define GSV_EMU_KERNEL_H

#include <cuda_runtime.h>

#define GSV_SHARED(type, name) type *const name = static_cast<type *>(gsv_emu_shared())
#define GSV_NOINLINE __attribute__((noinline))
#define GSV_KERNEL_NAME(text) gsv_emu_name_next(text)

/** Sets the name of this thread's next kernel in reports. */
GSV_EMU_CUDA void gsv_emu_name_next(const char *name);

#endif
