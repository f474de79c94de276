/*
 * pickle.c - the stack machine that interprets pickles: stack, memo, containers, limits.
 *
 * pickle_opcodes.c has the opcodes, and pickle_objects.c gives a meaning to names. Values are 16
 * bytes and copied; strings stay in the pickle's bytes.
 */
#include "lib/model/formats/torch/pickle_machine.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gpuserve_status gsv_pickle_fail(const struct gsv_pickle *pickle, gpuserve_status status,
                                gpuserve_error *error, const char *format, ...)
{
    char text[320];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return gsv_fail(error, status, "%s: %s byte %zu: %s", pickle->shown, pickle->part,
                    pickle->opcode, text);
}

gpuserve_status gsv_pickle_grow(const struct gsv_pickle *pickle, void **array, size_t *capacity,
                                size_t needed, size_t element_size, unsigned maximum,
                                const char *what, gpuserve_error *error)
{
    if (needed > maximum)
        return gsv_pickle_fail(pickle, GPUSERVE_E_TOO_LARGE, error, "more than %u %s", maximum,
                               what);
    if (!gsv_grow(array, capacity, needed, element_size, maximum))
        return gsv_pickle_fail(pickle, GPUSERVE_E_NOMEM, error, "out of memory for %zu %s", needed,
                               what);
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------ stack and memo */

/* The next n bytes of the pickle. */
gpuserve_status gsv_pickle_take(struct gsv_pickle *p, uint64_t n, const unsigned char **bytes,
                                gpuserve_error *error)
{
    *bytes = p->bytes;
    if (n > gsv_pickle_left(p))
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error,
                               "%llu bytes are needed, %zu are left: the pickle is truncated",
                               (unsigned long long)n, gsv_pickle_left(p));
    *bytes = p->bytes + p->at;
    p->at += (size_t)n;
    return GPUSERVE_OK;
}

/* A little-endian number of n <= 8 bytes. */
gpuserve_status gsv_pickle_take_number(struct gsv_pickle *p, unsigned n, uint64_t *number,
                                       gpuserve_error *error)
{
    const unsigned char *bytes = NULL;
    const gpuserve_status st = gsv_pickle_take(p, n, &bytes, error);

    *number = 0;
    for (unsigned i = n; st == GPUSERVE_OK && i > 0; i--)
        *number = *number << 8 | bytes[i - 1];
    return st;
}

gpuserve_status gsv_pickle_push(struct gsv_pickle *p, struct gsv_pickle_value value,
                                gpuserve_error *error)
{
    const gpuserve_status st =
        gsv_pickle_grow(p, (void **)&p->stack, &p->stack_capacity, p->n_stack + 1,
                        sizeof(*p->stack), GSV_PICKLE_MAX_STACK, "values on the stack", error);

    if (st == GPUSERVE_OK)
        p->stack[p->n_stack++] = value;
    return st;
}

/* The number of values above the last mark. */
static size_t above_mark(const struct gsv_pickle *p)
{
    return p->n_stack - (p->n_marks ? p->marks[p->n_marks - 1] : 0);
}

/* Remove the n values on top of the stack; *values is valid until the next push. */
gpuserve_status gsv_pickle_pop(struct gsv_pickle *p, size_t n,
                               const struct gsv_pickle_value **values, gpuserve_error *error)
{
    if (n > above_mark(p))
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error,
                               "the opcode needs %zu values, the stack has %zu", n, above_mark(p));
    p->n_stack -= n;
    *values = n ? p->stack + p->n_stack : NULL; /* there is no stack before the first push */
    return GPUSERVE_OK;
}

/* Remove the last mark and the n values above it. */
gpuserve_status gsv_pickle_pop_mark(struct gsv_pickle *p, const struct gsv_pickle_value **values,
                                    size_t *n, gpuserve_error *error)
{
    gpuserve_status st;

    if (p->n_marks == 0)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error, "the opcode needs a mark");
    *n = above_mark(p);
    st = gsv_pickle_pop(p, *n, values, error);
    p->n_marks--;
    return st;
}

gpuserve_status gsv_pickle_memo_put(struct gsv_pickle *p, uint64_t index, gpuserve_error *error)
{
    const size_t size = p->memo_size;
    gpuserve_status st;

    if (above_mark(p) == 0)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error, "the stack is empty");
    /* a pickle of N bytes cannot write N entries, so it needs no index N */
    if (index >= p->size)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error,
                               "memo entry %llu in a pickle of %zu bytes",
                               (unsigned long long)index, p->size);
    st = gsv_pickle_grow(p, (void **)&p->memo, &p->memo_capacity, (size_t)index + 1,
                         sizeof(*p->memo), GSV_PICKLE_MAX_MEMO, "entries of the memo", error);
    if (st != GPUSERVE_OK)
        return st;
    if (index >= size) {
        memset(p->memo + size, 0, ((size_t)index + 1 - size) * sizeof(*p->memo));
        p->memo_size = (size_t)index + 1;
    }
    if (p->memo[index].kind == GSV_PICKLE_UNSET)
        p->n_memo++;
    p->memo[index] = p->stack[p->n_stack - 1];
    return GPUSERVE_OK;
}

gpuserve_status gsv_pickle_memo_get(struct gsv_pickle *p, uint64_t index, gpuserve_error *error)
{
    if (index >= p->memo_size || p->memo[index].kind == GSV_PICKLE_UNSET)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error, "memo entry %llu was never written",
                               (unsigned long long)index);
    return gsv_pickle_push(p, p->memo[index], error);
}

/* ---------------------------------------------------------------------------------- containers */

