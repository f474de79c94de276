/*
 * cublaslt.cu - cuBLASLt: timing against the own kernels, and calls. cublaslt_loader.cu loads it.
 *
 * Our matrices are row-major, the library's column-major: out^T [n, m] = weight [n, k] in^T, with
 * the weights as its transposed A and the activations as its B. Its bias runs over the rows of its
 * result, as ours over n; the residual is its C. Its GELU is the tanh form, so the exact GELU runs
 * in bias_act afterwards. (Parts of rows whose outputs are still in the L2 cache were slower on an
 * H200: more products with partly filled waves of tiles.)
 *
 * An algorithm is timed for one number of rows and serves a range. The products of a timing run in
 * a graph, as those of a model do: the time of a call on the host would hide that of a short
 * product. cublasLtMatmulAlgoCheck runs once per number of rows. A product that the library
 * refuses, in the check or in the call, runs on the own kernel. A refusal in the call withdraws the
 * algorithm for its whole range. Neither is a device failure.
 *
 * The choices are kept on disk for each GPU, driver and version, so that later starts need no
 * timing.
 *
 * A deterministic stream uses one algorithm for all numbers of rows: the library's first guess
 * whose rows had the same bits in products of different numbers of rows when it was chosen. Its
 * refusal is an error: another kernel would give other bits.
 *
 * Threading: the list of choices is under gsv_lt.lock; the other fields change atomically.
 */
#include "kernels/cuda/compute/nvrtc.cuh"
#include "kernels/cuda/runtime/cublaslt.cuh"
#include "kernels/cuda/runtime/stream.cuh"

#include <gpuserve/gpuserve.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace
{

/* The largest number of rows of each class, and the number that is timed. The emulator is thousands
 * of times slower, and its times are meaningless. */
#ifdef GSV_CUDA_EMU
const int CLASSES = 2;
const int32_t CLASS_ROWS[CLASSES] = { 1024, INT32_MAX };
const int32_t TUNED_ROWS[CLASSES] = { 1, 2 };
const int REPEATS = 1;
const int PRODUCTS = 1;
const int CANDIDATES = 2;
#else
const int CLASSES = 9;
const int32_t CLASS_ROWS[CLASSES] = { 1, 16, 32, 64, 128, 256, 512, 1024, INT32_MAX };
const int32_t TUNED_ROWS[CLASSES] = { 1, 16, 32, 64, 128, 256, 512, 1024, 4096 };
const int REPEATS = 3;
const int PRODUCTS = 10; /* between two events */
const int CANDIDATES = 6;
#endif
/* Split sums pay where the tiles of the output are fewer than the processors. */
const int32_t MAX_SPLIT_ROWS = 1024;
/* Row counts whose check result is cached; larger ones are checked each time. */
const int32_t CHECKED_ROWS = 8192;
/* Numbers of rows whose bits are compared, beside those of the largest class. */
const int32_t COMPARED_ROWS[] = { 1, 2, 8, 17, 64, 100, 257, 512 };

} /* namespace */

struct gsv_lt_algo {
    bool wins; /* the timing results; constant once the choice is in the list */
    bool wins_with_gelu;
    uint32_t withdrawn;  /* atomic: a call was refused */
    uint32_t has_warned; /* atomic */
    cublasLtMatmulAlgo_t algo;
    uint32_t checked[CHECKED_ROWS / 32]; /* atomic, one bit per row count that passed the check */
};

struct gsv_lt_choice {
    enum gsv_math math;
    int32_t n;
    int32_t k;
    struct gsv_lt_algo choices[CLASSES];
    struct gsv_lt_algo fixed; /* of deterministic streams */
    struct gsv_lt_choice *next;
};

void gsv_lt_free_choices(struct gsv_lt_choice *choices)
{
    while (choices) {
        struct gsv_lt_choice *const next = choices->next;

        free(choices);
        choices = next;
    }
}

/* -------------------------------------------------------------------------------- one product */

