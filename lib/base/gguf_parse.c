/*
 * gguf_parse.c - parses and checks the header of a GGUF file.
 *
 * The file is untrusted. Every length is compared with the bytes that the file has left before
 * anything is allocated or read, so a header costs time and memory in proportion to its bytes.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/gguf.h"
#include "lib/base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define MAX_KEY_BYTES 65535
#define MAX_ALIGNMENT (1 << 20)
#define DEFAULT_ALIGNMENT 32
#define MIN_VALUE_BYTES 14  /* length of a key of 1 byte, type, value */
#define MIN_TENSOR_BYTES 33 /* length of a name of 1 byte, rank, 1 dimension, type, offset */

static const struct gsv_gguf_type types[] = {
    [0] = { "F32", 1, 4 },         [1] = { "F16", 1, 2 },         [2] = { "Q4_0", 32, 18 },
    [3] = { "Q4_1", 32, 20 },      [6] = { "Q5_0", 32, 22 },      [7] = { "Q5_1", 32, 24 },
    [8] = { "Q8_0", 32, 34 },      [9] = { "Q8_1", 32, 36 },      [10] = { "Q2_K", 256, 84 },
    [11] = { "Q3_K", 256, 110 },   [12] = { "Q4_K", 256, 144 },   [13] = { "Q5_K", 256, 176 },
    [14] = { "Q6_K", 256, 210 },   [15] = { "Q8_K", 256, 292 },   [16] = { "IQ2_XXS", 256, 66 },
    [17] = { "IQ2_XS", 256, 74 },  [18] = { "IQ3_XXS", 256, 98 }, [19] = { "IQ1_S", 256, 50 },
    [20] = { "IQ4_NL", 32, 18 },   [21] = { "IQ3_S", 256, 110 },  [22] = { "IQ2_S", 256, 82 },
    [23] = { "IQ4_XS", 256, 136 }, [24] = { "I8", 1, 1 },         [25] = { "I16", 1, 2 },
    [26] = { "I32", 1, 4 },        [27] = { "I64", 1, 8 },        [28] = { "F64", 1, 8 },
    [29] = { "IQ1_M", 256, 56 },   [30] = { "BF16", 1, 2 },       [34] = { "TQ1_0", 256, 54 },
    [35] = { "TQ2_0", 256, 66 },   [39] = { "MXFP4", 32, 17 },    [40] = { "NVFP4", 64, 36 },
    [41] = { "Q1_0", 128, 18 },
};

const struct gsv_gguf_type *gsv_gguf_type_of(uint32_t number)
{
    return number < sizeof(types) / sizeof(types[0]) && types[number].name ? &types[number] : NULL;
}

/* Position in the header. The file has more bytes than `size` if only its beginning was read. */
struct gguf_reading {
    const unsigned char *bytes;
    uint64_t at, size, file_size;
    const char *shown;
    struct gsv_gguf_text key; /* whose value is read; empty: none */
    bool is_short;
    gpuserve_error *error;
};

/* The longest prefix of a key that is shown. */
static int shown_size(struct gsv_gguf_text text)
{
    return (int)(text.size < 80 ? text.size : 80);
}

/* ------------------------------------------------------------------------------------ numbers */

/* Check that `size` bytes follow; `what` they are goes into the message. */
static gpuserve_status need(struct gguf_reading *r, uint64_t size, const char *what)
{
    if (size <= r->size - r->at)
        return GPUSERVE_OK;
    r->is_short = size <= r->file_size - r->at;
    return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                    "%s: %s%.*s%s%s at byte %llu needs %llu bytes, the file has only %llu: the "
                    "file is truncated or damaged",
                    r->shown, r->key.size ? "key '" : "", shown_size(r->key),
                    r->key.size ? r->key.at : "", r->key.size ? "': " : "", what,
                    (unsigned long long)r->at, (unsigned long long)size,
                    (unsigned long long)(r->file_size - r->at));
}

static uint64_t little_endian(const unsigned char *p, size_t n)
{
    uint64_t value = 0;

    while (n-- > 0)
        value = value << 8 | p[n];
    return value;
}

/* Read a number of `n` bytes. */
static gpuserve_status read_number(struct gguf_reading *r, size_t n, const char *what,
                                   uint64_t *value)
{
    const gpuserve_status st = need(r, n, what);

    if (st != GPUSERVE_OK)
        return st;
    *value = little_endian(r->bytes + r->at, n);
    r->at += n;
    return GPUSERVE_OK;
}

