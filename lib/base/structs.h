/*
 * structs.h - reading and writing the caller's structs, which may be of another version's size.
 */
#ifndef GSV_BASE_STRUCTS_H
#define GSV_BASE_STRUCTS_H

#include <gpuserve/types.h>

#include <stddef.h>

/*
 * Copy the options at `from` (or nothing, when NULL) to `to`, which has `size` bytes and is zeroed
 * first. A struct_size under `size`, the size in the first version, is refused; so is a larger one
 * whose tail, unknown to this version, is not all zero. `name` is for the message.
 */
gpuserve_status gsv_read_struct(void *to, size_t size, const void *from, const char *name,
                                gpuserve_error *error);

/* Check that the struct at `to`, which the library is to fill, has room for `size` bytes. */
gpuserve_status gsv_check_struct(const void *to, size_t size, const char *name,
                                 gpuserve_error *error);

/* Hand a text to the caller's buffer: see gpuserve_context_metrics(). `length` is without the NUL.
 */
gpuserve_status gsv_write_text(const char *from, size_t length, char *text, size_t capacity,
                               size_t *size, gpuserve_error *error);

#endif
