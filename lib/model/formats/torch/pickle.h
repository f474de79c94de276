/*
 * pickle.h - reads the pickles of torch.save() as data: containers, numbers, strings, tensors.
 *
 * A pickle is a program for a stack machine. This interpreter knows the opcodes and the names that
 * state dicts of tensors need. It refuses all others by name, and never calls anything. The work is
 * linear in the bytes; stack, memo, containers and nesting are bounded. Containers are referred to
 * by index and never walked recursively, so a container inside itself is harmless.
 */
#ifndef GSV_MODEL_PICKLE_H
#define GSV_MODEL_PICKLE_H

#include "lib/model/formats/weight_file.h"

#include <stdint.h>

#define GSV_PICKLE_MAX_BYTES (16u << 20)
#define GSV_PICKLE_MAX_STACK 65536u
#define GSV_PICKLE_MAX_MARKS 100u
#define GSV_PICKLE_MAX_MEMO 1000000u
#define GSV_PICKLE_MAX_CONTAINERS 500000u
#define GSV_PICKLE_MAX_ITEMS 2000000u
#define GSV_PICKLE_MAX_TENSORS 100000u
#define GSV_PICKLE_MAX_RANK 64u

/* Up to STRING, values may be keys of dicts. */
enum gsv_pickle_kind {
    GSV_PICKLE_UNSET, /* a memo entry that was never written */
    GSV_PICKLE_NONE,
    GSV_PICKLE_BOOL,
    GSV_PICKLE_INT,
    GSV_PICKLE_BIG, /* an integer of more than 64 bits; its value is not kept */
    GSV_PICKLE_FLOAT,
    GSV_PICKLE_STRING,
    GSV_PICKLE_GLOBAL,
    GSV_PICKLE_TUPLE,
    GSV_PICKLE_LIST,
    GSV_PICKLE_DICT,
    GSV_PICKLE_STORAGE,
    GSV_PICKLE_TENSOR
};

struct gsv_pickle_value {
    enum gsv_pickle_kind kind;
    uint32_t size; /* bytes of a string; 0 for other kinds */
    union {
        int64_t integer;  /* INT, BOOL */
        const char *text; /* STRING: [size] in the pickle's bytes, no NUL at the end */
        size_t index;     /* of the container, the storage, the tensor or the global */
    } is;
};

struct gsv_pickle_container {
    struct gsv_pickle_value *items; /* [n] owned; a dict has key, value, key, value */
    size_t n, capacity;
    bool is_ordered_dict;
};

/* A reference to bytes outside of the pickle. */
struct gsv_pickle_storage {
    struct gsv_pickle_value key; /* a string of letters, digits and '_' */
    size_t global;               /* the storage's class */
    uint64_t count;              /* number of elements */
};

struct gsv_pickle_tensor {
    size_t storage;
    size_t shape;           /* a container of integers */
    uint64_t offset, count; /* in elements; the tensor is inside its storage */
    bool is_strided;        /* the elements are not contiguous in row order */
};

struct gsv_pickle {
    const char *shown, *part; /* file and part of it, for messages */
    const unsigned char *bytes;
    size_t size;
    size_t at; /* the next byte */
    size_t
        frame; /* end of the current frame (FRAME), which no opcode crosses; may be behind `at` */
    size_t opcode; /* offset of the opcode in progress, for messages */

    struct gsv_pickle_value *stack, *memo;
    size_t n_stack, stack_capacity, n_memo, memo_size, memo_capacity;
    size_t marks[GSV_PICKLE_MAX_MARKS]; /* heights of the stack */
    size_t n_marks;
    struct gsv_pickle_container *containers;
    size_t n_containers, containers_capacity, n_items;
    struct gsv_pickle_storage *storages;
    size_t n_storages, storages_capacity;
    struct gsv_pickle_tensor *tensors;
    size_t n_tensors, tensors_capacity;
    struct gsv_pickle_value root;
};

/* Interpret one pickle up to its STOP; `size` bytes, at most GSV_PICKLE_MAX_BYTES, may have more
 * after it. The bytes are borrowed
 * until gsv_pickle_reset(). On success pickle->at is the end and pickle->root the result; on an
 * error *pickle is empty. */
gpuserve_status gsv_pickle_read(struct gsv_pickle *pickle, const void *bytes, size_t size,
                                const char *shown, const char *part, gpuserve_error *error);
void gsv_pickle_reset(struct gsv_pickle *pickle);

/* The value of a string key of a dict, or NULL; the last one if the key is repeated. */
const struct gsv_pickle_value *gsv_pickle_get(const struct gsv_pickle *pickle,
                                              const struct gsv_pickle_value *dict, const char *key);
/* Whether a value is this string, which is not empty. */
bool gsv_pickle_is_text(const struct gsv_pickle_value *value, const char *text);

/* The type of a storage's elements. */
struct gsv_pickle_type {
    const char *name; /* "F32" */
    enum gsv_tensor_type type;
    uint32_t bytes;
};
const struct gsv_pickle_type *gsv_pickle_type_of(const struct gsv_pickle_storage *storage);

#endif
