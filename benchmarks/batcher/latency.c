/*
 * latency.c - latency of one client, compared with tokenizer and forward pass alone.
 *
 * The forward pass alone is the same network on the same number of threads, called on the client's
 * thread. All three alternate in blocks of some texts with rotating order, so that they see the
 * same machine state, and each has its own weights in the CPU caches.
 */
#include "benchmarks/batcher/bench.h"
#include "kernels/kernels.h"
#include "lib/model/model.h"
#include "lib/runtime/models/load_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BLOCKS = 20, N_BLOCK = 20, MAX_TOKENS = 512, N_HITS = 20000, N_HIT_ROUNDS = 7 };

struct bare {
    struct gsv_dir *dir;
    struct gsv_spec *spec;
    struct gsv_net *net;
    struct gsv_exec *work;
    struct gpuserve_device *device;
    float *output;
};

/* INT8: the same products in higher precision as the library keeps. */
static void make_probes(struct gsv_calibration *ranges, struct gsv_calibration *probes,
                        const struct bench *bench)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_plan plan;

    if (gsv_plan_read(&plan, bench->context, bench->path, &options, &error) != GPUSERVE_OK ||
        gsv_calibration_make_int8(ranges, probes, &plan, &error) != GPUSERVE_OK)
        bench_die("the probes of int8", &error);
    gsv_plan_reset(&plan);
}

static void bare_open(struct bare *bare, const struct bench *bench, int32_t n_threads)
{
    const struct gpuserve_backend *cpu = gsv_backend_cpu();
    struct gsv_net_options net = { .dtype = bench->dtype, .n_threads = n_threads };
    struct gsv_calibration ranges = { 0 }, probes = { 0 };
    const struct gsv_exec_options work = { .dtype = bench->dtype,
                                           .n_threads = n_threads,
                                           .max_tokens = MAX_TOKENS,
                                           .max_sequences = 1,
                                           .max_seqlen = MAX_TOKENS };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (bench->dtype == GPUSERVE_DTYPE_INT8) {
        make_probes(&ranges, &probes, bench);
        net.calibration = &ranges.batch;
        net.probes = &probes.batch;
    }
    if (gsv_dir_open(&bare->dir, bench->path, &error) != GPUSERVE_OK ||
        gsv_spec_load(&bare->spec, bare->dir, NULL, 0, &error) != GPUSERVE_OK ||
        cpu->device_open(&bare->device, 0, &error) != GPUSERVE_OK ||
        gsv_net_load(&bare->net, bare->spec, cpu, bare->device, &net, &error) != GPUSERVE_OK ||
        gsv_exec_create(&bare->work, bare->net, &work, &error) != GPUSERVE_OK)
        bench_die("the forward alone", &error);
    gsv_calibration_reset(&ranges);
    gsv_calibration_reset(&probes);
    bare->output = malloc(bench->dim * sizeof(*bare->output));
}

static void bare_close(struct bare *bare)
{
    free(bare->output);
    gsv_exec_free(&bare->work);
    gsv_net_free(&bare->net);
    gsv_backend_cpu()->device_close(&bare->device);
    gsv_spec_free(&bare->spec);
    gsv_dir_close(&bare->dir);
}

static void bare_run(const struct bare *bare, const struct bench *bench, const int32_t *ids,
                     size_t n)
{
    static int32_t zeros[MAX_TOKENS], positions[MAX_TOKENS];
    const int32_t ends[2] = { 0, (int32_t)n };
    const struct gpuserve_host_batch batch = { .n_tokens = (int32_t)n,
                                               .n_sequences = 1,
                                               .max_seqlen = (int32_t)n,
                                               .ids = ids,
                                               .type_ids = zeros,
                                               .positions = positions,
                                               .cu_seqlens = ends };
    const struct gsv_run run = { .dimensions = (int32_t)bench->dim,
                                 .normalize = true,
                                 .output = bare->output };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    for (size_t i = 0; i < n; i++)
        positions[i] = (int32_t)i;
    if (gsv_net_run(bare->work, &batch, &run, &error) != GPUSERVE_OK)
        bench_die("the forward alone", &error);
}

struct one_text {
    const struct bench *bench;
    const struct bare *bare;
    const char *text;
    float *row;
    int32_t ids[MAX_TOKENS];
    size_t n;
};

static void run_tokenizer(struct one_text *one)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (gpuserve_tokenize(one->bench->model, one->text, strlen(one->text), one->ids, NULL,
                          MAX_TOKENS, &one->n, NULL, &error) != GPUSERVE_OK)
        bench_die("tokenizing", &error);
}

static void run_forward(struct one_text *one)
{
    bare_run(one->bare, one->bench, one->ids, one->n);
}

