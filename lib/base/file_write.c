/*
 * file_write.c - creates files, writes bytes at offsets, and flushes.
 */
#define _GNU_SOURCE
#include "lib/base/dir.h"

#include "lib/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

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