static gpuserve_status read_text(struct gguf_reading *r, const char *what,
                                 struct gsv_gguf_text *text)
{
    uint64_t size;
    gpuserve_status st = read_number(r, 8, what, &size);

    if (st == GPUSERVE_OK)
        st = need(r, size, what);
    if (st != GPUSERVE_OK)
        return st;
    *text = (struct gsv_gguf_text){ (const char *)r->bytes + r->at, (size_t)size };
    r->at += size;
    return GPUSERVE_OK;
}

/* Read the name of a key or a tensor. */
static gpuserve_status read_name(struct gguf_reading *r, const char *what, size_t maximum,
                                 struct gsv_gguf_text *name)
{
    const uint64_t at = r->at;
    const gpuserve_status st = read_text(r, what, name);

    if (st != GPUSERVE_OK)
        return st;
    if (name->size == 0 || name->size > maximum)
        return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                        "%s: %s at byte %llu has %zu bytes, outside 1 to %zu", r->shown, what,
                        (unsigned long long)at, name->size, maximum);
    for (size_t i = 0; i < name->size; i++)
        if ((unsigned char)name->at[i] < ' ')
            return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                            "%s: %s at byte %llu has a control character", r->shown, what,
                            (unsigned long long)at);
    if (gsv_utf8_valid_length(name->at, name->size) != name->size)
        return gsv_fail(r->error, GPUSERVE_E_FORMAT, "%s: %s at byte %llu is not UTF-8", r->shown,
                        what, (unsigned long long)at);
    return GPUSERVE_OK;
}

/* --------------------------------------------------------------------------------- key-values */

static const size_t kind_bytes[GSV_GGUF_N_KINDS] = {
    [GSV_GGUF_UINT8] = 1,  [GSV_GGUF_INT8] = 1,  [GSV_GGUF_UINT16] = 2,  [GSV_GGUF_INT16] = 2,
    [GSV_GGUF_UINT32] = 4, [GSV_GGUF_INT32] = 4, [GSV_GGUF_FLOAT32] = 4, [GSV_GGUF_BOOL] = 1,
    [GSV_GGUF_UINT64] = 8, [GSV_GGUF_INT64] = 8, [GSV_GGUF_FLOAT64] = 8,
};

static gpuserve_status check_bools(const struct gguf_reading *r, const struct gsv_gguf_value *value)
{
    for (size_t i = 0; i < value->size; i++)
        if (value->data[i] > 1)
            return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                            "%s: key '%.*s': a bool is %d, neither 0 nor 1", r->shown,
                            shown_size(value->key), value->key.at, value->data[i]);
    return GPUSERVE_OK;
}

/* Read the elements of a value. */
static gpuserve_status read_elements(struct gguf_reading *r, struct gsv_gguf_value *value)
{
    const uint64_t begin = r->at;
    const size_t element = kind_bytes[value->kind];
    gpuserve_status st = GPUSERVE_OK;
    uint64_t size;

    value->data = r->bytes + r->at;
    if (value->kind == GSV_GGUF_STRING) {
        struct gsv_gguf_text text;

        for (uint64_t i = 0; i < value->n && st == GPUSERVE_OK; i++)
            st = read_text(r, "a string", &text);
    } else {
        if (__builtin_mul_overflow(value->n, (uint64_t)element, &size))
            size = UINT64_MAX;
        st = need(r, size, "a value");
        if (st == GPUSERVE_OK)
            r->at += size;
    }
    if (st != GPUSERVE_OK)
        return st;
    value->size = (size_t)(r->at - begin);
    return value->kind == GSV_GGUF_BOOL ? check_bools(r, value) : GPUSERVE_OK;
}

static gpuserve_status check_kind(const struct gguf_reading *r, const struct gsv_gguf_value *value,
                                  uint64_t kind, bool in_array)
{
    if (kind >= GSV_GGUF_N_KINDS)
        return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                        "%s: key '%.*s': unknown type %llu, outside 0 to %d", r->shown,
                        shown_size(value->key), value->key.at, (unsigned long long)kind,
                        GSV_GGUF_N_KINDS - 1);
    if (in_array && kind == GSV_GGUF_ARRAY)
        return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                        "%s: key '%.*s': an array of arrays is not supported", r->shown,
                        shown_size(value->key), value->key.at);
    return GPUSERVE_OK;
}

