/*
 * checks.c - checks on a real device that the tests run on the emulator.
 *
 * A replayed recording gives the bits of a direct run; a stream allocates the predicted memory;
 * deterministic mode gives a text the same bits in any batch. Also measures the cost of that mode.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Larger batches are not recorded: GSV_GRAPH_MAX_ROWS of the plugin. */
#define GRAPH_MAX_ROWS 4096

/* The driver allocates in large blocks, and keeps memory for a stream and its recordings. */
#define SLACK_BYTES ((uint64_t)32 << 20)
#define GRAPH_PROGRAM UINT64_C(0x4752415048) /* of no other batch */

static bool say_graph(struct bench *b, int32_t tokens)
{
    const struct gpuserve_host_batch host = make_batch(tokens / 32, 32);
    const size_t bytes = (size_t)host.n_sequences * (size_t)b->shape.hidden * sizeof(float);
    float *direct = malloc(bytes);
    int32_t replayed = 1;
    bool ok;

    if (!direct)
        exit(1);
    run_once(b, GRAPH_PROGRAM, &host, op_encoder, 1, &replayed);
    ok = !replayed;
    memcpy(direct, b->vectors, bytes);
    for (int i = 0; i < 4 && !replayed; i++)
        run_once(b, GRAPH_PROGRAM, &host, op_encoder, 1, &replayed);
    ok = ok && replayed && memcmp(direct, b->vectors, bytes) == 0;
    printf(
        "{\"stage\": \"graph\", \"model\": \"%s\", \"texts\": %d, \"replayed\": %d, \"same_bits\": "
        "%s, \"ok\": %s}\n",
        b->shape.name, host.n_sequences, replayed,
        memcmp(direct, b->vectors, bytes) == 0 ? "true" : "false", ok ? "true" : "false");
    free(direct);
    free_batch(&host);
    return ok;
}

static uint64_t free_bytes(struct bench *b)
{
    struct gpuserve_device_facts facts = { .struct_size = sizeof(facts) };

    if (b->backend->device_facts(0, &facts, &b->error) != GPUSERVE_OK)
        stop(b, "device_facts");
    return facts.memory_free_bytes;
}

/* Memory of one stream; its pinned staging buffer is in the formula, but not in the measurement. */
static bool say_footprint(struct bench *b, const struct shape *shape, uint32_t dtype,
                          int32_t tokens)
{
    const struct gpuserve_stream_options options = options_of(b, shape, dtype, tokens);
    const uint64_t formula = b->backend->stream_bytes(&options), before = free_bytes(b);
    struct gpuserve_stream *stream;
    uint64_t after;
    bool ok;

    if (b->backend->stream_create(b->device, &stream, &options, &b->error) != GPUSERVE_OK)
        stop(b, "stream");
    after = free_bytes(b);
    b->backend->stream_destroy(&stream);
    ok = before - after <= formula + SLACK_BYTES && after <= before;
    printf("{\"stage\": \"footprint\", \"model\": \"%s\", \"formula_bytes\": %llu, "
           "\"measured_bytes\": "
           "%llu, \"ok\": %s}\n",
           shape->name, (unsigned long long)formula, (unsigned long long)(before - after),
           ok ? "true" : "false");
    return ok;
}

/* Seconds of a full batch; `row` gets the vector of its first text, `alone` that of the text
 * alone. */
static double run_mode(struct bench *b, const struct shape *shape, uint32_t dtype, int32_t tokens,
                       int32_t flags, float *row, float *alone)
{
    const struct gpuserve_host_batch many = make_batch(tokens / 32, 32), one = make_batch(1, 32);
    const size_t bytes = (size_t)shape->hidden * sizeof(float);
    double seconds;

    b->flags = flags;
    open_bench(b, shape, dtype, tokens);
    seconds = run_many(b, &many, op_encoder, 1);
    memcpy(row, b->vectors, bytes);
    run_many(b, &one, op_encoder, 1);
    memcpy(alone, b->vectors, bytes);
    close_bench(b);
    b->flags = 0;
    free_batch(&many);
    free_batch(&one);
    return seconds;
}

static bool say_deterministic(struct bench *b, const struct shape *shape, uint32_t dtype,
                              int32_t tokens)
{
    const size_t n = (size_t)shape->hidden;
    float *rows = malloc(2 * n * sizeof(*rows));
    double free_s, fixed_s;
    bool same;

    if (!rows)
        exit(1);
    free_s = run_mode(b, shape, dtype, tokens, 0, rows, rows + n);
    fixed_s = run_mode(b, shape, dtype, tokens, GPUSERVE_STREAM_DETERMINISTIC, rows, rows + n);
    same = memcmp(rows, rows + n, n * sizeof(*rows)) == 0;
    printf("{\"stage\": \"deterministic\", \"model\": \"%s\", \"us\": %.2f, \"us_free\": %.2f, "
           "\"cost\": %.4f, \"ok\": %s}\n",
           shape->name, fixed_s * 1e6, free_s * 1e6, fixed_s / free_s, same ? "true" : "false");
    free(rows);
    return same;
}

bool run_checks(struct bench *b, const struct shape *shape, uint32_t dtype, int32_t tokens)
{
    bool ok;

    open_bench(b, shape, dtype, tokens);
    ok = say_graph(b, tokens < GRAPH_MAX_ROWS ? tokens : GRAPH_MAX_ROWS);
    close_bench(b);
    ok = say_footprint(b, shape, dtype, tokens) && ok;
    ok = say_deterministic(b, shape, dtype, tokens) && ok;
    fflush(stdout);
    return ok;
}