/* The library's descriptors of one product; destroyed by release_product(). */
struct product {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t weight;
    cublasLtMatrixLayout_t in;
    cublasLtMatrixLayout_t out;
};

static void release_product(const struct gsv_lt_functions *f, struct product *p)
{
    if (p->desc)
        f->desc_destroy(p->desc);
    if (p->weight)
        f->layout_destroy(p->weight);
    if (p->in)
        f->layout_destroy(p->in);
    if (p->out)
        f->layout_destroy(p->out);
}

static bool describe(const struct gsv_lt_functions *f, const struct gpuserve_linear *linear,
                     const struct gsv_gemm *gemm, struct product *p)
{
    const cudaDataType_t type = gsv_lt_type(linear->math);
    const cublasComputeType_t compute =
        linear->math == GSV_MATH_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;

    *p = {};
    if (f->desc_create(&p->desc, compute, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS ||
        f->desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)) !=
            CUBLAS_STATUS_SUCCESS ||
        f->layout_create(&p->weight, type, gemm->k, gemm->n, gemm->weight_ld) !=
            CUBLAS_STATUS_SUCCESS ||
        f->layout_create(&p->in, type, gemm->k, gemm->m, gemm->in_ld) != CUBLAS_STATUS_SUCCESS ||
        f->layout_create(&p->out, type, gemm->n, gemm->m, gemm->out_ld) != CUBLAS_STATUS_SUCCESS)
        return false;
    if (!linear->element_bias)
        return true;
    return f->desc_set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)) ==
               CUBLAS_STATUS_SUCCESS &&
           f->desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &linear->element_bias,
                       sizeof(linear->element_bias)) == CUBLAS_STATUS_SUCCESS;
}

/* The product only: with an activation, bias_act adds the residual. */
static cudaError_t run_product(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                               const cublasLtMatmulAlgo_t *algo, void *workspace,
                               cudaStream_t stream)
{
    const struct gsv_lt *const lt = linear->device->lt;
    const bool adds = gemm->residual && gemm->activation == GPUSERVE_ACT_NONE;
    const void *const c = adds ? gemm->residual : gemm->out;
    const float one = 1.f;
    const float beta = adds ? 1.f : 0.f;
    struct product p;
    cublasStatus_t status = CUBLAS_STATUS_ALLOC_FAILED;

    if (describe(&lt->f, linear, gemm, &p))
        status = lt->f.matmul(lt->handle, p.desc, &one, linear->weight, p.weight, gemm->in, p.in,
                              &beta, c, p.out, gemm->out, p.out, algo, workspace,
                              GSV_LT_WORKSPACE_BYTES, stream);
    release_product(&lt->f, &p);
    return gsv_lt_error(status);
}

static struct gsv_lt_algo *choice_of(struct gsv_lt_choice *choice, const struct gsv_gemm *gemm,
                                     bool deterministic)
{
    int i = 0;

    if (deterministic)
        return &choice->fixed;
    while (gemm->m > CLASS_ROWS[i])
        i++;
    return &choice->choices[i];
}

/* Other activations run in bias_act after either product, so the time without one decides. */
static bool is_faster(const struct gsv_lt_algo *algo, const struct gsv_gemm *gemm)
{
    return gemm->activation == GPUSERVE_ACT_GELU ? algo->wins_with_gelu : algo->wins;
}

bool gsv_lt_wins(struct gsv_lt_choice *choice, const struct gsv_gemm *gemm, bool deterministic)
{
    const uintptr_t addresses = reinterpret_cast<uintptr_t>(gemm->in) |
                                reinterpret_cast<uintptr_t>(gemm->out) |
                                reinterpret_cast<uintptr_t>(gemm->residual);
    struct gsv_lt_algo *algo;

    /* The candidates were requested for dense rows, 16-byte aligned. */
    if (!choice || gemm->in_ld != gemm->k || gemm->out_ld != gemm->n || addresses % 16 != 0)
        return false;
    algo = choice_of(choice, gemm, deterministic);
    if (deterministic)
        return algo->wins;
    return gemm->m >= GSV_LT_MIN_ROWS && is_faster(algo, gemm) &&
           !__atomic_load_n(&algo->withdrawn, __ATOMIC_RELAXED);
}

