/*
 * chain_generated.cu - in-memory cache of kernels compiled at run time (JIT) for single lists of
 * operations.
 *
 *   list -> source (chain_source.cu) -> NVRTC -> machine code -> kernel
 *
 * The source text is the key: lists that differ only in their numbers share a kernel. Compiling
 * takes 0.2 s to 1 s, so a list is compiled once its accumulated work reaches ENOUGH_WORK. Until
 * then, without NVRTC, or after a failed compilation, the interpreter of chain.cu computes the same
 * bits. Code compiled by an earlier process is loaded from disk at once (kernel_cache.cu). The
 * least recently used kernel is evicted.
 *
 * Threading: one lock per device is held from gsv_chain_acquire() to gsv_chain_release(), over the
 * whole operation, so that no kernel is unloaded while it runs.
 */
#include "kernels/cuda/compute/chain_source.cuh"

#include "kernels/cuda/compute/nvrtc.cuh"
#include "kernels/cuda/runtime/kernel_cache.cuh"
#include "kernels/cuda/runtime/watchdog.cuh"
#include "kernels/cuda/runtime/launch.cuh"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The headers of CUDA before 12.8 lack these functions; a run-time library of 12.8 or newer, which
 * may be linked with them, has them. NULL with an older one. */
#if CUDART_VERSION < 12080
#define GSV_MAY_LACK __attribute__((weak, visibility("hidden")))
typedef struct CUlib_st *cudaLibrary_t;
enum cudaJitOption : int;
enum cudaLibraryOption : int;
extern "C" {
GSV_MAY_LACK cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                             enum cudaJitOption *jit, void **jit_values,
                                             unsigned int n_jit, enum cudaLibraryOption *options,
                                             void **values, unsigned int n_options);
GSV_MAY_LACK cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library,
                                              const char *name);
GSV_MAY_LACK cudaError_t cudaLibraryUnload(cudaLibrary_t library);
}
static const bool can_load = cudaLibraryLoadData && cudaLibraryGetKernel && cudaLibraryUnload;
#else
static const bool can_load = true;
#endif

static const int MAX_KERNELS = 16;
/* Steps times elements: some milliseconds of interpretation on a large GPU. */
static const double ENOUGH_WORK = 1 << 28;

/* Owned by the call that loads a kernel, so that it can stay with a hung device. */
struct gsv_loaded {
    void *code;
    cudaLibrary_t library;
    cudaKernel_t kernel;
};

struct gsv_chain_entry {
    char *source;
    struct gsv_loaded *loaded; /* NULL: not compiled (yet) */
    bool failed;
    bool sought; /* the disk cache was searched */
    double work;
    uint64_t used; /* number of the last call, for LRU */
};

enum gsv_chain_mode { NEVER, WHEN_EARNED, ALWAYS };

struct gsv_chains {
    pthread_mutex_t lock;
    enum gsv_chain_mode mode;
    struct gsv_nvrtc *nvrtc;
    struct gsv_code_cache cache;
    int version; /* of NVRTC; 0: unknown */
    uint64_t n_calls;
    struct gsv_chain_entry entries[MAX_KERNELS];
};

static enum gsv_chain_mode mode_wanted(void)
{
    const char *const wanted = getenv("GPUSERVE_NVRTC");

    if (wanted && strcmp(wanted, "0") == 0)
        return NEVER;
    return wanted && strcmp(wanted, "1") == 0 ? ALWAYS : WHEN_EARNED;
}

struct gsv_chains *gsv_chains_open(void)
{
    struct gsv_chains *const chains = static_cast<struct gsv_chains *>(calloc(1, sizeof(*chains)));

    if (!chains)
        return NULL;
    pthread_mutex_init(&chains->lock, NULL);
    chains->mode = mode_wanted();
    gsv_code_cache_open(&chains->cache);
    chains->version = gsv_code_cache_known_version(&chains->cache);
    return chains;
}

static void unload(struct gsv_loaded *l)
{
    if (l->library)
        cudaLibraryUnload(l->library);
    free(l->code);
    free(l);
}

