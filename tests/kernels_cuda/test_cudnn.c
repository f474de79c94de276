/*
 * test_cudnn.c - the backend's use of cuDNN when a call fails: each call in turn, with an error
 * that passes and with one that loses the device.
 *
 * Only on the emulator. A lost device stays lost for the life of a process, so each failure runs in
 * its own process.
 */
#include "tests/cudaemu/emu.h"
#include "tests/kernels_cuda/harness.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { INPUT = 3, UNITS = 5, N_ROWS = 6, N_SEQUENCES = 3, N_OUT = N_ROWS * UNITS };

static const struct gpuserve_lstm_sequence sequences[N_SEQUENCES] = { { 0, 4, 1, 0 },
                                                                      { 4, 2, 0, 0 },
                                                                      { 6, 0, 2, 0 } };

/* A layer with its buffers, all on the device. */
struct cudnn_layer {
    struct gpuserve_lstm_layer *layer;
    struct buffer weights[3], in, out, h_n, c_n;
    void *memory, *sequences, *scratch;
    struct gpuserve_op_lstm op;
    struct gpuserve_stream *stream;
};

static void *alloc_bytes(size_t size)
{
    void *memory = NULL;

    cr_assert_eq(cuda_backend()->memory_alloc(cuda_device(), &memory, size, NULL), GPUSERVE_OK);
    return memory;
}

static struct cudnn_layer make_layer(void)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    const uint32_t f32 = GPUSERVE_DTYPE_FLOAT32;
    struct cudnn_layer l = {
        .weights = { make_input(f32, (size_t)(4 * UNITS * INPUT), 1, 1.0f),
                     make_input(f32, (size_t)(4 * UNITS * UNITS), 2, 1.0f),
                     make_input(f32, (size_t)(4 * UNITS), 3, 1.0f) },
        .in = make_input(f32, (size_t)(N_ROWS * INPUT), 4, 1.0f),
        .out = make_output(f32, N_OUT),
        .h_n = make_output(f32, (size_t)(N_SEQUENCES * UNITS)),
        .c_n = make_output(f32, (size_t)(N_SEQUENCES * UNITS)),
        .stream = cuda_stream(f32, 16, 4, 1, 0),
    };
    const struct gpuserve_lstm_source source = {
        .struct_size = sizeof(source),
        .dtype = f32,
        .input_size = INPUT,
        .hidden_size = UNITS,
        .n_directions = 1,
        .cell = GPUSERVE_CELL_LSTM,
        .weight_ih = { l.weights[0].host },
        .weight_hh = { l.weights[1].host },
        .bias = { l.weights[2].host },
    };
    size_t size;

    cr_assert_eq(cuda->lstm_layer_bytes(&source, &size, NULL), GPUSERVE_OK);
    l.memory = alloc_bytes(size);
    cr_assert_eq(cuda->lstm_layer_create(cuda_device(), &l.layer, l.memory, &source, NULL),
                 GPUSERVE_OK);
    l.sequences = alloc_bytes(sizeof(sequences));
    l.scratch = alloc_bytes(1 << 20);
    cr_assert_eq(cuda->memory_write(cuda_device(), l.sequences, sequences, sizeof(sequences), NULL),
                 GPUSERVE_OK);
    l.op = (struct gpuserve_op_lstm){
        .layer = l.layer,
        .in = l.in.device,
        .out = l.out.device,
        .h_n = l.h_n.device,
        .c_n = l.c_n.device,
        .sequences = l.sequences,
        .host_sequences = sequences,
        .scratch = l.scratch,
        .n_rows = N_ROWS,
        .n_sequences = N_SEQUENCES,
        .variant = GPUSERVE_LSTM_CUDNN,
    };
    return l;
}

static gpuserve_status run_layer(struct cudnn_layer *l, gpuserve_error *error)
{
    size_t size = 0;
    const gpuserve_status status = cuda_backend()->lstm_bytes(cuda_device(), &l->op, &size, error);

    if (status != GPUSERVE_OK)
        return status;
    cr_assert_leq(size, 1u << 20);
    return cuda_backend()->lstm(l->stream, &l->op, error);
}

static uint64_t live_objects(void)
{
    struct gsv_emu_counters counters;

    gsv_emu_get_counters(&counters);
    return counters.live_objects;
}

/* Runs with the n-th call failing. 2: there are fewer calls; 1: something is wrong. */
static int live_through(uint64_t n, int code)
{
    struct cudnn_layer l = make_layer();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const bool is_lost = code != 2;
    gpuserve_status status;
    uint64_t before;
    bool happened;

    before = live_objects();
    gsv_emu_fail_call(n, code);
    status = run_layer(&l, &error);
    happened = gsv_emu_failed_call() != NULL;
    gsv_emu_fail_call(0, 0);
    if (!happened)
        return status == GPUSERVE_OK ? 2 : 1;
    /* A call that only releases may fail unseen. */
    if (status != GPUSERVE_OK && error.message[0] == '\0')
        return 1;
    if (is_lost)
        return 0;
    /* The same layer works again; nothing but the library's handle has stayed. */
    if (run_layer(&l, &error) != GPUSERVE_OK || live_objects() > before + 1)
        return 1;
    return 0;
}

static int in_own_process(uint64_t n, int code)
{
    const pid_t child = fork();
    int status;

    cr_assert_geq(child, 0);
    if (child == 0)
        _exit(live_through(n, code));
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "call %llu with %d: signal %d", (unsigned long long)n, code,
              WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void fail_every_call(int code)
{
    uint64_t n = 0;
    int outcome;

    do {
        outcome = in_own_process(++n, code);
        cr_expect_neq(outcome, 1, "call %llu fails with %d", (unsigned long long)n, code);
    } while (outcome != 2);
    /* Three times seven descriptors, sizes, weights, the layer. */
    cr_expect_gt(n, 60, "the failure reached only %llu calls", (unsigned long long)n);
}

Test(kernels_cuda_cudnn, out_of_memory)
{
    fail_every_call(2);
}

Test(kernels_cuda_cudnn, launch_failure)
{
    fail_every_call(719);
}

/* A failure of a call that makes no device call keeps its name. */
Test(kernels_cuda_cudnn, the_failed_call_is_named)
{
    struct cudnn_layer l = make_layer();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    size_t size;

    cr_assert_eq(run_layer(&l, &error), GPUSERVE_OK, "%s", error.message);
    for (uint64_t n = 1; n < 40; n++) {
        gsv_emu_fail_call(n, 2);
        if (cuda_backend()->lstm_bytes(cuda_device(), &l.op, &size, &error) == GPUSERVE_OK)
            continue;
        cr_expect(strstr(error.message, gsv_emu_failed_call()), "%s does not name %s",
                  error.message, gsv_emu_failed_call());
    }
    gsv_emu_fail_call(0, 0);
    cr_expect_eq(run_layer(&l, &error), GPUSERVE_OK, "%s", error.message);
}
