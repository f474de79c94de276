/*
 * test_faults.c - the backend's use of the device, and its reaction to failing calls.
 *
 * Only on the emulator, with its counters and planned failures. A lost device stays lost for the
 * life of a process, so each failure runs in its own process.
 */
#include "tests/cudaemu/emu.h"
#include "tests/kernels_cuda/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_RUNS 3 /* direct run, recording, replay */

static const struct lengths lengths = { 2, { 5, 9 } };

static gpuserve_status run_once(struct net *net, float *vectors, gpuserve_error *error)
{
    struct gpuserve_host_batch host = make_host_batch(&lengths, NET_VOCAB, 1);
    const gpuserve_status status = net_run(net, 1, &host, vectors, NULL, error);

    free_host_batch(&host);
    return status;
}

/* ---------------------------------------------------------------------------------- counting */

static void count_one_dtype(uint32_t dtype, int32_t flags, uint64_t launches)
{
    struct gsv_emu_counters before, after;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct net *net =
        net_open(cuda_backend(), dtype, flags | GPUSERVE_STREAM_DETERMINISTIC, &error);
    float vectors[2 * NET_HIDDEN];

    cr_assert_not_null(net, "%s", error.message);
    for (int i = 0; i < N_RUNS + 1; i++) {
        gsv_emu_get_counters(&before);
        cr_assert_eq(run_once(net, vectors, &error), GPUSERVE_OK, "%s", error.message);
        gsv_emu_get_counters(&after);
        cr_expect_eq(after.copies_in - before.copies_in, 1);
        cr_expect_eq(after.copies_out - before.copies_out, 1);
        cr_expect_eq(after.copies_inside - before.copies_inside, 0);
        cr_expect_leq(after.launches - before.launches, launches, "dtype %u, run %d, flags %x",
                      dtype, i, flags);
        cr_expect_eq(after.graph_launches - before.graph_launches, i > 0, "run %d", i);
        cr_expect_eq(after.allocations, before.allocations, "device memory was taken in run %d", i);
        cr_expect_eq(after.host_allocations, before.host_allocations);
        cr_expect_eq(after.synchronizations, before.synchronizations);
    }
    net_close(&net);
}

/* cuBLASLt's product needs another launch for GELU. */
Test(kernels_cuda_faults, a_batch_is_one_copy_each_way_and_eight_launches_a_layer)
{
    for (size_t i = 0; i < N_FORMATS; i++)
        count_one_dtype(formats[i].dtype, 0, NET_LAUNCHES + NET_LAYERS);
    count_one_dtype(GPUSERVE_DTYPE_INT8, 0, NET_LAUNCHES);
}

Test(kernels_cuda_faults, a_pre_norm_layer_is_one_launch_for_each_operation)
{
    for (size_t i = 0; i < N_FORMATS; i++)
        count_one_dtype(formats[i].dtype, NET_PRE_NORM, NET_PRE_NORM_LAUNCHES);
    count_one_dtype(GPUSERVE_DTYPE_INT8, NET_PRE_NORM, NET_PRE_NORM_LAUNCHES + NET_LAYERS);
}

/* Computes a product of `rows` rows, keeps row 0; returns the number of cuBLASLt products. */
static uint64_t multiply_rows(struct gpuserve_stream *stream, const struct gpuserve_linear *linear,
                              const struct buffer *in, int32_t rows, float *row, int32_t n,
                              int32_t k)
{
    struct buffer out = make_output(in->dtype, (size_t)rows * (size_t)n);
    const struct gpuserve_op_linear op = {
        .weight = linear, .in = in->device, .out = out.device, .rows = rows, .in_ld = k, .out_ld = n
    };
    struct gsv_emu_counters before, after;

    begin_any(stream);
    gsv_emu_get_counters(&before);
    cr_assert_eq(cuda_backend()->linear(stream, &op), GPUSERVE_OK);
    finish(stream, out.device);
    gsv_emu_get_counters(&after);
    download(&out);
    memcpy(row, out.host, (size_t)n * sizeof(*row));
    free_buffer(&out);
    return after.products - before.products;
}

/* ------------------------------------------------------------------------- cuBLASLt refuses */

/* One product with weights, `n` outputs and `k` inputs, with its own stream. */
struct product {
    struct buffer in, weight;
    struct gpuserve_linear *linear;
    void *memory;
    int32_t n, k;
};

