/*
 * test_matmul.c - gpuserve_matmul() on the CPU and on the emulated GPU: each variant and number
 * format against float64, and rejected arguments.
 */
#include "tests/compute/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct way {
    uint32_t variant, dtype;
    double unit; /* unit roundoff: of the sum's steps, and of the operands */
};

static const struct way cpu_ways[] = {
    { GPUSERVE_MATMUL_NAIVE, GPUSERVE_DTYPE_DEFAULT, 0 },
    { GPUSERVE_MATMUL_TILED, GPUSERVE_DTYPE_FLOAT32, 0 },
    { GPUSERVE_MATMUL_SIMD, GPUSERVE_DTYPE_FLOAT32, 0 },
    { GPUSERVE_MATMUL_AUTO, GPUSERVE_DTYPE_FLOAT32, 0 },
};

#define F16 4.9e-4 /* half a unit in the last place, relative */
#define BF16 3.91e-3

static const struct way cuda_ways[] = {
    { GPUSERVE_MATMUL_NAIVE, GPUSERVE_DTYPE_FLOAT32, 0 },
    { GPUSERVE_MATMUL_TILED, GPUSERVE_DTYPE_FLOAT32, 0 },
    { GPUSERVE_MATMUL_CUBLAS, GPUSERVE_DTYPE_FLOAT32, 0 },
    { GPUSERVE_MATMUL_AUTO, GPUSERVE_DTYPE_DEFAULT, 0 },
    { GPUSERVE_MATMUL_TENSOR_CORE, GPUSERVE_DTYPE_TF32, F16 },
    { GPUSERVE_MATMUL_TENSOR_CORE, GPUSERVE_DTYPE_FLOAT16, F16 },
    { GPUSERVE_MATMUL_TENSOR_CORE, GPUSERVE_DTYPE_BFLOAT16, BF16 },
    { GPUSERVE_MATMUL_CUBLAS, GPUSERVE_DTYPE_TF32, F16 },
    { GPUSERVE_MATMUL_CUBLAS, GPUSERVE_DTYPE_FLOAT16, F16 },
    { GPUSERVE_MATMUL_CUBLAS, GPUSERVE_DTYPE_BFLOAT16, BF16 },
};

#define COUNT(array) (sizeof(array) / sizeof(array[0]))

struct size {
    int64_t m, n, k, gap;
};

static const struct size sizes[] = {
    { 1, 1, 1, 0 },    { 2, 5, 3, 1 },    { 17, 33, 9, 0 },   { 16, 64, 8, 2 }, { 70, 3, 40, 0 },
    { 3, 130, 65, 7 }, { 65, 66, 31, 0 }, { 5, 7, 300, 0 },   { 33, 1, 2, 0 },  { 0, 4, 4, 0 },
    { 4, 0, 4, 0 },    { 4, 4, 0, 1 },    { 129, 40, 17, 3 },
};

static const float factors[][2] = { { 1.0f, 0.0f }, { -0.5f, 1.0f }, { 2.0f, -0.25f } };

struct problem {
    gpuserve_matmul_job job;
    float *a, *b, *before;
    size_t c_floats;
};

static struct problem make_problem(const struct size *s, int turns, const float *factor)
{
    struct problem p = { .job = GPUSERVE_MATMUL_JOB_INIT };
    gpuserve_matmul_job *job = &p.job;

    job->m = s->m, job->n = s->n, job->k = s->k;
    job->transpose_a = (uint32_t)turns & 1, job->transpose_b = (uint32_t)turns >> 1;
    job->alpha = factor[0], job->beta = factor[1];
    job->a_stride = (job->transpose_a ? s->m : s->k) + s->gap;
    job->b_stride = (job->transpose_b ? s->k : s->n) + s->gap;
    job->c_stride = s->n + s->gap;
    p.c_floats = (size_t)(s->m * job->c_stride);
    p.a = random_floats((size_t)((job->transpose_a ? s->k : s->m) * job->a_stride), 1);
    p.b = random_floats((size_t)((job->transpose_b ? s->n : s->k) * job->b_stride), 2);
    p.before = random_floats(p.c_floats, 3);
    job->a = p.a, job->b = p.b;
    job->c_capacity = p.c_floats;
    return p;
}

static void free_problem(struct problem *p)
{
    free(p->a), free(p->b), free(p->before);
}

