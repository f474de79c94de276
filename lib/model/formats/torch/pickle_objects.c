/*
 * pickle_objects.c - the names that pickles of tensors may use, and what they mean.
 *
 * A name stands for OrderedDict, for a function that makes a tensor from a storage, or for the type
 * of a storage. Calls of them create a gsv_pickle_value; nothing is imported or executed. A tensor
 * is checked against its storage here: shape, strides and offset stay inside.
 */
#include "lib/model/formats/torch/pickle_machine.h"

#include <string.h>

#define MAX_KEY_BYTES 32u
#define SHOWN_BYTES 96

enum meaning { ORDERED_DICT, REBUILD_TENSOR, REBUILD_TENSOR_V2, REBUILD_PARAMETER, STORAGE };

static const struct {
    const char *module, *name;
    enum meaning meaning;
    struct gsv_pickle_type type; /* of a storage's elements */
} globals[] = {
    { "collections", "OrderedDict", ORDERED_DICT, { 0 } },
    { "torch._utils", "_rebuild_tensor", REBUILD_TENSOR, { 0 } },
    { "torch._utils", "_rebuild_tensor_v2", REBUILD_TENSOR_V2, { 0 } },
    { "torch._utils", "_rebuild_parameter", REBUILD_PARAMETER, { 0 } },
    { "torch", "FloatStorage", STORAGE, { "F32", GSV_TENSOR_F32, 4 } },
    { "torch", "HalfStorage", STORAGE, { "F16", GSV_TENSOR_F16, 2 } },
    { "torch", "BFloat16Storage", STORAGE, { "BF16", GSV_TENSOR_BF16, 2 } },
    { "torch", "DoubleStorage", STORAGE, { "F64", GSV_TENSOR_F64, 8 } },
    { "torch", "LongStorage", STORAGE, { "I64", GSV_TENSOR_OTHER, 8 } },
    { "torch", "IntStorage", STORAGE, { "I32", GSV_TENSOR_OTHER, 4 } },
    { "torch", "ShortStorage", STORAGE, { "I16", GSV_TENSOR_OTHER, 2 } },
    { "torch", "CharStorage", STORAGE, { "I8", GSV_TENSOR_OTHER, 1 } },
    { "torch", "ByteStorage", STORAGE, { "U8", GSV_TENSOR_OTHER, 1 } },
    { "torch", "BoolStorage", STORAGE, { "BOOL", GSV_TENSOR_OTHER, 1 } },
};

/* A tuple's items, and how many there are; NULL if the value is not a tuple. */
static const struct gsv_pickle_value *tuple_items(const struct gsv_pickle *p,
                                                  const struct gsv_pickle_value *tuple, size_t *n)
{
    static const struct gsv_pickle_value none;

    if (tuple->kind != GSV_PICKLE_TUPLE)
        return NULL;
    *n = p->containers[tuple->is.index].n;
    return *n ? p->containers[tuple->is.index].items : &none;
}

/* ---------------------------------------------------------------------------------------- names */

/* An untrusted name for a message: bytes that are not printable become '?'. */
static void show(char *to, const char *text, size_t size)
{
    size_t n = 0;

    for (; n < size && n < SHOWN_BYTES - 1; n++)
        to[n] = text[n] > ' ' && text[n] <= '~' ? text[n] : '?';
    to[n] = '\0';
}

static bool is(const char *text, size_t size, const char *want)
{
    return size == strlen(want) && memcmp(text, want, size) == 0;
}

gpuserve_status gsv_pickle_global(struct gsv_pickle *pickle, const char *module, size_t module_size,
                                  const char *name, size_t name_size,
                                  struct gsv_pickle_value *value, gpuserve_error *error)
{
    char shown_module[SHOWN_BYTES], shown_name[SHOWN_BYTES];

    for (size_t i = 0; i < sizeof(globals) / sizeof(globals[0]); i++) {
        if (is(module, module_size, globals[i].module) && is(name, name_size, globals[i].name)) {
            *value = (struct gsv_pickle_value){ .kind = GSV_PICKLE_GLOBAL, .is.index = i };
            return GPUSERVE_OK;
        }
    }
    show(shown_module, module, module_size);
    show(shown_name, name, name_size);
    return gsv_pickle_fail(pickle, GPUSERVE_E_UNSUPPORTED, error,
                           "'%s.%s' is refused: only tensors are read, code never runs",
                           shown_module, shown_name);
}

