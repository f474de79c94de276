/*
 * error.h - filling the caller's gpuserve_error.
 */
#ifndef GSV_BASE_ERROR_H
#define GSV_BASE_ERROR_H

#include <gpuserve/types.h>

/* Write message (and no hint) when `error` is not NULL; return `status`, so that a function can
 * end with `return gsv_fail(...)`. Respects error->struct_size. */
gpuserve_status gsv_fail(gpuserve_error *error, gpuserve_status status, const char *format, ...)
    GPUSERVE_PRINTF(3, 4);

/* Add what to do about it to an error just filled. Returns the error's status. */
gpuserve_status gsv_hint(gpuserve_error *error, gpuserve_status status, const char *format, ...)
    GPUSERVE_PRINTF(3, 4);

/* Put "prefix: " before the message just written: the outer function knows where. */
gpuserve_status gsv_fail_in(gpuserve_error *error, gpuserve_status status, const char *format, ...)
    GPUSERVE_PRINTF(3, 4);

/* Say when to try again. Returns `status`. */
gpuserve_status gsv_retry_after(gpuserve_error *error, gpuserve_status status, uint32_t ms);

/* Copy `from` (complete) to the caller's, as far as its struct_size goes. Accepts NULL for both. */
void gsv_error_copy(gpuserve_error *to, const gpuserve_error *from);

#endif