gpuserve_status gsv_pickle_new(struct gsv_pickle *p, enum gsv_pickle_kind kind,
                               struct gsv_pickle_value *value, gpuserve_error *error)
{
    const gpuserve_status st = gsv_pickle_grow(
        p, (void **)&p->containers, &p->containers_capacity, p->n_containers + 1,
        sizeof(*p->containers), GSV_PICKLE_MAX_CONTAINERS, "tuples, lists and dicts", error);

    if (st != GPUSERVE_OK)
        return st;
    memset(&p->containers[p->n_containers], 0, sizeof(*p->containers));
    *value = (struct gsv_pickle_value){ .kind = kind, .is.index = p->n_containers++ };
    return GPUSERVE_OK;
}

static gpuserve_status append(struct gsv_pickle *p, size_t index,
                              const struct gsv_pickle_value *values, size_t n,
                              gpuserve_error *error)
{
    struct gsv_pickle_container *container = &p->containers[index];
    gpuserve_status st;

    if (n == 0)
        return GPUSERVE_OK;
    if (n > GSV_PICKLE_MAX_ITEMS - p->n_items)
        return gsv_pickle_fail(p, GPUSERVE_E_TOO_LARGE, error,
                               "more than %u items of tuples, lists and dicts",
                               GSV_PICKLE_MAX_ITEMS);
    st = gsv_pickle_grow(p, (void **)&container->items, &container->capacity, container->n + n,
                         sizeof(*container->items), GSV_PICKLE_MAX_ITEMS, "items", error);
    if (st != GPUSERVE_OK)
        return st;
    memcpy(container->items + container->n, values, n * sizeof(*values));
    container->n += n;
    p->n_items += n;
    return GPUSERVE_OK;
}

gpuserve_status gsv_pickle_push_tuple(struct gsv_pickle *p, const struct gsv_pickle_value *values,
                                      size_t n, gpuserve_error *error)
{
    struct gsv_pickle_value tuple;
    gpuserve_status st = gsv_pickle_new(p, GSV_PICKLE_TUPLE, &tuple, error);

    if (st == GPUSERVE_OK)
        st = append(p, tuple.is.index, values, n, error);
    return st == GPUSERVE_OK ? gsv_pickle_push(p, tuple, error) : st;
}

/* Append values to the list or dict on top of the stack. */
gpuserve_status gsv_pickle_append(struct gsv_pickle *p, enum gsv_pickle_kind kind,
                                  const struct gsv_pickle_value *values, size_t n,
                                  gpuserve_error *error)
{
    const bool is_dict = kind == GSV_PICKLE_DICT;

    if (above_mark(p) == 0 || p->stack[p->n_stack - 1].kind != kind)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error, "the opcode needs a %s",
                               is_dict ? "dict" : "list");
    if (is_dict && n % 2 != 0)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error, "a key of a dict has no value");
    for (size_t i = 0; is_dict && i < n; i += 2)
        if (values[i].kind > GSV_PICKLE_STRING)
            return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error,
                                   "a key of a dict is neither a string nor a number");
    return append(p, p->stack[p->n_stack - 1].is.index, values, n, error);
}

gpuserve_status gsv_pickle_push_new(struct gsv_pickle *p, enum gsv_pickle_kind kind,
                                    gpuserve_error *error)
{
    struct gsv_pickle_value value;
    const gpuserve_status st = gsv_pickle_new(p, kind, &value, error);

    return st == GPUSERVE_OK ? gsv_pickle_push(p, value, error) : st;
}

/* -------------------------------------------------------------------------------------- running */

static gpuserve_status run(struct gsv_pickle *p, gpuserve_error *error)
{
    const unsigned char *code = NULL;
    gpuserve_status st;

    do {
        p->opcode = p->at;
        st = gsv_pickle_take(p, 1, &code, error);
        if (st != GPUSERVE_OK)
            return st;
        if (p->opcode == 0 && *code != 0x80)
            return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error,
                                   "the pickle does not begin with PROTO");
        st = gsv_pickle_step(p, *code, error);
    } while (st == GPUSERVE_OK && *code != '.');
    return st;
}

gpuserve_status gsv_pickle_read(struct gsv_pickle *pickle, const void *bytes, size_t size,
                                const char *shown, const char *part, gpuserve_error *error)
{
    gpuserve_status st;

    memset(pickle, 0, sizeof(*pickle));
    pickle->shown = shown;
    pickle->part = part;
    pickle->bytes = bytes;
    pickle->size = size;
    st = run(pickle, error);
    if (st != GPUSERVE_OK)
        gsv_pickle_reset(pickle);
    return st;
}

void gsv_pickle_reset(struct gsv_pickle *pickle)
{
    for (size_t i = 0; i < pickle->n_containers; i++)
        free(pickle->containers[i].items);
    free(pickle->containers);
    free(pickle->stack);
    free(pickle->memo);
    free(pickle->storages);
    free(pickle->tensors);
    memset(pickle, 0, sizeof(*pickle));
}

bool gsv_pickle_is_text(const struct gsv_pickle_value *value, const char *text)
{
    return value->size == strlen(text) && memcmp(value->is.text, text, value->size) == 0;
}

const struct gsv_pickle_value *gsv_pickle_get(const struct gsv_pickle *pickle,
                                              const struct gsv_pickle_value *dict, const char *key)
{
    const struct gsv_pickle_container *container = &pickle->containers[dict->is.index];

    for (size_t i = container->n; i >= 2; i -= 2)
        if (gsv_pickle_is_text(&container->items[i - 2], key))
            return &container->items[i - 1];
    return NULL;
}