static double want_at(const struct problem *p, int64_t i, int64_t j, double *size)
{
    const gpuserve_matmul_job *job = &p->job;
    const double before = (double)job->beta * (double)p->before[i * job->c_stride + j];
    double sum = 0;

    *size = 0;
    for (int64_t q = 0; q < job->k; q++) {
        const double x =
            (double)job->alpha *
            (double)p->a[job->transpose_a ? q * job->a_stride + i : i * job->a_stride + q] *
            (double)p->b[job->transpose_b ? j * job->b_stride + q : q * job->b_stride + j];

        sum += x;
        *size += fabs(x);
    }
    return sum + before;
}

static void compare(const struct problem *p, const float *got, double unit, const char *what)
{
    for (int64_t i = 0; i < p->job.m; i++) {
        for (int64_t j = 0; j < p->job.c_stride; j++) {
            const double x = (double)got[i * p->job.c_stride + j];
            double size, want, room;

            if (j >= p->job.n) {
                cr_assert(p->job.beta == 0.0f ? isnan(x)
                                              : (float)x == p->before[i * p->job.c_stride + j],
                          "%s: written between the rows", what);
                continue;
            }
            want = want_at(p, i, j, &size);
            room = (2 * unit + 1.2e-7 * (2 + sqrt((double)p->job.k))) * size + 1.2e-7;
            cr_assert(fabs(x - want) <= room, "%s: C[%d, %d] is %.9g, not %.9g", what, (int)i,
                      (int)j, x, want);
        }
    }
}

static void run_one(gpuserve_compute *compute, const struct way *way, const struct size *s,
                    int turns, const float *factor)
{
    gpuserve_compute_result result = GPUSERVE_COMPUTE_RESULT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct problem p = make_problem(s, turns, factor);
    float *c = p.job.beta == 0.0f ? poison_floats(p.c_floats) : random_floats(p.c_floats, 3);
    char what[200];

    p.job.variant = way->variant;
    p.job.dtype = way->dtype;
    p.job.c = c;
    snprintf(what, sizeof(what), "%s, variant %u, dtype %u, %d x %d x %d, turns %d",
             gpuserve_compute_device(compute), way->variant, way->dtype, (int)s->m, (int)s->n,
             (int)s->k, turns);
    cr_assert_eq(gpuserve_matmul(compute, &p.job, &result, &error), GPUSERVE_OK, "%s: %s", what,
                 error.message);
    compare(&p, c, way->unit, what);
    cr_expect_neq(result.variant, GPUSERVE_MATMUL_AUTO);
    cr_expect(way->variant == GPUSERVE_MATMUL_AUTO || result.variant == way->variant);
    cr_expect(result.kernel_seconds >= 0 && result.copy_seconds >= 0);
    free(c);
    free_problem(&p);
}

static void run_ways(const char *device, const struct way *ways, size_t n)
{
    gpuserve_compute *compute = open_compute(device);

    for (size_t w = 0; w < n; w++) {
        for (size_t s = 0; s < COUNT(sizes); s++) {
            for (int turns = 0; turns < 4; turns++)
                run_one(compute, &ways[w], &sizes[s], turns, factors[(s + (size_t)turns) % 3]);
        }
    }
    gpuserve_compute_close(&compute);
    cr_expect_null(compute);
}

Test(matmul, on_the_cpu)
{
    run_ways("cpu", cpu_ways, COUNT(cpu_ways));
}

Test(matmul, on_cuda)
{
    run_ways("cuda:0", cuda_ways, COUNT(cuda_ways));
}

/* Large tiles: more blocks than the device has processors. */
Test(matmul, large_tiles_on_cuda)
{
    static const struct size large = { 410, 430, 24, 0 }; /* the emulator has 16 */
    static const struct way ways[] = {
        { GPUSERVE_MATMUL_TILED, GPUSERVE_DTYPE_FLOAT32, 0 },
        { GPUSERVE_MATMUL_TENSOR_CORE, GPUSERVE_DTYPE_FLOAT16, F16 },
        { GPUSERVE_MATMUL_TENSOR_CORE, GPUSERVE_DTYPE_TF32, F16 },
    };
    gpuserve_compute *compute = open_compute("cuda:0");

    for (size_t i = 0; i < COUNT(ways); i++)
        run_one(compute, &ways[i], &large, (int)i + 1, factors[0]);
    gpuserve_compute_close(&compute);
}

/* --------------------------------------------------------------------------------- refusals */

static float numbers[64];

/* A valid 4 x 4 by 4 x 4 job. */
static gpuserve_matmul_job small_job(void)
{
    gpuserve_matmul_job job = GPUSERVE_MATMUL_JOB_INIT;

    job.m = job.n = job.k = 4;
    job.a = numbers, job.b = numbers + 16, job.c = numbers + 32;
    job.c_capacity = 16;
    return job;
}