const struct gsv_pickle_type *gsv_pickle_type_of(const struct gsv_pickle_storage *storage)
{
    return &globals[storage->global].type;
}

/* ------------------------------------------------------------------------------------- storages */

/* Whether a value is a key of a storage: a few letters, digits and '_'. */
static bool is_key(const struct gsv_pickle_value *value)
{
    static const char letters[] = "0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

    if (value->size == 0 || value->size > MAX_KEY_BYTES) /* only strings have a size */
        return false;
    for (size_t i = 0; i < value->size; i++)
        if (!memchr(letters, value->is.text[i], sizeof(letters) - 1))
            return false;
    return true;
}

static bool is_storage_id(const struct gsv_pickle_value *items, size_t n)
{
    return (n == 5 || (n == 6 && items[5].kind == GSV_PICKLE_NONE)) &&
           gsv_pickle_is_text(&items[0], "storage") && items[1].kind == GSV_PICKLE_GLOBAL &&
           globals[items[1].is.index].meaning == STORAGE && is_key(&items[2]) &&
           items[3].kind == GSV_PICKLE_STRING && items[4].kind == GSV_PICKLE_INT;
}

gpuserve_status gsv_pickle_persistent(struct gsv_pickle *p, const struct gsv_pickle_value *id,
                                      struct gsv_pickle_value *result, gpuserve_error *error)
{
    size_t n = 0;
    const struct gsv_pickle_value *items = tuple_items(p, id, &n);
    struct gsv_pickle_storage storage;
    gpuserve_status st;

    if (!is_storage_id(items, n)) /* n is 0 if the id is not a tuple */
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error,
                               "a storage is not ('storage', type, key, location, count)");
    storage = (struct gsv_pickle_storage){ .key = items[2], .global = items[1].is.index };
    storage.count = (uint64_t)items[4].is.integer;
    if (storage.count > INT64_MAX / gsv_pickle_type_of(&storage)->bytes)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error,
                               "a storage has %lld elements, which is out of range",
                               (long long)items[4].is.integer);
    st = gsv_pickle_grow(p, (void **)&p->storages, &p->storages_capacity, p->n_storages + 1,
                         sizeof(*p->storages), GSV_PICKLE_MAX_TENSORS, "storages", error);
    if (st != GPUSERVE_OK)
        return st;
    *result = (struct gsv_pickle_value){ .kind = GSV_PICKLE_STORAGE, .is.index = p->n_storages };
    p->storages[p->n_storages++] = storage;
    return GPUSERVE_OK;
}

/* -------------------------------------------------------------------------------------- tensors */

/* Compute the number of elements, the last element's index from the first, and whether the elements
 * are contiguous in row order. False if a number is negative or overflows. */
static bool measure(struct gsv_pickle_tensor *tensor, uint64_t *last,
                    const struct gsv_pickle_value *shape, const struct gsv_pickle_value *strides,
                    size_t rank)
{
    uint64_t expected = 1, reach;

    tensor->count = 1;
    *last = 0;
    for (size_t i = rank; i > 0; i--) {
        const struct gsv_pickle_value *n = &shape[i - 1], *stride = &strides[i - 1];

        if (n->kind != GSV_PICKLE_INT || stride->kind != GSV_PICKLE_INT || n->is.integer < 0 ||
            stride->is.integer < 0 ||
            __builtin_mul_overflow(tensor->count, (uint64_t)n->is.integer, &tensor->count))
            return false;
        if (n->is.integer <= 1) /* the stride is not used */
            continue;
        tensor->is_strided = tensor->is_strided || (uint64_t)stride->is.integer != expected;
        if (__builtin_mul_overflow((uint64_t)n->is.integer - 1, (uint64_t)stride->is.integer,
                                   &reach) ||
            __builtin_add_overflow(*last, reach, last) || *last > INT64_MAX)
            return false;
        expected *= (uint64_t)n->is.integer; /* may wrap only if the tensor has no elements */
    }
    tensor->is_strided = tensor->is_strided && tensor->count > 0;
    return true;
}

