/*
 * tensor_data.c - reads elements of a tensor from its file, or computes those of a random model,
 * and converts them to float32.
 *
 * Files are read, not mapped. If another process truncates a mapped file, an access raises SIGBUS
 * at any time, despite earlier checks; a read reports the end of the file.
 */
#include "lib/model/formats/checkpoint.h"

#include <string.h>

/* Rows that the elements [first, first + n) of an I8_ROWS tensor belong to, in the whole tensor. */
struct rows {
    uint64_t first, n;
    uint64_t columns;
    uint64_t at; /* column of the first element */
};

static struct rows rows_of(const struct gsv_tensor *tensor, uint64_t first, size_t n)
{
    const uint64_t columns = tensor->shape[1];
    /* One byte is one element. */
    const uint64_t element = tensor->offset - tensor->rows_offset + first;

    if (n == 0 || columns == 0)
        return (struct rows){ .columns = 1 };
    return (struct rows){ .first = element / columns,
                          .n = (element + n - 1) / columns - element / columns + 1,
                          .columns = columns,
                          .at = element % columns };
}

static bool has_row_scales(const struct gsv_tensor *tensor)
{
    return tensor->type == GSV_TENSOR_I8_ROWS;
}

size_t gsv_tensor_raw_bytes(const struct gsv_tensor *tensor, uint64_t first, size_t n)
{
    const size_t scales =
        has_row_scales(tensor) ? (size_t)rows_of(tensor, first, n).n * sizeof(float) : 0;

    return scales + (size_t)gsv_tensor_bytes(tensor->type, n);
}

gpuserve_status gsv_tensor_fetch(const struct gsv_tensor *tensor, uint64_t first, size_t n,
                                 void *raw, gpuserve_error *error)
{
    const int fd = gsv_weight_file_fd(tensor->file);
    const char *const shown = gsv_weight_file_name(tensor->file);
    char *to = raw;

    if (tensor->file->format->fetch)
        return tensor->file->format->fetch(tensor, first, n, raw, error);
    if (has_row_scales(tensor)) {
        const struct rows rows = rows_of(tensor, first, n);
        const size_t size = (size_t)rows.n * sizeof(float);
        const gpuserve_status st = gsv_fd_read(
            fd, to, size, tensor->scales_offset + rows.first * sizeof(float), shown, error);

        if (st != GPUSERVE_OK)
            return st;
        to += size;
    }
    return gsv_fd_read(fd, to, (size_t)gsv_tensor_bytes(tensor->type, n),
                       tensor->offset + gsv_tensor_bytes(tensor->type, first), shown, error);
}

static void floats_from_rows(const struct gsv_tensor *tensor, uint64_t first, size_t n,
                             const void *raw, float *to)
{
    const struct rows rows = rows_of(tensor, first, n);
    const signed char *codes = (const signed char *)raw + (size_t)rows.n * sizeof(float);
    uint64_t column = rows.at;

    for (size_t i = 0, row = 0; i < n; row++, column = 0) {
        const uint64_t left = rows.columns - column;
        const size_t end = left < n - i ? i + (size_t)left : n;
        float scale;

        memcpy(&scale, (const char *)raw + row * sizeof(scale), sizeof(scale));
        for (; i < end; i++)
            to[i] = (float)codes[i] * scale;
    }
}

void gsv_tensor_floats(const struct gsv_tensor *tensor, uint64_t first, size_t n, const void *raw,
                       float *to)
{
    switch (tensor->type) {
    case GSV_TENSOR_F16:
        gsv_floats_from_f16(to, raw, n);
        break;
    case GSV_TENSOR_BF16:
        gsv_floats_from_bf16(to, raw, n);
        break;
    case GSV_TENSOR_F64:
        gsv_floats_from_f64(to, raw, n);
        break;
    case GSV_TENSOR_F8_E4M3:
        gsv_floats_from_f8_e4m3(to, raw, n);
        break;
    case GSV_TENSOR_F8_E5M2:
        gsv_floats_from_f8_e5m2(to, raw, n);
        break;
    case GSV_TENSOR_I8_ROWS:
        floats_from_rows(tensor, first, n, raw, to);
        break;
    case GSV_TENSOR_I8:
    case GSV_TENSOR_I32:
    case GSV_TENSOR_I64:
        gsv_floats_from_integers(to, raw, tensor->type, n);
        break;
    case GSV_TENSOR_F32:
        if (raw != to)
            memcpy(to, raw, n * sizeof(float));
        break;
    default:
        gsv_floats_from_blocks(to, raw, tensor->type, n);
        break;
    }
}