static void expect(gpuserve_compute *compute, const gpuserve_matmul_job *job,
                   gpuserve_status status, const char *word)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float before[64];

    memcpy(before, numbers, sizeof(before));
    cr_expect_eq(gpuserve_matmul(compute, job, NULL, &error), status, "%s: %d, not %d (%s)", word,
                 error.status, status, error.message);
    cr_expect(strstr(error.message, word), "\"%s\" is not in \"%s\"", word, error.message);
    cr_expect_arr_eq(before, numbers, sizeof(before));
}

#define REFUSED(status, word, change)          \
    do {                                       \
        gpuserve_matmul_job job = small_job(); \
                                               \
        change;                                \
        expect(compute, &job, status, word);   \
    } while (0)

static void refuse_sizes(gpuserve_compute *compute)
{
    REFUSED(GPUSERVE_E_INVALID, "m is -1", job.m = -1);
    REFUSED(GPUSERVE_E_INVALID, "n is -9223372036854775808", job.n = INT64_MIN);
    REFUSED(GPUSERVE_E_INVALID, "k is -2", job.k = -2);
    REFUSED(GPUSERVE_E_TOO_LARGE, "m is 4194305", job.m = GPUSERVE_MATMUL_MAX_SIDE + 1);
    REFUSED(GPUSERVE_E_TOO_LARGE, "k is 9223372036854775807", job.k = INT64_MAX);
    REFUSED(GPUSERVE_E_TOO_LARGE, "`b`", job.b_stride = INT64_MAX);
    REFUSED(GPUSERVE_E_TOO_LARGE, "`a`", job.a_stride = INT64_C(1) << 62); /* 4 times: 2^64 */
    REFUSED(GPUSERVE_E_TOO_LARGE, "`b`", job.b_stride = INT64_C(1) << 60);
    REFUSED(GPUSERVE_E_INVALID, "a_stride is 3, less than the 4", job.a_stride = 3);
    REFUSED(GPUSERVE_E_INVALID, "b_stride is -4", job.b_stride = -4);
    REFUSED(GPUSERVE_E_INVALID, "c_stride is 1", job.c_stride = 1);
    REFUSED(GPUSERVE_E_INVALID, "c_capacity is 15 floats", job.c_capacity = 15);
    REFUSED(GPUSERVE_E_INVALID, "need 19", job.c_stride = 5; job.c_capacity = 18);
}

static void refuse_words(gpuserve_compute *compute)
{
    REFUSED(GPUSERVE_E_INVALID, "`a` is NULL", job.a = NULL);
    REFUSED(GPUSERVE_E_INVALID, "`b` is NULL", job.b = NULL);
    REFUSED(GPUSERVE_E_INVALID, "`c` is NULL", job.c = NULL);
    REFUSED(GPUSERVE_E_INVALID, "overlaps `a`", job.c = numbers + 12);
    REFUSED(GPUSERVE_E_INVALID, "overlaps `a`", job.a = numbers + 40);
    REFUSED(GPUSERVE_E_INVALID, "overlaps `b`", job.c = numbers + 28);
    REFUSED(GPUSERVE_E_INVALID, "dtype is 5", job.dtype = GPUSERVE_DTYPE_INT8);
    REFUSED(GPUSERVE_E_INVALID, "dtype is 77", job.dtype = 77);
    REFUSED(GPUSERVE_E_INVALID, "variant is 6", job.variant = 6);
    REFUSED(GPUSERVE_E_INVALID, "transpose_a is 2", job.transpose_a = 2);
    REFUSED(GPUSERVE_E_INVALID, "transpose_b is 2", job.transpose_b = 2);
    REFUSED(GPUSERVE_E_INVALID, "struct_size is 8", job.struct_size = 8);
    REFUSED(GPUSERVE_E_INVALID, "`reserved`", job.reserved = 1);
}

Test(matmul, what_is_wrong_is_refused_whole)
{
    for (int i = 0; i < N_DEVICES; i++) {
        gpuserve_compute *compute = open_compute(devices[i]);

        refuse_sizes(compute);
        refuse_words(compute);
        expect(compute, NULL, GPUSERVE_E_INVALID, "`job` is NULL");
        gpuserve_compute_close(&compute);
    }
    expect(NULL, NULL, GPUSERVE_E_INVALID, "NULL");
}

