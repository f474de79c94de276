/*
 * fuzz_torch.c - arbitrary PyTorch files: accepted tensors are inside the file.
 *
 * An input that begins with PROTO, but is not the old layout, is a pickle: it becomes data.pkl of
 * an archive with one storage of 64 bytes, so that mutations reach the interpreter without a valid
 * directory. Other inputs are whole files.
 */
#define _GNU_SOURCE /* mkdtemp */
#include "fuzz/fuzz.h"

#include "lib/model/formats/torch/torch_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STORAGE_BYTES 64u

enum { MAX_BYTES = 1 << 16, CAPACITY = MAX_BYTES + 1024 };

/* An archive under construction. */
struct archive {
    unsigned char *bytes;
    size_t size;
    unsigned char directory[256];
    size_t directory_size;
};

static size_t put(unsigned char *to, uint64_t number, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (unsigned char)(number >> (8 * i));
    return n;
}

/* The fields that the local and the central header have in common, from the flags on. */
static size_t put_common(unsigned char *to, const char *name, size_t size)
{
    memset(to, 0, 24);
    put(to + 12, size, 4);
    put(to + 16, size, 4);
    put(to + 20, strlen(name), 2);
    return 24;
}

static void add_entry(struct archive *archive, const char *name, const void *content, size_t size)
{
    unsigned char *local = archive->bytes + archive->size;
    unsigned char *central = archive->directory + archive->directory_size;
    size_t n = put(local, 0x04034b50, 4) + put(local + 4, 0, 2);

    n += put_common(local + n, name, size);
    memcpy(local + n, name, strlen(name));
    memcpy(local + n + strlen(name), content, size);
    memset(central, 0, 46);
    put(central, 0x02014b50, 4);
    put_common(central + 8, name, size);
    put(central + 42, archive->size, 4);
    memcpy(central + 46, name, strlen(name));
    archive->size += n + strlen(name) + size;
    archive->directory_size += 46 + strlen(name);
}

static void end_archive(struct archive *archive, unsigned n)
{
    unsigned char *end = archive->bytes + archive->size + archive->directory_size;

    memcpy(archive->bytes + archive->size, archive->directory, archive->directory_size);
    memset(end, 0, 22);
    put(end, 0x06054b50, 4);
    put(end + 8, n, 2);
    put(end + 10, n, 2);
    put(end + 12, archive->directory_size, 4);
    put(end + 16, archive->size, 4);
    archive->size += archive->directory_size + 22;
}

static void check_tensors(const struct gsv_weight_file *file)
{
    struct gsv_tensor tensor, found;

    for (size_t i = 0; gsv_weight_file_at(file, i, &tensor); i++) {
        if (!gsv_weight_file_find(file, tensor.name, &found) || found.offset != tensor.offset)
            abort();
        if (tensor.offset > file->size_bytes ||
            tensor.size_bytes > file->size_bytes - tensor.offset)
            abort();
        if (tensor.type != GSV_TENSOR_OTHER && !tensor.is_strided &&
            tensor.size_bytes != gsv_tensor_bytes(tensor.type, tensor.count))
            abort();
    }
}

/* A folder in memory with one file, whose content changes. */
static char folder[] = "/dev/shm/fuzz-torch-XXXXXX";
static struct gsv_dir *dir;
static int file_fd = -1;

static void remove_folder(void)
{
    char path[sizeof(folder) + 8];

    snprintf(path, sizeof(path), "%s/file", folder);
    gsv_dir_close(&dir);
    close(file_fd);
    unlink(path);
    rmdir(folder);
}

static void make_folder(void)
{
    char path[sizeof(folder) + 8];

    if (!mkdtemp(folder) || atexit(remove_folder))
        abort();
    snprintf(path, sizeof(path), "%s/file", folder);
    file_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file_fd < 0 || gsv_dir_open(&dir, folder, NULL) != GPUSERVE_OK)
        abort();
}

static void open_bytes(const void *bytes, size_t size)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_weight_file *file = NULL;

    if (pwrite(file_fd, bytes, size, 0) != (ssize_t)size || ftruncate(file_fd, (off_t)size))
        abort();
    if (gsv_torch_file_open(&file, dir, "file", &error) == GPUSERVE_OK)
        check_tensors(file);
    else if (file || !error.message[0])
        abort();
    gsv_weight_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char storage[STORAGE_BYTES];
    static const unsigned char old[] = { 0x80, 2, 0x8a, 10, 0x6c };
    static unsigned char bytes[CAPACITY];
    struct archive archive = { .bytes = bytes };

    if (size < 1 || size > MAX_BYTES)
        return 0;
    if (!dir)
        make_folder();
    if (data[0] != 0x80 || (size > sizeof(old) && memcmp(data, old, sizeof(old)) == 0)) {
        open_bytes(data, size);
        return 0;
    }
    add_entry(&archive, "a/data.pkl", data, size);
    add_entry(&archive, "a/data/0", storage, sizeof(storage));
    end_archive(&archive, 2);
    open_bytes(bytes, archive.size);
    return 0;
}