static gpuserve_status read_value(struct gguf_reading *r, struct gsv_gguf_value *value)
{
    uint64_t kind = 0;
    gpuserve_status st;

    r->key.size = 0;
    st = read_name(r, "a key", MAX_KEY_BYTES, &value->key);

    if (st == GPUSERVE_OK)
        st = read_number(r, 4, "a type", &kind);
    if (st == GPUSERVE_OK)
        st = check_kind(r, value, kind, false);
    r->key = value->key;
    value->n = 1;
    value->is_array = kind == GSV_GGUF_ARRAY;
    if (st == GPUSERVE_OK && value->is_array) {
        st = read_number(r, 4, "an array's type", &kind);
        if (st == GPUSERVE_OK)
            st = check_kind(r, value, kind, true);
        if (st == GPUSERVE_OK)
            st = read_number(r, 8, "an array's length", &value->n);
    }
    if (st != GPUSERVE_OK)
        return st;
    value->kind = (enum gsv_gguf_kind)kind;
    return read_elements(r, value);
}

static int compare_texts(struct gsv_gguf_text a, struct gsv_gguf_text b)
{
    const int order = memcmp(a.at, b.at, a.size < b.size ? a.size : b.size);

    return order != 0 ? order : a.size < b.size ? -1 : a.size > b.size;
}

static int compare_values(const void *a, const void *b)
{
    const struct gsv_gguf_value *x = a, *y = b;

    return compare_texts(x->key, y->key);
}

static gpuserve_status read_values(struct gguf_reading *r, struct gsv_gguf *gguf, uint64_t n)
{
    gpuserve_status st = GPUSERVE_OK;

    gguf->values = gsv_alloc_array((size_t)n, sizeof(*gguf->values));
    if (!gguf->values)
        return gsv_fail(r->error, GPUSERVE_E_NOMEM, "%s: out of memory for %llu keys", r->shown,
                        (unsigned long long)n);
    for (uint64_t i = 0; i < n && st == GPUSERVE_OK; i++)
        st = read_value(r, &gguf->values[i]);
    r->key.size = 0;
    if (st != GPUSERVE_OK)
        return st;
    gguf->n_values = (size_t)n;
    qsort(gguf->values, gguf->n_values, sizeof(*gguf->values), compare_values);
    for (size_t i = 1; i < gguf->n_values; i++)
        if (compare_values(&gguf->values[i - 1], &gguf->values[i]) == 0)
            return gsv_fail(r->error, GPUSERVE_E_FORMAT, "%s: key '%.*s' occurs twice", r->shown,
                            shown_size(gguf->values[i].key), gguf->values[i].key.at);
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------------ tensors */

static gpuserve_status read_shape(struct gguf_reading *r, struct gsv_gguf_tensor *tensor)
{
    uint64_t rank = 0;
    gpuserve_status st = read_number(r, 4, "a rank", &rank);

    if (st != GPUSERVE_OK)
        return st;
    if (rank < 1 || rank > GSV_GGUF_MAX_RANK)
        return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%.*s' has rank %llu, outside 1 to %d", r->shown,
                        (int)tensor->name.size, tensor->name.at, (unsigned long long)rank,
                        GSV_GGUF_MAX_RANK);
    tensor->rank = (uint32_t)rank;
    tensor->count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        st = read_number(r, 8, "a dimension", &tensor->dims[i]);
        if (st != GPUSERVE_OK)
            return st;
        if (tensor->dims[i] > INT64_MAX ||
            __builtin_mul_overflow(tensor->count, tensor->dims[i], &tensor->count) ||
            tensor->count > INT64_MAX)
            return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                            "%s: tensor '%.*s': the size of its shape overflows", r->shown,
                            (int)tensor->name.size, tensor->name.at);
    }
    return GPUSERVE_OK;
}