void gsv_chains_close(struct gsv_chains **chains)
{
    struct gsv_chains *const c = chains ? *chains : NULL;

    if (!c)
        return;
    *chains = NULL;
    for (int i = 0; i < MAX_KERNELS; i++) {
        if (c->entries[i].loaded)
            unload(c->entries[i].loaded);
        free(c->entries[i].source);
    }
    gsv_nvrtc_close(&c->nvrtc);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---------------------------------------------------------------------------------- the entries */

/* Returns the entry for `source` and takes ownership of it. A new entry replaces the least recently
 * used one. */
static struct gsv_chain_entry *find(struct gpuserve_device *device, char *source)
{
    struct gsv_chains *const chains = device->chains;
    struct gsv_chain_entry *oldest = &chains->entries[0];

    for (int i = 0; i < MAX_KERNELS; i++) {
        struct gsv_chain_entry *const e = &chains->entries[i];

        if (e->source && strcmp(e->source, source) == 0) {
            free(source);
            return e;
        }
        if (e->used < oldest->used)
            oldest = e;
    }
    if (oldest->loaded) {
        struct gsv_loaded *const gone = oldest->loaded;

        gsv_watchdog_release(device->index, "a kernel was unloaded", [=] { unload(gone); });
    }
    free(oldest->source);
    *oldest = {};
    oldest->source = source;
    return oldest;
}

static bool open_compiler(struct gsv_chains *chains)
{
    char why[400];

    if (chains->nvrtc)
        return true;
    chains->nvrtc = gsv_nvrtc_open(why, sizeof(why));
    if (chains->nvrtc) {
        chains->version = gsv_nvrtc_version(chains->nvrtc);
        gsv_code_cache_know_version(&chains->cache, gsv_nvrtc_path(chains->nvrtc), chains->version);
        return true;
    }
    gsv_cuda_log(GPUSERVE_LOG_INFO, "without NVRTC chains of operations are interpreted: %s", why);
    chains->mode = NEVER;
    return false;
}

/* Loads machine code on the device; takes ownership of `code`. NULL if the device rejects it. */
static struct gsv_loaded *load(const struct gpuserve_device *device, void *code)
{
    struct gsv_loaded *const l = static_cast<struct gsv_loaded *>(calloc(1, sizeof(*l)));
    const int index = device->index;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status status;
    bool left;

    if (!l) {
        free(code);
        return NULL;
    }
    l->code = code;
    status = gsv_watchdog(
        index, "a kernel was loaded",
        [=](gpuserve_error *e) {
            cudaError_t failed =
                can_load ? cudaLibraryLoadData(&l->library, l->code, NULL, NULL, 0, NULL, NULL, 0)
                         : cudaErrorNotSupported;

            if (failed == cudaSuccess)
                failed = cudaLibraryGetKernel(&l->kernel, l->library, GSV_CHAIN_KERNEL);
            return failed == cudaSuccess
                       ? GPUSERVE_OK
                       : gsv_cuda_fail(index, failed, "loading a generated kernel", e);
        },
        &left, &error);
    if (status == GPUSERVE_OK)
        return l;
    gsv_cuda_log(GPUSERVE_LOG_WARNING, "a chain of operations is interpreted: %s", error.message);
    if (!left)
        gsv_watchdog_release(index, "a kernel was unloaded", [=] { unload(l); });
    return NULL;
}

static struct gsv_code_key key_of(const struct gpuserve_device *device,
                                  const struct gsv_chain_entry *e)
{
    return { e->source, gsv_chain_options, GSV_CHAIN_N_OPTIONS, device->capability,
             device->chains->version };
}

/* Loads code compiled by an earlier process, if the disk cache has it. */
static void take_cached(const struct gpuserve_device *device, struct gsv_chain_entry *e)
{
    const struct gsv_code_key key = key_of(device, e);
    size_t size;
    void *const code = gsv_code_cache_read(&device->chains->cache, &key, &size);

    e->sought = true;
    if (!code)
        return;
    e->loaded = load(device, code);
    if (!e->loaded)
        gsv_code_cache_forget(&device->chains->cache, &key);
}

static void compile(const struct gpuserve_device *device, struct gsv_chain_entry *e)
{
    const struct gsv_code_key key = key_of(device, e);
    char log[256] = "";
    size_t size;
    void *code;

    e->failed = true; /* reset after a successful load: a failed compilation is not retried */
    if (!gsv_nvrtc_compile(device->chains->nvrtc, e->source, device->capability, gsv_chain_options,
                           GSV_CHAIN_N_OPTIONS, &code, &size, log, sizeof(log))) {
        gsv_cuda_log(GPUSERVE_LOG_WARNING, "a chain of operations is interpreted: NVRTC: %s", log);
        return;
    }
    gsv_code_cache_write(&device->chains->cache, &key, code, size);
    e->loaded = load(device, code);
    e->failed = !e->loaded;
}

/* --------------------------------------------------------------------------------------- lookup */

gsv_chain_kernel_fn gsv_chain_acquire(struct gpuserve_device *device,
                                      const struct gpuserve_op_chain *op)
{
    struct gsv_chains *const chains = device->chains;
    struct gsv_chain_entry *e;
    char *source;

    if (!chains)
        return NULL;
    pthread_mutex_lock(&chains->lock);
    if (chains->mode == NEVER || op->n_steps == 0)
        return NULL;
    source = gsv_chain_write_source(op->host_steps, op->n_steps);
    if (!source)
        return NULL;
    e = find(device, source);
    e->used = ++chains->n_calls;
    e->work += static_cast<double>(op->n) * static_cast<double>(op->n_steps);
    if (!e->loaded && !e->failed && !e->sought && chains->version != 0)
        take_cached(device, e);
    if (!e->loaded && !e->failed && (chains->mode == ALWAYS || e->work >= ENOUGH_WORK) &&
        open_compiler(chains)) {
        if (!e->sought) /* the NVRTC version was unknown before */
            take_cached(device, e);
        if (!e->loaded)
            compile(device, e);
    }
    return e->loaded ? reinterpret_cast<gsv_chain_kernel_fn>(e->loaded->kernel) : NULL;
}

void gsv_chain_release(struct gpuserve_device *device)
{
    if (device->chains)
        pthread_mutex_unlock(&device->chains->lock);
}

cudaError_t gsv_chain_launch(gsv_chain_kernel_fn kernel, const struct gpuserve_op_chain *op,
                             bool aligned, cudaStream_t stream)
{
    const size_t a_block = static_cast<size_t>(GSV_CHAIN_THREADS) * GSV_CHAIN_WIDTH;

    return GSV_LAUNCH(kernel, static_cast<unsigned>((op->n - 1) / a_block + 1), GSV_CHAIN_THREADS,
                      0, stream, op->in, op->out, static_cast<unsigned long long>(op->n),
                      reinterpret_cast<const struct gsv_chain_numbers *>(op->steps), aligned);
}
