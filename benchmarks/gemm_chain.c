/*
 * gemm_chain.c - rate of the model's matrix products on this machine, by dtype.
 *
 *   gemm_chain [--threads N] [--seconds S]
 *
 * Prints one JSON object for benchmarks/peers/gemm_limit.py: for each dtype the rates of our
 * backend and of oneDNN in GFLOP/s, each the max over a few batch sizes. Both exclude other
 * operations (LayerNorm, attention, GELU). Our int8 includes quantizing the input, oneDNN's does
 * not.
 */
#include "benchmarks/gemm_chain.h"

#include <gpuserve/types.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int32_t own_rows[] = { 256, 512, 1024 };
static const int32_t onednn_rows[] = { 512, 2048 };

static const struct {
    const char *name;
    uint32_t dtype;
} dtypes[] = {
    { "fp32", GPUSERVE_DTYPE_FLOAT32 },
    { "int8", GPUSERVE_DTYPE_INT8 },
    { "bf16", GPUSERVE_DTYPE_BFLOAT16 },
};

typedef double (*rate_fn)(uint32_t dtype, int32_t n_threads, int32_t rows, double seconds);

static double best_rate(rate_fn rate, uint32_t dtype, int32_t n_threads, const int32_t *rows,
                        size_t n, double seconds)
{
    double best = 0.0;

    for (size_t i = 0; i < n; i++) {
        const double found = rate(dtype, n_threads, rows[i], seconds);

        best = found > best ? found : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    int32_t n_threads = 1;
    double seconds = 1.0;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--threads") == 0)
            n_threads = (int32_t)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtod(argv[i + 1], NULL);
    }
    if (argc % 2 == 0 || n_threads < 1 || n_threads > 1024 || !(seconds > 0.0)) {
        fprintf(stderr, "usage: gemm_chain [--threads N] [--seconds S]\n");
        return 2;
    }
    printf("{");
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        const uint32_t dtype = dtypes[i].dtype;
        const double own = best_rate(chain_rate_own, dtype, n_threads, own_rows,
                                     sizeof(own_rows) / sizeof(own_rows[0]), seconds);
        const double onednn = best_rate(chain_rate_onednn, dtype, n_threads, onednn_rows,
                                        sizeof(onednn_rows) / sizeof(onednn_rows[0]), seconds);

        printf("%s\"%s\": {\"gpuserve\": %.1f, \"oneDNN\": %.1f}", i ? ", " : "", dtypes[i].name,
               own, onednn);
    }
    printf("}\n");
    return 0;
}
