/*
 * error.h - fills the caller's gpuserve_error: message, hint, retry delay.
 *
 * Every function accepts a NULL error. Functions with a status argument return that status, so that
 * a function can end with `return gsv_fail(...)`. A struct whose struct_size is too small is left
 * unchanged.
 */
#ifndef GSV_BASE_ERROR_H
#define GSV_BASE_ERROR_H

#include <gpuserve/types.h>
#include <stddef.h>

/* Writes status and message and clears hint and retry delay. */
gpuserve_status gsv_fail(gpuserve_error *error, gpuserve_status status, const char *format, ...)
    GPUSERVE_PRINTF(3, 4);

/* Adds a hint (what the user can do) to an error that was just filled. */
gpuserve_status gsv_hint(gpuserve_error *error, gpuserve_status status, const char *format, ...)
    GPUSERVE_PRINTF(3, 4);

/* Prepends "prefix: " to the message just written: the outer function knows the location. */
gpuserve_status gsv_fail_in(gpuserve_error *error, gpuserve_status status, const char *format, ...)
    GPUSERVE_PRINTF(3, 4);

/* Sets the status and the delay before a retry, in milliseconds. */
gpuserve_status gsv_retry_after(gpuserve_error *error, gpuserve_status status, uint32_t ms);

/* Copies `from` to the caller's struct and keeps its struct_size. Both may be NULL. */
void gsv_error_copy(gpuserve_error *to, const gpuserve_error *from);

/* Reads and writes the caller's structs, whose size may be another version's. */

/*
 * Copies the options struct at `from` (NULL: nothing) to `to`, which has `size` bytes and is zeroed
 * first. A struct_size below the size that min_sizes.h has for `name` is refused. One above `size`
 * is accepted only if its tail, unknown to this version, is all zero.
 */
gpuserve_status gsv_read_struct(void *to, size_t size, const void *from, const char *name,
                                gpuserve_error *error);

/* Copies the `size` bytes at `from` to the caller's output struct, except struct_size. A caller of
 * an older version gives the size of min_sizes.h, and receives the fields that it has. */
gpuserve_status gsv_write_struct(void *to, const void *from, size_t size, const char *name,
                                 gpuserve_error *error);

/* Checks that the output struct at `to` has a struct_size of at least `size` bytes. */
gpuserve_status gsv_check_struct(const void *to, size_t size, const char *name,
                                 gpuserve_error *error);

/* Copies a text to the caller's buffer, with the contract of gpuserve_context_metrics(). `length`
 * excludes the NUL. */
gpuserve_status gsv_write_text(const char *from, size_t length, char *text, size_t capacity,
                               size_t *size, gpuserve_error *error);

#endif
