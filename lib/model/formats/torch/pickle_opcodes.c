/*
 * pickle_opcodes.c - the opcodes of pickle protocols 2 to 5 that state dicts of tensors need.
 *
 * The table has all opcodes. One without a function is refused by its name.
 */
#include "lib/model/formats/torch/pickle_machine.h"

#include <string.h>

#define MIN_PROTOCOL 2
#define MAX_PROTOCOL 5

static gpuserve_status op_proto(struct gsv_pickle *p, gpuserve_error *error)
{
    uint64_t version;
    const gpuserve_status st = gsv_pickle_take_number(p, 1, &version, error);

    if (st != GPUSERVE_OK)
        return st;
    if (p->opcode != 0)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error, "PROTO is not the first opcode");
    if (version < MIN_PROTOCOL || version > MAX_PROTOCOL)
        return gsv_pickle_fail(p, GPUSERVE_E_UNSUPPORTED, error,
                               "pickle protocol %u; supported: %d to %d", (unsigned)version,
                               MIN_PROTOCOL, MAX_PROTOCOL);
    return GPUSERVE_OK;
}

static gpuserve_status op_frame(struct gsv_pickle *p, gpuserve_error *error)
{
    uint64_t size;
    const gpuserve_status st = gsv_pickle_take_number(p, 8, &size, error);

    if (st != GPUSERVE_OK)
        return st;
    if (p->at < p->frame)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error, "a frame begins inside another one");
    if (size > p->size - p->at)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error,
                               "a frame of %llu bytes, %zu are left: the pickle is truncated",
                               (unsigned long long)size, p->size - p->at);
    p->frame = p->at + (size_t)size;
    return GPUSERVE_OK;
}

static gpuserve_status op_mark(struct gsv_pickle *p, gpuserve_error *error)
{
    if (p->n_marks == GSV_PICKLE_MAX_MARKS)
        return gsv_pickle_fail(p, GPUSERVE_E_TOO_LARGE, error, "more than %u nested marks",
                               GSV_PICKLE_MAX_MARKS);
    p->marks[p->n_marks++] = p->n_stack;
    return GPUSERVE_OK;
}

static gpuserve_status push_integer(struct gsv_pickle *p, enum gsv_pickle_kind kind,
                                    int64_t integer, gpuserve_error *error)
{
    return gsv_pickle_push(p, (struct gsv_pickle_value){ .kind = kind, .is.integer = integer },
                           error);
}

static gpuserve_status op_none(struct gsv_pickle *p, gpuserve_error *error)
{
    return push_integer(p, GSV_PICKLE_NONE, 0, error);
}

static gpuserve_status op_true(struct gsv_pickle *p, gpuserve_error *error)
{
    return push_integer(p, GSV_PICKLE_BOOL, 1, error);
}

static gpuserve_status op_false(struct gsv_pickle *p, gpuserve_error *error)
{
    return push_integer(p, GSV_PICKLE_BOOL, 0, error);
}

static gpuserve_status op_binint(struct gsv_pickle *p, gpuserve_error *error)
{
    uint64_t number;
    const gpuserve_status st = gsv_pickle_take_number(p, 4, &number, error);

    return st == GPUSERVE_OK ? push_integer(p, GSV_PICKLE_INT, (int32_t)number, error) : st;
}

static gpuserve_status op_binint1(struct gsv_pickle *p, gpuserve_error *error)
{
    uint64_t number;
    const gpuserve_status st = gsv_pickle_take_number(p, 1, &number, error);

    return st == GPUSERVE_OK ? push_integer(p, GSV_PICKLE_INT, (int64_t)number, error) : st;
}

static gpuserve_status op_binint2(struct gsv_pickle *p, gpuserve_error *error)
{
    uint64_t number;
    const gpuserve_status st = gsv_pickle_take_number(p, 2, &number, error);

    return st == GPUSERVE_OK ? push_integer(p, GSV_PICKLE_INT, (int64_t)number, error) : st;
}

/* A signed integer of up to 255 bytes. */
static gpuserve_status op_long1(struct gsv_pickle *p, gpuserve_error *error)
{
    const unsigned char *bytes;
    uint64_t n, number;
    gpuserve_status st = gsv_pickle_take_number(p, 1, &n, error);

    if (st == GPUSERVE_OK)
        st = gsv_pickle_take(p, n, &bytes, error);
    if (st != GPUSERVE_OK)
        return st;
    if (n > 8)
        return push_integer(p, GSV_PICKLE_BIG, 0, error);
    number = n > 0 && bytes[n - 1] >= 0x80 ? UINT64_MAX : 0;
    for (uint64_t i = n; i > 0; i--)
        number = number << 8 | bytes[i - 1];
    return push_integer(p, GSV_PICKLE_INT, (int64_t)number, error);
}

