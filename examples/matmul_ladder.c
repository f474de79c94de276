/*
 * matmul_ladder.c - measures each optimization step of a matrix product on a device.
 *
 *   matmul_ladder [DEVICE [SIDE...]]     DEVICE is auto (the default), cpu, cuda or cuda:N
 *
 * Square matrices. CPU steps: naive, tiles for the L1 cache, packed panels in vector registers, the
 * same on all threads. GPU steps: naive (one thread per output), tiles in shared memory, tensor
 * cores in three number formats, each next to cuBLASLt. Each result is compared with the first
 * step's. GFLOP/s are computed from the device's kernel time; copy times are printed separately.
 */
#include <gpuserve/gpuserve.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_A_STEP 0.3 /* copies included; and at least three runs */

struct step {
    const char *name;
    uint32_t variant, dtype;
    int one_thread;
    double tolerance; /* max relative distance to the first step */
};

static const struct step cpu_steps[] = {
    { "naive", GPUSERVE_MATMUL_NAIVE, GPUSERVE_DTYPE_FLOAT32, 1, 0 },
    { "tiled", GPUSERVE_MATMUL_TILED, GPUSERVE_DTYPE_FLOAT32, 1, 1e-5 },
    { "simd, 1 thread", GPUSERVE_MATMUL_SIMD, GPUSERVE_DTYPE_FLOAT32, 1, 1e-5 },
    { "simd, all threads", GPUSERVE_MATMUL_SIMD, GPUSERVE_DTYPE_FLOAT32, 0, 1e-5 },
};

static const struct step cuda_steps[] = {
    { "naive", GPUSERVE_MATMUL_NAIVE, GPUSERVE_DTYPE_FLOAT32, 0, 0 },
    { "tiled", GPUSERVE_MATMUL_TILED, GPUSERVE_DTYPE_FLOAT32, 0, 1e-5 },
    { "cublas", GPUSERVE_MATMUL_CUBLAS, GPUSERVE_DTYPE_FLOAT32, 0, 1e-5 },
    { "tensor_core tf32", GPUSERVE_MATMUL_TENSOR_CORE, GPUSERVE_DTYPE_TF32, 0, 1e-3 },
    { "cublas tf32", GPUSERVE_MATMUL_CUBLAS, GPUSERVE_DTYPE_TF32, 0, 1e-3 },
    { "tensor_core bfloat16", GPUSERVE_MATMUL_TENSOR_CORE, GPUSERVE_DTYPE_BFLOAT16, 0, 8e-3 },
    { "cublas bfloat16", GPUSERVE_MATMUL_CUBLAS, GPUSERVE_DTYPE_BFLOAT16, 0, 8e-3 },
    { "tensor_core float16", GPUSERVE_MATMUL_TENSOR_CORE, GPUSERVE_DTYPE_FLOAT16, 0, 1e-3 },
    { "cublas float16", GPUSERVE_MATMUL_CUBLAS, GPUSERVE_DTYPE_FLOAT16, 0, 1e-3 },
};

struct ladder {
    gpuserve_compute *one; /* compute context with one thread */
    gpuserve_compute *all;
    const struct step *steps;
    size_t n_steps;
    int64_t side;
    float *a, *b, *c, *first;
};

static int complain(const gpuserve_error *error)
{
    fprintf(stderr, "%s\n%s\n", error->message, error->hint);
    return 1;
}

/* Fastest of several runs. */
static gpuserve_status run_step(const struct ladder *l, const struct step *step, float *c,
                                gpuserve_compute_result *best, gpuserve_error *error)
{
    gpuserve_compute *compute = step->one_thread ? l->one : l->all;
    gpuserve_matmul_job job = GPUSERVE_MATMUL_JOB_INIT;
    double spent = 0;

    job.m = job.n = job.k = l->side;
    job.a = l->a, job.b = l->b, job.c = c;
    job.c_capacity = (size_t)(l->side * l->side);
    job.variant = step->variant;
    job.dtype = step->dtype;
    for (int run = 0; run < 3 || (spent < SECONDS_A_STEP && run < 50); run++) {
        gpuserve_compute_result result = GPUSERVE_COMPUTE_RESULT_INIT;
        const gpuserve_status status = gpuserve_matmul(compute, &job, &result, error);

        if (status != GPUSERVE_OK)
            return status;
        spent += result.kernel_seconds + result.copy_seconds;
        if (run == 0 || result.kernel_seconds < best->kernel_seconds)
            *best = result;
        if (spent > 3 * SECONDS_A_STEP)
            break; /* a slow case */
    }
    return GPUSERVE_OK;
}

