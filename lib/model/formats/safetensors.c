/*
 * safetensors.c - opens a safetensors file, validates its header, and finds tensors by name.
 *
 * The header is untrusted. Its size is bounded before parsing. Then the tensors, sorted by offset,
 * must cover the rest of the file without gaps or overlaps, each with exactly the bytes of its type
 * and shape. After that, lookups trust the parsed JSON: the tree itself is the table of tensors.
 */
#include "lib/model/formats/formats.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
#define MAX_HEADER_BYTES 100000000u /* as in the reference implementation */
#define MAX_HEADER_VALUES 1000000u
#define MAX_HEADER_DEPTH 16

struct safetensors {
    struct gsv_weight_file file; /* first */
    uint64_t data_begin;         /* file offset of the tensors' bytes */
    struct gsv_json_value *header;
    size_t metadata_at;  /* the field of the header that is GSV_METADATA_KEY; their number: none */
    bool has_row_scales; /* I8 tensors are I8_ROWS */
};

/* Byte range of one tensor during validation. */
struct extent {
    const char *name;
    const struct gsv_json_value *info;
    uint64_t begin, end;
};

static const struct {
    const char *name;
    enum gsv_tensor_type type;
    unsigned bits;
} types[] = {
    { "F32", GSV_TENSOR_F32, 32 },        { "F16", GSV_TENSOR_F16, 16 },
    { "BF16", GSV_TENSOR_BF16, 16 },      { "F64", GSV_TENSOR_F64, 64 },
    { "I64", GSV_TENSOR_OTHER, 64 },      { "U64", GSV_TENSOR_OTHER, 64 },
    { "I32", GSV_TENSOR_OTHER, 32 },      { "U32", GSV_TENSOR_OTHER, 32 },
    { "I16", GSV_TENSOR_OTHER, 16 },      { "U16", GSV_TENSOR_OTHER, 16 },
    { "I8", GSV_TENSOR_OTHER, 8 },        { "U8", GSV_TENSOR_OTHER, 8 },
    { "BOOL", GSV_TENSOR_OTHER, 8 },      { "C64", GSV_TENSOR_OTHER, 64 },
    { "F8_E5M2", GSV_TENSOR_F8_E5M2, 8 }, { "F8_E4M3", GSV_TENSOR_F8_E4M3, 8 },
    { "F8_E8M0", GSV_TENSOR_OTHER, 8 },   { "F6_E2M3", GSV_TENSOR_OTHER, 6 },
    { "F6_E3M2", GSV_TENSOR_OTHER, 6 },   { "F4", GSV_TENSOR_OTHER, 4 },
};

static int type_index(const char *name)
{
    for (size_t i = 0; name && i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, name) == 0)
            return (int)i;
    return -1;
}

/* ---------------------------------------------------------------------------- header validation */

static bool is_size(const struct gsv_json_value *value)
{
    return gsv_json_is(value, GSV_JSON_INT) && gsv_json_get_int(value) >= 0;
}

/* Fill an extent from a tensor's JSON object. */
static gpuserve_status read_extent(struct extent *extent, const char *name,
                                   const struct gsv_json_value *info, const char *shown,
                                   gpuserve_error *error)
{
    const struct gsv_json_value *offsets = gsv_json_member(info, "data_offsets");
    const struct gsv_json_value *shape = gsv_json_member(info, "shape");
    const char *dtype = gsv_json_get_string(gsv_json_member(info, "dtype"));

    if (type_index(dtype) < 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s': %s '%.32s'", shown, name,
                        dtype ? "unknown dtype" : "missing dtype", dtype ? dtype : "");
    if (!gsv_json_is(shape, GSV_JSON_ARRAY))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s': shape is missing", shown, name);
    for (size_t i = 0; i < gsv_json_count(shape); i++)
        if (!is_size(gsv_json_at(shape, i)))
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s': invalid shape", shown,
                            name);
    if (gsv_json_count(offsets) != 2 || !is_size(gsv_json_at(offsets, 0)) ||
        !is_size(gsv_json_at(offsets, 1)))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s': invalid data_offsets", shown,
                        name);
    extent->name = name;
    extent->info = info;
    extent->begin = (uint64_t)gsv_json_get_int(gsv_json_at(offsets, 0));
    extent->end = (uint64_t)gsv_json_get_int(gsv_json_at(offsets, 1));
    return GPUSERVE_OK;
}