static gpuserve_status op_binfloat(struct gsv_pickle *p, gpuserve_error *error)
{
    const unsigned char *bytes; /* no tensor needs the value of a float */
    const gpuserve_status st = gsv_pickle_take(p, 8, &bytes, error);

    return st == GPUSERVE_OK ? push_integer(p, GSV_PICKLE_FLOAT, 0, error) : st;
}

/* A string after its size in n bytes. */
static gpuserve_status push_string(struct gsv_pickle *p, unsigned n, gpuserve_error *error)
{
    struct gsv_pickle_value value = { .kind = GSV_PICKLE_STRING };
    const unsigned char *bytes;
    uint64_t size;
    gpuserve_status st = gsv_pickle_take_number(p, n, &size, error);

    if (st == GPUSERVE_OK)
        st = gsv_pickle_take(p, size, &bytes, error);
    if (st != GPUSERVE_OK)
        return st;
    value.size = (uint32_t)size; /* at most GSV_PICKLE_MAX_BYTES */
    value.is.text = (const char *)bytes;
    return gsv_pickle_push(p, value, error);
}

static gpuserve_status op_string1(struct gsv_pickle *p, gpuserve_error *error)
{
    return push_string(p, 1, error);
}

static gpuserve_status op_string4(struct gsv_pickle *p, gpuserve_error *error)
{
    return push_string(p, 4, error);
}

static gpuserve_status op_string8(struct gsv_pickle *p, gpuserve_error *error)
{
    return push_string(p, 8, error);
}

static gpuserve_status op_empty_tuple(struct gsv_pickle *p, gpuserve_error *error)
{
    return gsv_pickle_push_new(p, GSV_PICKLE_TUPLE, error);
}

static gpuserve_status op_empty_list(struct gsv_pickle *p, gpuserve_error *error)
{
    return gsv_pickle_push_new(p, GSV_PICKLE_LIST, error);
}

static gpuserve_status op_empty_dict(struct gsv_pickle *p, gpuserve_error *error)
{
    return gsv_pickle_push_new(p, GSV_PICKLE_DICT, error);
}

static gpuserve_status pop_tuple(struct gsv_pickle *p, size_t n, gpuserve_error *error)
{
    const struct gsv_pickle_value *values;
    const gpuserve_status st = gsv_pickle_pop(p, n, &values, error);

    return st == GPUSERVE_OK ? gsv_pickle_push_tuple(p, values, n, error) : st;
}

static gpuserve_status op_tuple1(struct gsv_pickle *p, gpuserve_error *error)
{
    return pop_tuple(p, 1, error);
}

static gpuserve_status op_tuple2(struct gsv_pickle *p, gpuserve_error *error)
{
    return pop_tuple(p, 2, error);
}

static gpuserve_status op_tuple3(struct gsv_pickle *p, gpuserve_error *error)
{
    return pop_tuple(p, 3, error);
}

static gpuserve_status op_tuple(struct gsv_pickle *p, gpuserve_error *error)
{
    const struct gsv_pickle_value *values;
    size_t n;
    const gpuserve_status st = gsv_pickle_pop_mark(p, &values, &n, error);

    return st == GPUSERVE_OK ? gsv_pickle_push_tuple(p, values, n, error) : st;
}

static gpuserve_status op_append(struct gsv_pickle *p, gpuserve_error *error)
{
    const struct gsv_pickle_value *values;
    const gpuserve_status st = gsv_pickle_pop(p, 1, &values, error);

    return st == GPUSERVE_OK ? gsv_pickle_append(p, GSV_PICKLE_LIST, values, 1, error) : st;
}

static gpuserve_status op_appends(struct gsv_pickle *p, gpuserve_error *error)
{
    const struct gsv_pickle_value *values;
    size_t n;
    const gpuserve_status st = gsv_pickle_pop_mark(p, &values, &n, error);

    return st == GPUSERVE_OK ? gsv_pickle_append(p, GSV_PICKLE_LIST, values, n, error) : st;
}

static gpuserve_status op_setitem(struct gsv_pickle *p, gpuserve_error *error)
{
    const struct gsv_pickle_value *values;
    const gpuserve_status st = gsv_pickle_pop(p, 2, &values, error);

    return st == GPUSERVE_OK ? gsv_pickle_append(p, GSV_PICKLE_DICT, values, 2, error) : st;
}

static gpuserve_status op_setitems(struct gsv_pickle *p, gpuserve_error *error)
{
    const struct gsv_pickle_value *values;
    size_t n;
    const gpuserve_status st = gsv_pickle_pop_mark(p, &values, &n, error);

    return st == GPUSERVE_OK ? gsv_pickle_append(p, GSV_PICKLE_DICT, values, n, error) : st;
}