/* Applies what the algorithm cannot: the activation, and a residual after it. */
static cudaError_t finish_product(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                                  cudaStream_t stream)
{
    struct gsv_gemm rest = *gemm;

    if (gemm->activation == GPUSERVE_ACT_NONE)
        return cudaSuccess;
    rest.bias = NULL; /* added by cuBLASLt */
    return gsv_cuda_bias_act(&rest, linear->element, stream);
}

static cudaError_t multiply_with(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                                 const cublasLtMatmulAlgo_t *algo, void *workspace,
                                 cudaStream_t stream)
{
    const cudaError_t code = run_product(linear, gemm, algo, workspace, stream);

    return code == cudaSuccess ? finish_product(linear, gemm, stream) : code;
}

/* True if the library supports the algorithm for this number of rows within the workspace. */
static bool passes_check(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                         const cublasLtMatmulAlgo_t *algo)
{
    const struct gsv_lt *const lt = linear->device->lt;
    cublasLtMatmulHeuristicResult_t result = {};
    struct product p;
    const bool passes = describe(&lt->f, linear, gemm, &p) &&
                        lt->f.check(lt->handle, p.desc, p.weight, p.in, p.out, p.out, algo,
                                    &result) == CUBLAS_STATUS_SUCCESS &&
                        result.workspaceSize <= GSV_LT_WORKSPACE_BYTES;

    release_product(&lt->f, &p);
    return passes;
}

static bool is_checked(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                       struct gsv_lt_algo *choice)
{
    const uint32_t bit = 1u << (gemm->m % 32);
    uint32_t *const word = gemm->m < CHECKED_ROWS ? &choice->checked[gemm->m / 32] : NULL;

    if (word && (__atomic_load_n(word, __ATOMIC_RELAXED) & bit))
        return true;
    if (!passes_check(linear, gemm, &choice->algo))
        return false;
    if (word)
        __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
    return true;
}

/* Once per algorithm, so that requests cannot flood the log. */
static void warn_of_refusal(struct gsv_lt_algo *choice, const struct gsv_gemm *gemm,
                            const char *range)
{
    if (__atomic_exchange_n(&choice->has_warned, 1, __ATOMIC_RELAXED))
        return;
    gsv_cuda_log(GPUSERVE_LOG_WARNING,
                 "cuBLASLt rejects a product of %d x %d with %d rows%s, for which it was fastest: "
                 "gpuserve's own kernel computes %s",
                 gemm->n, gemm->k, gemm->m,
                 gemm->activation == GPUSERVE_ACT_GELU ? " and GELU" : "", range);
}

cudaError_t gsv_lt_multiply(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                            bool deterministic, void *workspace, cudaStream_t stream)
{
    struct gsv_lt_algo *const choice = choice_of(linear->choice, gemm, deterministic);
    cudaError_t code;

    if (!deterministic && !is_checked(linear, gemm, choice)) {
        warn_of_refusal(choice, gemm, "the row counts that cuBLASLt rejects");
        return gsv_cuda_multiply(linear, gemm, stream);
    }
    code = run_product(linear, gemm, &choice->algo, workspace, stream);
    if (code == cudaErrorNotSupported && !deterministic) {
        __atomic_store_n(&choice->withdrawn, 1, __ATOMIC_RELAXED);
        warn_of_refusal(choice, gemm, "all products of this size");
        return gsv_cuda_multiply(linear, gemm, stream);
    }
    return code == cudaSuccess ? finish_product(linear, gemm, stream) : code;
}

/* ------------------------------------------------------------------------------------ timing */

