/*
 * file_write.h - creates files, writes bytes at offsets, and flushes.
 */
#ifndef GSV_BASE_FILE_WRITE_H
#define GSV_BASE_FILE_WRITE_H

#include <gpuserve/types.h>

#include <stddef.h>
#include <stdint.h>

/* Write all bytes at `offset`; a full disk is GPUSERVE_E_IO. */
gpuserve_status gsv_fd_write(int fd, const void *from, size_t size, uint64_t offset,
                             const char *shown, gpuserve_error *error);

/* Create NAME in the directory `to`; fails if it exists. */
gpuserve_status gsv_create_file(int *fd, int to, const char *name, const char *shown,
                                gpuserve_error *error);
/* Flush to the disk and close, also after a failure `st`, which it returns. */
gpuserve_status gsv_finish_file(int fd, gpuserve_status st, const char *shown, const char *name,
                                gpuserve_error *error);

#endif