static gpuserve_status op_binput(struct gsv_pickle *p, gpuserve_error *error)
{
    uint64_t index;
    const gpuserve_status st = gsv_pickle_take_number(p, 1, &index, error);

    return st == GPUSERVE_OK ? gsv_pickle_memo_put(p, index, error) : st;
}

static gpuserve_status op_long_binput(struct gsv_pickle *p, gpuserve_error *error)
{
    uint64_t index;
    const gpuserve_status st = gsv_pickle_take_number(p, 4, &index, error);

    return st == GPUSERVE_OK ? gsv_pickle_memo_put(p, index, error) : st;
}

static gpuserve_status op_memoize(struct gsv_pickle *p, gpuserve_error *error)
{
    return gsv_pickle_memo_put(p, p->n_memo, error);
}

static gpuserve_status op_binget(struct gsv_pickle *p, gpuserve_error *error)
{
    uint64_t index;
    const gpuserve_status st = gsv_pickle_take_number(p, 1, &index, error);

    return st == GPUSERVE_OK ? gsv_pickle_memo_get(p, index, error) : st;
}

static gpuserve_status op_long_binget(struct gsv_pickle *p, gpuserve_error *error)
{
    uint64_t index;
    const gpuserve_status st = gsv_pickle_take_number(p, 4, &index, error);

    return st == GPUSERVE_OK ? gsv_pickle_memo_get(p, index, error) : st;
}

/* The next line, without its end. */
static gpuserve_status take_line(struct gsv_pickle *p, const char **text, size_t *size,
                                 gpuserve_error *error)
{
    const unsigned char *begin = p->bytes + p->at;
    const unsigned char *end = memchr(begin, '\n', gsv_pickle_left(p));

    if (!end)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error,
                               "a line does not end: the pickle is truncated");
    *text = (const char *)begin;
    *size = (size_t)(end - begin);
    p->at += *size + 1;
    return GPUSERVE_OK;
}

static gpuserve_status op_global(struct gsv_pickle *p, gpuserve_error *error)
{
    struct gsv_pickle_value value;
    const char *module = NULL, *name = NULL;
    size_t module_size = 0, name_size = 0;
    gpuserve_status st = take_line(p, &module, &module_size, error);

    if (st == GPUSERVE_OK)
        st = take_line(p, &name, &name_size, error);
    if (st == GPUSERVE_OK)
        st = gsv_pickle_global(p, module, module_size, name, name_size, &value, error);
    return st == GPUSERVE_OK ? gsv_pickle_push(p, value, error) : st;
}

static gpuserve_status op_stack_global(struct gsv_pickle *p, gpuserve_error *error)
{
    const struct gsv_pickle_value *values;
    struct gsv_pickle_value value;
    gpuserve_status st = gsv_pickle_pop(p, 2, &values, error);

    if (st != GPUSERVE_OK)
        return st;
    if (values[0].kind != GSV_PICKLE_STRING || values[1].kind != GSV_PICKLE_STRING)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error, "STACK_GLOBAL needs two strings");
    st = gsv_pickle_global(p, values[0].is.text, values[0].size, values[1].is.text, values[1].size,
                           &value, error);
    return st == GPUSERVE_OK ? gsv_pickle_push(p, value, error) : st;
}

static gpuserve_status op_reduce(struct gsv_pickle *p, gpuserve_error *error)
{
    const struct gsv_pickle_value *values;
    struct gsv_pickle_value result;
    gpuserve_status st = gsv_pickle_pop(p, 2, &values, error);

    if (st == GPUSERVE_OK)
        st = gsv_pickle_call(p, &values[0], &values[1], &result, error);
    return st == GPUSERVE_OK ? gsv_pickle_push(p, result, error) : st;
}

static gpuserve_status op_binpersid(struct gsv_pickle *p, gpuserve_error *error)
{
    const struct gsv_pickle_value *values;
    struct gsv_pickle_value result;
    gpuserve_status st = gsv_pickle_pop(p, 1, &values, error);

    if (st == GPUSERVE_OK)
        st = gsv_pickle_persistent(p, &values[0], &result, error);
    return st == GPUSERVE_OK ? gsv_pickle_push(p, result, error) : st;
}

static gpuserve_status op_build(struct gsv_pickle *p, gpuserve_error *error)
{
    const struct gsv_pickle_value *values;
    gpuserve_status st = gsv_pickle_pop(p, 2, &values, error);

    if (st == GPUSERVE_OK)
        st = gsv_pickle_build(p, &values[0], &values[1], error);
    return st == GPUSERVE_OK ? gsv_pickle_push(p, values[0], error) : st;
}

