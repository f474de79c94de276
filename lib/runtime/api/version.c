/*
 * version.c - library version, ABI version and names of status codes.
 */
#include <gpuserve/gpuserve.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

GPUSERVE_API const char *gpuserve_version(void)
{
    return TEXT(GPUSERVE_VERSION_MAJOR) "." TEXT(GPUSERVE_VERSION_MINOR) "." TEXT(
        GPUSERVE_VERSION_PATCH);
}

GPUSERVE_API uint32_t gpuserve_abi_version(void)
{
    return GSV_ABI_VERSION;
}

GPUSERVE_API const char *gpuserve_status_name(gpuserve_status status)
{
    static const char *const names[] = {
        [GPUSERVE_OK] = "GPUSERVE_OK",
        [GPUSERVE_E_INVALID] = "GPUSERVE_E_INVALID",
        [GPUSERVE_E_NOT_FOUND] = "GPUSERVE_E_NOT_FOUND",
        [GPUSERVE_E_FORMAT] = "GPUSERVE_E_FORMAT",
        [GPUSERVE_E_UNSUPPORTED] = "GPUSERVE_E_UNSUPPORTED",
        [GPUSERVE_E_NOMEM] = "GPUSERVE_E_NOMEM",
        [GPUSERVE_E_TOO_LARGE] = "GPUSERVE_E_TOO_LARGE",
        [GPUSERVE_E_BUSY] = "GPUSERVE_E_BUSY",
        [GPUSERVE_E_DEVICE] = "GPUSERVE_E_DEVICE",
        [GPUSERVE_E_IO] = "GPUSERVE_E_IO",
        [GPUSERVE_E_CANCELLED] = "GPUSERVE_E_CANCELLED",
        [GPUSERVE_E_EXPIRED] = "GPUSERVE_E_EXPIRED",
        [GPUSERVE_E_TIMEOUT] = "GPUSERVE_E_TIMEOUT",
        [GPUSERVE_E_FORKED] = "GPUSERVE_E_FORKED",
        [GPUSERVE_E_NUMERIC] = "GPUSERVE_E_NUMERIC",
        [GPUSERVE_E_INTERNAL] = "GPUSERVE_E_INTERNAL",
        [GPUSERVE_E_MISMATCH] = "GPUSERVE_E_MISMATCH",
    };
    const size_t index = (size_t)status;

    return index < sizeof(names) / sizeof(names[0]) ? names[index] : "unknown status";
}
