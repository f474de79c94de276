/*
 * load.c - one cold start: opens a model, embeds one text, reports the times.
 *
 *   load MODEL [DTYPE [MMAP]]    DTYPE is a number of gpuserve_dtype, MMAP 0 or 1
 *
 * Prints one JSON object: seconds until the model is open and until the first vector, the predicted
 * footprint, and the peak memory of the process. benchmarks/load.py runs it.
 */
#define _POSIX_C_SOURCE 200809L

#include <gpuserve/gpuserve.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long peak_kb(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss : -1;
}

static int fail(const gpuserve_error *error)
{
    fprintf(stderr, "load: %s\n", error->message);
    return 1;
}

int main(int argc, char **argv)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_footprint footprint = { .struct_size = sizeof(footprint) };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;
    const char *text = "The first text of a new process.";
    const double started = now_s();
    double opened, answered;
    float *vector;
    size_t dim;

    if (argc < 2)
        return 2;
    options.device = "cpu";
    options.dtype = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : GPUSERVE_DTYPE_DEFAULT;
    options.use_mmap = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    if (gpuserve_context_create(&context, NULL, &error) != GPUSERVE_OK ||
        gpuserve_model_open(&model, context, argv[1], &options, &error) != GPUSERVE_OK)
        return fail(&error);
    opened = now_s();
    dim = gpuserve_model_dim(model);
    vector = calloc(dim, sizeof(*vector));
    if (!vector || gpuserve_embed(model, &text, 1, vector, dim, NULL, &error) != GPUSERVE_OK)
        return fail(&error);
    answered = now_s();
    if (gpuserve_model_footprint(context, argv[1], &options, &footprint, &error) != GPUSERVE_OK)
        return fail(&error);
    printf("{\"load_s\": %.4f, \"first_vector_s\": %.4f, \"peak_kb\": %ld, "
           "\"weights_bytes\": %llu, \"total_bytes\": %llu}\n",
           opened - started, answered - started, peak_kb(),
           (unsigned long long)footprint.weights_bytes, (unsigned long long)footprint.total_bytes);
    free(vector);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
    return 0;
}