static struct product make_product_in(uint32_t dtype, int32_t n, int32_t k, int32_t max_rows)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    struct product p = { .in = make_input(dtype, (size_t)max_rows * (size_t)k, 3, 1.0f),
                         .weight = make_input(dtype, (size_t)(n * k), 4, 1.0f),
                         .n = n,
                         .k = k };
    const struct gpuserve_linear_source source = {
        .struct_size = sizeof(source), .dtype = dtype, .n = n, .k = k, .weight = p.weight.host
    };

    cr_assert_eq(
        cuda->memory_alloc(cuda_device(), &p.memory, cuda->linear_bytes(n, k, dtype), NULL),
        GPUSERVE_OK);
    cr_assert_eq(cuda->linear_create(cuda_device(), &p.linear, p.memory, &source, NULL),
                 GPUSERVE_OK);
    return p;
}

static struct product make_product(int32_t n, int32_t k, int32_t max_rows)
{
    return make_product_in(GPUSERVE_DTYPE_FLOAT16, n, k, max_rows);
}

static void free_product(struct product *p)
{
    cuda_backend()->linear_destroy(&p->linear);
    cuda_backend()->memory_free(cuda_device(), p->memory);
    free_buffer(&p->in);
    free_buffer(&p->weight);
}

/* All rows are right, by any implementation; returns the number of cuBLASLt products. */
static uint64_t check_product(const struct product *p, struct gpuserve_stream *stream, int32_t rows)
{
    float row[128], want[128];
    const uint64_t products = multiply_rows(stream, p->linear, &p->in, rows, row, p->n, p->k);

    for (int32_t j = 0; j < p->n; j++) {
        double sum = 0;

        for (int32_t i = 0; i < p->k; i++)
            sum += (double)p->in.host[i] * (double)p->weight.host[j * p->k + i];
        want[j] = (float)sum;
    }
    cr_expect_leq(distance(row, want, (size_t)p->n),
                  p->in.dtype == GPUSERVE_DTYPE_BFLOAT16 ? 2e-2 : 2e-3, "%d rows", rows);
    return products;
}

static void refuse(struct gsv_emu_refusal refusal)
{
    gsv_emu_refuse_products(&refusal);
}

/* The algorithm check rejects certain row counts: only these use our own kernel. */
Test(kernels_cuda_faults, a_number_of_rows_that_cublaslt_cannot_do_is_our_kernels)
{
    struct product p = make_product(64, 32, 1025);
    struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT16, 16, 4, 1, 0);
    const int32_t warnings = cuda_warnings();

    refuse((struct gsv_emu_refusal){
        .in_check = 1, .columns_from = 300, .columns_to = 310, .one_in = 1 });
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(check_product(&p, stream, 300), 0);
        cr_expect_eq(check_product(&p, stream, 299), 1);
        cr_expect_eq(check_product(&p, stream, 310), 0);
        cr_expect_eq(check_product(&p, stream, 311), 1);
    }
    cr_expect_eq(gsv_emu_refused_products(), 6, "a call was made that the check had refused");
    cr_expect_eq(cuda_warnings() - warnings, 1, "%d warnings", cuda_warnings() - warnings);
    cuda_backend()->stream_destroy(&stream);
    free_product(&p);
    refuse((struct gsv_emu_refusal){ 0 });
}

/* A rejected call after a passed check disables the algorithm for its range of rows. */
Test(kernels_cuda_faults, a_refused_call_withdraws_the_algorithm_and_not_the_device)
{
    struct product p = make_product(96, 64, 1100);
    struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT16, 16, 4, 1, 0);
    struct gpuserve_device *again = NULL;
    const int32_t warnings = cuda_warnings();

    refuse((struct gsv_emu_refusal){ .columns_from = 200, .columns_to = 200, .one_in = 1 });
    cr_expect_eq(check_product(&p, stream, 199), 1);
    cr_expect_eq(check_product(&p, stream, 200), 0);
    cr_expect_eq(check_product(&p, stream, 199), 0, "the algorithm is still taken");
    cr_expect_eq(check_product(&p, stream, 1025), 1, "that of more rows was withdrawn too");
    cr_expect_eq(gsv_emu_refused_products(), 1);
    cr_expect_eq(cuda_warnings() - warnings, 1);
    cr_expect_eq(cuda_backend()->device_open(&again, 0, NULL), GPUSERVE_OK, "the device is lost");
    cuda_backend()->device_close(&again);
    cuda_backend()->stream_destroy(&stream);
    free_product(&p);
    refuse((struct gsv_emu_refusal){ 0 });
}

