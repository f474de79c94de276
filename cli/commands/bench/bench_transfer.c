/*
 * bench_transfer.c - `gpuserve bench --transfer`: time and bandwidth of copies between host memory
 * and the memory of a device, in both directions, from and to pageable and pinned memory.
 *
 * Sizes grow by a factor of four from 4 KiB to 256 MiB, --max-bytes, or what the free memory holds.
 * A figure is the median of the copies of one gpuserve_transfer(), which checks the bytes that
 * arrive. On a CPU a copy is a memcpy() within host memory, which has no pinned kind.
 */
#include "cli/commands/bench/bench.h"
#include "cli/cli.h"
#include "cli/io/output.h"
#include "cli/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALLEST 4096u
#define LARGEST (256u << 20)
#define SIZE_FACTOR 4
#define COPIES 21
#define LARGE (4u << 20) /* from this size on fewer copies */
#define LARGE_COPIES 7

#define ON_CPU                                                                          \
    "on a CPU, device memory is host memory: a copy is a memcpy() on one thread, from " \
    "caches where the bytes fit them; there is no pinned memory"
#define ON_DEVICE "the time of a copy runs from the call until the last byte has arrived"

/* Columns of the table. */
static const struct copy_kind {
    const char *direction, *memory;
    uint32_t direction_value, memory_value;
} kinds[] = {
    { "to device", "pageable", GPUSERVE_TRANSFER_TO_DEVICE, GPUSERVE_HOST_PAGEABLE },
    { "to device", "pinned", GPUSERVE_TRANSFER_TO_DEVICE, GPUSERVE_HOST_PINNED },
    { "from device", "pageable", GPUSERVE_TRANSFER_FROM_DEVICE, GPUSERVE_HOST_PAGEABLE },
    { "from device", "pinned", GPUSERVE_TRANSFER_FROM_DEVICE, GPUSERVE_HOST_PINNED },
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

struct transfer_bench {
    gpuserve_context *context;
    gpuserve_compute *compute;
    gpuserve_device_info device;
    bool is_cpu;
    uint64_t largest;
    json_t *rows;
};

static int measure(struct transfer_bench *bench, const struct copy_kind *kind, size_t bytes)
{
    gpuserve_transfer_job job = GPUSERVE_TRANSFER_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    double seconds[COPIES], median;

    job.direction = kind->direction_value;
    job.host_memory = kind->memory_value;
    job.n_copies = bytes < LARGE ? COPIES : LARGE_COPIES;
    job.size_bytes = bytes;
    job.seconds = seconds;
    if (gpuserve_transfer(bench->compute, &job, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    cli_sort_doubles(seconds, job.n_copies);
    median = seconds[job.n_copies / 2];
    json_array_append_new(bench->rows,
                          json_pack("{s:I, s:s, s:s, s:i, s:f, s:f}", "bytes", (json_int_t)bytes,
                                    "direction", kind->direction, "memory", kind->memory, "copies",
                                    (int)job.n_copies, "seconds", median, "bytes_per_s",
                                    median > 0 ? (double)bytes / median : 0.0));
    return CLI_OK;
}

static bool has_kind(const struct transfer_bench *bench, size_t kind)
{
    return !bench->is_cpu || kinds[kind].memory_value == GPUSERVE_HOST_PAGEABLE;
}

static int measure_all(struct transfer_bench *bench)
{
    int result = CLI_OK;

    for (uint64_t bytes = SMALLEST; bytes <= bench->largest && result == CLI_OK;
         bytes *= SIZE_FACTOR)
        for (size_t i = 0; i < N_KINDS && result == CLI_OK; i++)
            if (has_kind(bench, i))
                result = measure(bench, &kinds[i], (size_t)bytes);
    return result;
}

/* The bytes are in the memory of the host and in that of the device. */
static int limit_size(struct transfer_bench *bench, const struct cli_args *args)
{
    gpuserve_device_info host = GPUSERVE_DEVICE_INFO_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    uint64_t limit;

    if (gpuserve_device_select(bench->context, "cpu", &host, 1, NULL, NULL, 0, &error) !=
        GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    limit = bench->is_cpu ? host.memory_free_bytes / 2 : bench->device.memory_free_bytes;
    if (limit > host.memory_free_bytes)
        limit = host.memory_free_bytes;
    if (args->max_bytes && args->max_bytes < SMALLEST)
        return cli_usage("--max-bytes: %llu bytes are below the smallest copy, %u bytes",
                         (unsigned long long)args->max_bytes, SMALLEST);
    if (limit < SMALLEST || args->max_bytes > limit)
        return cli_fail("--max-bytes: a copy of %llu bytes is over the memory: %llu bytes are free "
                        "on %s, %llu on the host%s",
                        (unsigned long long)(args->max_bytes ? args->max_bytes : SMALLEST),
                        (unsigned long long)bench->device.memory_free_bytes, bench->device.selector,
                        (unsigned long long)host.memory_free_bytes,
                        bench->is_cpu ? ", which holds both ends" : "");
    bench->largest = args->max_bytes ? args->max_bytes : limit < LARGEST ? limit : LARGEST;
    return CLI_OK;
}

static int open_device(struct transfer_bench *bench, const struct cli_args *args)
{
    gpuserve_compute_options options = GPUSERVE_COMPUTE_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const char *selector;

    if (cli_context(&bench->context, args) != CLI_OK)
        return CLI_FAILED;
    options.device = args->device;
    options.n_threads = args->threads;
    if (gpuserve_compute_open(&bench->compute, bench->context, &options, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    selector = gpuserve_compute_device(bench->compute);
    if (gpuserve_device_select(bench->context, selector, &bench->device, 1, NULL, NULL, 0,
                               &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    bench->is_cpu = strcmp(selector, "cpu") == 0;
    return CLI_OK;
}

static void print_size(double bytes)
{
    if (bytes >= 1 << 20)
        printf("%6.0f MiB", bytes / (1 << 20));
    else
        printf("%6.0f KiB", bytes / (1 << 10));
}

static void print_rows(const struct transfer_bench *bench)
{
    json_int_t before = 0;
    size_t i;
    json_t *row;

    printf(
        "copies between host memory and %s (%s), medians of %d copies, from %u MiB on of %d\n%s\n"
        "\n%10s",
        bench->device.selector, bench->device.name, COPIES, LARGE >> 20, LARGE_COPIES,
        bench->is_cpu ? ON_CPU : ON_DEVICE, "");
    for (i = 0; i < N_KINDS; i++)
        if (has_kind(bench, i))
            printf("%13s, %-8s", kinds[i].direction, kinds[i].memory);
    printf("\n%10s", "size");
    for (i = 0; i < N_KINDS; i++)
        if (has_kind(bench, i))
            printf("%14s%9s", "ms", "GB/s");
    json_array_foreach(bench->rows, i, row)
    {
        const json_int_t bytes = json_integer_value(json_object_get(row, "bytes"));

        if (bytes != before) {
            putchar('\n');
            print_size((double)bytes);
        }
        before = bytes;
        printf("%14.4f%9.2f", json_real_value(json_object_get(row, "seconds")) * 1e3,
               json_real_value(json_object_get(row, "bytes_per_s")) / 1e9);
    }
    putchar('\n');
}

static int check_arguments(const struct cli_args *args)
{
    const char *other = args->model                        ? "a model"
                        : args->input                      ? "--input"
                        : args->workload                   ? "--workload"
                        : args->share                      ? "--share"
                        : args->plot                       ? "--plot"
                        : args->seconds > 0                ? "--seconds"
                        : args->table == CLI_TABLE_DTYPES  ? "--dtypes"
                        : args->table == CLI_TABLE_BATCHES ? "--batches"
                                                           : NULL;

    return other ? cli_usage("bench --transfer copies bytes of its own: %s is not valid with it",
                             other)
                 : CLI_OK;
}

int cli_bench_transfer(const struct cli_args *args)
{
    struct transfer_bench bench = { .device = GPUSERVE_DEVICE_INFO_INIT };
    int result = check_arguments(args);

    if (result != CLI_OK)
        return result;
    bench.rows = json_array();
    result = open_device(&bench, args);
    if (result == CLI_OK)
        result = limit_size(&bench, args);
    if (result == CLI_OK)
        result = measure_all(&bench);
    if (result == CLI_OK && args->json)
        result = cli_facts_print(json_pack("{s:s, s:s, s:s, s:O}", "device", bench.device.selector,
                                           "name", bench.device.name, "copies",
                                           bench.is_cpu ? ON_CPU : ON_DEVICE, "rows", bench.rows),
                                 true);
    else if (result == CLI_OK)
        print_rows(&bench);
    json_decref(bench.rows);
    gpuserve_compute_close(&bench.compute);
    gpuserve_context_unref(&bench.context);
    return result;
}