/* The number of elements of a shape; false on overflow. */
static bool count_elements(const struct gsv_json_value *info, uint64_t *count)
{
    const struct gsv_json_value *shape = gsv_json_member(info, "shape");

    *count = 1;
    for (size_t i = 0; i < gsv_json_count(shape); i++)
        if (__builtin_mul_overflow(*count, (uint64_t)gsv_json_get_int(gsv_json_at(shape, i)),
                                   count))
            return false;
    return true;
}

/* The number of bytes of type and shape; false on overflow or if it is not a whole number. */
static bool shape_bytes(const struct gsv_json_value *info, uint64_t *bytes)
{
    const unsigned bits =
        types[type_index(gsv_json_get_string(gsv_json_member(info, "dtype")))].bits;
    uint64_t total;

    if (!count_elements(info, &total) || __builtin_mul_overflow(total, (uint64_t)bits, &total) ||
        total % 8 != 0)
        return false;
    *bytes = total / 8;
    return true;
}

static int compare_extents(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end == y->end ? 0 : x->end < y->end ? -1 : 1;
}

/* Check that the sorted tensors are contiguous from byte 0 to `data_size`. */
static gpuserve_status check_cover(const struct extent *extents, size_t n, uint64_t data_size,
                                   const char *shown, gpuserve_error *error)
{
    uint64_t at = 0;

    for (size_t i = 0; i < n; i++) {
        const struct extent *e = &extents[i];
        uint64_t bytes;

        if (e->begin != at || e->end < e->begin)
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: tensor '%s' spans bytes %llu to %llu, expected start %llu: the "
                            "tensors have a gap or an overlap",
                            shown, e->name, (unsigned long long)e->begin,
                            (unsigned long long)e->end, (unsigned long long)at);
        if (!shape_bytes(e->info, &bytes))
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: tensor '%s': the size of its shape overflows or is not a whole "
                            "number of bytes",
                            shown, e->name);
        if (bytes != e->end - e->begin)
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: tensor '%s': its shape needs %llu bytes, data_offsets span %llu",
                            shown, e->name, (unsigned long long)bytes,
                            (unsigned long long)(e->end - e->begin));
        at = e->end;
    }
    if (at != data_size)
        return gsv_fail(
            error, GPUSERVE_E_FORMAT,
            "%s: the tensors end at byte %llu of %llu: the file is truncated or too long", shown,
            (unsigned long long)at, (unsigned long long)data_size);
    return GPUSERVE_OK;
}

static gpuserve_status check_metadata(const struct gsv_json_value *metadata, const char *shown,
                                      gpuserve_error *error)
{
    if (!metadata || gsv_json_is(metadata, GSV_JSON_NULL))
        return GPUSERVE_OK;
    if (!gsv_json_is(metadata, GSV_JSON_OBJECT))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: " GSV_METADATA_KEY " is not an object",
                        shown);
    for (size_t i = 0; i < metadata->n; i++) {
        if (!gsv_json_is(metadata->is.fields[i], GSV_JSON_STRING))
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: " GSV_METADATA_KEY ": '%s' is not a string", shown,
                            metadata->is.fields[i]->key);
    }
    return GPUSERVE_OK;
}

