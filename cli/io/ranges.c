/*
 * ranges.c - reads ranges of vectors from a .npy file, or computes them.
 *
 * Accepts .npy files (NEP 1) of versions 1 to 3: dtype '<f4', C order, shape (2, dim).
 */
#include "cli/io/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN 0.25f /* the built-in texts are few */
#define MAX_HEADER 4096

static int not_ranges(const char *path, const char *what)
{
    cli_fail("%s: %s", path, what);
    cli_hint("`gpuserve calibrate` writes a file of ranges");
    return CLI_FAILED;
}

/* Reads the header text, NUL-terminated. */
static int read_header(FILE *file, const char *path, char *header)
{
    unsigned char start[12];
    size_t size, n_start;

    if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0)
        return not_ranges(path, "not a .npy file");
    n_start = start[6] == 1 ? 10 : 12;
    if (start[6] < 1 || start[6] > 3)
        return not_ranges(path, "a .npy file of an unknown version");
    if (n_start == 12 && fread(start + 10, 1, 2, file) != 2)
        return not_ranges(path, "the .npy header is cut");
    size = (size_t)start[8] | (size_t)start[9] << 8;
    if (n_start == 12)
        size |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    if (size >= MAX_HEADER)
        return not_ranges(path, "the .npy header is longer than 4095 bytes");
    if (fread(header, 1, size, file) != size)
        return not_ranges(path, "the .npy header is cut");
    header[size] = '\0';
    return CLI_OK;
}

static int check_header(const char *header, const char *path, size_t dim)
{
    const char *shape = strstr(header, "'shape':");
    unsigned long long rows, columns;

    if (!strstr(header, "'descr': '<f4'") || !strstr(header, "'fortran_order': False") || !shape ||
        sscanf(shape, "'shape': (%llu, %llu)", &rows, &columns) != 2)
        return not_ranges(path, "not an array of two rows of float32 in C order");
    if (rows != 2 || columns != dim)
        return cli_fail("%s: the shape is (%llu, %llu), the vectors need ranges of shape (2, %zu)",
                        path, rows, columns, dim);
    return CLI_OK;
}

static int read_values(float *ranges, FILE *file, const char *path, size_t dim)
{
    if (fread(ranges, sizeof(float), 2 * dim, file) != 2 * dim)
        return not_ranges(path, "the file ends before its last value");
    if (fgetc(file) != EOF)
        return not_ranges(path, "the file has more bytes than its shape says");
    return CLI_OK;
}

int cli_ranges_read(float **ranges, const char *path, size_t dim)
{
    FILE *file = fopen(path, "rb");
    char header[MAX_HEADER];
    int result;

    *ranges = NULL;
    if (!file)
        return cli_fail("%s: %s", path, strerror(errno));
    result = read_header(file, path, header);
    if (result == CLI_OK)
        result = check_header(header, path, dim);
    if (result == CLI_OK) {
        *ranges = cli_alloc(2 * dim, sizeof(**ranges));
        result = read_values(*ranges, file, path, dim);
    }
    fclose(file);
    if (result != CLI_OK) {
        free(*ranges);
        *ranges = NULL;
    }
    return result;
}

int cli_ranges_builtin(float **ranges, gpuserve_model *model, const gpuserve_job *job, size_t dim)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job texts = *job;
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
        status = gpuserve_vector_ranges(texts.output, n, dim, MARGIN, *ranges, &error);
    free(list);
    free(texts.output);
    if (status == GPUSERVE_OK)
        return CLI_OK;
    free(*ranges);
    *ranges = NULL;
    return cli_fail_with(&error, "ranges of int8 vectors");
}
