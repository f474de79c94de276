/*
 * ranges.c - ranges of vectors, from a .npy file or of the built-in texts.
 */
#include "cli/io/output.h"

#include <stdlib.h>

bool cli_has_ranges(const struct cli_args *args)
{
    return args->precision == GPUSERVE_PRECISION_INT8 ||
           args->precision == GPUSERVE_PRECISION_UINT8;
}

int cli_ranges_load(float **ranges, size_t *dim, const char *path)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status status = gpuserve_vector_ranges_read(path, NULL, 0, dim, &error);

    *ranges = NULL;
    if (status == GPUSERVE_OK) {
        *ranges = cli_alloc(2 * *dim, sizeof(**ranges));
        status = gpuserve_vector_ranges_read(path, *ranges, 2 * *dim, dim, &error);
    }
    if (status == GPUSERVE_OK)
        return CLI_OK;
    free(*ranges);
    *ranges = NULL;
    return cli_fail_with(&error, NULL);
}

int cli_ranges_read(float **ranges, const char *path, size_t dim)
{
    size_t found;
    int result = cli_ranges_load(ranges, &found, path);

    if (result == CLI_OK && found != dim) {
        result = cli_fail("%s: the shape is (2, %zu), the vectors need ranges of shape (2, %zu)",
                          path, found, dim);
        free(*ranges);
        *ranges = NULL;
    }
    return result;
}

int cli_ranges_builtin(float **ranges, gpuserve_model *model, const gpuserve_job *job, size_t dim)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job texts = *job;
    const float margin = GPUSERVE_CALIBRATION_MARGIN_PERCENT / 100.0f;
    const char **list;
    gpuserve_status status;
    size_t n = 0;

    while (gpuserve_calibration_text(n))
        n++;
    list = cli_alloc(n, sizeof(*list));
    for (size_t i = 0; i < n; i++)
        list[i] = gpuserve_calibration_text(i);
    texts.n_items = n;
    texts.texts = list;
    texts.truncation = GPUSERVE_TRUNCATE_RIGHT;
    texts.output_capacity = n * dim;
    texts.output = cli_alloc(n * dim, sizeof(float));
    *ranges = cli_alloc(2 * dim, sizeof(**ranges));
    status = gpuserve_run(model, &texts, &error);
    if (status == GPUSERVE_OK)
        status = gpuserve_vector_ranges(texts.output, n, dim, margin, *ranges, &error);
    free(list);
    free(texts.output);
    if (status == GPUSERVE_OK)
        return CLI_OK;
    free(*ranges);
    *ranges = NULL;
    return cli_fail_with(&error, "ranges of int8 vectors");
}
