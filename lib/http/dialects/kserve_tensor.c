/*
 * kserve_tensor.c - reads and validates input tensors.
 *
 *   TEXT        BYTES [n] or [n,1]       texts
 *   TEXT_PAIR   BYTES [n] or [n,1]       second texts
 *   input_ids   INT64 or INT32 [n,len]   token ids, padded at the end; attention_mask is 1 for
 *                                        tokens and 0 for padding
 *
 * A BYTES element is a string in JSON. In binary it is a little-endian 32-bit length and the bytes.
 * Each shape and size is checked against the data before use.
 */
#include "lib/http/dialects/kserve.h"
#include "lib/http/models/model_registry.h"

#include "lib/base/utf8.h"

#include <endian.h>
#include <string.h>
#include <strings.h>

enum { MAX_IDS = 1 << 22 };

struct tensor {
    const char *name, *datatype;
    size_t rows, columns; /* columns is 1 for one dimension */
    const json_t *data;   /* JSON data; unused if `bytes` is set */
    const char *bytes;    /* [size] in the body; NULL if JSON */
    size_t size;
};

/* --------------------------------------------------------------------------------- descriptions */

bool gsv_kserve_check_shared(struct gsv_exchange *exchange, const json_t *parameters,
                             const char *what, const char *name)
{
    const json_t *region = json_object_get(parameters, "shared_memory_region");

    return !region || json_is_null(region) ||
           gsv_refuse(exchange, GSV_P_INVALID, "shared_memory_region",
                      "%s \"%.40s\": `shared_memory_region` is not supported: send and read the "
                      "data in the bodies of request and reply",
                      what, name);
}

static bool read_shape(struct gsv_exchange *exchange, const json_t *shape, struct tensor *tensor)
{
    size_t sizes[2] = { 1, 1 }, i;
    json_t *one;

    /* The size of a non-array is 0. */
    if (json_array_size(shape) == 0 || json_array_size(shape) > 2)
        return gsv_refuse(exchange, GSV_P_INVALID, "shape",
                          "tensor \"%.40s\": `shape` is not a list of one or two sizes",
                          tensor->name);
    json_array_foreach(shape, i, one)
    {
        if (!json_is_integer(one) || json_integer_value(one) < 0 ||
            json_integer_value(one) > MAX_IDS)
            return gsv_refuse(exchange, GSV_P_INVALID, "shape",
                              "tensor \"%.40s\": size %zu of `shape` is outside 0 to %d",
                              tensor->name, i, MAX_IDS);
        sizes[i] = (size_t)json_integer_value(one);
    }
    tensor->rows = sizes[0];
    tensor->columns = sizes[1];
    if (tensor->columns > 0 && tensor->rows > MAX_IDS / tensor->columns)
        return gsv_refuse(exchange, GSV_P_TOO_LARGE, "shape",
                          "tensor \"%.40s\" has %zu x %zu elements, the limit is %d", tensor->name,
                          tensor->rows, tensor->columns, MAX_IDS);
    return true;
}

/* Takes the tensor's part of the binary data; tensors lie in list order. */
static bool take_binary(struct gsv_exchange *exchange, const json_t *size, struct tensor *tensor,
                        const char **binary, size_t *left)
{
    if (json_integer_value(size) > 0 && !gsv_header(exchange, "Inference-Header-Content-Length"))
        return gsv_kserve_refuse_binary(exchange);
    /* The cast makes a negative size larger than any. */
    if (!json_is_integer(size) || (uint64_t)json_integer_value(size) > *left)
        return gsv_refuse(
            exchange, GSV_P_INVALID, "binary_data_size",
            "tensor \"%.40s\": binary_data_size is %lld, but %zu bytes are left in the "
            "body",
            tensor->name, (long long)json_integer_value(size), *left);
    tensor->bytes = *binary;
    tensor->size = (size_t)json_integer_value(size);
    *binary += tensor->size;
    *left -= tensor->size;
    return true;
}

