/*
 * structs.h - reads and writes the caller's structs, whose size may be another version's.
 */
#ifndef GSV_BASE_STRUCTS_H
#define GSV_BASE_STRUCTS_H

#include <gpuserve/types.h>

#include <stddef.h>

/*
 * Copies the options struct at `from` (NULL: nothing) to `to`, which has `size` bytes and is zeroed
 * first. A struct_size below `size`, the size in the first version, is refused. A larger one is
 * accepted only if its tail, unknown to this version, is all zero. `name` is for the message.
 */
gpuserve_status gsv_read_struct(void *to, size_t size, const void *from, const char *name,
                                gpuserve_error *error);

/* Checks that the output struct at `to` has a struct_size of at least `size` bytes. */
gpuserve_status gsv_check_struct(const void *to, size_t size, const char *name,
                                 gpuserve_error *error);

/* Copies a text to the caller's buffer, with the contract of gpuserve_context_metrics(). `length`
 * excludes the NUL. */
gpuserve_status gsv_write_text(const char *from, size_t length, char *text, size_t capacity,
                               size_t *size, gpuserve_error *error);

#endif