static gpuserve_status check_tensors(const struct gsv_json_value *header, uint64_t data_size,
                                     const char *shown, gpuserve_error *error)
{
    struct extent *extents = gsv_alloc_array(header->n, sizeof(*extents));
    gpuserve_status st = GPUSERVE_OK;
    size_t n = 0;

    if (!extents)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", shown);
    for (size_t i = 0; i < header->n; i++) {
        const struct gsv_json_value *info = header->is.fields[i];

        if (strcmp(info->key, GSV_METADATA_KEY) == 0)
            continue;
        st = read_extent(&extents[n], info->key, info, shown, error);
        if (st != GPUSERVE_OK)
            goto out;
        n++;
    }
    qsort(extents, n, sizeof(*extents), compare_extents);
    st = check_cover(extents, n, data_size, shown, error);
out:
    free(extents);
    return st;
}

gpuserve_status gsv_safetensors_check(struct gsv_json_value **json, const char *header,
                                      uint64_t header_size, uint64_t file_size, const char *shown,
                                      gpuserve_error *error)
{
    static const struct gsv_json_limits limits = { MAX_HEADER_VALUES, MAX_HEADER_DEPTH };
    gpuserve_status st;

    *json = NULL;
    st = gsv_json_read(json, header, (size_t)header_size, shown, limits, error);
    if (st != GPUSERVE_OK)
        return st;
    if (!gsv_json_is(*json, GSV_JSON_OBJECT))
        st = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: the header is not a JSON object", shown);
    if (st == GPUSERVE_OK)
        st = check_metadata(gsv_json_member(*json, GSV_METADATA_KEY), shown, error);
    if (st == GPUSERVE_OK)
        st = check_tensors(*json, file_size - LENGTH_BYTES - header_size, shown, error);
    if (st != GPUSERVE_OK)
        gsv_json_free(json);
    return st;
}

/* ------------------------------------------------------------------------------- opening a file */

static uint64_t little_endian(const unsigned char *p)
{
    uint64_t value = 0;

    for (int i = 7; i >= 0; i--)
        value = value << 8 | p[i];
    return value;
}

static gpuserve_status read_header(struct safetensors *safetensors, gpuserve_error *error)
{
    const struct gsv_weight_file *file = &safetensors->file;
    unsigned char start[LENGTH_BYTES];
    uint64_t header_size;
    char *header;
    gpuserve_status st;

    if (file->size_bytes < LENGTH_BYTES)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: the file has %llu bytes, too few for safetensors", file->shown,
                        (unsigned long long)file->size_bytes);
    st = gsv_fd_read(file->fd, start, sizeof(start), 0, file->shown, error);
    if (st != GPUSERVE_OK)
        return st;
    header_size = little_endian(start);
    if (header_size > MAX_HEADER_BYTES)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: the header has %llu bytes, the limit is %u: not a safetensors file",
                        file->shown, (unsigned long long)header_size, MAX_HEADER_BYTES);
    if (header_size > file->size_bytes - LENGTH_BYTES)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: the header has %llu bytes, the file only %llu: the file is truncated",
                        file->shown, (unsigned long long)header_size,
                        (unsigned long long)file->size_bytes);
    header = malloc((size_t)header_size + 1);
    if (!header)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for a header of %llu bytes",
                        file->shown, (unsigned long long)header_size);
    st = gsv_fd_read(file->fd, header, (size_t)header_size, LENGTH_BYTES, file->shown, error);
    if (st == GPUSERVE_OK)
        st = gsv_safetensors_check(&safetensors->header, header, header_size, file->size_bytes,
                                   file->shown, error);
    for (size_t *i = &safetensors->metadata_at; st == GPUSERVE_OK && *i < safetensors->header->n;
         ++*i)
        if (strcmp(safetensors->header->is.fields[*i]->key, GSV_METADATA_KEY) == 0)
            break;
    safetensors->data_begin = LENGTH_BYTES + header_size;
    free(header);
    return st;
}

static const struct safetensors *as_safetensors(const struct gsv_weight_file *file)
{
    return (const struct safetensors *)(const void *)file; /* its first field */
}