static bool read_tensor(struct gsv_exchange *exchange, const json_t *given, struct tensor *tensor,
                        const char **binary, size_t *left)
{
    const json_t *parameters = json_object_get(given, "parameters");
    const json_t *size = json_object_get(parameters, "binary_data_size");

    *tensor = (struct tensor){ 0 };
    tensor->name = json_string_value(json_object_get(given, "name"));
    tensor->datatype = json_string_value(json_object_get(given, "datatype"));
    tensor->data = json_object_get(given, "data");
    if (!tensor->name || !tensor->datatype)
        return gsv_refuse(exchange, GSV_P_INVALID, "inputs",
                          "an input needs a `name`, a `shape` and a `datatype`");
    if (!gsv_kserve_check_shared(exchange, parameters, "tensor", tensor->name) ||
        !read_shape(exchange, json_object_get(given, "shape"), tensor))
        return false;
    if (size)
        return take_binary(exchange, size, tensor, binary, left);
    return json_is_array(tensor->data) ||
           gsv_refuse(exchange, GSV_P_INVALID, "data",
                      "tensor \"%.40s\" has neither `data` nor a binary_data_size", tensor->name);
}

/* Element i of JSON data, nested by rows or flat. */
static const json_t *element(const struct tensor *tensor, size_t i)
{
    const json_t *row = json_array_get(tensor->data, i / tensor->columns);

    return json_is_array(row) ? json_array_get(row, i % tensor->columns)
                              : json_array_get(tensor->data, i);
}

static bool check_count(struct gsv_exchange *exchange, const struct tensor *tensor)
{
    const size_t n = tensor->rows * tensor->columns;
    size_t found = 0;

    for (size_t i = 0; i < json_array_size(tensor->data); i++) {
        const json_t *row = json_array_get(tensor->data, i);

        found += json_is_array(row) ? json_array_size(row) : 1;
    }
    return found == n || gsv_refuse(exchange, GSV_P_INVALID, "data",
                                    "tensor \"%.40s\": `data` has %zu elements, its shape %zu",
                                    tensor->name, found, n);
}

/* --------------------------------------------------------------------------------------- texts */

typedef void (*set_text)(struct gsv_inputs *inputs, size_t i, const char *text, size_t size);

static bool read_binary_texts(struct gsv_exchange *exchange, const struct tensor *tensor,
                              struct gsv_inputs *inputs, set_text set)
{
    size_t at = 0;

    for (size_t i = 0; i < inputs->n; i++) {
        uint32_t size;

        if (tensor->size - at < sizeof(size))
            return gsv_refuse(exchange, GSV_P_INVALID, "inputs",
                              "tensor \"%.40s\": its %zu bytes end inside element %zu of %zu",
                              tensor->name, tensor->size, i, inputs->n);
        memcpy(&size, tensor->bytes + at, sizeof(size));
        size = le32toh(size);
        at += sizeof(size);
        if (size > tensor->size - at)
            return gsv_refuse(exchange, GSV_P_INVALID, "inputs",
                              "tensor \"%.40s\": element %zu has %u bytes, but %zu are left",
                              tensor->name, i, size, tensor->size - at);
        if (gsv_utf8_valid_length(tensor->bytes + at, size) != size)
            return gsv_refuse(exchange, GSV_P_INVALID, "inputs",
                              "tensor \"%.40s\": element %zu is not UTF-8", tensor->name, i);
        set(inputs, i, tensor->bytes + at, size);
        at += size;
    }
    return at == tensor->size || gsv_refuse(exchange, GSV_P_INVALID, "inputs",
                                            "tensor \"%.40s\": %zu bytes follow its %zu elements",
                                            tensor->name, tensor->size - at, inputs->n);
}

static bool read_texts(struct gsv_exchange *exchange, const struct tensor *tensor,
                       struct gsv_inputs *inputs, set_text set)
{
    if (strcmp(tensor->datatype, "BYTES") != 0 || tensor->columns != 1)
        return gsv_refuse(exchange, GSV_P_INVALID, "datatype",
                          "tensor \"%.40s\" is %.20s [%zu,%zu], not BYTES [n] or [n,1]",
                          tensor->name, tensor->datatype, tensor->rows, tensor->columns);
    if (tensor->rows != inputs->n)
        return gsv_refuse(exchange, GSV_P_INVALID, "shape",
                          "tensor \"%.40s\" has %zu texts, TEXT has %zu", tensor->name,
                          tensor->rows, inputs->n);
    if (tensor->bytes)
        return read_binary_texts(exchange, tensor, inputs, set);
    if (!check_count(exchange, tensor))
        return false;
    for (size_t i = 0; i < inputs->n; i++) {
        const json_t *text = element(tensor, i);

        if (!json_is_string(text))
            return gsv_refuse(exchange, GSV_P_INVALID, "data",
                              "tensor \"%.40s\": element %zu is not a string", tensor->name, i);
        set(inputs, i, json_string_value(text), json_string_length(text));
    }
    return true;
}

/* ----------------------------------------------------------------------------------------- ids */

