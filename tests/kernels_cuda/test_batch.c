/*
 * test_batch.c - whole batches: against ref, recorded and replayed, and invalid use.
 */
#include "tests/kernels_cuda/net.h"

#include <stdlib.h>
#include <string.h>

/* The first two have the same shape after rounding up. */
static const struct lengths mixes[] = {
    { 3, { 5, 1, 8 } },
    { 3, { 2, 9, 4 } },
    { 1, { 1 } },
    { 8, { 3, 20, 7, 31, 1, 12, 9, 2 } },
    { 1, { NET_MAX_TOKENS } },
    { 5, { 41, 30, 13, 2, 26 } }, /* rounding up would exceed NET_MAX_TOKENS */
};
#define N_MIXES (sizeof(mixes) / sizeof(mixes[0]))
#define N_VECTORS ((size_t)NET_MAX_SEQUENCES * NET_HIDDEN)

static void run(struct net *net, uint64_t program, const struct lengths *lengths, uint32_t seed,
                float *vectors, int32_t *replayed)
{
    struct gpuserve_host_batch host = make_host_batch(lengths, NET_VOCAB, seed);
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(net_run(net, program, &host, vectors, replayed, &error), GPUSERVE_OK, "%s",
                 error.message);
    free_host_batch(&host);
}

static struct net *open_net(const struct gpuserve_backend *backend, uint32_t dtype, int32_t flags)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct net *net = net_open(backend, dtype, flags, &error);

    cr_assert_not_null(net, "%s", error.message);
    return net;
}

static void compare_with_ref(int32_t flags)
{
    static float want[3 * N_MIXES][N_VECTORS];
    struct net *want_net = open_net(gsv_backend_ref(), GPUSERVE_DTYPE_FLOAT32, flags);

    for (size_t i = 0; i < 3 * N_MIXES; i++)
        run(want_net, 1, &mixes[i % N_MIXES], (uint32_t)i, want[i], NULL);
    net_close(&want_net);
    for (size_t f = 0; f < (IS_SANITIZED ? 2 : N_FORMATS); f++) {
        struct net *net = open_net(cuda_backend(), formats[f].dtype, flags);
        float got[N_VECTORS];

        for (size_t i = 0; i < 3 * N_MIXES; i++) {
            const struct lengths *lengths = &mixes[i % N_MIXES];
            int32_t replayed;

            run(net, 1, lengths, (uint32_t)i, got, &replayed);
            /* Weights and activations are rounded at each step: several roundings per vector. */
            cr_expect_leq(distance(got, want[i], (size_t)lengths->n * NET_HIDDEN),
                          f == 0 ? 4e-6 : 4 * formats[f].tolerance,
                          "%s, mix %zu, turn %zu, flags %x", formats[f].name, i % N_MIXES,
                          i / N_MIXES, flags);
            cr_expect(i / N_MIXES < 2 || replayed, "turn %zu was not replayed", i / N_MIXES);
        }
        net_close(&net);
    }
}

/* Each mix three times with other tokens: direct run, recording, replay. */
Test(kernels_cuda_batch, every_run_matches_ref)
{
    if (!IS_SANITIZED) /* the next net has these operations too */
        compare_with_ref(0);
}

Test(kernels_cuda_batch, every_run_of_a_pre_norm_net_matches_ref)
{
    compare_with_ref(NET_PRE_NORM);
}

static void compare_replays(uint32_t dtype, int32_t flags)
{
    /* One net, because two may select different algorithms by timing, with different bits. */
    struct net *net = open_net(cuda_backend(), dtype, flags);
    float a[N_VECTORS], b[N_VECTORS];

    for (uint32_t turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < N_MIXES; i++) {
            int32_t replayed;

            run(net, 1, &mixes[i], turn, a, &replayed);
            cr_assert_eq(replayed, turn >= 2 || (i <= 1 && turn == 1), "turn %u, mix %zu", turn, i);
            run(net, 100 * (turn + 1) + i, &mixes[i], turn, b, &replayed);
            cr_assert_eq(replayed, 0);
            cr_expect_eq(memcmp(a, b, (size_t)mixes[i].n * NET_HIDDEN * sizeof(float)), 0,
                         "turn %u, mix %zu, flags %x", turn, i, flags);
        }
    }
    net_close(&net);
}

/* Recording must not change any bit, nor earlier results of the same shape. */
Test(kernels_cuda_batch, replay_has_the_bits_of_a_first_run)
{
    if (!IS_SANITIZED) /* the next net has these operations too */
        compare_replays(GPUSERVE_DTYPE_FLOAT16, 0);
    compare_replays(GPUSERVE_DTYPE_FLOAT16, NET_PRE_NORM);
    compare_replays(GPUSERVE_DTYPE_INT8, NET_PRE_NORM);
}

