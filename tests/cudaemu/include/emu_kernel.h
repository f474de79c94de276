/* emu_kernel.h - the emulator's side of kernels/cuda/runtime/launch.cuh. */
#ifndef GSV_EMU_KERNEL_H
#define GSV_EMU_KERNEL_H

#include <cuda_runtime.h>

#define GSV_SHARED(type, name) type *const name = static_cast<type *>(gsv_emu_shared())
#define GSV_NOINLINE __attribute__((noinline))
#define GSV_KERNEL_NAME(text) gsv_emu_name_next(text)

/** The name under which reports speak of the next kernel that this thread launches. */
GSV_EMU_CUDA void gsv_emu_name_next(const char *name);

#endif
