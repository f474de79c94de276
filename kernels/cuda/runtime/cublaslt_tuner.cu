/*
 * cublaslt_tuner.cu - chooses among the own kernels and cuBLASLt's algorithms by their times.
 *
 * An algorithm is timed for one number of rows and serves a range. The products of a timing run in
 * a graph, as those of a model do: the time of a call on the host would hide that of a short
 * product. Split sums are candidates for few rows only.
 *
 * The choices are kept on disk for each GPU, driver and version, so that later starts need no
 * timing.
 *
 * A deterministic stream uses one algorithm for all numbers of rows: the library's first guess
 * whose rows had the same bits in products of different numbers of rows when it was chosen.
 *
 * Threading: the list of choices is under gsv_lt.lock.
 */
#include "kernels/cuda/runtime/kernel_cache.cuh"
#include "kernels/cuda/runtime/cublaslt.cuh"
#include "kernels/cuda/runtime/stream.cuh"

#include <gpuserve/gpuserve.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace
{

/* The number of rows that is timed for each class. The emulator is thousands of times slower, and
 * its times are meaningless. */
#ifdef GSV_CUDA_EMU
const int32_t TUNED_ROWS[GSV_LT_CLASSES] = { 1, 2 };
const int REPEATS = 1;
const int PRODUCTS = 1;
const int CANDIDATES = 2;
#else
const int32_t TUNED_ROWS[GSV_LT_CLASSES] = { 1, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384 };
const int REPEATS = 3;
const int PRODUCTS = 10; /* between two events */
const int CANDIDATES = 6;
#endif
/* Split sums pay where the tiles of the output are fewer than the processors. */
const int32_t MAX_SPLIT_ROWS = 1024;
/* Numbers of rows whose bits are compared with those of the largest class. */
const int32_t COMPARED_ROWS[] = { 1, 2, 8, 17, 64, 100, 257, 512 };

} /* namespace */

/* ------------------------------------------------------------------------------------ timing */

/* Resources of a timing; released by end_trial(). */
struct trial {
    const struct gpuserve_linear *linear;
    struct gsv_gemm gemm;
    int32_t max_rows; /* that the memory holds */
    void *in;
    void *out;
    void *workspace;
    cudaStream_t stream;
    cudaEvent_t begin;
    cudaEvent_t end;
};

static void end_trial(struct trial *t)
{
    if (t->begin)
        cudaEventDestroy(t->begin);
    if (t->end)
        cudaEventDestroy(t->end);
    if (t->stream)
        cudaStreamDestroy(t->stream);
    cudaFree(t->workspace);
    cudaFree(t->out);
    cudaFree(t->in);
    cudaGetLastError();
}

static size_t element_bytes(const struct gpuserve_linear *linear)
{
    return linear->element == GSV_ELEMENT_F32 ? 4 : 2;
}

/* Random elements between 0.125 and 0.5 of either sign: equal or special values multiply faster,
 * and hide sums in another order. */
static cudaError_t fill_rows(void *to, size_t bytes, enum gsv_math math)
{
    const uint32_t mantissa = math == GSV_MATH_F16 ? 0x87ff87ffu : 0x80ff80ffu;
    const uint32_t exponent = math == GSV_MATH_F16 ? 0x30003000u : 0x3e003e00u;
    const size_t block = bytes < (size_t{ 1 } << 20) ? bytes : size_t{ 1 } << 20;
    uint32_t *const words = static_cast<uint32_t *>(malloc(block + sizeof(uint32_t)));
    uint32_t state = 12345;
    cudaError_t code = words ? cudaSuccess : cudaErrorMemoryAllocation;

    for (size_t i = 0; words && i * sizeof(*words) < block; i++) {
        state = state * 1664525u + 1013904223u;
        words[i] = ((state ^ state >> 15) & mantissa) | exponent;
    }
    for (size_t at = 0; at < bytes && code == cudaSuccess; at += block)
        code = cudaMemcpy(static_cast<char *>(to) + at, words,
                          bytes - at < block ? bytes - at : block, cudaMemcpyHostToDevice);
    free(words);
    return code;
}

/* Memory for as many rows as the device has room for. */
static bool take_rows(struct trial *t)
{
    const size_t size = element_bytes(t->linear);

    for (int c = GSV_LT_CLASSES - 1; c >= 0; c--) {
        const size_t rows = TUNED_ROWS[c];

        t->max_rows = TUNED_ROWS[c];
        if (cudaMalloc(&t->in, rows * t->linear->k * size) == cudaSuccess &&
            cudaMalloc(&t->out, rows * t->linear->n * size) == cudaSuccess)
            return true;
        cudaGetLastError();
        cudaFree(t->in);
        t->in = t->out = NULL;
    }
    return false;
}