/* Arguments: storage, offset, shape, strides, and more that have no meaning here. */
static gpuserve_status make_tensor(struct gsv_pickle *p, const struct gsv_pickle_value *arguments,
                                   struct gsv_pickle_value *result, gpuserve_error *error)
{
    struct gsv_pickle_tensor tensor = { 0 };
    size_t rank = 0, n_strides = 0;
    const struct gsv_pickle_value *shape = tuple_items(p, &arguments[2], &rank);
    const struct gsv_pickle_value *strides = tuple_items(p, &arguments[3], &n_strides);
    uint64_t last, end, limit;
    gpuserve_status st;

    if (arguments[0].kind != GSV_PICKLE_STORAGE || arguments[1].kind != GSV_PICKLE_INT ||
        arguments[1].is.integer < 0 || !shape || !strides || rank != n_strides ||
        rank > GSV_PICKLE_MAX_RANK)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error,
                               "a tensor is not (storage, offset, shape, strides) of at most %u "
                               "dimensions",
                               GSV_PICKLE_MAX_RANK);
    tensor.storage = arguments[0].is.index;
    tensor.offset = (uint64_t)arguments[1].is.integer;
    tensor.shape = arguments[2].is.index;
    limit = p->storages[tensor.storage].count;
    if (!measure(&tensor, &last, shape, strides, rank))
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error,
                               "the shape or the strides of a tensor are negative or too large");
    end = tensor.offset + (tensor.count ? last + 1 : 0); /* both are below 2^63 */
    if (end > limit)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error,
                               "a tensor ends at element %llu of a storage of %llu",
                               (unsigned long long)end, (unsigned long long)limit);
    st = gsv_pickle_grow(p, (void **)&p->tensors, &p->tensors_capacity, p->n_tensors + 1,
                         sizeof(*p->tensors), GSV_PICKLE_MAX_TENSORS, "tensors", error);
    if (st != GPUSERVE_OK)
        return st;
    *result = (struct gsv_pickle_value){ .kind = GSV_PICKLE_TENSOR, .is.index = p->n_tensors };
    p->tensors[p->n_tensors++] = tensor;
    return GPUSERVE_OK;
}

/* ---------------------------------------------------------------------------------------- calls */

gpuserve_status gsv_pickle_call(struct gsv_pickle *p, const struct gsv_pickle_value *callee,
                                const struct gsv_pickle_value *arguments,
                                struct gsv_pickle_value *result, gpuserve_error *error)
{
    size_t n = 0;
    const struct gsv_pickle_value *items = tuple_items(p, arguments, &n);
    enum meaning meaning;
    gpuserve_status st;

    if (callee->kind != GSV_PICKLE_GLOBAL || !items)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error, "a call needs a name and a tuple");
    meaning = globals[callee->is.index].meaning;
    if (meaning == ORDERED_DICT && n == 0) {
        st = gsv_pickle_new(p, GSV_PICKLE_DICT, result, error);
        if (st == GPUSERVE_OK)
            p->containers[result->is.index].is_ordered_dict = true;
        return st;
    }
    if ((meaning == REBUILD_TENSOR && n == 4) ||
        (meaning == REBUILD_TENSOR_V2 && (n == 6 || n == 7)))
        return make_tensor(p, items, result, error);
    if (meaning == REBUILD_PARAMETER && n == 3 && items[0].kind == GSV_PICKLE_TENSOR) {
        *result = items[0];
        return GPUSERVE_OK;
    }
    return gsv_pickle_fail(p, GPUSERVE_E_UNSUPPORTED, error,
                           "a call of '%s.%s' with these %zu arguments is refused",
                           globals[callee->is.index].module, globals[callee->is.index].name, n);
}

/* The attribute `_metadata` of a state dict has the versions of modules: not needed. */
gpuserve_status gsv_pickle_build(struct gsv_pickle *p, const struct gsv_pickle_value *object,
                                 const struct gsv_pickle_value *state, gpuserve_error *error)
{
    if (object->kind != GSV_PICKLE_DICT || !p->containers[object->is.index].is_ordered_dict ||
        state->kind != GSV_PICKLE_DICT)
        return gsv_pickle_fail(p, GPUSERVE_E_UNSUPPORTED, error,
                               "the state of an object other than an OrderedDict is refused");
    return GPUSERVE_OK;
}