/* Read type and offset; sets the size in bytes. */
static gpuserve_status read_offset(struct gguf_reading *r, struct gsv_gguf_tensor *tensor)
{
    const struct gsv_gguf_type *type;
    uint64_t number = 0;
    gpuserve_status st = read_number(r, 4, "a tensor's type", &number);

    if (st == GPUSERVE_OK)
        st = read_number(r, 8, "a tensor's offset", &tensor->offset);
    if (st != GPUSERVE_OK)
        return st;
    type = gsv_gguf_type_of((uint32_t)number);
    if (!type)
        return gsv_fail(r->error, GPUSERVE_E_FORMAT, "%s: tensor '%.*s': unknown type %llu",
                        r->shown, (int)tensor->name.size, tensor->name.at,
                        (unsigned long long)number);
    if (tensor->dims[0] % type->block != 0)
        return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%.*s': rows of %llu elements are not divisible by the block "
                        "size %u of %s",
                        r->shown, (int)tensor->name.size, tensor->name.at,
                        (unsigned long long)tensor->dims[0], type->block, type->name);
    if (__builtin_mul_overflow(tensor->count / type->block, (uint64_t)type->bytes,
                               &tensor->size_bytes))
        return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%.*s': the size of its shape overflows", r->shown,
                        (int)tensor->name.size, tensor->name.at);
    tensor->type = (uint32_t)number;
    return GPUSERVE_OK;
}

static gpuserve_status read_alignment(const struct gguf_reading *r, const struct gsv_gguf *gguf,
                                      uint64_t *alignment)
{
    int64_t value = DEFAULT_ALIGNMENT;
    const gpuserve_status st =
        gsv_gguf_int(gguf, "general.alignment", 1, MAX_ALIGNMENT, &value, r->error);

    if (st != GPUSERVE_OK)
        return st;
    if ((value & (value - 1)) != 0)
        return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                        "%s: general.alignment is %lld, not a power of two", r->shown,
                        (long long)value);
    *alignment = (uint64_t)value;
    return GPUSERVE_OK;
}

/* Check that the tensors follow each other, from the first aligned byte after the header; makes
 * their offsets those in the file. */
static gpuserve_status set_tensor_offsets(const struct gguf_reading *r, struct gsv_gguf *gguf,
                                          uint64_t alignment)
{
    const uint64_t begin = (r->at + alignment - 1) / alignment * alignment;
    uint64_t at = 0; /* below INT64_MAX: no overflow in the sums below */

    for (size_t i = 0; i < gguf->n_tensors; i++) {
        struct gsv_gguf_tensor *t = &gguf->tensors[i];

        if (t->offset != at)
            return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                            "%s: tensor '%.*s' begins at offset %llu, expected %llu: the tensors "
                            "have a gap or an overlap",
                            r->shown, (int)t->name.size, t->name.at, (unsigned long long)t->offset,
                            (unsigned long long)at);
        if (t->size_bytes > r->file_size || begin + at > r->file_size - t->size_bytes)
            return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                            "%s: tensor '%.*s' of %llu bytes at byte %llu ends after the file's "
                            "%llu bytes: the file is truncated",
                            r->shown, (int)t->name.size, t->name.at,
                            (unsigned long long)t->size_bytes, (unsigned long long)(begin + at),
                            (unsigned long long)r->file_size);
        t->offset = begin + at;
        at = (at + t->size_bytes + alignment - 1) / alignment * alignment;
    }
    return GPUSERVE_OK;
}

static int compare_tensors(const void *a, const void *b)
{
    const struct gsv_gguf_tensor *x = a, *y = b;

    return compare_texts(x->name, y->name);
}

static gpuserve_status read_tensors(struct gguf_reading *r, struct gsv_gguf *gguf, uint64_t n)
{
    uint64_t alignment = DEFAULT_ALIGNMENT;
    gpuserve_status st = read_alignment(r, gguf, &alignment);

    gguf->tensors = gsv_alloc_array((size_t)n, sizeof(*gguf->tensors));
    if (st == GPUSERVE_OK && !gguf->tensors)
        st = gsv_fail(r->error, GPUSERVE_E_NOMEM, "%s: out of memory for %llu tensors", r->shown,
                      (unsigned long long)n);
    for (uint64_t i = 0; i < n && st == GPUSERVE_OK; i++) {
        st = read_name(r, "a tensor's name", GSV_GGUF_MAX_NAME, &gguf->tensors[i].name);
        if (st == GPUSERVE_OK)
            st = read_shape(r, &gguf->tensors[i]);
        if (st == GPUSERVE_OK)
            st = read_offset(r, &gguf->tensors[i]);
    }
    if (st != GPUSERVE_OK)
        return st;
    gguf->n_tensors = (size_t)n;
    st = set_tensor_offsets(r, gguf, alignment);
    if (st != GPUSERVE_OK)
        return st;
    qsort(gguf->tensors, gguf->n_tensors, sizeof(*gguf->tensors), compare_tensors);
    for (size_t i = 1; i < gguf->n_tensors; i++)
        if (compare_tensors(&gguf->tensors[i - 1], &gguf->tensors[i]) == 0)
            return gsv_fail(r->error, GPUSERVE_E_FORMAT, "%s: tensor '%.*s' occurs twice", r->shown,
                            (int)gguf->tensors[i].name.size, gguf->tensors[i].name.at);
    return GPUSERVE_OK;
}