static double distance(const struct ladder *l)
{
    double far = 0, length = 0;

    for (int64_t i = 0; i < l->side * l->side; i++) {
        const double d = (double)l->c[i] - (double)l->first[i];

        far += d * d;
        length += (double)l->first[i] * (double)l->first[i];
    }
    return sqrt(far / length);
}

static int climb(const struct ladder *l)
{
    const double flop = 2.0 * (double)l->side * (double)l->side * (double)l->side;
    double before = 0;

    printf("%lld x %lld\n", (long long)l->side, (long long)l->side);
    for (size_t i = 0; i < l->n_steps; i++) {
        const struct step *step = &l->steps[i];
        gpuserve_compute_result best = GPUSERVE_COMPUTE_RESULT_INIT;
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        const gpuserve_status status = run_step(l, step, i ? l->c : l->first, &best, &error);
        double far;

        if (status == GPUSERVE_E_UNSUPPORTED) {
            printf("  %-22s not here: %s\n", step->name, error.message);
            continue;
        }
        if (status != GPUSERVE_OK)
            return complain(&error);
        far = i ? distance(l) : 0;
        printf("  %-22s %10.1f GFLOP/s  %9.3f ms  copies %9.3f ms  off by %.1e", step->name,
               flop / best.kernel_seconds / 1e9, best.kernel_seconds * 1e3, best.copy_seconds * 1e3,
               far);
        if (before > 0)
            printf("  %.2fx the step before", before / best.kernel_seconds);
        printf("\n");
        fflush(stdout);
        before = best.kernel_seconds;
        if (!(far <= step->tolerance)) {
            fprintf(stderr, "%s differs from naive by %g, more than %g\n", step->name, far,
                    step->tolerance);
            return 1;
        }
    }
    return 0;
}

static float *make_matrix(int64_t side, uint32_t seed)
{
    const size_t n = (size_t)(side * side);
    float *matrix = malloc(n * sizeof(*matrix));

    for (size_t i = 0; matrix && i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        matrix[i] = (float)(int32_t)seed / 2147483648.0f;
    }
    return matrix;
}

static int run_side(struct ladder *l, int64_t side)
{
    int failed = 1;

    l->side = side;
    l->a = make_matrix(side, 1);
    l->b = make_matrix(side, 2);
    l->c = make_matrix(side, 3);
    l->first = make_matrix(side, 4);
    if (l->a && l->b && l->c && l->first)
        failed = climb(l);
    else
        fprintf(stderr, "out of memory for matrices of %lld\n", (long long)side);
    free(l->a), free(l->b), free(l->c), free(l->first);
    return failed;
}

static int run_all(struct ladder *l, char **sides, int n)
{
    static char *cpu_sides[] = { "128", "512", "1024" };
    static char *cuda_sides[] = { "512", "1024", "2048", "4096" };
    const int is_cpu = strcmp(gpuserve_compute_device(l->all), "cpu") == 0;

    l->steps = is_cpu ? cpu_steps : cuda_steps;
    l->n_steps = is_cpu ? sizeof(cpu_steps) / sizeof(cpu_steps[0])
                        : sizeof(cuda_steps) / sizeof(cuda_steps[0]);
    if (n == 0) {
        sides = is_cpu ? cpu_sides : cuda_sides;
        n = is_cpu ? 3 : 4;
    }
    printf("on %s\n", gpuserve_compute_device(l->all));
    for (int i = 0; i < n; i++) {
        char *end;
        const long long side = strtoll(sides[i], &end, 10);

        if (*end || side < 1 || side > 30000) {
            fprintf(stderr, "\"%s\" is no side of 1 to 30000\n", sides[i]);
            return 1;
        }
        if (run_side(l, side))
            return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    gpuserve_compute_options options = GPUSERVE_COMPUTE_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct ladder l = { 0 };
    int failed;

    options.device = argc > 1 ? argv[1] : "auto";
    if (gpuserve_compute_open(&l.all, NULL, &options, &error) != GPUSERVE_OK)
        return complain(&error);
    options.device = gpuserve_compute_device(l.all);
    options.n_threads = 1;
    if (gpuserve_compute_open(&l.one, NULL, &options, &error) != GPUSERVE_OK) {
        gpuserve_compute_close(&l.all);
        return complain(&error);
    }
    failed = run_all(&l, argv + 2, argc > 2 ? argc - 2 : 0);
    gpuserve_compute_close(&l.one);
    gpuserve_compute_close(&l.all);
    return failed;
}
