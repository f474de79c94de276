/*
 * gguf.c - opens a GGUF file and looks up its key-values and tensors.
 *
 * The file does not store the size of its header. A prefix of the file is read and parsed; if the
 * header is longer than the prefix, a prefix four times as large is read, up to a limit. The file
 * is read, not mapped: an access to a mapped file that another process truncates raises SIGBUS.
 */
#include "lib/base/gguf.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_BYTES ((uint64_t)1 << 20)

/* ------------------------------------------------------------------------------------ opening */

/* Read and parse the first `size` bytes. Takes ownership of nothing. */
static gpuserve_status read_part(struct gsv_gguf **out, int fd, uint64_t size, uint64_t file_size,
                                 const char *shown, bool *is_short, gpuserve_error *error)
{
    unsigned char *bytes = malloc((size_t)size + 1);
    gpuserve_status st;

    *is_short = false;
    if (!bytes)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for a header of %llu bytes",
                        shown, (unsigned long long)size);
    st = gsv_fd_read(fd, bytes, (size_t)size, 0, shown, error);
    if (st == GPUSERVE_OK)
        st = gsv_gguf_parse(out, bytes, (size_t)size, file_size, shown, is_short, error);
    if (st == GPUSERVE_OK)
        (*out)->header = bytes;
    else
        free(bytes);
    return st;
}

static gpuserve_status read_header(struct gsv_gguf **out, int fd, uint64_t file_size,
                                   const char *shown, uint64_t max_header, gpuserve_error *error)
{
    const uint64_t maximum = file_size < max_header ? file_size : max_header;
    gpuserve_status st = GPUSERVE_OK;

    for (uint64_t size = FIRST_BYTES;; size *= 4) {
        bool is_short;

        size = size < maximum ? size : maximum;
        st = read_part(out, fd, size, file_size, shown, &is_short, error);
        if (!is_short)
            return st;
        if (size == maximum)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                            "%s: the header has more than %llu bytes, the limit", shown,
                            (unsigned long long)max_header);
    }
}

gpuserve_status gsv_gguf_open_file(struct gsv_gguf **out, const struct gsv_dir *dir,
                                   const char *name, char *shown, uint64_t max_header,
                                   gpuserve_error *error)
{
    uint64_t file_size = 0;
    int fd = -1;
    gpuserve_status st;

    *out = NULL;
    if (!shown)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gsv_dir_path(dir));
    st = gsv_dir_open_file(dir, name, &fd, &file_size, error);
    if (st == GPUSERVE_OK)
        st = read_header(out, fd, file_size, shown, max_header, error);
    if (st != GPUSERVE_OK) {
        if (fd >= 0)
            close(fd);
        free(shown);
        return st;
    }
    (*out)->fd = fd;
    (*out)->name = shown;
    return GPUSERVE_OK;
}

gpuserve_status gsv_gguf_open(struct gsv_gguf **out, const struct gsv_dir *dir,
                              gpuserve_error *error)
{
    gpuserve_status st = gsv_gguf_open_file(out, dir, gsv_dir_gguf(dir), gsv_dir_gguf_path(dir),
                                            GSV_GGUF_MAX_HEADER, error);

    if (st == GPUSERVE_OK)
        st = gsv_gguf_open_parts(*out, dir, error);
    if (st != GPUSERVE_OK)
        gsv_gguf_close(out);
    return st;
}

void gsv_gguf_close(struct gsv_gguf **gguf)
{
    if (!gguf || !*gguf)
        return;
    for (size_t i = 0; i < (*gguf)->n_parts; i++)
        gsv_gguf_close(&(*gguf)->parts[i]);
    free((*gguf)->parts);
    if ((*gguf)->fd >= 0)
        close((*gguf)->fd);
    free((*gguf)->values);
    free((*gguf)->tensors);
    free((*gguf)->header);
    free((*gguf)->name);
    free(*gguf);
    *gguf = NULL;
}

/* ------------------------------------------------------------------------------------ look-ups */

bool gsv_gguf_text_is(struct gsv_gguf_text text, const char *other)
{
    return text.size == strlen(other) && memcmp(text.at, other, text.size) == 0;
}

/* Compare a NUL-terminated name with a text, in the order of the tables. */
static int compare(const char *name, struct gsv_gguf_text text)
{
    const size_t size = strlen(name);
    const int order = memcmp(name, text.at, size < text.size ? size : text.size);

    return order != 0 ? order : size < text.size ? -1 : size > text.size;
}

static int compare_key(const void *name, const void *value)
{
    return compare(name, ((const struct gsv_gguf_value *)value)->key);
}

static int compare_name(const void *name, const void *tensor)
{
    return compare(name, ((const struct gsv_gguf_tensor *)tensor)->name);
}

const struct gsv_gguf_value *gsv_gguf_find(const struct gsv_gguf *gguf, const char *key)
{
    if (gguf->n_values == 0)
        return NULL;
    return bsearch(key, gguf->values, gguf->n_values, sizeof(*gguf->values), compare_key);
}

const struct gsv_gguf_tensor *gsv_gguf_find_tensor(const struct gsv_gguf *gguf, const char *name)
{
    const struct gsv_gguf_tensor *found = NULL;

    if (gguf->n_tensors > 0)
        found = bsearch(name, gguf->tensors, gguf->n_tensors, sizeof(*gguf->tensors), compare_name);
    for (size_t i = 0; i < gguf->n_parts && !found; i++)
        found = gsv_gguf_find_tensor(gguf->parts[i], name);
    return found;
}

/* ------------------------------------------------------------------------------------- values */

static gpuserve_status fail_kind(const struct gsv_gguf *gguf, const char *key, const char *what,
                                 gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: key '%s' is not %s", gguf->shown, key, what);
}