static uint64_t data_offset(const struct gsv_weight_file *file, const struct gsv_json_value *info,
                            size_t end)
{
    const struct gsv_json_value *offsets = gsv_json_member(info, "data_offsets");

    return as_safetensors(file)->data_begin + (uint64_t)gsv_json_get_int(gsv_json_at(offsets, end));
}

/* The field of an I8 tensor's scales, or NULL. */
static const struct gsv_json_value *find_scales(const struct gsv_weight_file *file,
                                                const char *name)
{
    char scales[GSV_INT8_NAME_BYTES];
    const int length = snprintf(scales, sizeof(scales), "%s" GSV_SCALE_SUFFIX, name);

    return length > 0 && (size_t)length < sizeof(scales)
               ? gsv_json_member(as_safetensors(file)->header, scales)
               : NULL;
}

/* Describe the tensor of a header's field. */
static void set_tensor(struct gsv_tensor *tensor, const struct gsv_weight_file *file,
                       const struct gsv_json_value *info)
{
    const struct gsv_json_value *shape = gsv_json_member(info, "shape");
    const int type = type_index(gsv_json_get_string(gsv_json_member(info, "dtype")));

    memset(tensor, 0, sizeof(*tensor));
    tensor->name = info->key;
    tensor->file = file;
    tensor->type = types[type].type;
    tensor->type_name = types[type].name;
    tensor->rank = gsv_json_count(shape);
    for (size_t i = 0; i < tensor->rank && i < GSV_TENSOR_MAX_RANK; i++)
        tensor->shape[i] = (uint64_t)gsv_json_get_int(gsv_json_at(shape, i));
    count_elements(info, &tensor->count); /* cannot overflow: validated when the file was opened */
    tensor->offset = data_offset(file, info, 0);
    tensor->size_bytes = data_offset(file, info, 1) - tensor->offset;
    if (as_safetensors(file)->has_row_scales && strcmp(tensor->type_name, "I8") == 0) {
        tensor->type = GSV_TENSOR_I8_ROWS;
        tensor->rows_offset = tensor->offset;
        tensor->scales_offset = data_offset(file, find_scales(file, tensor->name), 0);
    }
}

static bool find(const struct gsv_weight_file *file, const char *name, struct gsv_tensor *tensor)
{
    const struct gsv_json_value *info = gsv_json_member(as_safetensors(file)->header, name);

    if (!info || strcmp(name, GSV_METADATA_KEY) == 0)
        return false;
    set_tensor(tensor, file, info);
    return true;
}

static bool at(const struct gsv_weight_file *file, size_t i, struct gsv_tensor *tensor)
{
    const struct safetensors *safetensors = as_safetensors(file);

    if (i >= safetensors->metadata_at) /* the field that is not a tensor */
        i++;
    if (i >= safetensors->header->n)
        return false;
    set_tensor(tensor, file, safetensors->header->is.fields[i]);
    return true;
}

static void close_safetensors(struct gsv_weight_file *file)
{
    gsv_json_free(&((struct safetensors *)(void *)file)->header);
}

static const struct gsv_weight_format format = { "safetensors", find, at, close_safetensors };

gpuserve_status gsv_safetensors_open(struct gsv_weight_file **file, const struct gsv_dir *dir,
                                     const char *name, gpuserve_error *error)
{
    gpuserve_status st =
        gsv_weight_file_open(file, sizeof(struct safetensors), &format, dir, name, error);

    if (st == GPUSERVE_OK)
        st = read_header((struct safetensors *)(void *)*file, error);
    if (st != GPUSERVE_OK)
        gsv_weight_file_close(file);
    return st;
}

void gsv_safetensors_use_row_scales(struct gsv_weight_file *file)
{
    ((struct safetensors *)(void *)file)->has_row_scales = true;
}

const char *gsv_safetensors_metadata(const struct gsv_weight_file *file, const char *key)
{
    if (file->format != &format)
        return NULL;
    return gsv_json_get_string(
        gsv_json_member(gsv_json_member(as_safetensors(file)->header, GSV_METADATA_KEY), key));
}
