/*
 * arrow.c - writer of Arrow IPC streams with one schema.
 *
 * Specification: Arrow Columnar Format 1.5, "Serialization and Interprocess Communication", and
 * format/Schema.fbs and Message.fbs of apache/arrow; FlatBuffers Internals for their binary form.
 *
 *   message: FF FF FF FF, size of the metadata (int32), metadata, body
 *   metadata: a flatbuffer of the table Message, padded to 8 bytes
 *   end of the stream: FF FF FF FF 00 00 00 00
 *
 * A flatbuffer is written from front to back: each table directly after its vtable, and before what
 * it refers to, as offsets are unsigned. point() sets an offset to the current position.
 */
#include "lib/http/core/arrow.h"

#include "lib/base/alloc.h"

#include <endian.h>
#include <string.h>

enum { ALIGNMENT = 8, PREFIX_BYTES = 8, MAX_SLOTS = 8 };
static const uint32_t continuation = UINT32_MAX;

/* Of Schema.fbs and Message.fbs. */
enum { VERSION_5 = 4 };
enum { HEADER_SCHEMA = 1, HEADER_RECORD_BATCH = 3 };
enum { TYPE_INT = 2, TYPE_FLOATING_POINT = 3, TYPE_FIXED_SIZE_LIST = 16 };
enum { PRECISION_HALF = 0, PRECISION_SINGLE = 1 };

/* ----------------------------------------------------------------------------------- flatbuffer */

/* A field of a table, at its index. */
struct slot {
    uint8_t size; /* bytes; 0: absent, with its default */
    uint64_t value;
    size_t at; /* result: its position, for an offset */
};

enum { OFFSET_BYTES = 4 };

static void put_int(struct gsv_buffer *to, uint64_t value, size_t size)
{
    const uint64_t bytes = htole64(value);

    gsv_buffer_add(to, &bytes, size);
}

static void pad(struct gsv_buffer *to, size_t alignment)
{
    static const char zeros[ALIGNMENT];

    gsv_buffer_add(to, zeros, gsv_round_up(to->size, alignment) - to->size);
}

static void set_int32(struct gsv_buffer *to, size_t at, size_t value)
{
    const uint32_t bytes = htole32((uint32_t)value);

    if (value > INT32_MAX)
        to->failed = true;
    if (!to->failed)
        memcpy(to->bytes + at, &bytes, sizeof(bytes));
}

/* The offset at `at` refers to what is written next. */
static void point(struct gsv_buffer *to, size_t at)
{
    set_int32(to, at, to->size - at);
}

/* A table of at most MAX_SLOTS fields. The buffer's positions are aligned as the flatbuffer's,
 * since it begins at a multiple of 8. `at` is the offset that refers to it. */
static void put_table(struct gsv_buffer *to, size_t at, struct slot *slots, size_t n)
{
    uint16_t offsets[MAX_SLOTS];
    size_t end = sizeof(int32_t), begin, vtable;

    for (size_t i = 0; i < n; i++) {
        end = slots[i].size ? gsv_round_up(end, slots[i].size) : end;
        offsets[i] = slots[i].size ? (uint16_t)end : 0;
        end += slots[i].size;
    }
    pad(to, ALIGNMENT);
    vtable = to->size;
    put_int(to, (n + 2) * sizeof(uint16_t), sizeof(uint16_t));
    put_int(to, end, sizeof(uint16_t));
    for (size_t i = 0; i < n; i++)
        put_int(to, offsets[i], sizeof(uint16_t));
    pad(to, ALIGNMENT);
    point(to, at);
    begin = to->size;
    put_int(to, begin - vtable, sizeof(int32_t));
    for (size_t i = 0; i < n; i++) {
        if (slots[i].size == 0)
            continue;
        pad(to, slots[i].size);
        slots[i].at = to->size;
        put_int(to, slots[i].value, slots[i].size);
    }
}

static void put_string(struct gsv_buffer *to, size_t at, const char *text)
{
    const size_t size = strlen(text);

    pad(to, sizeof(uint32_t));
    point(to, at);
    if (size > INT32_MAX)
        to->failed = true;
    put_int(to, size, sizeof(uint32_t));
    gsv_buffer_add(to, text, size + 1);
}

/* A vector of n offsets; returns the position of the first. */
static size_t put_offsets(struct gsv_buffer *to, size_t at, size_t n)
{
    size_t first;

    pad(to, sizeof(uint32_t));
    point(to, at);
    put_int(to, n, sizeof(uint32_t));
    first = to->size;
    for (size_t i = 0; i < n; i++)
        put_int(to, 0, OFFSET_BYTES);
    return first;
}

