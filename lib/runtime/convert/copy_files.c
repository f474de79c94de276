/*
 * copy_files.c - copies the files of a model directory that are not weights.
 *
 * Two levels: the directory, and folders such as 1_Pooling. The number of names in a folder and the
 * size of a file are bounded. Files are copied byte for byte.
 */
#include "lib/runtime/convert/convert.h"

#include "lib/base/error.h"
#include "lib/model/formats/checkpoint_writer.h"
#include "lib/model/formats/lora.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define MAX_FILE_BYTES ((uint64_t)1 << 30)
#define BUFFER_BYTES ((size_t)256 << 10)

static const char *const endings[] = { ".json",  ".jsonl", ".txt", ".model", ".spm",
                                       ".jinja", ".md",    ".py",  ".yaml",  ".yml" };
/* The heads of BGE-M3, copied as they are. */
static const char *const heads[] = { "sparse_linear.pt", "colbert_linear.pt" };
static const char *const documents[] = { "LICENSE", "LICENCE", "NOTICE", "COPYING", "README" };
/* Folders with the same model in formats of other programs. */
static const char *const other_formats[] = { "onnx", "openvino", "coreml", "tflite", "tensorrt" };

static bool ends_in(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);

    return n >= m && strcasecmp(name + n - m, ending) == 0;
}

static bool is_copied(const char *name)
{
    if (ends_in(name, ".index.json") || strcmp(name, GSV_CONVERT_REPORT_NAME) == 0 ||
        strcmp(name, GSV_LORA_CONFIG) == 0)
        return false;
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (ends_in(name, endings[i]))
            return true;
    for (size_t i = 0; i < sizeof(documents) / sizeof(documents[0]); i++)
        if (strcmp(name, documents[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
        if (strcmp(name, heads[i]) == 0)
            return true;
    return false;
}

static bool is_other_format(const char *folder)
{
    for (size_t i = 0; i < sizeof(other_formats) / sizeof(other_formats[0]); i++)
        if (strcasecmp(folder, other_formats[i]) == 0)
            return true;
    return false;
}

static gpuserve_status copy_bytes(int from, int to, uint64_t size, const char *name,
                                  const char *shown, gpuserve_error *error)
{
    char *buffer = malloc(BUFFER_BYTES);
    gpuserve_status st = GPUSERVE_OK;

    if (!buffer)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", name);
    for (uint64_t at = 0; at < size && st == GPUSERVE_OK; at += BUFFER_BYTES) {
        const size_t n = size - at < BUFFER_BYTES ? (size_t)(size - at) : BUFFER_BYTES;

        st = gsv_fd_read(from, buffer, n, at, name, error);
        if (st == GPUSERVE_OK)
            st = gsv_fd_write(to, buffer, n, at, shown, error);
    }
    free(buffer);
    return st;
}

/* Copy FOLDER/NAME, a file in `dir`, to the folder `to`. */
static gpuserve_status copy_file(const struct gsv_dir *dir, const char *path, int to,
                                 const char *name, const char *shown, gpuserve_error *error)
{
    int source, copy = -1;
    uint64_t size;
    gpuserve_status st = gsv_dir_open_file(dir, path, &source, &size, error);

    if (st != GPUSERVE_OK)
        return st;
    if (size > MAX_FILE_BYTES)
        st = gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                      "%s/%s: the file has %" PRIu64 " bytes, the limit is %" PRIu64,
                      gsv_dir_path(dir), path, size, MAX_FILE_BYTES);
    if (st == GPUSERVE_OK)
        st = gsv_create_file(&copy, to, name, shown, error);
    if (st == GPUSERVE_OK)
        st = copy_bytes(source, copy, size, path, shown, error);
    close(source);
    return gsv_finish_file(copy, st, shown, name, error);
}

static gpuserve_status copy_folder(const struct gsv_dir *from, const char *folder,
                                   const struct gsv_output_dir *to, gpuserve_error *error)
{
    struct gsv_names names;
    int fd = -1;
    gpuserve_status st = gsv_dir_list(from, folder, &names, error);

    for (size_t i = 0; i < names.n && st == GPUSERVE_OK; i++) {
        char path[GSV_FILE_NAME_BYTES];

        if (!is_copied(names.names[i]) || !gsv_join_name(path, folder, names.names[i]) ||
            !gsv_dir_has(from, path))
            continue;
        if (fd < 0)
            st = gsv_output_folder(to, folder, &fd, error);
        if (st == GPUSERVE_OK)
            st = copy_file(from, path, fd, names.names[i], to->path, error);
    }
    if (fd >= 0)
        close(fd);
    gsv_names_free(&names);
    return st;
}

gpuserve_status gsv_copy_files(const struct gsv_dir *from, const struct gsv_output_dir *to,
                               gpuserve_error *error)
{
    struct gsv_names names, below;
    gpuserve_status st = copy_folder(from, "", to, error);

    if (st == GPUSERVE_OK)
        st = gsv_dir_list(from, "", &names, error);
    if (st != GPUSERVE_OK)
        return st;
    for (size_t i = 0; i < names.n && st == GPUSERVE_OK; i++) {
        if (is_other_format(names.names[i]))
            continue;
        st = gsv_dir_list(from, names.names[i], &below, error);
        gsv_names_free(&below);
        if (st == GPUSERVE_OK)
            st = copy_folder(from, names.names[i], to, error);
        else if (st == GPUSERVE_E_INVALID) /* a file */
            st = GPUSERVE_OK;
    }
    gsv_names_free(&names);
    return st;
}
