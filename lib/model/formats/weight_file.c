/*
 * weight_file.c - what files of weights have in common: a descriptor, a name for messages, and the
 * format's functions.
 */
#include "lib/model/formats/weight_file.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LFS_POINTER "version https://git-lfs"

uint64_t gsv_tensor_bytes(enum gsv_tensor_type type, uint64_t n)
{
    static const struct {
        uint16_t block, bytes;
    } sizes[] = {
        [GSV_TENSOR_F32] = { 1, 4 },      [GSV_TENSOR_F16] = { 1, 2 },
        [GSV_TENSOR_BF16] = { 1, 2 },     [GSV_TENSOR_F64] = { 1, 8 },
        [GSV_TENSOR_F8_E4M3] = { 1, 1 },  [GSV_TENSOR_F8_E5M2] = { 1, 1 },
        [GSV_TENSOR_I8_ROWS] = { 1, 1 },  [GSV_TENSOR_Q4_0] = { 32, 18 },
        [GSV_TENSOR_Q4_1] = { 32, 20 },   [GSV_TENSOR_Q5_0] = { 32, 22 },
        [GSV_TENSOR_Q5_1] = { 32, 24 },   [GSV_TENSOR_Q8_0] = { 32, 34 },
        [GSV_TENSOR_IQ4_NL] = { 32, 18 }, [GSV_TENSOR_Q2_K] = { 256, 84 },
        [GSV_TENSOR_Q3_K] = { 256, 110 }, [GSV_TENSOR_Q4_K] = { 256, 144 },
        [GSV_TENSOR_Q5_K] = { 256, 176 }, [GSV_TENSOR_Q6_K] = { 256, 210 },
        [GSV_TENSOR_I8] = { 1, 1 },       [GSV_TENSOR_I32] = { 1, 4 },
        [GSV_TENSOR_I64] = { 1, 8 },      [GSV_TENSOR_OTHER] = { 1, 0 },
    };

    return n / sizes[type].block * sizes[type].bytes;
}

gpuserve_status gsv_tensor_check_order(const struct gsv_tensor *tensor, gpuserve_error *error)
{
    gpuserve_status st;

    if (!tensor->is_strided)
        return GPUSERVE_OK;
    st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                  "%s: tensor '%s' is not contiguous: its elements are not in row order",
                  tensor->file->shown, tensor->name);
    return gsv_hint(error, st, "save the model again with tensor.contiguous()");
}

static gpuserve_status refuse_pointer(const struct gsv_weight_file *file, gpuserve_error *error)
{
    char start[sizeof(LFS_POINTER) - 1];
    gpuserve_status st;

    if (file->size_bytes < sizeof(start))
        return GPUSERVE_OK;
    st = gsv_fd_read(file->fd, start, sizeof(start), 0, file->shown, error);
    if (st != GPUSERVE_OK || memcmp(start, LFS_POINTER, sizeof(start)) != 0)
        return st;
    st = gsv_fail(error, GPUSERVE_E_FORMAT,
                  "%s: the file is a Git LFS pointer of %llu bytes, not the weights", file->shown,
                  (unsigned long long)file->size_bytes);
    return gsv_hint(error, st, "run `git lfs pull` in the model's directory, or download the file");
}

gpuserve_status gsv_weight_file_open(struct gsv_weight_file **out, size_t bytes,
                                     const struct gsv_weight_format *format,
                                     const struct gsv_dir *dir, const char *name,
                                     gpuserve_error *error)
{
    const char *path = gsv_dir_path(gsv_dir_owner(dir, name));
    const size_t shown_bytes = strlen(path) + strlen(name) + 2;
    struct gsv_weight_file *file = gsv_alloc_array(1, bytes);
    gpuserve_status st;

    *out = NULL;
    if (!file)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", name);
    file->format = format;
    file->fd = -1;
    file->shown = malloc(shown_bytes);
    if (file->shown) {
        snprintf(file->shown, shown_bytes, "%s/%s", path, name);
        st = gsv_dir_open_file(dir, name, &file->fd, &file->size_bytes, error);
    } else {
        st = gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", name);
    }
    if (st == GPUSERVE_OK)
        st = refuse_pointer(file, error);
    if (st != GPUSERVE_OK)
        gsv_weight_file_close(&file);
    *out = file;
    return st;
}

void gsv_weight_file_close(struct gsv_weight_file **file)
{
    if (!file || !*file)
        return;
    (*file)->format->close(*file);
    if ((*file)->fd >= 0)
        close((*file)->fd);
    free((*file)->shown);
    free(*file);
    *file = NULL;
}

bool gsv_weight_file_find(const struct gsv_weight_file *file, const char *name,
                          struct gsv_tensor *tensor)
{
    return file->format->find(file, name, tensor);
}

bool gsv_weight_file_at(const struct gsv_weight_file *file, size_t i, struct gsv_tensor *tensor)
{
    return file->format->at(file, i, tensor);
}

const char *gsv_weight_file_name(const struct gsv_weight_file *file)
{
    return file->shown;
}

int gsv_weight_file_fd(const struct gsv_weight_file *file)
{
    return file->fd;
}