static bool begin_trial(struct trial *t, const struct gpuserve_linear *linear)
{
    *t = {};
    t->linear = linear;
    if (!take_rows(t) || cudaMalloc(&t->workspace, GSV_LT_WORKSPACE_BYTES) != cudaSuccess ||
        cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking) != cudaSuccess ||
        cudaEventCreate(&t->begin) != cudaSuccess || cudaEventCreate(&t->end) != cudaSuccess ||
        fill_rows(t->in, static_cast<size_t>(t->max_rows) * linear->k * element_bytes(linear),
                  linear->math) != cudaSuccess ||
        cudaStreamSynchronize(NULL) != cudaSuccess)
        return false;
    t->gemm.in = t->in;
    t->gemm.out = t->out;
    t->gemm.weight = linear->weight;
    t->gemm.bias = linear->bias;
    t->gemm.n = t->gemm.out_ld = linear->n;
    t->gemm.k = t->gemm.in_ld = t->gemm.weight_ld = linear->k;
    return true;
}

/* Runs one product; with the own kernel if `algo` is NULL. */
static cudaError_t run_trial(struct trial *t, const cublasLtMatmulAlgo_t *algo)
{
    return algo ? gsv_lt_multiply_with(t->linear, &t->gemm, algo, t->workspace, t->stream)
                : gsv_cuda_multiply(t->linear, &t->gemm, t->stream);
}

/* PRODUCTS products as a graph; NULL on failure. */
static cudaGraphExec_t record_trial(struct trial *t, const cublasLtMatmulAlgo_t *algo)
{
    cudaGraphExec_t exec = NULL;
    cudaGraph_t graph = NULL;
    cudaError_t code = cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal);

    if (code != cudaSuccess)
        return NULL;
    for (int i = 0; i < PRODUCTS && code == cudaSuccess; i++)
        code = run_trial(t, algo);
    if (cudaStreamEndCapture(t->stream, &graph) != cudaSuccess || code != cudaSuccess ||
        cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess)
        exec = NULL;
    if (graph)
        cudaGraphDestroy(graph);
    cudaGetLastError();
    return exec;
}

/* Milliseconds of one product, the minimum of REPEATS runs after a warm-up run; a huge number on
 * failure. */
static float time_trial(struct trial *t, const cublasLtMatmulAlgo_t *algo)
{
    const float never = 1e30f;
    cudaGraphExec_t exec;
    float best = never;

    if (run_trial(t, algo) != cudaSuccess || !(exec = record_trial(t, algo)))
        return never;
    for (int i = 0; i < REPEATS; i++) {
        float ms = never;

        if (cudaEventRecord(t->begin, t->stream) != cudaSuccess ||
            cudaGraphLaunch(exec, t->stream) != cudaSuccess ||
            cudaEventRecord(t->end, t->stream) != cudaSuccess ||
            cudaEventSynchronize(t->end) != cudaSuccess ||
            cudaEventElapsedTime(&ms, t->begin, t->end) != cudaSuccess) {
            best = never;
            break;
        }
        best = ms < best ? ms : best;
    }
    cudaGraphExecDestroy(exec);
    return best / PRODUCTS;
}

/* Fetches the library's candidates, best guess first; returns their number. */
static int candidates(struct trial *t, bool splits,
                      cublasLtMatmulHeuristicResult_t (&found)[CANDIDATES])
{
    const struct gsv_lt *const lt = t->linear->device->lt;
    const struct gsv_lt_functions *const f = &lt->f;
    const size_t workspace = GSV_LT_WORKSPACE_BYTES;
    /* Partial sums in the workspace are added in a fixed order. */
    const uint32_t schemes =
        splits ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    cublasLtMatmulPreference_t preference = NULL;
    struct gsv_lt_product p;
    int n = 0;

    if (gsv_lt_describe(f, t->linear, &t->gemm, &p) &&
        f->preference_create(&preference) == CUBLAS_STATUS_SUCCESS &&
        f->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                          sizeof(workspace)) == CUBLAS_STATUS_SUCCESS &&
        f->preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                          sizeof(schemes)) == CUBLAS_STATUS_SUCCESS &&
        f->heuristic(lt->handle, p.desc, p.weight, p.in, p.out, p.out, preference, CANDIDATES,
                     found, &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    if (preference)
        f->preference_destroy(preference);
    gsv_lt_release(f, &p);
    return n;
}