/* An algorithm is disabled for one size and one dtype; others keep theirs. */
Test(kernels_cuda_faults, an_algorithm_is_withdrawn_for_one_kind_of_product)
{
    static const struct {
        const char *member;
        uint32_t dtype;
        int32_t n, k;
    } others[] = { { "n", GPUSERVE_DTYPE_FLOAT16, 64, 64 },
                   { "k", GPUSERVE_DTYPE_FLOAT16, 96, 32 },
                   { "math", GPUSERVE_DTYPE_BFLOAT16, 96, 64 },
                   { "math", GPUSERVE_DTYPE_FLOAT32, 96, 64 },
                   { "math", GPUSERVE_DTYPE_TF32, 96, 64 } };
    struct product first = make_product(96, 64, 200), same;
    struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT16, 16, 4, 1, 0);

    refuse((struct gsv_emu_refusal){ .columns_to = 1 << 20, .one_in = 1 });
    cr_expect_eq(check_product(&first, stream, 200), 0);
    refuse((struct gsv_emu_refusal){ 0 });
    same = make_product(96, 64, 200);
    cr_expect_eq(check_product(&same, stream, 200), 0, "a choice is made once");
    free_product(&same);
    cuda_backend()->stream_destroy(&stream);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct product p = make_product_in(others[i].dtype, others[i].n, others[i].k, 200);

        stream = cuda_stream(others[i].dtype, 16, 4, 1, 0);
        cr_expect_eq(check_product(&p, stream, 200), 1, "%s is not looked at", others[i].member);
        cuda_backend()->stream_destroy(&stream);
        free_product(&p);
    }
    free_product(&first);
}

/* Operands without the required alignment, and random rejections: every product is right. */
Test(kernels_cuda_faults, products_are_right_whatever_cublaslt_refuses)
{
    static const struct gsv_emu_refusal refusals[] = {
        { .columns_to = 1 << 20, .alignment = 1 << 20, .one_in = 1 },
        { .columns_to = 1 << 20, .one_in = 2, .seed = 1 },
        { .in_check = 1, .columns_to = 1 << 20, .one_in = 3, .seed = 2 },
        { .in_check = 1, .columns_to = 1 << 20, .one_in = 1 },
    };

    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct product p = make_product(32 + 8 * (int32_t)i, 40, 1100);
        struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT16, 16, 4, 1, 0);

        refuse(refusals[i]);
        for (int32_t rows = 129; rows < 1100; rows += 97)
            check_product(&p, stream, rows);
        cr_expect_gt(gsv_emu_refused_products(), 0, "refusal %zu", i);
        refuse((struct gsv_emu_refusal){ 0 });
        cuda_backend()->stream_destroy(&stream);
        free_product(&p);
    }
}

/* -------------------------------------------------------------------------------- algorithms */

/* The bits of row 0 in products of several numbers of rows; returns the number of cuBLASLt
 * products. */
static uint64_t compare_row_counts(const struct product *p, int32_t flags, bool *same)
{
    static const int32_t rows[] = { 1, 2, 16, 17, 64, 128, 129, 300, 1024, 1025 };
    struct gpuserve_stream *stream = cuda_stream(p->in.dtype, 16, 4, 1, flags);
    float first[128], row[128];
    uint64_t products = 0;

    *same = true;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        products += multiply_rows(stream, p->linear, &p->in, rows[i], i ? row : first, p->n, p->k);
        *same = *same && (!i || memcmp(row, first, (size_t)p->n * sizeof(*row)) == 0);
    }
    cuda_backend()->stream_destroy(&stream);
    return products;
}

/* cuBLASLt uses different algorithms for few and many rows; a deterministic stream uses one. The
 * emulator's is always faster than our kernels. */
