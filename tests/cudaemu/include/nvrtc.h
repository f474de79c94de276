/*
 * nvrtc.h - the part of NVRTC that the emulator implements; replaces the toolkit's header.
 *
 * The functions are in tests/cudaemu/runtime/nvrtc.cpp.
 */
#ifndef GSV_EMU_NVRTC_H
#define GSV_EMU_NVRTC_H

#include <cuda_runtime_api.h>

typedef enum {
    NVRTC_SUCCESS = 0,
    NVRTC_ERROR_OUT_OF_MEMORY = 1,
    NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
    NVRTC_ERROR_INVALID_INPUT = 3,
    NVRTC_ERROR_INVALID_PROGRAM = 4,
    NVRTC_ERROR_INVALID_OPTION = 5,
    NVRTC_ERROR_COMPILATION = 6,
    NVRTC_ERROR_INTERNAL_ERROR = 11
} nvrtcResult;

typedef struct _nvrtcProgram *nvrtcProgram;

GSV_EMU_CUDA const char *nvrtcGetErrorString(nvrtcResult result);
GSV_EMU_CUDA nvrtcResult nvrtcVersion(int *major, int *minor);
GSV_EMU_CUDA nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source,
                                            const char *name, int n_headers,
                                            const char *const *headers,
                                            const char *const *include_names);
GSV_EMU_CUDA nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program);
GSV_EMU_CUDA nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int n_options,
                                             const char *const *options);
GSV_EMU_CUDA nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *size);
GSV_EMU_CUDA nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *code);
GSV_EMU_CUDA nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *size);
GSV_EMU_CUDA nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log);

#endif
