/*
 * test_races.cpp - under the thread sanitizer, a missing barrier in a kernel is a data race.
 *
 * Each kernel is correct with all barriers, and reported by the sanitizer without one of them. Each
 * run is a separate process, because the sanitizer ends it with an exit status; so this is a plain
 * program. Without the sanitizer it is skipped.
 */
#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

#include "emu.h"
#include "kernels/cuda/runtime/launch.cuh"
#include "kernels/cuda/ops/ptx.cuh"

#if defined(__SANITIZE_THREAD__)
#define HAVE_TSAN 1
#elif defined(__has_feature)
#define HAVE_TSAN __has_feature(thread_sanitizer)
#else
#define HAVE_TSAN 0
#endif

/* Called by the sanitizer: no need to wait for reports of other threads. */
extern "C" const char *__tsan_default_options()
{
    return "atexit_sleep_ms=0";
}

namespace
{

const int skipped = 77; /* Meson's exit code for a skipped test */

/* Reads data of another thread. */
__global__ void read_after_write(float *out, const float *, bool barrier)
{
    GSV_SHARED(float, values);
    const unsigned i = threadIdx.x;

    values[i] = (float)i;
    if (barrier)
        __syncthreads();
    out[i] = values[blockDim.x - 1 - i];
}

/* Overwrites data that another thread may still read. */
__global__ void write_after_read(float *out, const float *, bool barrier)
{
    GSV_SHARED(float, values);
    const unsigned i = threadIdx.x;
    float sum = 0;

    for (int round = 0; round < 3; round++) {
        values[i] = (float)(i + (unsigned)round);
        __syncthreads();
        sum += values[(i + 33) % blockDim.x];
        if (barrier)
            __syncthreads();
    }
    out[i] = sum;
}

/* A shuffle does not order memory accesses; __syncwarp does. */
__global__ void within_a_warp(float *out, const float *, bool barrier)
{
    GSV_SHARED(float, values);
    const unsigned i = threadIdx.x;

    values[i] = __shfl_xor_sync(0xffffffffu, (float)i, 1);
    if (barrier)
        __syncwarp();
    out[i] = values[i ^ 2];
}

/* A thread's cp.async wait covers only its own copies. */
__global__ void copied_by_another(float *out, const float *in, bool barrier)
{
    GSV_SHARED(float, values);
    const unsigned i = threadIdx.x;

    gsv_cp_async_4(values + i, in + i);
    gsv_cp_async_commit();
    gsv_cp_async_wait<0>();
    if (barrier)
        __syncthreads();
    out[i] = values[blockDim.x - 1 - i];
}

/* ldmatrix reads the rows of all lanes' addresses. */
__global__ void loaded_as_matrix(float *out, const float *, bool barrier)
{
    GSV_SHARED(float, values);
    const unsigned i = threadIdx.x;
    uint32_t r[1];

    values[i] = 0.0f;
    if (barrier)
        __syncthreads();
    gsv_ldmatrix_x1(r, values + i % 8 * 4);
    out[i] = (float)r[0];
}

const struct {
    const char *name;
    void (*kernel)(float *, const float *, bool);
    unsigned n_threads;
} cases[] = {
    { "read after write", read_after_write, 64 }, { "write after read", write_after_read, 64 },
    { "within a warp", within_a_warp, 32 },       { "copied by another", copied_by_another, 64 },
    { "loaded as matrix", loaded_as_matrix, 32 },
};

/* Runs in the child process. */
int run_case(size_t number, bool barrier)
{
    float *out, *in;

    if (cudaMalloc(&out, 256) != cudaSuccess || cudaMalloc(&in, 256) != cudaSuccess)
        return 2;
    for (uint64_t seed = 0; seed < 3; seed++) {
        gsv_emu_seed(seed);
        if (GSV_LAUNCH(cases[number].kernel, 2, cases[number].n_threads, 256, nullptr, out, in,
                       barrier) != cudaSuccess)
            return 3;
    }
    return cudaFree(in) != cudaSuccess || cudaFree(out) != cudaSuccess;
}

/* Exit status of a process that runs the case. */
int status_of(size_t number, bool barrier)
{
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();

    if (child == 0) {
        if (!barrier) /* its report is expected, so hide it */
            fclose(stderr);
        exit(run_case(number, barrier));
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace

int main()
{
    int failures = 0;

    if (!HAVE_TSAN) {
        printf("only the thread sanitizer sees races: not run\n");
        return skipped;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int with = status_of(i, true), without = status_of(i, false);
        const bool right = with == 0 && without == 66; /* 66: the sanitizer's status */
        printf("%s: status %d with the barrier, %d without it%s\n", cases[i].name, with, without,
               right ? "" : "  WRONG");
        failures += !right;
    }
    return failures != 0;
}