#ifndef __SANITIZE_THREAD__ /* one thread's table, after more than a hundred batches */
/* More shapes than the cache holds: the oldest recordings are evicted, results stay right. */
Test(kernels_cuda_batch, recordings_are_replaced)
{
    struct net *net = open_net(cuda_backend(), GPUSERVE_DTYPE_FLOAT16, 0);
    float first[NET_HIDDEN], vector[NET_HIDDEN];
    const struct lengths one = { 1, { 3 } };
    int32_t replayed;

    for (int i = 0; i < 3; i++)
        run(net, 1, &one, 1, first, &replayed);
    cr_assert_eq(replayed, 1);
    for (uint64_t program = 2; program <= 129; program++) {
        run(net, program, &one, 1, vector, &replayed);
        cr_assert_eq(replayed, 0);
        cr_assert_eq(memcmp(first, vector, sizeof(first)), 0);
    }
    for (int i = 0; i < 2; i++) {
        run(net, 129, &one, 1, vector, &replayed);
        cr_assert_eq(replayed, i, "the newest is recorded and kept");
    }
    run(net, 1, &one, 1, vector, &replayed);
    cr_assert_eq(replayed, 0, "the oldest was kept");
    cr_assert_eq(memcmp(first, vector, sizeof(first)), 0);
    for (int i = 0; i < 4; i++) {
        run(net, GPUSERVE_PROGRAM_ONCE, &one, 1, vector, &replayed);
        cr_assert_eq(replayed, 0);
        cr_assert_eq(memcmp(first, vector, sizeof(first)), 0);
    }
    net_close(&net);
}

#endif

/* True if a batch of these lengths replays a recording. The batch has no operations. */
static int32_t is_replayed(struct gpuserve_stream *stream, const struct lengths *lengths,
                           const struct buffer *some)
{
    struct gpuserve_host_batch host = make_host_batch(lengths, 9, 1);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gpuserve_batch batch;
    int32_t replayed;

    cr_assert_eq(cuda_backend()->batch_begin(stream, 1, &host, &batch, &replayed, &error),
                 GPUSERVE_OK, "%s", error.message);
    finish(stream, some->device);
    free_host_batch(&host);
    return replayed;
}

/* `n` lengths equal to `length`, except for the last two. */
static struct lengths lengths_of(int32_t n, int32_t length, int32_t last_but_one, int32_t last)
{
    struct lengths lengths = { .n = n };

    for (int32_t i = 0; i < n; i++)
        lengths.of[i] = length;
    lengths.of[n - 2] = last_but_one;
    lengths.of[n - 1] = last;
    return lengths;
}

/* Two shapes that differ in one field of the key, which determines the number of tiles: a recording
 * is not shared. `./dev limits keys` removes each field from the key. */
Test(kernels_cuda_batch, a_recording_is_of_one_shape)
{
    const struct {
        const char *member;
        struct lengths a, b;
    } pairs[] = {
        { "n_rows", lengths_of(2, 0, 8, 8), lengths_of(2, 0, 16, 16) },
        { "n_sequences", lengths_of(2, 0, 8, 8), lengths_of(4, 4, 4, 4) },
        { "tile_height", lengths_of(64, 16, 16, 16), lengths_of(64, 16, 4, 28) },
        { "short_texts", lengths_of(2, 0, 64, 64), lengths_of(2, 0, 63, 65) },
    };
    struct buffer some = make_input(GPUSERVE_DTYPE_FLOAT32, 1, 1, 1.0f);

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT16, 1024, 64, 64, 0);

        for (int run = 0; run < 3; run++)
            cr_expect_eq(is_replayed(stream, &pairs[i].a, &some), run == 2, "%s, run %d",
                         pairs[i].member, run);
        cr_expect_eq(is_replayed(stream, &pairs[i].b, &some), 0, "%s", pairs[i].member);
        cuda_backend()->stream_destroy(&stream);
    }
    free_buffer(&some);
}

/* Runs a program without operations three times with this many tokens; returns the rows of the last
 * run, and whether it was replayed. */
static int32_t rows_of_third(int32_t n_tokens, int32_t *replayed)
{
    struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT16, 8192, 4, 1, 0);
    struct gpuserve_host_batch host = make_host_batch(&(struct lengths){ 1, { n_tokens } }, 9, 1);
    struct buffer some = make_input(GPUSERVE_DTYPE_FLOAT32, 1, 1, 1.0f);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gpuserve_batch batch;

    for (int i = 0; i < 3; i++) {
        cr_assert_eq(cuda_backend()->batch_begin(stream, 1, &host, &batch, replayed, &error),
                     GPUSERVE_OK, "%s", error.message);
        finish(stream, some.device);
    }
    free_buffer(&some);
    free_host_batch(&host);
    cuda_backend()->stream_destroy(&stream);
    return batch.n_rows;
}