static size_t element_size(const struct tensor *tensor)
{
    if (strcmp(tensor->datatype, "INT64") == 0)
        return 8;
    return strcmp(tensor->datatype, "INT32") == 0 ? 4 : 0;
}

static bool check_numbers(struct gsv_exchange *exchange, const struct tensor *tensor)
{
    const size_t n = tensor->rows * tensor->columns, size = element_size(tensor);

    if (size == 0)
        return gsv_refuse(exchange, GSV_P_INVALID, "datatype",
                          "tensor \"%.40s\" is %.20s, not INT64 or INT32", tensor->name,
                          tensor->datatype);
    if (tensor->bytes && tensor->size != n * size)
        return gsv_refuse(exchange, GSV_P_INVALID, "inputs",
                          "tensor \"%.40s\" has %zu bytes, its shape needs %zu", tensor->name,
                          tensor->size, n * size);
    return tensor->bytes || check_count(exchange, tensor);
}

/* Reads element i; false: not an integer. */
static bool number_at(const struct tensor *tensor, size_t i, int64_t *number)
{
    if (tensor->bytes && element_size(tensor) == 8) {
        uint64_t raw;

        memcpy(&raw, tensor->bytes + 8 * i, sizeof(raw));
        *number = (int64_t)le64toh(raw);
        return true;
    }
    if (tensor->bytes) {
        uint32_t raw;

        memcpy(&raw, tensor->bytes + 4 * i, sizeof(raw));
        *number = (int32_t)le32toh(raw);
        return true;
    }
    *number = json_integer_value(element(tensor, i));
    return json_is_integer(element(tensor, i));
}

/* Counts the ids before the padding of a row, which must be at its end. */
static bool count_ids(struct gsv_exchange *exchange, const struct tensor *mask, size_t row,
                      size_t *n)
{
    int64_t counts = 0;

    *n = 0;
    for (size_t i = 0; i < mask->columns; i++) {
        if (!number_at(mask, row * mask->columns + i, &counts))
            return gsv_refuse(exchange, GSV_P_INVALID, "data",
                              "attention_mask: row %zu, column %zu: not a whole number", row, i);
        if (counts != 0 && counts != 1)
            return gsv_refuse(exchange, GSV_P_INVALID, "attention_mask",
                              "attention_mask: row %zu, column %zu: %lld is neither 0 nor 1", row,
                              i, (long long)counts);
        if (counts == 1 && *n < i)
            return gsv_refuse(exchange, GSV_P_INVALID, "attention_mask",
                              "attention_mask: row %zu has 0 at column %zu and 1 at column %zu: "
                              "only the end of a row can be padding",
                              row, *n, i);
        *n += (size_t)counts;
    }
    return true;
}

static bool take_ids(struct gsv_exchange *exchange, const struct tensor *ids, size_t row, size_t n,
                     int32_t *to)
{
    const json_int_t n_ids = (json_int_t)exchange->served->properties.vocab_size;

    for (size_t i = 0; i < n; i++) {
        int64_t id = 0;

        if (!number_at(ids, row * ids->columns + i, &id))
            return gsv_refuse(exchange, GSV_P_INVALID, "data",
                              "input_ids: row %zu, column %zu: not a whole number", row, i);
        if (id < 0 || id >= n_ids)
            return gsv_refuse(exchange, GSV_P_INVALID, "inputs",
                              "input_ids: row %zu, column %zu: token id %lld is outside this "
                              "model's vocabulary of %lld ids",
                              row, i, (long long)id, (long long)n_ids);
        to[i] = (int32_t)id;
    }
    return true;
}

static bool read_ids(struct gsv_exchange *exchange, const struct tensor *ids,
                     const struct tensor *mask, struct gsv_inputs *inputs)
{
    if (!check_numbers(exchange, ids) || (mask->name && !check_numbers(exchange, mask)) ||
        !gsv_inputs_count(exchange, ids->rows, ids->name))
        return false;
    if (mask->name && (mask->rows != ids->rows || mask->columns != ids->columns))
        return gsv_refuse(exchange, GSV_P_INVALID, "shape",
                          "attention_mask is [%zu,%zu], input_ids [%zu,%zu]", mask->rows,
                          mask->columns, ids->rows, ids->columns);
    *inputs = (struct gsv_inputs){ .n = ids->rows };
    inputs->ids = gsv_exchange_alloc(exchange, ids->rows * ids->columns, sizeof(*inputs->ids));
    inputs->offsets = gsv_exchange_alloc(exchange, ids->rows + 1, sizeof(*inputs->offsets));
    if (!inputs->ids || !inputs->offsets)
        return false;
    for (size_t row = 0; row < ids->rows; row++) {
        size_t n = ids->columns;

        if ((mask->name && !count_ids(exchange, mask, row, &n)) ||
            !take_ids(exchange, ids, row, n, inputs->ids + inputs->offsets[row]))
            return false;
        inputs->offsets[row + 1] = inputs->offsets[row] + n;
        if (n == 0)
            return gsv_refuse(exchange, GSV_P_EMPTY, "inputs", "row %zu has no token ids", row);
    }
    return true;
}