/* A vector of n pairs of int64: the structs FieldNode and Buffer. */
static void put_pairs(struct gsv_buffer *to, size_t at, const uint64_t (*pairs)[2], size_t n)
{
    pad(to, ALIGNMENT);
    put_int(to, 0, sizeof(uint32_t)); /* so that the elements behind the size are aligned */
    point(to, at);
    put_int(to, n, sizeof(uint32_t));
    for (size_t i = 0; i < n; i++) {
        put_int(to, pairs[i][0], sizeof(int64_t));
        put_int(to, pairs[i][1], sizeof(int64_t));
    }
}

/* ------------------------------------------------------------------------------------- messages */

/* A vector of KeyValue. */
static void put_metadata(struct gsv_buffer *to, size_t at, const struct gsv_arrow_pair *pairs,
                         size_t n)
{
    const size_t first = put_offsets(to, at, n);

    for (size_t i = 0; i < n; i++) {
        struct slot key_value[] = { { OFFSET_BYTES, 0, 0 }, { OFFSET_BYTES, 0, 0 } };

        put_table(to, first + i * OFFSET_BYTES, key_value, 2);
        put_string(to, key_value[0].at, pairs[i].name);
        put_string(to, key_value[1].at, pairs[i].value);
    }
}

/* The prefix and the table Message. Returns where the offset of its header is. */
static size_t begin_message(struct gsv_buffer *to, unsigned header, size_t body_bytes,
                            const struct gsv_arrow_pair *metadata, size_t n_metadata)
{
    struct slot message[] = {
        { sizeof(int16_t), VERSION_5, 0 },
        { sizeof(uint8_t), header, 0 }, /* type of the union */
        { OFFSET_BYTES, 0, 0 },
        { sizeof(int64_t), body_bytes, 0 },
        { n_metadata > 0 ? OFFSET_BYTES : 0, 0, 0 }, /* custom_metadata */
    };
    size_t root;

    put_int(to, continuation, sizeof(continuation));
    put_int(to, 0, sizeof(int32_t));
    root = to->size;
    put_int(to, 0, OFFSET_BYTES);
    put_table(to, root, message, sizeof(message) / sizeof(message[0]));
    if (n_metadata > 0)
        put_metadata(to, message[4].at, metadata, n_metadata);
    return message[2].at;
}

/* Pads the metadata of the message at `begin` and writes its size. */
static void end_metadata(struct gsv_buffer *to, size_t begin)
{
    pad(to, ALIGNMENT);
    set_int32(to, begin + sizeof(continuation), to->size - begin - PREFIX_BYTES);
}

static size_t element_bytes(enum gsv_arrow_element element)
{
    static const uint8_t bytes[] = { [GSV_ARROW_FLOAT32] = 4,
                                     [GSV_ARROW_FLOAT16] = 2,
                                     [GSV_ARROW_INT8] = 1,
                                     [GSV_ARROW_UINT8] = 1 };

    return bytes[element];
}

/* ------------------------------------------------------------------------------------ the schema
 */

/* A Field without null values. Sets *type to where the offset of its type is, and *children to that
 * of its children (NULL: none). */
static void put_field(struct gsv_buffer *to, size_t at, const char *name, unsigned kind,
                      size_t *type, size_t *children)
{
    struct slot field[] = {
        { OFFSET_BYTES, 0, 0 },       /* name */
        { 0, 0, 0 },                  /* nullable: false */
        { sizeof(uint8_t), kind, 0 }, /* type of the union `type` */
        { OFFSET_BYTES, 0, 0 },       /* type */
        { 0, 0, 0 },                  /* dictionary */
        { OFFSET_BYTES, 0, 0 },       /* children: readers need the vector, even if empty */
    };

    put_table(to, at, field, sizeof(field) / sizeof(field[0]));
    put_string(to, field[0].at, name);
    *type = field[3].at;
    if (children)
        *children = field[5].at;
    else
        put_offsets(to, field[5].at, 0);
}

static void put_int_type(struct gsv_buffer *to, size_t at, unsigned bits, bool is_signed)
{
    struct slot type[] = { { sizeof(int32_t), bits, 0 }, { sizeof(uint8_t), is_signed, 0 } };

    put_table(to, at, type, 2);
}

static void put_element(struct gsv_buffer *to, size_t at, enum gsv_arrow_element element)
{
    const bool is_float = element == GSV_ARROW_FLOAT32 || element == GSV_ARROW_FLOAT16;
    size_t type;

    put_field(to, at, "item", is_float ? TYPE_FLOATING_POINT : TYPE_INT, &type, NULL);
    if (is_float) {
        struct slot precision = { sizeof(int16_t),
                                  element == GSV_ARROW_FLOAT16 ? PRECISION_HALF : PRECISION_SINGLE,
                                  0 };

        put_table(to, type, &precision, 1);
    } else {
        put_int_type(to, type, 8, element == GSV_ARROW_INT8);
    }
}