static uint64_t load(const unsigned char *p, size_t n)
{
    uint64_t value = 0;

    while (n-- > 0)
        value = value << 8 | p[n];
    return value;
}

static float load_float(const unsigned char *p)
{
    const uint32_t bits = (uint32_t)load(p, sizeof(bits));
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static double load_double(const unsigned char *p)
{
    const uint64_t bits = load(p, sizeof(bits));
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* False if the kind is no integer, or the value exceeds INT64_MAX. */
static bool integer_of(const struct gsv_gguf_value *value, int64_t *out)
{
    switch (value->kind) {
    case GSV_GGUF_UINT8:
        *out = *value->data;
        return true;
    case GSV_GGUF_INT8:
        *out = (int8_t)*value->data;
        return true;
    case GSV_GGUF_UINT16:
        *out = (uint16_t)load(value->data, 2);
        return true;
    case GSV_GGUF_INT16:
        *out = (int16_t)load(value->data, 2);
        return true;
    case GSV_GGUF_UINT32:
        *out = (uint32_t)load(value->data, 4);
        return true;
    case GSV_GGUF_INT32:
        *out = (int32_t)load(value->data, 4);
        return true;
    case GSV_GGUF_UINT64:
    case GSV_GGUF_INT64:
        *out = (int64_t)load(value->data, 8);
        return value->kind == GSV_GGUF_INT64 || *out >= 0;
    default:
        return false;
    }
}

gpuserve_status gsv_gguf_int(const struct gsv_gguf *gguf, const char *key, int64_t minimum,
                             int64_t maximum, int64_t *value, gpuserve_error *error)
{
    const struct gsv_gguf_value *found = gsv_gguf_find(gguf, key);
    int64_t integer = 0;

    if (!found)
        return GPUSERVE_OK;
    if (found->is_array || !integer_of(found, &integer))
        return fail_kind(gguf, key, "an integer", error);
    if (integer < minimum || integer > maximum)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: key '%s' is %lld, outside %lld to %lld",
                        gguf->shown, key, (long long)integer, (long long)minimum,
                        (long long)maximum);
    *value = integer;
    return GPUSERVE_OK;
}

gpuserve_status gsv_gguf_float(const struct gsv_gguf *gguf, const char *key, double *value,
                               gpuserve_error *error)
{
    const struct gsv_gguf_value *found = gsv_gguf_find(gguf, key);
    double real;

    if (!found)
        return GPUSERVE_OK;
    if (found->is_array || (found->kind != GSV_GGUF_FLOAT32 && found->kind != GSV_GGUF_FLOAT64))
        return fail_kind(gguf, key, "a floating-point number", error);
    real = found->kind == GSV_GGUF_FLOAT32 ? (double)load_float(found->data)
                                           : load_double(found->data);
    if (!isfinite(real))
        return fail_kind(gguf, key, "a finite number", error);
    *value = real;
    return GPUSERVE_OK;
}

gpuserve_status gsv_gguf_bool(const struct gsv_gguf *gguf, const char *key, bool *value,
                              gpuserve_error *error)
{
    const struct gsv_gguf_value *found = gsv_gguf_find(gguf, key);

    if (!found)
        return GPUSERVE_OK;
    if (found->is_array || found->kind != GSV_GGUF_BOOL)
        return fail_kind(gguf, key, "a bool", error);
    *value = *found->data != 0;
    return GPUSERVE_OK;
}

gpuserve_status gsv_gguf_string(const struct gsv_gguf *gguf, const char *key,
                                struct gsv_gguf_text *value, gpuserve_error *error)
{
    const struct gsv_gguf_value *found = gsv_gguf_find(gguf, key);
    size_t at = 0;

    if (!found)
        return GPUSERVE_OK;
    if (found->is_array || found->kind != GSV_GGUF_STRING)
        return fail_kind(gguf, key, "a string", error);
    *value = gsv_gguf_next_string(found, &at);
    return GPUSERVE_OK;
}

static enum gsv_gguf_kind signed_kind(enum gsv_gguf_kind kind)
{
    return kind == GSV_GGUF_UINT8 ? GSV_GGUF_INT8 : kind == GSV_GGUF_UINT32 ? GSV_GGUF_INT32 : kind;
}

gpuserve_status gsv_gguf_array(const struct gsv_gguf *gguf, const char *key,
                               enum gsv_gguf_kind kind, const struct gsv_gguf_value **value,
                               gpuserve_error *error)
{
    const struct gsv_gguf_value *found = gsv_gguf_find(gguf, key);

    if (!found)
        return GPUSERVE_OK;
    if (!found->is_array || signed_kind(found->kind) != signed_kind(kind))
        return fail_kind(gguf, key,
                         kind == GSV_GGUF_STRING    ? "an array of strings"
                         : kind == GSV_GGUF_FLOAT32 ? "an array of float32"
                         : kind == GSV_GGUF_INT32   ? "an array of int32"
                                                    : "an array of bytes",
                         error);
    *value = found;
    return GPUSERVE_OK;
}

int32_t gsv_gguf_int_at(const struct gsv_gguf_value *array, uint64_t i)
{
    return (int32_t)load(array->data + i * sizeof(int32_t), sizeof(int32_t));
}

float gsv_gguf_float_at(const struct gsv_gguf_value *array, uint64_t i)
{
    return load_float(array->data + i * sizeof(float));
}

struct gsv_gguf_text gsv_gguf_next_string(const struct gsv_gguf_value *array, size_t *at)
{
    const unsigned char *p = array->data + *at;
    const size_t size = (size_t)load(p, sizeof(uint64_t));

    *at += sizeof(uint64_t) + size;
    return (struct gsv_gguf_text){ (const char *)p + sizeof(uint64_t), size };
}
