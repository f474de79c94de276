/*
 * file_io.c - reads and writes bytes at offsets, reads whole files, creates files and flushes.
 */
#define _GNU_SOURCE
#include "lib/base/dir.h"

#include "lib/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

gpuserve_status gsv_fd_read(int fd, void *to, size_t size, uint64_t offset, const char *name,
                            gpuserve_error *error)
{
    size_t done = 0;

    while (done < size) {
        const ssize_t n = pread(fd, (char *)to + done, size - done, (off_t)(offset + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gsv_fail(error, GPUSERVE_E_IO, "%s: %s", name, strerror(errno));
        if (n == 0)
            return gsv_fail(
                error, GPUSERVE_E_FORMAT, "%s: the file ends at byte %llu, expected %llu bytes",
                name, (unsigned long long)(offset + done), (unsigned long long)(offset + size));
        done += (size_t)n;
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_fd_read_whole(int fd, uint64_t file_size, const char *name, size_t max_bytes,
                                  char **bytes, size_t *size_bytes, gpuserve_error *error)
{
    gpuserve_status st;
    char *buffer;

    if (file_size > max_bytes) {
        close(fd);
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "%s: the file has %llu bytes, the limit is %zu", name,
                        (unsigned long long)file_size, max_bytes);
    }
    buffer = malloc((size_t)file_size + 1);
    if (!buffer) {
        close(fd);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for %llu bytes", name,
                        (unsigned long long)file_size);
    }
    st = gsv_fd_read(fd, buffer, (size_t)file_size, 0, name, error);
    close(fd);
    if (st != GPUSERVE_OK) {
        free(buffer);
        return st;
    }
    buffer[file_size] = '\0';
    *bytes = buffer;
    *size_bytes = (size_t)file_size;
    return GPUSERVE_OK;
}

gpuserve_status gsv_file_read(const char *path, size_t max_bytes, char **bytes, size_t *size_bytes,
                              gpuserve_error *error)
{
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    *bytes = NULL;
    *size_bytes = 0;
    if (fd < 0)
        return gsv_fail(error, errno == ENOENT ? GPUSERVE_E_NOT_FOUND : GPUSERVE_E_IO, "%s: %s",
                        path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s: not a regular file", path);
    }
    return gsv_fd_read_whole(fd, (uint64_t)info.st_size, path, max_bytes, bytes, size_bytes, error);
}

gpuserve_status gsv_fd_write(int fd, const void *from, size_t size, uint64_t offset,
                             const char *shown, gpuserve_error *error)
{
    size_t done = 0;

    while (done < size) {
        const ssize_t n =
            pwrite(fd, (const char *)from + done, size - done, (off_t)(offset + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return gsv_fail(error, GPUSERVE_E_IO, "%s: %s", shown,
                            strerror(n < 0 ? errno : ENOSPC));
        done += (size_t)n;
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_create_file(int *fd, int to, const char *name, const char *shown,
                                gpuserve_error *error)
{
    *fd = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    return *fd >= 0 ? GPUSERVE_OK
                    : gsv_fail(error, GPUSERVE_E_IO, "%s/%s: %s", shown, name, strerror(errno));
}

gpuserve_status gsv_finish_file(int fd, gpuserve_status st, const char *shown, const char *name,
                                gpuserve_error *error)
{
    if (fd < 0)
        return st;
    if (st == GPUSERVE_OK && fsync(fd) != 0 && errno != EINVAL)
        st = gsv_fail(error, GPUSERVE_E_IO, "%s/%s: %s", shown, name, strerror(errno));
    if (close(fd) != 0 && st == GPUSERVE_OK)
        st = gsv_fail(error, GPUSERVE_E_IO, "%s/%s: %s", shown, name, strerror(errno));
    return st;
}