/* The fastest candidate, in `algo`; its time, or a huge number if there is none. */
static float best_candidate(struct trial *t, bool splits, cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    const int n = candidates(t, splits, found);
    float best = 1e30f;

    for (int i = 0; i < n; i++) {
        const float ms = time_trial(t, &found[i].algo);

        if (ms < best) {
            best = ms;
            *algo = found[i].algo;
        }
    }
    return best;
}

static void log_choice(const struct trial *t, const char *what, bool wins, float own, float other)
{
    gsv_cuda_log(GPUSERVE_LOG_DEBUG,
                 "product of %d x %d with %d rows%s: %s; %.1f us, cuBLASLt %.1f us", t->gemm.n,
                 t->gemm.k, t->gemm.m, what, wins ? "cuBLASLt" : "gpuserve's kernel",
                 static_cast<double>(own) * 1000, static_cast<double>(other) * 1000);
}

/* The algorithm that is fastest without an activation is compared with one too. False if a trial
 * failed. */
static bool choose_one(struct trial *t, struct gsv_lt_algo *choice)
{
    const float other = best_candidate(t, t->gemm.m <= MAX_SPLIT_ROWS, &choice->algo);
    const float own = time_trial(t, NULL);
    float own_gelu, other_gelu;

    choice->wins = other < own;
    log_choice(t, "", choice->wins, own, other);
    if (other >= 1e30f)
        return own < 1e30f;
    t->gemm.activation = GPUSERVE_ACT_GELU;
    own_gelu = time_trial(t, NULL);
    other_gelu = time_trial(t, &choice->algo);
    choice->wins_with_gelu = other_gelu < own_gelu;
    log_choice(t, " and GELU", choice->wins_with_gelu, own_gelu, other_gelu);
    t->gemm.activation = GPUSERVE_ACT_NONE;
    return own < 1e30f && own_gelu < 1e30f;
}

/* The bits of the first rows; false on failure. */
static bool first_rows(struct trial *t, const cublasLtMatmulAlgo_t *algo, int32_t m, int32_t rows,
                       char *to)
{
    const size_t row = static_cast<size_t>(t->gemm.n) * element_bytes(t->linear);

    t->gemm.m = m;
    return gsv_lt_passes_check(t->linear, &t->gemm, algo) && run_trial(t, algo) == cudaSuccess &&
           cudaStreamSynchronize(t->stream) == cudaSuccess &&
           cudaMemcpy(to, t->out, row * rows, cudaMemcpyDeviceToHost) == cudaSuccess;
}

/* True if the bits of a row are the same in products of any of COMPARED_ROWS. */
static bool has_fixed_rows(struct trial *t, const cublasLtMatmulAlgo_t *algo)
{
    const size_t row = static_cast<size_t>(t->gemm.n) * element_bytes(t->linear);
    const int32_t all = t->max_rows;
    const int32_t max_rows = all < 512 ? all : 512;
    char *const want = static_cast<char *>(malloc(2 * row * max_rows));
    char *const got = want ? want + row * max_rows : NULL;
    bool same = want && first_rows(t, algo, all, max_rows, want);

    for (int32_t m : COMPARED_ROWS)
        same = same && (m > max_rows ||
                        (first_rows(t, algo, m, m, got) && memcmp(want, got, row * m) == 0));
    free(want);
    t->gemm.m = all;
    return same;
}

/* The library's first guess whose rows are fixed, untimed, so that the bits are the same after each
 * start. False if there is no guess. Only of rows that are all aligned, so that each number of them
 * can use it. */
static bool choose_fixed(struct trial *t, struct gsv_lt_algo *fixed)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    const int aligned = 16 / static_cast<int>(element_bytes(t->linear));
    int n;

    t->gemm.m = t->max_rows;
    if (t->gemm.n % aligned != 0 || t->gemm.k % aligned != 0)
        return true;
    n = candidates(t, false, found);
    for (int i = 0; i < n && !fixed->wins; i++) {
        fixed->algo = found[i].algo;
        fixed->wins = has_fixed_rows(t, &found[i].algo);
    }
    gsv_cuda_log(GPUSERVE_LOG_DEBUG, "deterministic product of %d x %d: %s", t->gemm.n, t->gemm.k,
                 fixed->wins ? "cuBLASLt" : "gpuserve's kernel");
    return n > 0;
}

/* ------------------------------------------------------------------------------------ on disk */

/* Content of a cache file: the tuned algorithms for one size of weights. */
struct kept_algo {
    uint32_t wins;
    uint32_t wins_with_gelu;
    cublasLtMatmulAlgo_t algo;
};

struct kept_choice {
    struct kept_algo algos[GSV_LT_CLASSES + 1]; /* the last is `fixed` */
};