static void run_whole(struct one_text *one)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (gpuserve_embed(one->bench->model, &one->text, 1, one->row, one->bench->dim, NULL, &error) !=
        GPUSERVE_OK)
        bench_die("one text", &error);
}

/* Median microseconds of a block of calls; the first call loads the weights into the CPU caches. */
static double block_us(void (*run)(struct one_text *), struct one_text *one)
{
    double times[N_BLOCK];

    run(one);
    for (int i = 0; i < N_BLOCK; i++) {
        const uint64_t begin = bench_now_ns();

        run(one);
        times[i] = (double)(bench_now_ns() - begin) / 1e3;
    }
    return bench_quantile(times, N_BLOCK, 0.5);
}

/* The forward pass alone must give the library's vector. */
static void check_vector(const struct one_text *one)
{
    const double cosine = gpuserve_dot(one->row, one->bare->output, one->bench->dim);

    if (!(cosine > 0.99999))
        bench_die("the forward alone gives another vector", NULL);
}

static void measure(const struct bench *bench, const struct bare *bare, const char *name,
                    const char *text)
{
    static void (*const parts[])(struct one_text *) = { run_tokenizer, run_forward, run_whole };
    struct one_text one = { .bench = bench, .bare = bare, .text = text };

    one.row = malloc(bench->dim * sizeof(*one.row));
    for (int i = 0; i < 3; i++)
        parts[i](&one);
    check_vector(&one);
    printf("\"%s\": {\"tokens\": %zu, \"blocks\": [", name, one.n);
    for (int i = 0; i < N_BLOCKS; i++) {
        const struct bench_watch watch = bench_watch_begin();
        double us[3];

        for (int j = 0; j < 3; j++) {
            const int at = (i / 2 + j) % 3, part = i % 2 ? 2 - at : at;

            us[part] = block_us(parts[part], &one);
        }
        printf("%s{", i ? ", " : "");
        bench_watch_print(&watch);
        printf("\"whole_us\": %.1f, \"forward_us\": %.1f, \"tokenizer_us\": %.1f}", us[2], us[1],
               us[0]);
    }
    printf("]}");
    free(one.row);
}

/* A request answered from the result cache takes the whole path except the worker. So its time is
 * that of the checks, the queue accounting and the copies. */
static void measure_request(const struct bench *bench)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    float *row = malloc(bench->dim * sizeof(*row));
    int32_t ids[MAX_TOKENS];
    size_t offsets[2] = { 0, 0 };

    options.device = "cpu";
    options.dtype = bench->dtype;
    options.cache_bytes = 1 << 20;
    if (gpuserve_model_open(&model, NULL, bench->path, &options, &error) != GPUSERVE_OK ||
        gpuserve_tokenize(model, bench->texts[0], strlen(bench->texts[0]), ids, NULL, MAX_TOKENS,
                          &offsets[1], NULL, &error) != GPUSERVE_OK)
        bench_die("a model with a cache", &error);
    job.n_items = 1;
    job.ids = ids;
    job.id_offsets = offsets;
    job.output = row;
    job.output_capacity = bench->dim;
    if (gpuserve_run(model, &job, &error) != GPUSERVE_OK) /* computed, fills the cache */
        bench_die("a text for the cache", &error);
    printf("\"request_us\": [");
    for (int round = 0; round < N_HIT_ROUNDS; round++) {
        const uint64_t begin = bench_now_ns();

        for (int i = 0; i < N_HITS; i++)
            if (gpuserve_run(model, &job, &error) != GPUSERVE_OK)
                bench_die("a text in the cache", &error);
        printf("%s%.3f", round ? ", " : "", (double)(bench_now_ns() - begin) / 1e3 / N_HITS);
    }
    printf("]");
    gpuserve_model_close(&model);
    free(row);
}

void bench_latency(const struct bench *bench)
{
    static const char middle[] = "A man in a blue shirt is standing on a ladder and cleaning a "
                                 "window of the old house while "
                                 "two children watch him from the garden";
    struct bare bare;
    char longer[sizeof(middle) * 4] = "";
    struct gpuserve_device_facts facts = { .struct_size = sizeof(facts) };

    gsv_backend_cpu()->device_facts(0, &facts, NULL);
    for (int i = 0; i < 4; i++)
        strcat(longer, middle);
    bare_open(&bare, bench, facts.n_cores);
    printf(" \"one_client\": {");
    measure(bench, &bare, "short", "a man is eating food");
    printf(", ");
    measure(bench, &bare, "middle", middle);
    printf(", ");
    measure(bench, &bare, "long", longer);
    printf(",\n  ");
    measure_request(bench);
    printf("}");
    bare_close(&bare);
}
