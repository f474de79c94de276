/*
 * nvrtc.cu - loads NVRTC at run time and compiles a source with it.
 *
 * In the emulator the functions are linked instead of loaded. Host-only code: no call uses a
 * device.
 */
#include "kernels/cuda/compute/nvrtc.cuh"

#include "kernels/cuda/runtime/cublaslt.cuh"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gsv_nvrtc {
    void *library; /* NULL in the emulator */
    decltype(&nvrtcCreateProgram) create;
    decltype(&nvrtcCompileProgram) compile;
    decltype(&nvrtcDestroyProgram) destroy;
    decltype(&nvrtcGetCUBINSize) code_size;
    decltype(&nvrtcGetCUBIN) code;
    decltype(&nvrtcGetProgramLogSize) log_size;
    decltype(&nvrtcGetProgramLog) log;
    decltype(&nvrtcGetErrorString) text_of;
    decltype(&nvrtcVersion) version;
};

#ifdef GSV_CUDA_EMU

static bool load_functions(struct gsv_nvrtc *n, char *why, size_t size)
{
    (void)why;
    (void)size;
    *n = { NULL,
           nvrtcCreateProgram,
           nvrtcCompileProgram,
           nvrtcDestroyProgram,
           nvrtcGetCUBINSize,
           nvrtcGetCUBIN,
           nvrtcGetProgramLogSize,
           nvrtcGetProgramLog,
           nvrtcGetErrorString,
           nvrtcVersion };
    return true;
}

#else

template <typename F> static bool load(void *library, const char *name, F *function)
{
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != NULL;
}

static bool load_functions(struct gsv_nvrtc *n, char *why, size_t size)
{
    char name[32];

    snprintf(name, sizeof(name), "libnvrtc.so.%d", CUDART_VERSION / 1000);
    n->library = gsv_cuda_open_library(name);
    if (!n->library) {
        gsv_cuda_tell_missing(name, why, size);
        return false;
    }
    snprintf(why, size, "%s does not export a required function", name);
    return load(n->library, "nvrtcCreateProgram", &n->create) &&
           load(n->library, "nvrtcCompileProgram", &n->compile) &&
           load(n->library, "nvrtcDestroyProgram", &n->destroy) &&
           load(n->library, "nvrtcGetCUBINSize", &n->code_size) &&
           load(n->library, "nvrtcGetCUBIN", &n->code) &&
           load(n->library, "nvrtcGetProgramLogSize", &n->log_size) &&
           load(n->library, "nvrtcGetProgramLog", &n->log) &&
           load(n->library, "nvrtcGetErrorString", &n->text_of) &&
           load(n->library, "nvrtcVersion", &n->version);
}

#endif

struct gsv_nvrtc *gsv_nvrtc_open(char *why, size_t size)
{
    struct gsv_nvrtc *nvrtc = static_cast<struct gsv_nvrtc *>(calloc(1, sizeof(*nvrtc)));

    snprintf(why, size, "out of memory");
    if (nvrtc && !load_functions(nvrtc, why, size))
        gsv_nvrtc_close(&nvrtc);
    return nvrtc;
}

void gsv_nvrtc_close(struct gsv_nvrtc **nvrtc)
{
    if (!nvrtc || !*nvrtc)
        return;
    if ((*nvrtc)->library)
        dlclose((*nvrtc)->library);
    free(*nvrtc);
    *nvrtc = NULL;
}

int gsv_nvrtc_version(const struct gsv_nvrtc *nvrtc)
{
    int major = 0;
    int minor = 0;

    return nvrtc->version(&major, &minor) == NVRTC_SUCCESS ? 1000 * major + minor : 0;
}

const char *gsv_nvrtc_path(const struct gsv_nvrtc *nvrtc)
{
    Dl_info info;

    return dladdr(reinterpret_cast<const void *>(nvrtc->version), &info) && info.dli_fname
               ? info.dli_fname
               : "";
}

/* Writes the first line of the compiler's log, or the meaning of the status without a log. */
static void tell(const struct gsv_nvrtc *nvrtc, nvrtcProgram program, nvrtcResult result, char *log,
                 size_t log_size)
{
    size_t size = 0;
    char *text = NULL;

    snprintf(log, log_size, "%s", nvrtc->text_of(result));
    if (program && nvrtc->log_size(program, &size) == NVRTC_SUCCESS && size > 1)
        text = static_cast<char *>(calloc(size + 1, 1));
    if (text && nvrtc->log(program, text) == NVRTC_SUCCESS)
        snprintf(log, log_size, "%.*s", static_cast<int>(strcspn(text, "\n")), text);
    free(text);
}

static nvrtcResult read_code(const struct gsv_nvrtc *nvrtc, nvrtcProgram program, void **code,
                             size_t *size)
{
    nvrtcResult result = nvrtc->code_size(program, size);

    if (result != NVRTC_SUCCESS)
        return result;
    if (*size == 0)
        return NVRTC_ERROR_INVALID_PROGRAM;
    *code = malloc(*size);
    if (!*code)
        return NVRTC_ERROR_OUT_OF_MEMORY;
    result = nvrtc->code(program, static_cast<char *>(*code));
    if (result != NVRTC_SUCCESS) {
        free(*code);
        *code = NULL;
    }
    return result;
}

bool gsv_nvrtc_compile(const struct gsv_nvrtc *nvrtc, const char *source, int capability,
                       const char *const *options, int n_options, void **code, size_t *size,
                       char *log, size_t log_size)
{
    const char *all[GSV_NVRTC_MAX_OPTIONS];
    char target[40];
    nvrtcProgram program = NULL;
    nvrtcResult result;

    *code = NULL;
    *size = 0;
    snprintf(target, sizeof(target), "--gpu-architecture=sm_%d", capability);
    all[0] = target;
    if (n_options >= GSV_NVRTC_MAX_OPTIONS)
        return false;
    memcpy(all + 1, options, static_cast<size_t>(n_options) * sizeof(*options));
    result = nvrtc->create(&program, source, "generated.cu", 0, NULL, NULL);
    if (result == NVRTC_SUCCESS)
        result = nvrtc->compile(program, n_options + 1, all);
    if (result == NVRTC_SUCCESS)
        result = read_code(nvrtc, program, code, size);
    if (result != NVRTC_SUCCESS)
        tell(nvrtc, program, result, log, log_size);
    if (program)
        nvrtc->destroy(&program);
    return result == NVRTC_SUCCESS;
}
