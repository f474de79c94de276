/*
 * structs.c - reads and writes the caller's structs, whose size may be another version's.
 *
 * Every public struct begins with a uint32_t struct_size. Copies never go past the smaller of the
 * caller's size and this version's size. A caller of an older version gives the size that the
 * struct had then; the fields that came later are zero, the default.
 */
#include "lib/base/error.h"

#include <string.h>

static const struct {
    const char *name;
    uint32_t size;
} min_sizes[] = {
#include "lib/base/generated/min_sizes.h"
};

/* The least size of a caller's struct; that of this version if the struct has no other. */
static size_t min_size(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof(min_sizes) / sizeof(min_sizes[0]); i++) {
        if (strcmp(name, min_sizes[i].name) == 0)
            return min_sizes[i].size < size ? min_sizes[i].size : size;
    }
    return size;
}

static gpuserve_status refuse_size(const char *name, uint32_t given, size_t min_bytes,
                                   gpuserve_error *error)
{
    gsv_fail(error, GPUSERVE_E_INVALID, "%s: struct_size is %u, less than %zu", name, given,
             min_bytes);
    return gsv_hint(error, GPUSERVE_E_INVALID, "initialize the struct with its _INIT macro");
}

/* Accepts `size` and more, and the sizes of older versions. */
static gpuserve_status check_size(const char *name, uint32_t given, size_t size,
                                  gpuserve_error *error)
{
    return given >= size || given >= min_size(name, size)
               ? GPUSERVE_OK
               : refuse_size(name, given, min_size(name, size), error);
}

gpuserve_status gsv_read_struct(void *to, size_t size, const void *from, const char *name,
                                gpuserve_error *error)
{
    gpuserve_status st;
    uint32_t given;

    memset(to, 0, size);
    if (!from)
        return GPUSERVE_OK;
    memcpy(&given, from, sizeof(given));
    st = check_size(name, given, size, error);
    if (st != GPUSERVE_OK)
        return st;
    for (size_t i = size; i < given; i++) {
        if (((const unsigned char *)from)[i] == 0)
            continue;
        gsv_fail(
            error, GPUSERVE_E_INVALID,
            "%s: the field at byte %zu is set, but this version of the library knows %zu bytes",
            name, i, size);
        return gsv_hint(error, GPUSERVE_E_INVALID,
                        "leave newer fields zero, or update the library");
    }
    memcpy(to, from, given < size ? given : size);
    return GPUSERVE_OK;
}

gpuserve_status gsv_check_struct(const void *to, size_t size, const char *name,
                                 gpuserve_error *error)
{
    uint32_t given;

    if (!to)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s is NULL", name);
    memcpy(&given, to, sizeof(given));
    return given >= size ? GPUSERVE_OK : refuse_size(name, given, size, error);
}

gpuserve_status gsv_write_struct(void *to, const void *from, size_t size, const char *name,
                                 gpuserve_error *error)
{
    gpuserve_status st;
    uint32_t given;

    if (!to)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s is NULL", name);
    memcpy(&given, to, sizeof(given));
    st = check_size(name, given, size, error);
    if (st != GPUSERVE_OK)
        return st;
    memcpy((char *)to + sizeof(given), (const char *)from + sizeof(given),
           (given < size ? given : size) - sizeof(given));
    return GPUSERVE_OK;
}

gpuserve_status gsv_write_text(const char *from, size_t length, char *text, size_t capacity,
                               size_t *size, gpuserve_error *error)
{
    if (size)
        *size = length + 1;
    if (!text)
        return GPUSERVE_OK;
    if (capacity <= length)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the buffer has %zu bytes, the text needs %zu",
                        capacity, length + 1);
    memcpy(text, from, length);
    text[length] = '\0';
    return GPUSERVE_OK;
}
