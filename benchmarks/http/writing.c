/*
 * writing.c - throughput of writing vectors as JSON and as base64, on one core.
 *
 * Prints a JSON object with output bytes per second. bench.py runs it once per round.
 */
#include "lib/http/core/json_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DIM = 384, ROWS = 256 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Unit vectors of pseudo-random directions, like a model's output. */
static void fill(float *values)
{
    uint32_t state = 1;

    for (size_t row = 0; row < ROWS; row++) {
        double sum = 0;

        for (size_t i = 0; i < DIM; i++) {
            state = state * 1664525u + 1013904223u;
            values[row * DIM + i] = (float)(state >> 8) / 8388608.0f - 1.0f;
            sum += (double)values[row * DIM + i] * values[row * DIM + i];
        }
        for (size_t i = 0; i < DIM; i++)
            values[row * DIM + i] /= (float)sqrt(sum);
    }
}

/* Bytes per second, measured for at least `seconds`. */
static double measure(void (*put)(struct gsv_buffer *, const float *, size_t), const float *values,
                      double seconds)
{
    struct gsv_buffer buffer = { 0 };
    const double begin = now();
    double bytes = 0, elapsed;

    do {
        buffer.size = 0;
        for (size_t row = 0; row < ROWS; row++)
            put(&buffer, values + row * DIM, DIM);
        bytes += (double)buffer.size;
        elapsed = now() - begin;
    } while (elapsed < seconds);
    gsv_buffer_reset(&buffer);
    return bytes / elapsed;
}

static void put_base64(struct gsv_buffer *buffer, const float *values, size_t n)
{
    gsv_put_base64(buffer, values, n * sizeof(float));
}

int main(void)
{
    float *values = malloc(sizeof(float) * DIM * ROWS);

    if (!values)
        return 1;
    fill(values);
    measure(gsv_put_floats, values, 0.1); /* warm-up */
    measure(put_base64, values, 0.1);
    printf("{\"json_bytes_per_s\":%.0f,\"base64_bytes_per_s\":%.0f}\n",
           measure(gsv_put_floats, values, 0.3), measure(put_base64, values, 0.3));
    free(values);
    return 0;
}