#define TEXT_OF(x) #x
#define VALUE_OF(x) TEXT_OF(x)
static const char LIBRARY_VERSION[] = VALUE_OF(GPUSERVE_VERSION_MAJOR) "." VALUE_OF(
    GPUSERVE_VERSION_MINOR) "." VALUE_OF(GPUSERVE_VERSION_PATCH);

/* Everything that the times depend on. */
static void write_key(const struct gpuserve_linear *linear, char *text, size_t size)
{
    const struct gpuserve_device *const device = linear->device;
    int driver = 0;

    if (cudaDriverGetVersion(&driver) != cudaSuccess)
        cudaGetLastError();
    snprintf(text, size,
             "product %d x %d, math %d, %s, %d processors, wgmma %d, driver %d, cuBLASLt %zu, "
             "gpuserve %s, %zu bytes",
             linear->n, linear->k, linear->math, device->name, device->n_processors,
             device->has_wgmma, driver, device->lt->f.version(), LIBRARY_VERSION,
             sizeof(struct kept_choice));
}

static struct gsv_lt_algo *algo_of(struct gsv_lt_choice *choice, int i)
{
    return i < GSV_LT_CLASSES ? &choice->choices[i] : &choice->fixed;
}

static bool read_choice(const struct gsv_code_cache *cache, const struct gsv_code_key *key,
                        struct gsv_lt_choice *choice)
{
    size_t size = 0;
    struct kept_choice *const kept =
        static_cast<struct kept_choice *>(gsv_code_cache_read(cache, key, &size));
    const bool found = kept && size == sizeof(*kept);

    for (int i = 0; found && i <= GSV_LT_CLASSES; i++) {
        algo_of(choice, i)->wins = kept->algos[i].wins != 0;
        algo_of(choice, i)->wins_with_gelu = kept->algos[i].wins_with_gelu != 0;
        algo_of(choice, i)->algo = kept->algos[i].algo;
    }
    free(kept);
    return found;
}

static void keep_choice(const struct gsv_code_cache *cache, const struct gsv_code_key *key,
                        struct gsv_lt_choice *choice)
{
    struct kept_choice kept = {};

    for (int i = 0; i <= GSV_LT_CLASSES; i++) {
        kept.algos[i].wins = algo_of(choice, i)->wins;
        kept.algos[i].wins_with_gelu = algo_of(choice, i)->wins_with_gelu;
        kept.algos[i].algo = algo_of(choice, i)->algo;
    }
    gsv_code_cache_write(cache, key, &kept, sizeof(kept));
}

/* True if every trial ran: what lack of memory decided is not kept. */
static bool time_choice(const struct gpuserve_linear *linear, struct gsv_lt_choice *choice)
{
    struct trial t;
    const bool started = begin_trial(&t, linear);
    bool complete = started;

    for (int c = 0; started && c < GSV_LT_CLASSES; c++) {
        t.gemm.m = TUNED_ROWS[c] < t.max_rows ? TUNED_ROWS[c] : t.max_rows;
        complete = choose_one(&t, &choice->choices[c]) && complete;
    }
    if (started)
        complete = choose_fixed(&t, &choice->fixed) && complete;
    end_trial(&t);
    return complete;
}

static struct gsv_lt_choice *make_choice(const struct gpuserve_linear *linear)
{
    struct gsv_lt_choice *choice = static_cast<struct gsv_lt_choice *>(calloc(1, sizeof(*choice)));
    char text[512];
    struct gsv_code_cache cache;
    const struct gsv_code_key key = { text, NULL, 0, linear->device->capability, 0 };

    if (!choice)
        return NULL;
    choice->math = linear->math;
    choice->n = linear->n;
    choice->k = linear->k;
    write_key(linear, text, sizeof(text));
    gsv_code_cache_open(&cache);
    if (!read_choice(&cache, &key, choice) && time_choice(linear, choice))
        keep_choice(&cache, &key, choice);
    return choice;
}

struct gsv_lt_choice *gsv_lt_choose(const struct gpuserve_linear *linear)
{
    struct gsv_lt *const lt = linear->device->lt;
    struct gsv_lt_choice *choice;

    if (!lt)
        return NULL;
    pthread_mutex_lock(&lt->lock);
    for (choice = lt->choices; choice; choice = choice->next) {
        if (choice->n == linear->n && choice->k == linear->k && choice->math == linear->math)
            break;
    }
    if (!choice) {
        choice = make_choice(linear);
        if (choice) {
            choice->next = lt->choices;
            lt->choices = choice;
        }
    }
    pthread_mutex_unlock(&lt->lock);
    return choice;
}
