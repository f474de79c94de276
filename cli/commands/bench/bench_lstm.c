/*
 * bench_lstm.c - `gpuserve bench --lstm`: the forward pass of one LSTM by every path that runs
 * here.
 *
 *   plain C         loops of this file, one thread: the starting point
 *   CPU, steps      gpuserve_lstm_run() with GPUSERVE_LSTM_STEPS
 *   CPU, fused      with GPUSERVE_LSTM_FUSED
 *   CUDA            both, on cuda:0
 *   cuDNN           with GPUSERVE_LSTM_CUDNN, on cuda:0, if cuDNN is installed
 *   torch           torch.nn.LSTM on the CPU, if Python has torch
 *
 * Sequences of 80 steps, an embedding of 128, 128 units, batches of 32; the time is that of the
 * fastest run. The paths take turns, so that a change of the machine's load meets all of them.
 */
#include "cli/commands/bench/bench.h"
#include "cli/cli.h"
#include "cli/io/output.h"
#include "cli/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 32
#define LENGTH 80
#define INPUT 128
#define UNITS 128
#define RUNS 7

/* Rows of the table, by name. */
#define CPU_STEPS "CPU, SIMD, step by step"
#define CPU_FUSED "CPU, SIMD, fused"
#define CUDA_STEPS "CUDA, step by step"
#define CUDA_FUSED "CUDA, one persistent kernel"
#define CUDA_CUDNN "CUDA, cuDNN"

/* Pairs of paths and how much faster the second one is. The published times are of training, on
 * other machines: only their ratios compare with a forward pass. */
static const struct ratio {
    const char *from, *to;
    double published; /* 0: none */
} ratios[] = {
    { CPU_STEPS, CPU_FUSED, 0 },     { CPU_STEPS, CUDA_STEPS, 2.1 },  { CUDA_STEPS, CUDA_FUSED, 0 },
    { CUDA_STEPS, CUDA_CUDNN, 9.1 }, { CPU_STEPS, CUDA_CUDNN, 18.8 },
};

struct network {
    gpuserve_lstm_weights weights;
    float *input, *output; /* [BATCH, LENGTH, ...] */
    float *plain;          /* output of the plain loops */
};

struct path {
    const char *name, *device, *isa; /* of GPUSERVE_MAX_ISA, or NULL */
    uint32_t variant;
    gpuserve_compute *compute;
    gpuserve_lstm *lstm;
    double best, difference; /* largest difference from the plain loops */
    char *skipped;           /* why the device does not run it; owned */
};

static float *make_floats(size_t n, double range, uint64_t seed)
{
    float *floats = cli_alloc(n, sizeof(*floats));

    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        floats[i] = (float)(range * ((double)(seed >> 32) / 2147483648.0 - 1));
    }
    return floats;
}

static struct network make_network(void)
{
    return (struct network){
        .weights = { make_floats((size_t)4 * UNITS * INPUT, 0.08, 1),
                     make_floats((size_t)4 * UNITS * UNITS, 0.08, 2),
                     make_floats((size_t)4 * UNITS, 0.08, 3), NULL },
        .input = make_floats((size_t)BATCH * LENGTH * INPUT, 1, 4),
        .output = cli_alloc((size_t)BATCH * LENGTH * UNITS, sizeof(float)),
        .plain = cli_alloc((size_t)BATCH * LENGTH * UNITS, sizeof(float)),
    };
}

static void free_network(struct network *network)
{
    free((void *)network->weights.weight_ih);
    free((void *)network->weights.weight_hh);
    free((void *)network->weights.bias_ih);
    free(network->input);
    free(network->output);
    free(network->plain);
}

/* ------------------------------------------------------------------------------------- plain C */

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static void plain_step(const gpuserve_lstm_weights *w, const float *x, float *h, float *c)
{
    float gates[4 * UNITS];

    for (size_t g = 0; g < 4 * UNITS; g++) {
        float sum = w->bias_ih[g];

        for (size_t i = 0; i < INPUT; i++)
            sum += w->weight_ih[g * INPUT + i] * x[i];
        for (size_t i = 0; i < UNITS; i++)
            sum += w->weight_hh[g * UNITS + i] * h[i];
        gates[g] = sum;
    }
    for (size_t j = 0; j < UNITS; j++) {
        c[j] = sigmoid(gates[UNITS + j]) * c[j] + sigmoid(gates[j]) * tanhf(gates[2 * UNITS + j]);
        h[j] = sigmoid(gates[3 * UNITS + j]) * tanhf(c[j]);
    }
}

static double run_plain(const struct network *network)
{
    const double begin = cli_now();

    for (size_t s = 0; s < BATCH; s++) {
        float h[UNITS] = { 0 }, c[UNITS] = { 0 };

        for (size_t t = s * LENGTH; t < (s + 1) * LENGTH; t++) {
            plain_step(&network->weights, network->input + t * INPUT, h, c);
            memcpy(network->plain + t * UNITS, h, sizeof(h));
        }
    }
    return cli_now() - begin;
}

