/*
 * vector_ranges.c - reads ranges of vectors from a .npy file.
 *
 * Accepts .npy files (NEP 1) of versions 1 to 3: dtype '<f4', C order, shape (2, dim). No state.
 */
#include <gpuserve/gpuserve.h>

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_HEADER 4096

static gpuserve_status not_ranges(const char *path, const char *what, gpuserve_error *error)
{
    gsv_fail(error, GPUSERVE_E_FORMAT, "%s: %s", path, what);
    return gsv_hint(error, GPUSERVE_E_FORMAT, "`gpuserve calibrate` writes a file of ranges");
}

/* Reads the header text, NUL-terminated. */
static gpuserve_status read_header(FILE *file, const char *path, char *header,
                                   gpuserve_error *error)
{
    unsigned char start[12];
    size_t size, n_start;

    if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0)
        return not_ranges(path, "not a .npy file", error);
    n_start = start[6] == 1 ? 10 : 12;
    if (start[6] < 1 || start[6] > 3)
        return not_ranges(path, "a .npy file of an unknown version", error);
    if (n_start == 12 && fread(start + 10, 1, 2, file) != 2)
        return not_ranges(path, "the .npy header is cut", error);
    size = (size_t)start[8] | (size_t)start[9] << 8;
    if (n_start == 12)
        size |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    if (size >= MAX_HEADER)
        return not_ranges(path, "the .npy header is longer than 4095 bytes", error);
    if (fread(header, 1, size, file) != size)
        return not_ranges(path, "the .npy header is cut", error);
    header[size] = '\0';
    return GPUSERVE_OK;
}

static gpuserve_status parse_header(const char *header, const char *path, size_t *dim,
                                    gpuserve_error *error)
{
    const char *shape = strstr(header, "'shape':");
    unsigned long long rows, columns;

    if (!strstr(header, "'descr': '<f4'") || !strstr(header, "'fortran_order': False") || !shape ||
        sscanf(shape, "'shape': (%llu, %llu)", &rows, &columns) != 2 || rows != 2)
        return not_ranges(path, "not an array of two rows of float32 in C order", error);
    if (columns == 0 || columns > SIZE_MAX / (2 * sizeof(float)))
        return not_ranges(path, "the shape is not that of ranges", error);
    *dim = (size_t)columns;
    return GPUSERVE_OK;
}

static gpuserve_status read_values(float *ranges, FILE *file, const char *path, size_t n,
                                   gpuserve_error *error)
{
    if (fread(ranges, sizeof(float), n, file) != n)
        return not_ranges(path, "the file ends before its last value", error);
    if (fgetc(file) != EOF)
        return not_ranges(path, "the file has more bytes than its shape says", error);
    return GPUSERVE_OK;
}

static gpuserve_status read_file(FILE *file, const char *path, float *ranges, size_t capacity,
                                 size_t *dim, gpuserve_error *error)
{
    char header[MAX_HEADER];
    gpuserve_status st = read_header(file, path, header, error);

    if (st == GPUSERVE_OK)
        st = parse_header(header, path, dim, error);
    if (st != GPUSERVE_OK || !ranges)
        return st;
    if (capacity / 2 < *dim)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "%s: ranges of %zu dimensions, `ranges` has capacity for %zu", path, *dim,
                        capacity / 2);
    return read_values(ranges, file, path, 2 * *dim, error);
}

GPUSERVE_API gpuserve_status gpuserve_vector_ranges_read(const char *path, float *ranges,
                                                         size_t capacity, size_t *dim,
                                                         gpuserve_error *error)
{
    gpuserve_status st;
    size_t found = 0;
    FILE *file;

    if (!path || !dim)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`%s` is NULL", path ? "dim" : "path");
    file = fopen(path, "re");
    if (!file)
        return gsv_fail(error, errno == ENOENT ? GPUSERVE_E_NOT_FOUND : GPUSERVE_E_IO, "%s: %s",
                        path, strerror(errno));
    st = read_file(file, path, ranges, capacity, &found, error);
    fclose(file);
    if (st == GPUSERVE_OK)
        *dim = found;
    return st;
}