void gsv_arrow_put_schema(struct gsv_buffer *to, enum gsv_arrow_element element, size_t n_elements,
                          const struct gsv_arrow_pair *metadata, size_t n_metadata)
{
    const size_t begin = to->size, at = begin_message(to, HEADER_SCHEMA, 0, NULL, 0);
    struct slot schema[] = {
        { 0, 0, 0 }, /* endianness: little */
        { OFFSET_BYTES, 0, 0 },
        { n_metadata > 0 ? OFFSET_BYTES : 0, 0, 0 },
    };
    struct slot list = { sizeof(int32_t), n_elements, 0 };
    size_t fields, type, children;

    if (n_elements > INT32_MAX)
        to->failed = true;
    put_table(to, at, schema, sizeof(schema) / sizeof(schema[0]));
    fields = put_offsets(to, schema[1].at, 2);
    put_field(to, fields, "index", TYPE_INT, &type, NULL);
    put_int_type(to, type, 32, false);
    put_field(to, fields + OFFSET_BYTES, "embedding", TYPE_FIXED_SIZE_LIST, &type, &children);
    put_table(to, type, &list, 1);
    children = put_offsets(to, children, 1);
    put_element(to, children, element);
    if (n_metadata > 0)
        put_metadata(to, schema[2].at, metadata, n_metadata);
    end_metadata(to, begin);
}

/* ---------------------------------------------------------------------------------- the batches */

/* Bytes of the columns in the body, each padded. False: too many. */
static bool measure(enum gsv_arrow_element element, size_t n_elements, size_t n, size_t *indices,
                    size_t *vectors, size_t *body)
{
    return gsv_mul_size(n, sizeof(uint32_t), indices) && gsv_mul_size(n, n_elements, vectors) &&
           gsv_mul_size(*vectors, element_bytes(element), vectors) &&
           *vectors <= INT64_MAX - ALIGNMENT && *indices <= INT64_MAX - ALIGNMENT &&
           gsv_add_size(gsv_round_up(*indices, ALIGNMENT), gsv_round_up(*vectors, ALIGNMENT), body);
}

/* The columns have no nulls, and therefore no validity bitmaps. */
static void put_batch_head(struct gsv_buffer *to, size_t at, size_t n, size_t n_elements,
                           size_t indices, size_t vectors)
{
    const uint64_t nodes[][2] = { { n, 0 }, { n, 0 }, { (uint64_t)n * n_elements, 0 } };
    const uint64_t begin = gsv_round_up(indices, ALIGNMENT);
    const uint64_t buffers[][2] = {
        { 0, 0 }, { 0, indices }, { begin, 0 }, { begin, 0 }, { begin, vectors }
    };
    struct slot batch[] = { { sizeof(int64_t), n, 0 },
                            { OFFSET_BYTES, 0, 0 },
                            { OFFSET_BYTES, 0, 0 } };

    put_table(to, at, batch, 3);
    put_pairs(to, batch[1].at, nodes, 3);
    put_pairs(to, batch[2].at, buffers, 5);
}

void *gsv_arrow_put_batch(struct gsv_buffer *to, enum gsv_arrow_element element, size_t n_elements,
                          size_t first, size_t n, const struct gsv_arrow_pair *metadata,
                          size_t n_metadata)
{
    const size_t start = to->size;
    size_t indices, vectors, body, at, padded;
    char *values;

    if (!measure(element, n_elements, n, &indices, &vectors, &body) || n > UINT32_MAX ||
        first > UINT32_MAX - n) {
        to->failed = true;
        return NULL;
    }
    at = begin_message(to, HEADER_RECORD_BATCH, body, metadata, n_metadata);
    put_batch_head(to, at, n, n_elements, indices, vectors);
    end_metadata(to, start);
    for (size_t i = 0; i < n; i++)
        put_int(to, first + i, sizeof(uint32_t));
    pad(to, ALIGNMENT);
    padded = gsv_round_up(vectors, ALIGNMENT);
    values = gsv_buffer_reserve(to, padded);
    if (!values)
        return NULL;
    memset(values + vectors, 0, padded - vectors);
    to->size += padded;
    return values;
}

void gsv_arrow_put_end(struct gsv_buffer *to)
{
    put_int(to, continuation, sizeof(continuation));
    put_int(to, 0, sizeof(int32_t));
}

void gsv_arrow_put_cut(struct gsv_buffer *to)
{
    put_int(to, continuation, sizeof(continuation));
    put_int(to, ALIGNMENT, sizeof(int32_t));
}