/* -------------------------------------------------------------------------------------- inputs */

enum { TEXT, TEXT_PAIR, INPUT_IDS, ATTENTION_MASK, N_TENSORS };

static bool read_all(struct gsv_exchange *exchange, const json_t *list, const char *binary,
                     size_t left, struct tensor *tensors)
{
    static const char *const names[] = { "TEXT", "TEXT_PAIR", "input_ids", "attention_mask" };
    json_t *given;
    size_t i;

    json_array_foreach(list, i, given)
    {
        struct tensor tensor;
        size_t index = 0;

        if (!read_tensor(exchange, given, &tensor, &binary, &left))
            return false;
        while (index < N_TENSORS && strcasecmp(tensor.name, names[index]) != 0)
            index++;
        if (index == N_TENSORS)
            return gsv_refuse(exchange, GSV_P_INVALID, "inputs",
                              "unknown input \"%.40s\"; the inputs are TEXT, TEXT_PAIR, input_ids "
                              "and attention_mask",
                              tensor.name);
        if (tensors[index].name)
            return gsv_refuse(exchange, GSV_P_INVALID, "inputs", "input \"%.40s\" is given twice",
                              tensor.name);
        tensors[index] = tensor;
    }
    return left == 0 ||
           gsv_refuse(exchange, GSV_P_INVALID, "inputs", "%zu bytes follow the last tensor", left);
}

bool gsv_kserve_inputs(struct gsv_exchange *exchange, const json_t *list, const char *binary,
                       size_t binary_size, struct gsv_inputs *inputs)
{
    struct tensor tensors[N_TENSORS] = { 0 };
    const struct tensor *text = &tensors[TEXT], *pair = &tensors[TEXT_PAIR];

    if (!json_is_array(list))
        return gsv_refuse(exchange, GSV_P_INVALID, "inputs", "`inputs` is not a list of tensors");
    if (!read_all(exchange, list, binary, binary_size, tensors))
        return false;
    if (!text->name == !tensors[INPUT_IDS].name)
        return gsv_refuse(exchange, GSV_P_INVALID, "inputs",
                          "%s TEXT and input_ids are given: send one of them",
                          text->name ? "both" : "neither");
    if (text->name && tensors[ATTENTION_MASK].name)
        return gsv_refuse(
            exchange, GSV_P_INVALID, "attention_mask",
            "attention_mask is valid only with input_ids; the server tokenizes TEXT itself");
    if (!text->name && pair->name)
        return gsv_refuse(exchange, GSV_P_INVALID, "TEXT_PAIR",
                          "TEXT_PAIR is valid only with TEXT; input_ids hold both texts");
    if (!text->name)
        return read_ids(exchange, &tensors[INPUT_IDS], &tensors[ATTENTION_MASK], inputs);
    return gsv_inputs_count(exchange, text->rows, "TEXT") &&
           gsv_inputs_make(exchange, text->rows, pair->name != NULL, inputs) &&
           read_texts(exchange, text, inputs, gsv_inputs_set) &&
           (!pair->name || read_texts(exchange, pair, inputs, gsv_inputs_set_pair));
}

bool gsv_kserve_raw_input(struct gsv_exchange *exchange, const char *bytes, size_t size,
                          struct gsv_inputs *inputs)
{
    if (size == 0)
        return gsv_refuse(exchange, GSV_P_EMPTY, "inputs",
                          "the body of a raw binary request is empty: it is the text");
    if (gsv_utf8_valid_length(bytes, size) != size)
        return gsv_refuse(exchange, GSV_P_INVALID, "inputs",
                          "raw binary request: the body is the text TEXT, but it is not UTF-8; ids "
                          "need JSON that names input_ids before their bytes");
    if (!gsv_inputs_make(exchange, 1, false, inputs))
        return false;
    gsv_inputs_set(inputs, 0, bytes, size);
    return true;
}