Test(kernels_cuda_faults, a_deterministic_product_has_one_algorithm)
{
    static const int32_t sizes[][2] = { { 64, 32 }, { 96, 64 }, { 40, 128 } };

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        struct product p = make_product(sizes[s][0], sizes[s][1], 1025);
        bool same;

        cr_expect_gt(compare_row_counts(&p, 0, &same), 0, "%d x %d", p.n, p.k);
        cr_expect_eq(compare_row_counts(&p, GPUSERVE_STREAM_DETERMINISTIC, &same), 10, "%d x %d",
                     p.n, p.k);
        cr_expect(same, "%d x %d", p.n, p.k);
        free_product(&p);
    }
}

/* An algorithm whose rows have other bits in larger products, and rows that are not aligned, are
 * left to our own kernel. */
Test(kernels_cuda_faults, a_deterministic_product_rejects_an_algorithm_that_depends_on_the_rows)
{
    struct product p;
    bool same;

    gsv_emu_reverse_products(2);
    p = make_product_in(GPUSERVE_DTYPE_FLOAT32, 64, 48, 1025);
    cr_expect_gt(compare_row_counts(&p, 0, &same), 0);
    cr_expect_not(same, "the products do not depend on the number of rows");
    cr_expect_eq(compare_row_counts(&p, GPUSERVE_STREAM_DETERMINISTIC, &same), 0);
    cr_expect(same);
    free_product(&p);
    gsv_emu_reverse_products(0);

    p = make_product(44, 32, 1025);
    cr_expect_eq(compare_row_counts(&p, GPUSERVE_STREAM_DETERMINISTIC, &same), 0);
    cr_expect(same);
    free_product(&p);
}

/* Another kernel would give other bits. */
Test(kernels_cuda_faults, a_refused_deterministic_product_is_an_error)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    struct product p = make_product(64, 32, 300);
    struct gpuserve_stream *stream =
        cuda_stream(GPUSERVE_DTYPE_FLOAT16, 16, 4, 1, GPUSERVE_STREAM_DETERMINISTIC);
    struct buffer out = make_output(GPUSERVE_DTYPE_FLOAT16, 300 * 64);
    const struct gpuserve_op_linear op = { .weight = p.linear,
                                           .in = p.in.device,
                                           .out = out.device,
                                           .rows = 300,
                                           .in_ld = 32,
                                           .out_ld = 64 };

    refuse((struct gsv_emu_refusal){ .columns_from = 300, .columns_to = 300, .one_in = 1 });
    begin_any(stream);
    cr_expect_neq(cuda->linear(stream, &op), GPUSERVE_OK);
    refuse((struct gsv_emu_refusal){ 0 });
    cuda->stream_destroy(&stream);
    free_buffer(&out);
    free_product(&p);
}

/* Opens the device anew and loads weights; returns the launches that this takes. */
static uint64_t load_anew(int32_t n, int32_t k, uint32_t dtype)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    const size_t size = cuda->linear_bytes(n, k, dtype);
    struct buffer weight = make_input(dtype, (size_t)(n * k), 4, 1.0f);
    const struct gpuserve_linear_source source = {
        .struct_size = sizeof(source), .dtype = dtype, .n = n, .k = k, .weight = weight.host
    };
    struct gpuserve_device *device = NULL;
    struct gpuserve_linear *linear = NULL;
    struct gsv_emu_counters before, after;
    void *memory = NULL;

    cr_assert_eq(cuda->device_open(&device, 0, NULL), GPUSERVE_OK);
    cr_assert_eq(cuda->memory_alloc(device, &memory, size, NULL), GPUSERVE_OK);
    gsv_emu_get_counters(&before);
    cr_assert_eq(cuda->linear_create(device, &linear, memory, &source, NULL), GPUSERVE_OK);
    gsv_emu_get_counters(&after);
    cuda->linear_destroy(&linear);
    cuda->memory_free(device, memory);
    cuda->device_close(&device);
    free_buffer(&weight);
    return after.launches - before.launches;
}

/* Writes over the last byte of the folder's only file. */
static void damage_file(const char *folder)
{
    char command[512];

    snprintf(command, sizeof(command),
             "for f in '%s'/*.code; do printf 'x' | dd of=\"$f\" bs=1 seek=$(($(stat -c %%s "
             "\"$f\") - 1)) "
             "conv=notrunc status=none; done",
             folder);
    cr_assert_eq(system(command), 0);
}