Test(matmul, what_a_device_lacks_is_named)
{
    gpuserve_compute *compute = open_compute("cpu");

    REFUSED(GPUSERVE_E_UNSUPPORTED, "tensor_core", job.variant = GPUSERVE_MATMUL_TENSOR_CORE);
    REFUSED(GPUSERVE_E_UNSUPPORTED, "cublas", job.variant = GPUSERVE_MATMUL_CUBLAS);
    REFUSED(GPUSERVE_E_UNSUPPORTED, "float16", job.dtype = GPUSERVE_DTYPE_FLOAT16);
    REFUSED(GPUSERVE_E_UNSUPPORTED, "tf32", job.dtype = GPUSERVE_DTYPE_TF32);
    gpuserve_compute_close(&compute);
    compute = open_compute("cuda:0");
    REFUSED(GPUSERVE_E_UNSUPPORTED, "simd", job.variant = GPUSERVE_MATMUL_SIMD);
    REFUSED(GPUSERVE_E_UNSUPPORTED, "tensor_core", job.variant = GPUSERVE_MATMUL_TENSOR_CORE);
    REFUSED(GPUSERVE_E_UNSUPPORTED, "naive", job.variant = GPUSERVE_MATMUL_NAIVE;
            job.dtype = GPUSERVE_DTYPE_FLOAT16);
    gpuserve_compute_close(&compute);
    cr_assert_eq(setenv("GPUSERVE_CUBLASLT", "0", 1), 0);
    compute = open_compute("cuda:0");
    REFUSED(GPUSERVE_E_UNSUPPORTED, "cuBLASLt", job.variant = GPUSERVE_MATMUL_CUBLAS);
    run_one(compute, &(struct way){ GPUSERVE_MATMUL_AUTO, GPUSERVE_DTYPE_FLOAT32, 0 }, &sizes[4], 1,
            factors[1]);
    run_one(compute, &(struct way){ GPUSERVE_MATMUL_AUTO, GPUSERVE_DTYPE_FLOAT16, F16 }, &sizes[5],
            2, factors[1]);
    gpuserve_compute_close(&compute);
}

/* 4 rows of 2, at offsets `a_at` and `c_at` in one array of floats. */
static gpuserve_matmul_job between(int a_at, int64_t a_stride, int c_at, int64_t c_stride)
{
    gpuserve_matmul_job job = small_job();

    job.n = job.k = 2;
    job.a = numbers + a_at, job.a_stride = a_stride;
    job.c = numbers + c_at, job.c_stride = c_stride;
    job.b = numbers + 60;
    job.c_capacity = 40;
    return job;
}

/* Rows with different strides, or that overlap only in part. */
Test(matmul, rows_that_meet_are_found)
{
    gpuserve_compute *compute = open_compute("cpu");

    REFUSED(GPUSERVE_E_INVALID, "overlaps `a`",
            job = between(0, 8, 2, 7)); /* from the second row on */
    REFUSED(GPUSERVE_E_INVALID, "overlaps `a`", job = between(0, 8, 7, 8)); /* the next row */
    REFUSED(GPUSERVE_E_INVALID, "overlaps `a`", job = between(1, 7, 0, 7)); /* C comes first */
    REFUSED(GPUSERVE_E_INVALID, "overlaps `a`", job = between(0, 7, 1, 7));
    REFUSED(GPUSERVE_E_INVALID, "overlaps `a`", job = between(0, 8, 1, 8));
    gpuserve_compute_close(&compute);
}

/* C between the rows of A, as columns of one larger matrix. */
Test(matmul, columns_of_one_matrix_do_not_overlap)
{
    gpuserve_compute *compute = open_compute("cpu");
    gpuserve_matmul_job job = GPUSERVE_MATMUL_JOB_INIT;
    float all[4 * 8] = { 0 }, b[4] = { 1, 0, 0, 1 };

    for (int i = 0; i < 4; i++)
        all[i * 8 + 5] = (float)i, all[i * 8 + 6] = 2;
    job.m = 4, job.n = job.k = 2;
    job.a = all + 5, job.b = b, job.c = all + 1;
    job.a_stride = job.c_stride = 8;
    job.c_capacity = 31;
    cr_assert_eq(gpuserve_matmul(compute, &job, NULL, NULL), GPUSERVE_OK);
    for (int i = 0; i < 4; i++)
        cr_expect(all[i * 8 + 1] == (float)i && all[i * 8 + 2] == 2 && all[i * 8] == 0);
    gpuserve_compute_close(&compute);
}