/* --------------------------------------------------------------------------------- the header */

static gpuserve_status read_start(struct gguf_reading *r)
{
    uint64_t version = 0;
    gpuserve_status st = need(r, 8, "the header");

    if (st != GPUSERVE_OK)
        return st;
    if (memcmp(r->bytes, "GGUF", 4) != 0) {
        st = gsv_fail(r->error, GPUSERVE_E_FORMAT,
                      "%s: the file does not begin with \"GGUF\": not a GGUF file", r->shown);
        return r->size >= 8 && memcmp(r->bytes, "version ", 8) == 0
                   ? gsv_hint(r->error, st,
                              "the file is a Git LFS pointer: run `git lfs pull`, or download it")
                   : st;
    }
    r->at = 4;
    st = read_number(r, 4, "the version", &version);
    if (st != GPUSERVE_OK || version == 2 || version == 3)
        return st;
    if (version == 2u << 24 || version == 3u << 24)
        return gsv_fail(r->error, GPUSERVE_E_UNSUPPORTED,
                        "%s: a big-endian GGUF file is not supported", r->shown);
    return gsv_fail(r->error, GPUSERVE_E_UNSUPPORTED,
                    "%s: GGUF version %llu is not supported; 2 and 3 are", r->shown,
                    (unsigned long long)version);
}

/* Read a count and compare it with its limit and the file's size. */
static gpuserve_status read_count(struct gguf_reading *r, const char *what, uint64_t maximum,
                                  uint64_t min_bytes, uint64_t *n)
{
    const gpuserve_status st = read_number(r, 8, what, n);

    if (st != GPUSERVE_OK)
        return st;
    if (*n > maximum)
        return gsv_fail(r->error, GPUSERVE_E_TOO_LARGE, "%s: %s is %llu, the limit is %llu",
                        r->shown, what, (unsigned long long)*n, (unsigned long long)maximum);
    if (*n > r->file_size / min_bytes)
        return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                        "%s: %s is %llu, which do not fit into the file's %llu bytes", r->shown,
                        what, (unsigned long long)*n, (unsigned long long)r->file_size);
    return GPUSERVE_OK;
}

gpuserve_status gsv_gguf_parse(struct gsv_gguf **out, const unsigned char *bytes, size_t size,
                               uint64_t file_size, const char *shown, bool *is_short,
                               gpuserve_error *error)
{
    struct gguf_reading r = {
        .bytes = bytes, .size = size, .file_size = file_size, .shown = shown, .error = error
    };
    struct gsv_gguf *gguf = gsv_alloc_array(1, sizeof(*gguf));
    uint64_t n_tensors = 0, n_values = 0;
    gpuserve_status st;

    *out = NULL;
    *is_short = false;
    if (!gguf)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", shown);
    gguf->fd = -1;
    gguf->shown = shown;
    gguf->file_size = file_size;
    st = read_start(&r);
    if (st == GPUSERVE_OK)
        st = read_count(&r, "the number of tensors", GSV_GGUF_MAX_TENSORS, MIN_TENSOR_BYTES,
                        &n_tensors);
    if (st == GPUSERVE_OK)
        st = read_count(&r, "the number of keys", GSV_GGUF_MAX_VALUES, MIN_VALUE_BYTES, &n_values);
    if (st == GPUSERVE_OK)
        st = read_values(&r, gguf, n_values);
    if (st == GPUSERVE_OK)
        st = read_tensors(&r, gguf, n_tensors);
    *is_short = st != GPUSERVE_OK && r.is_short;
    if (st != GPUSERVE_OK)
        gsv_gguf_close(&gguf);
    *out = gguf;
    return st;
}