Test(kernels_cuda_faults, the_choice_of_an_algorithm_is_kept_on_disk)
{
    char folder[] = "/tmp/gpuserve-choices-XXXXXX", command[64];

    cr_assert_not_null(mkdtemp(folder));
    setenv("GPUSERVE_KERNEL_CACHE", folder, 1);
    cr_expect_gt(load_anew(64, 32, GPUSERVE_DTYPE_FLOAT16), 0);
    cr_expect_eq(load_anew(64, 32, GPUSERVE_DTYPE_FLOAT16), 0, "the products are timed again");
    damage_file(folder);
    cr_expect_gt(load_anew(64, 32, GPUSERVE_DTYPE_FLOAT16), 0, "a damaged file is used");
    cr_expect_eq(load_anew(64, 32, GPUSERVE_DTYPE_FLOAT16), 0);
    cr_expect_gt(load_anew(72, 32, GPUSERVE_DTYPE_FLOAT16), 0, "that of another n is used");
    cr_expect_gt(load_anew(64, 40, GPUSERVE_DTYPE_FLOAT16), 0, "that of another k is used");
    cr_expect_gt(load_anew(64, 32, GPUSERVE_DTYPE_BFLOAT16), 0, "that of another format is used");
    setenv("GPUSERVE_KERNEL_CACHE", "0", 1);
    cr_expect_gt(load_anew(64, 32, GPUSERVE_DTYPE_FLOAT16), 0);
    unsetenv("GPUSERVE_KERNEL_CACHE");
    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

Test(kernels_cuda_faults, stream_bytes_is_what_a_stream_takes)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    struct gpuserve_stream_options options = { .struct_size = sizeof(options),
                                               .dtype = GPUSERVE_DTYPE_FLOAT16,
                                               .n_heads = 1 };
    static const int32_t sizes[][3] = { { 1, 1, 1 }, { 16, 3, 100 }, { 16384, 512, 1 << 20 } };
    const size_t n_sizes = sizeof(sizes) / sizeof(sizes[0]);
    struct gpuserve_device *device = cuda_device();

    for (size_t turn = 0; turn < 2 * n_sizes; turn++) {
        const size_t i = turn % n_sizes;
        struct gsv_emu_counters before, after;
        struct gpuserve_stream *stream;
        gpuserve_error error = GPUSERVE_ERROR_INIT;

        if (turn == n_sizes) { /* int8 rows */
            options.dtype = GPUSERVE_DTYPE_INT8;
            options.max_columns = 1536;
            options.hidden_size = 384;
        }
        options.max_tokens = options.max_seqlen = sizes[i][0];
        options.max_sequences = sizes[i][1];
        options.output_bytes = (size_t)sizes[i][2];
        gsv_emu_get_counters(&before);
        cr_assert_eq(cuda->stream_create(device, &stream, &options, &error), GPUSERVE_OK);
        gsv_emu_get_counters(&after);
        cr_expect_eq(after.live_bytes + after.live_host_bytes,
                     before.live_bytes + before.live_host_bytes + cuda->stream_bytes(&options));
        cuda->stream_destroy(&stream);
        gsv_emu_get_counters(&after);
        cr_expect_eq(after.live_bytes, before.live_bytes);
        cr_expect_eq(after.live_host_bytes, before.live_host_bytes);
        cr_expect_eq(after.live_objects, before.live_objects);
    }
}

/* ----------------------------------------------------------------------------------- failing */

static int complain(const char *what, uint64_t call, int code, const gpuserve_error *error)
{
    fprintf(stderr, "%s: call %llu (%s) with %d: status %d, \"%s\"\n", what,
            (unsigned long long)call, gsv_emu_failed_call() ? gsv_emu_failed_call() : "none", code,
            error->status, error->message);
    return 1;
}

static bool loses_the_device(int code)
{
    return code == 700 || code == 719 || code == 214;
}

/* The message of a failed allocation has the requested bytes, the free bytes and a remedy. */
static bool tells_memory(const gpuserve_error *error)
{
    const char *call = gsv_emu_failed_call();

    if (call && strcmp(call, "cudaMalloc") == 0)
        return strstr(error->message, "MB requested, ") && strstr(error->message, " MB free on ") &&
               strstr(error->hint, "max_batch_tokens");
    if (call && strcmp(call, "cudaMallocHost") == 0)
        return strstr(error->message, "MB of pinned host memory requested, ") &&
               strstr(error->message, " MB free on the machine") && strstr(error->hint, "ulimit");
    return true;
}