/* --------------------------------------------------------------------------------------- paths */

static gpuserve_status open_path(struct path *path, const struct network *network,
                                 gpuserve_context *context, const struct cli_args *args,
                                 gpuserve_error *error)
{
    gpuserve_compute_options options = GPUSERVE_COMPUTE_OPTIONS_INIT;
    gpuserve_lstm_network lstm = GPUSERVE_LSTM_NETWORK_INIT;
    gpuserve_status st;
    char *kept;

    options.device = path->device;
    options.n_threads = args->threads;
    lstm.input_size = INPUT;
    lstm.hidden_size = UNITS;
    lstm.weights = &network->weights;
    lstm.n_weights = 1;
    kept = cli_limit_isa(path->isa);
    st = gpuserve_compute_open(&path->compute, context, &options, error);
    cli_restore_isa(path->isa, kept);
    return st == GPUSERVE_OK ? gpuserve_lstm_create(&path->lstm, path->compute, &lstm, error) : st;
}

static int run_path(struct path *path, const struct network *network)
{
    const size_t n = (size_t)BATCH * LENGTH * UNITS;
    int32_t cu_seqlens[BATCH + 1];
    gpuserve_lstm_job job = GPUSERVE_LSTM_JOB_INIT;
    gpuserve_compute_result result = GPUSERVE_COMPUTE_RESULT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    for (int32_t i = 0; i <= BATCH; i++)
        cu_seqlens[i] = i * LENGTH;
    job.variant = path->variant;
    job.n_sequences = BATCH;
    job.cu_seqlens = cu_seqlens;
    job.input = network->input;
    job.output = network->output;
    job.output_capacity = n;
    if (gpuserve_lstm_run(path->lstm, &job, &result, &error) == GPUSERVE_E_UNSUPPORTED) {
        path->skipped = cli_copy(error.message, strlen(error.message));
        gpuserve_lstm_free(&path->lstm);
        return CLI_OK;
    }
    if (error.status != GPUSERVE_OK)
        return cli_fail_with(&error, path->name);
    if (path->best == 0 || result.kernel_seconds < path->best)
        path->best = result.kernel_seconds;
    for (size_t i = 0; i < n; i++)
        path->difference =
            fmax(path->difference, fabs((double)network->output[i] - (double)network->plain[i]));
    return CLI_OK;
}

static double torch_seconds(const struct cli_args *args)
{
    char *threads =
        args->threads ? cli_format("torch.set_num_threads(%u)\n", args->threads) : cli_copy("", 0);
    char *script = cli_format(
        "import time,torch\n%s"
        "m=torch.nn.LSTM(%d,%d,batch_first=True).eval()\nx=torch.randn(%d,%d,%d)\nbest=1e9\n"
        "with torch.inference_mode():\n m(x)\n for _ in range(%d):\n"
        "  b=time.perf_counter();m(x);best=min(best,time.perf_counter()-b)\nprint(best)",
        threads, INPUT, UNITS, BATCH, LENGTH, INPUT, RUNS);
    const double seconds = cli_python_seconds(script);

    free(script);
    free(threads);
    return seconds;
}

/* --------------------------------------------------------------------------------------- table */

static double seconds_of(const json_t *rows, const char *path)
{
    size_t i;
    json_t *row;

    json_array_foreach((json_t *)rows, i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "path")), path) == 0)
            return json_real_value(json_object_get(row, "seconds"));
    }
    return 0;
}

/* The ratios of the paths that ran, and the published ones. */
static json_t *make_ratios(const json_t *rows)
{
    json_t *table = json_array();

    for (size_t i = 0; i < sizeof(ratios) / sizeof(ratios[0]); i++) {
        const double from = seconds_of(rows, ratios[i].from), to = seconds_of(rows, ratios[i].to);
        json_t *row = json_pack("{s:s, s:s}", "from", ratios[i].from, "to", ratios[i].to);

        if (ratios[i].published > 0)
            json_object_set_new(row, "published", json_real(ratios[i].published));
        if (from > 0 && to > 0)
            json_object_set_new(row, "measured", json_real(from / to));
        json_array_append_new(table, row);
    }
    return table;
}

static void print_ratio(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);

    if (value)
        printf("%11.1fx", json_real_value(value));
    else
        printf("%12s", "-");
}

static void print_ratios(const json_t *table)
{
    size_t i;
    json_t *row;

    printf("\n%-28s%-28s%12s%12s\n", "faster than", "path", "published", "measured");
    json_array_foreach((json_t *)table, i, row)
    {
        printf("%-28s%-28s", json_string_value(json_object_get(row, "from")),
               json_string_value(json_object_get(row, "to")));
        print_ratio(row, "published");
        print_ratio(row, "measured");
        putchar('\n');
    }
    puts("published: ratios of training times on other machines; measured: of forward passes");
}