/* Above 4,096 rows launch time is hidden by the kernels, but padding rows cost time. Such a batch
 * is neither rounded up to a common shape nor recorded. */
Test(kernels_cuda_batch, large_batches_are_run_as_they_are)
{
    int32_t replayed;

    cr_expect_eq(rows_of_third(3000, &replayed), 3072, "whole pieces of 512 rows");
    cr_expect_eq(replayed, 1);
    cr_expect_eq(rows_of_third(4096, &replayed), 4096);
    cr_expect_eq(replayed, 1);
    cr_expect_eq(rows_of_third(4097, &replayed), 4112, "whole pieces of 16 rows");
    cr_expect_eq(replayed, 0);
}

/* A text's vector has the same bits alone and in any batch. */
Test(kernels_cuda_batch, deterministic_vectors_do_not_depend_on_the_batch)
{
    for (size_t f = 0; f <= N_FORMATS; f += IS_SANITIZED ? 4 : 1) { /* float32 and int8 */
        const uint32_t dtype = f < N_FORMATS ? formats[f].dtype : GPUSERVE_DTYPE_INT8;
        struct net *net = open_net(cuda_backend(), dtype, GPUSERVE_STREAM_DETERMINISTIC);
        struct gpuserve_host_batch all = make_host_batch(&mixes[3], NET_VOCAB, 5);
        float together[N_VECTORS], alone[NET_HIDDEN];
        gpuserve_error error = GPUSERVE_ERROR_INIT;

        cr_assert_eq(net_run(net, 1, &all, together, NULL, &error), GPUSERVE_OK);
        for (int32_t i = 0; i < all.n_sequences; i++) {
            const int32_t at = all.cu_seqlens[i], n = all.cu_seqlens[i + 1] - at;
            const int32_t ends[2] = { 0, n };
            const struct gpuserve_host_batch one = { .n_tokens = n,
                                                     .n_sequences = 1,
                                                     .max_seqlen = n,
                                                     .ids = all.ids + at,
                                                     .type_ids = all.type_ids + at,
                                                     .positions = all.positions + at,
                                                     .cu_seqlens = ends };

            cr_assert_eq(net_run(net, 2, &one, alone, NULL, &error), GPUSERVE_OK);
            cr_expect_eq(memcmp(alone, together + (size_t)i * NET_HIDDEN, sizeof(alone)), 0,
                         "dtype %u, text %d", dtype, i);
        }
        free_host_batch(&all);
        net_close(&net);
    }
}

Test(kernels_cuda_batch, wrong_use_is_told)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT16, 16, 2, 1, 0);
    struct gpuserve_stream_options options = { .struct_size = sizeof(options), .dtype = 77 };
    struct gpuserve_stream *none;
    struct gpuserve_host_batch host = make_host_batch(&(struct lengths){ 1, { 4 } }, 9, 1);
    struct buffer some = make_input(GPUSERVE_DTYPE_FLOAT32, 4096, 1, 1.0f);
    float *big = malloc(4096 * sizeof(float));
    struct gpuserve_batch batch;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    int32_t replayed;

    cr_assert_eq(cuda->stream_create(cuda_device(), &none, &options, &error),
                 GPUSERVE_E_UNSUPPORTED);
    cr_assert_null(none);
    cr_assert_eq(cuda->batch_begin(stream, 1, &host, &batch, &replayed, &error), GPUSERVE_OK);
    cr_assert_eq(cuda->batch_begin(stream, 1, &host, &batch, &replayed, &error),
                 GPUSERVE_E_INTERNAL);
    cr_assert_eq(cuda->batch_end(stream, big, some.device, 4097, &error), GPUSERVE_E_INTERNAL);
    /* The stream is usable again. */
    cr_assert_eq(cuda->batch_begin(stream, 1, &host, &batch, &replayed, &error), GPUSERVE_OK);
    cr_assert_eq(cuda->batch_end(stream, big, some.device, 4096, &error), GPUSERVE_OK);
    cr_assert_eq(cuda->stream_wait(stream, &error), GPUSERVE_OK);
    cr_assert_eq(memcmp(big, some.host, 4096), 0);
    cr_assert_eq(cuda->stream_wait(stream, &error), GPUSERVE_OK, "nothing is under way");
    free(big);
    free_buffer(&some);
    free_host_batch(&host);
    cuda->stream_destroy(&stream);
}