static bool right_class(int code, const gpuserve_error *error)
{
    char number[32];

    snprintf(number, sizeof(number), "CUDA error %d (", code);
    return error->status == (code == 2 ? GPUSERVE_E_NOMEM : GPUSERVE_E_DEVICE) &&
           strstr(error->message, number) && error->hint[0] && (code != 2 || tells_memory(error));
}

/* After the loss each call fails at once with the first cause. */
static bool stays_lost(struct net *net, const gpuserve_error *first)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float vectors[2 * NET_HIDDEN];
    struct net *other;

    if (net && (run_once(net, vectors, &error) != GPUSERVE_E_DEVICE ||
                strcmp(error.message, first->message) != 0))
        return false;
    other = net_open(cuda_backend(), GPUSERVE_DTYPE_FLOAT16, 0, &error);
    return !other && error.status == GPUSERVE_E_DEVICE &&
           strcmp(error.message, first->message) == 0;
}

/* Without memory to choose a cuBLASLt algorithm our own kernel computes, with other bits. */
static bool is_right(const float *got, const float *want)
{
    const char *use = getenv("GPUSERVE_CUBLASLT");

    return memcmp(got, want, 2 * NET_HIDDEN * sizeof(*got)) == 0 ||
           ((!use || strcmp(use, "0") != 0) && distance(got, want, 2 * NET_HIDDEN) < 5e-3);
}

/* Opens, runs and closes with the n-th call failing; 2 if there are fewer calls. */
static int live_through(uint64_t n, int code, const float *want)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float vectors[2 * NET_HIDDEN];
    struct gsv_emu_counters left;
    gpuserve_status status = GPUSERVE_OK;
    struct net *net;
    bool happened;

    gsv_emu_fail_call(n, code);
    net = net_open(cuda_backend(), GPUSERVE_DTYPE_FLOAT16, GPUSERVE_STREAM_DETERMINISTIC, &error);
    if (!net)
        status = (gpuserve_status)error.status;
    for (int i = 0; net && status == GPUSERVE_OK && i < N_RUNS; i++) {
        memset(vectors, 0, sizeof(vectors));
        status = run_once(net, vectors, &error);
        if (status == GPUSERVE_OK && !is_right(vectors, want))
            return complain("a wrong answer", n, code, &error);
    }
    happened = gsv_emu_failed_call() != NULL;
    if (status != GPUSERVE_OK && !right_class(code, &error))
        return complain("the wrong class", n, code, &error);
    if (status != GPUSERVE_OK && loses_the_device(code) && !stays_lost(net, &error))
        return complain("not lost", n, code, &error);
    /* Other failures are transient: the same net works again. */
    if (net && status != GPUSERVE_OK && (code == 2 || code == 46) &&
        (run_once(net, vectors, &error) != GPUSERVE_OK || !is_right(vectors, want)))
        return complain("not usable again", n, code, &error);
    net_close(&net);
    gsv_emu_get_counters(&left);
    if (!loses_the_device(code) && code != 999 &&
        (left.live_bytes || left.live_host_bytes || left.live_objects))
        return complain("a leak", n, code, &error);
    return happened ? 0 : 2;
}

static int in_own_process(uint64_t n, int code, const float *want)
{
    const pid_t child = fork();
    int status;

    cr_assert_geq(child, 0);
    if (child == 0)
        _exit(live_through(n, code, want));
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "call %llu with %d: signal %d", (unsigned long long)n, code,
              WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* Fails the calls `first`, `first` + `step` etc., each in its own run. */
static void fail_calls(int code, uint64_t first, uint64_t step)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float want[2 * NET_HIDDEN];
    uint64_t n = first;
    int outcome;
    struct net *net =
        net_open(cuda_backend(), GPUSERVE_DTYPE_FLOAT16, GPUSERVE_STREAM_DETERMINISTIC, &error);

    cr_assert_not_null(net, "%s", error.message);
    cr_assert_eq(run_once(net, want, &error), GPUSERVE_OK, "%s", error.message);
    net_close(&net);
    do {
        outcome = in_own_process(n, code, want);
        cr_expect_neq(outcome, 1, "call %llu fails with %d", (unsigned long long)n, code);
        n += step;
    } while (outcome != 2);
    cr_expect_gt(n, 50, "the failure must reach every call of a run, not %llu",
                 (unsigned long long)n);
}