/* Resources of a timing; released by end_trial(). */
struct trial {
    const struct gpuserve_linear *linear;
    struct gsv_gemm gemm;
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

/* Random elements between 0.125 and 1 of either sign: equal or special values multiply faster, and
 * hide sums in another order. */
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

static bool begin_trial(struct trial *t, const struct gpuserve_linear *linear)
{
    const size_t size = linear->element == GSV_ELEMENT_F32 ? 4 : 2;
    const size_t rows = TUNED_ROWS[CLASSES - 1];
    const size_t in_bytes = rows * linear->k * size;

    *t = {};
    t->linear = linear;
    if (cudaMalloc(&t->in, in_bytes) != cudaSuccess ||
        cudaMalloc(&t->out, rows * linear->n * size) != cudaSuccess ||
        cudaMalloc(&t->workspace, GSV_LT_WORKSPACE_BYTES) != cudaSuccess ||
        cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking) != cudaSuccess ||
        cudaEventCreate(&t->begin) != cudaSuccess || cudaEventCreate(&t->end) != cudaSuccess ||
        fill_rows(t->in, in_bytes, linear->math) != cudaSuccess ||
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
    return algo ? multiply_with(t->linear, &t->gemm, algo, t->workspace, t->stream)
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
    struct product p;
    int n = 0;

    if (describe(f, t->linear, &t->gemm, &p) &&
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
    release_product(f, &p);
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
    const size_t row =
        static_cast<size_t>(t->gemm.n) * (t->linear->element == GSV_ELEMENT_F32 ? 4 : 2);

    t->gemm.m = m;
    return passes_check(t->linear, &t->gemm, algo) && run_trial(t, algo) == cudaSuccess &&
           cudaStreamSynchronize(t->stream) == cudaSuccess &&
           cudaMemcpy(to, t->out, row * rows, cudaMemcpyDeviceToHost) == cudaSuccess;
}

/* True if the bits of a row are the same in products of any of COMPARED_ROWS. */
static bool has_fixed_rows(struct trial *t, const cublasLtMatmulAlgo_t *algo)
{
    const size_t row =
        static_cast<size_t>(t->gemm.n) * (t->linear->element == GSV_ELEMENT_F32 ? 4 : 2);
    const int32_t all = TUNED_ROWS[CLASSES - 1];
    const int32_t most = all < 512 ? all : 512;
    char *const want = static_cast<char *>(malloc(2 * row * most));
    char *const got = want ? want + row * most : NULL;
    bool same = want && first_rows(t, algo, all, most, want);

    for (int32_t m : COMPARED_ROWS)
        same = same &&
               (m > most || (first_rows(t, algo, m, m, got) && memcmp(want, got, row * m) == 0));
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
    const int aligned = t->linear->element == GSV_ELEMENT_F32 ? 4 : 8;
    int n;

    t->gemm.m = TUNED_ROWS[CLASSES - 1];
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

/* What a file of the kernel cache keeps of a choice. */
struct kept_algo {
    uint32_t wins;
    uint32_t wins_with_gelu;
    cublasLtMatmulAlgo_t algo;
};

struct kept_choice {
    struct kept_algo algos[CLASSES + 1]; /* the last is `fixed` */
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
             "product %d x %d, math %d, %s, %d processors, driver %d, cuBLASLt %zu, gpuserve %s, "
             "%zu bytes",
             linear->n, linear->k, linear->math, device->name, device->n_processors, driver,
             device->lt->f.version(), LIBRARY_VERSION, sizeof(struct kept_choice));
}

static struct gsv_lt_algo *algo_of(struct gsv_lt_choice *choice, int i)
{
    return i < CLASSES ? &choice->choices[i] : &choice->fixed;
}

static bool read_choice(const struct gsv_code_cache *cache, const struct gsv_code_key *key,
                        struct gsv_lt_choice *choice)
{
    size_t size = 0;
    struct kept_choice *const kept =
        static_cast<struct kept_choice *>(gsv_code_cache_read(cache, key, &size));
    const bool found = kept && size == sizeof(*kept);

    for (int i = 0; found && i <= CLASSES; i++) {
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

    for (int i = 0; i <= CLASSES; i++) {
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

    for (int c = 0; started && c < CLASSES; c++) {
        t.gemm.m = TUNED_ROWS[c];
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