static void print_rows(const json_t *rows)
{
    const double plain = json_real_value(json_object_get(json_array_get(rows, 0), "seconds"));
    size_t i;
    json_t *row;

    printf("LSTM, forward pass: %d steps, embedding %d, %d units, batch %d; fastest of %d runs\n\n",
           LENGTH, INPUT, UNITS, BATCH, RUNS);
    json_array_foreach((json_t *)rows, i, row)
    {
        const double seconds = json_real_value(json_object_get(row, "seconds"));

        printf("%-34s", json_string_value(json_object_get(row, "path")));
        if (seconds > 0)
            printf("%10.4f ms for each sample %8.1fx\n", seconds * 1e3 / BATCH, plain / seconds);
        else
            printf("%14s\n", json_string_value(json_object_get(row, "skipped")));
    }
}

static void print_devices(const json_t *table)
{
    size_t i;
    json_t *row;

    printf("\n%-34s%10s%10s%26s\n", "device", "texts", "accuracy", "labels unlike the first");
    json_array_foreach((json_t *)table, i, row)
    {
        printf("%-34s", json_string_value(json_object_get(row, "path")));
        if (json_object_get(row, "accuracy"))
            printf("%10lld%10.4f%26lld\n",
                   (long long)json_integer_value(json_object_get(row, "texts")),
                   json_real_value(json_object_get(row, "accuracy")),
                   (long long)json_integer_value(json_object_get(row, "different")));
        else
            printf("%10s\n", json_string_value(json_object_get(row, "skipped")));
    }
}

static int measure(struct network *network, gpuserve_context *context, const struct cli_args *args,
                   json_t *rows)
{
    struct path paths[] = {
        { .name = "CPU, generic instructions, fused",
          .device = "cpu",
          .isa = "generic",
          .variant = GPUSERVE_LSTM_FUSED },
        { .name = CPU_STEPS, .device = "cpu", .variant = GPUSERVE_LSTM_STEPS },
        { .name = CPU_FUSED, .device = "cpu", .variant = GPUSERVE_LSTM_FUSED },
        { .name = CUDA_STEPS, .device = "cuda:0", .variant = GPUSERVE_LSTM_STEPS },
        { .name = CUDA_FUSED, .device = "cuda:0", .variant = GPUSERVE_LSTM_FUSED },
        { .name = CUDA_CUDNN, .device = "cuda:0", .variant = GPUSERVE_LSTM_CUDNN },
    };
    enum { N = sizeof(paths) / sizeof(paths[0]) };
    double plain = run_plain(network), second = run_plain(network);
    int result = CLI_OK;

    cli_lesson_row(rows, "plain C, one thread", second < plain ? second : plain, NULL);
    for (int i = 0; i < N; i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;

        if (open_path(&paths[i], network, context, args, &error) != GPUSERVE_OK)
            gpuserve_compute_close(&paths[i].compute);
    }
    for (int run = 0; run <= RUNS && result == CLI_OK; run++)
        for (int i = 0; i < N && result == CLI_OK; i++)
            result = paths[i].lstm ? run_path(&paths[i], network) : CLI_OK;
    for (int i = 0; i < N; i++) {
        cli_lesson_row(rows, paths[i].name, paths[i].lstm ? paths[i].best : -1,
                       paths[i].skipped ? paths[i].skipped : "no such device");
        if (paths[i].lstm)
            json_object_set_new(json_array_get(rows, (size_t)i + 1), "difference",
                                json_real(paths[i].difference));
        gpuserve_lstm_free(&paths[i].lstm);
        gpuserve_compute_close(&paths[i].compute);
        free(paths[i].skipped);
    }
    cli_lesson_row(rows, "torch.nn.LSTM on the CPU", torch_seconds(args), "not installed");
    return result;
}

int cli_bench_lstm(const struct cli_args *args)
{
    json_t *rows = json_array(), *table = json_array(), *compared = NULL;
    gpuserve_context *context = NULL;
    struct network network;
    int result = cli_context(&context, args);

    if (result == CLI_OK) {
        network = make_network();
        result = measure(&network, context, args, rows);
        free_network(&network);
    }
    gpuserve_context_unref(&context);
    if (result == CLI_OK && args->model)
        result = cli_bench_devices(args, table);
    compared = make_ratios(rows);
    if (result == CLI_OK && args->json) {
        result = cli_facts_print(json_pack("{s:i, s:i, s:i, s:i, s:O, s:O, s:O}", "steps", LENGTH,
                                           "embedding", INPUT, "units", UNITS, "batch", BATCH,
                                           "rows", rows, "ratios", compared, "devices", table),
                                 true);
    } else if (result == CLI_OK) {
        print_rows(rows);
        print_ratios(compared);
    }
    if (result == CLI_OK && !args->json && args->model)
        print_devices(table);
    json_decref(rows);
    json_decref(compared);
    json_decref(table);
    return result;
}