/* Without cuBLASLt, whose timing makes some thousand calls. Under a sanitizer the codes of a kind,
 * of which this is the `nth`, alternate: each call fails with one transient code and with one that
 * loses the device. All codes of a kind take the same path. */
static void fail_every_call(int code, uint64_t nth, uint64_t n_of_kind)
{
    setenv("GPUSERVE_CUBLASLT", "0", 1);
#ifdef __SANITIZE_ADDRESS__
    fail_calls(code, nth, n_of_kind);
#else
    (void)nth, (void)n_of_kind;
    fail_calls(code, 1, 1);
#endif
}

Test(kernels_cuda_faults, cublaslt)
{
    fail_calls(2, 83, 83);
    fail_calls(719, 89, 89);
}

Test(kernels_cuda_faults, out_of_memory)
{
    fail_every_call(2, 1, 2);
}

Test(kernels_cuda_faults, devices_unavailable)
{
    fail_every_call(46, 2, 2);
}

Test(kernels_cuda_faults, illegal_address)
{
    fail_every_call(700, 1, 4);
}

Test(kernels_cuda_faults, launch_failure)
{
    fail_every_call(719, 2, 4);
}

Test(kernels_cuda_faults, uncorrectable_memory)
{
    fail_every_call(214, 3, 4);
}

Test(kernels_cuda_faults, unknown_error)
{
    fail_every_call(999, 4, 4);
}

Test(kernels_cuda_faults, a_device_that_hangs_is_given_up)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float vectors[2 * NET_HIDDEN];
    struct net *net;

    /* Longer than any slow but working call in a sanitized build. */
    setenv("GPUSERVE_CUDA_TIMEOUT_MS", "5000", 1);
    net = net_open(cuda_backend(), GPUSERVE_DTYPE_FLOAT16, 0, &error);
    cr_assert_not_null(net, "%s", error.message);
    gsv_emu_hang(1);
    cr_assert_eq(run_once(net, vectors, &error), GPUSERVE_E_DEVICE);
    cr_expect_not_null(strstr(error.message, "did not answer"), "%s", error.message);
    cr_expect(stays_lost(net, &error));
    net_close(&net); /* must not wait either */
    gsv_emu_hang(0);
}

/* ---------------------------------------------------------------------------------- starting */

Test(kernels_cuda_faults, why_there_is_no_device)
{
    static const struct {
        int code;
        const char *message, *hint;
    } cases[] = { { 35, "driver", "580" }, { 100, "no device", "nvidia-smi" } };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        int32_t count = 7;

        gsv_emu_set_devices(0, cases[i].code);
        cr_expect_eq(cuda_backend()->device_count(&count, &error), GPUSERVE_E_DEVICE);
        cr_expect_eq(count, 0);
        cr_expect_not_null(strstr(error.message, cases[i].message), "%s", error.message);
        cr_expect_not_null(strstr(error.hint, cases[i].hint), "%s", error.hint);
    }
}

Test(kernels_cuda_faults, device_facts)
{
    struct gpuserve_device_facts facts = { .struct_size = sizeof(facts) };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    int32_t count = 0;

    gsv_emu_set_devices(2, 0);
    cr_assert_eq(cuda_backend()->device_count(&count, &error), GPUSERVE_OK);
    cr_assert_eq(count, 2);
    cr_assert_eq(cuda_backend()->device_facts(1, &facts, &error), GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(facts.index, 1);
    cr_expect_eq(facts.struct_size, sizeof(facts));
    cr_expect_eq(strncmp(facts.isa, "sm_", 3), 0, "%s", facts.isa);
    cr_expect_eq(strncmp(facts.uuid, "GPU-", 4), 0, "%s", facts.uuid);
    cr_expect_gt(facts.n_cores, 0);
    cr_expect_gt(facts.memory_bytes, 0);
    cr_expect_leq(facts.memory_free_bytes, facts.memory_bytes);
}