static gpuserve_status op_stop(struct gsv_pickle *p, gpuserve_error *error)
{
    if (p->n_marks != 0 || p->n_stack != 1)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error,
                               "STOP with %zu values and %zu marks on the stack, expected 1 and 0",
                               p->n_stack, p->n_marks);
    p->root = p->stack[0];
    return GPUSERVE_OK;
}

/* Every opcode of protocols 0 to 5. Those without a function are refused: they are of older
 * protocols, or make objects that are no tensors. */
static const struct {
    const char *name;
    gpuserve_status (*run)(struct gsv_pickle *p, gpuserve_error *error);
} opcodes[256] = {
    ['('] = { "MARK", op_mark },
    [')'] = { "EMPTY_TUPLE", op_empty_tuple },
    ['.'] = { "STOP", op_stop },
    ['0'] = { "POP", NULL },
    ['1'] = { "POP_MARK", NULL },
    ['2'] = { "DUP", NULL },
    ['B'] = { "BINBYTES", NULL },
    ['C'] = { "SHORT_BINBYTES", NULL },
    ['F'] = { "FLOAT", NULL },
    ['G'] = { "BINFLOAT", op_binfloat },
    ['I'] = { "INT", NULL },
    ['J'] = { "BININT", op_binint },
    ['K'] = { "BININT1", op_binint1 },
    ['L'] = { "LONG", NULL },
    ['M'] = { "BININT2", op_binint2 },
    ['N'] = { "NONE", op_none },
    ['P'] = { "PERSID", NULL },
    ['Q'] = { "BINPERSID", op_binpersid },
    ['R'] = { "REDUCE", op_reduce },
    ['S'] = { "STRING", NULL },
    ['T'] = { "BINSTRING", NULL },
    ['U'] = { "SHORT_BINSTRING", op_string1 },
    ['V'] = { "UNICODE", NULL },
    ['X'] = { "BINUNICODE", op_string4 },
    [']'] = { "EMPTY_LIST", op_empty_list },
    ['a'] = { "APPEND", op_append },
    ['b'] = { "BUILD", op_build },
    ['c'] = { "GLOBAL", op_global },
    ['d'] = { "DICT", NULL },
    ['e'] = { "APPENDS", op_appends },
    ['g'] = { "GET", NULL },
    ['h'] = { "BINGET", op_binget },
    ['i'] = { "INST", NULL },
    ['j'] = { "LONG_BINGET", op_long_binget },
    ['l'] = { "LIST", NULL },
    ['o'] = { "OBJ", NULL },
    ['p'] = { "PUT", NULL },
    ['q'] = { "BINPUT", op_binput },
    ['r'] = { "LONG_BINPUT", op_long_binput },
    ['s'] = { "SETITEM", op_setitem },
    ['t'] = { "TUPLE", op_tuple },
    ['u'] = { "SETITEMS", op_setitems },
    ['}'] = { "EMPTY_DICT", op_empty_dict },
    [0x80] = { "PROTO", op_proto },
    [0x81] = { "NEWOBJ", NULL },
    [0x82] = { "EXT1", NULL },
    [0x83] = { "EXT2", NULL },
    [0x84] = { "EXT4", NULL },
    [0x85] = { "TUPLE1", op_tuple1 },
    [0x86] = { "TUPLE2", op_tuple2 },
    [0x87] = { "TUPLE3", op_tuple3 },
    [0x88] = { "NEWTRUE", op_true },
    [0x89] = { "NEWFALSE", op_false },
    [0x8a] = { "LONG1", op_long1 },
    [0x8b] = { "LONG4", NULL },
    [0x8c] = { "SHORT_BINUNICODE", op_string1 },
    [0x8d] = { "BINUNICODE8", op_string8 },
    [0x8e] = { "BINBYTES8", NULL },
    [0x8f] = { "EMPTY_SET", NULL },
    [0x90] = { "ADDITEMS", NULL },
    [0x91] = { "FROZENSET", NULL },
    [0x92] = { "NEWOBJ_EX", NULL },
    [0x93] = { "STACK_GLOBAL", op_stack_global },
    [0x94] = { "MEMOIZE", op_memoize },
    [0x95] = { "FRAME", op_frame },
    [0x96] = { "BYTEARRAY8", NULL },
    [0x97] = { "NEXT_BUFFER", NULL },
    [0x98] = { "READONLY_BUFFER", NULL },
};

gpuserve_status gsv_pickle_step(struct gsv_pickle *p, unsigned char code, gpuserve_error *error)
{
    if (!opcodes[code].name)
        return gsv_pickle_fail(p, GPUSERVE_E_FORMAT, error, "0x%02x is not an opcode", code);
    if (!opcodes[code].run)
        return gsv_pickle_fail(p, GPUSERVE_E_UNSUPPORTED, error,
                               "opcode %s (0x%02x) is refused: no tensor needs it",
                               opcodes[code].name, code);
    return opcodes[code].run(p, error);
}
