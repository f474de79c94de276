/*
 * gguf.h - opens a GGUF file (the model format of llama.cpp): key-values and a table of tensors.
 *
 * A file is: magic, version, counts; the key-values; the tensors' names, shapes, types and offsets;
 * then the tensors' bytes, each aligned. All numbers are little-endian. The checks are those of
 * llama.cpp's own reader: tensors follow each other without gaps other than alignment, and names
 * are unique. The header is copied into memory; the tensors' bytes are left in the file.
 *
 * A model may be split into files NAME-00001-of-0000N.gguf. The first has the key-values; each has
 * a table of its own tensors.
 *
 * Immutable once open.
 */
#ifndef GSV_BASE_GGUF_H
#define GSV_BASE_GGUF_H

#include "lib/base/dir.h"

#include <stddef.h>

#define GSV_GGUF_MAX_RANK 4
#define GSV_GGUF_MAX_HEADER ((uint64_t)256 << 20) /* the largest known vocabularies need 20 MB */
/* Parts after the first lack a vocabulary. */
#define GSV_GGUF_MAX_PART_HEADER ((uint64_t)16 << 20)
#define GSV_GGUF_MAX_PARTS 64
#define GSV_GGUF_MAX_VALUES 65536
#define GSV_GGUF_MAX_TENSORS 65536
#define GSV_GGUF_MAX_NAME 64 /* bytes of a tensor's name, as in llama.cpp */

/* The numbers are those of the file. */
enum gsv_gguf_kind {
    GSV_GGUF_UINT8,
    GSV_GGUF_INT8,
    GSV_GGUF_UINT16,
    GSV_GGUF_INT16,
    GSV_GGUF_UINT32,
    GSV_GGUF_INT32,
    GSV_GGUF_FLOAT32,
    GSV_GGUF_BOOL,
    GSV_GGUF_STRING,
    GSV_GGUF_ARRAY,
    GSV_GGUF_UINT64,
    GSV_GGUF_INT64,
    GSV_GGUF_FLOAT64,
    GSV_GGUF_N_KINDS
};

/* Text in the header: not NUL-terminated. */
struct gsv_gguf_text {
    const char *at;
    size_t size;
};

struct gsv_gguf_value {
    struct gsv_gguf_text key;  /* UTF-8 without control characters */
    enum gsv_gguf_kind kind;   /* of the elements, if it is an array */
    bool is_array;             /* an array of arrays is refused */
    uint64_t n;                /* number of elements; 1 if it is no array */
    const unsigned char *data; /* the elements; strings are length and bytes */
    size_t size;               /* bytes of data */
};

/* A tensor's number type: `block` consecutive elements of a row take `bytes` bytes. */
struct gsv_gguf_type {
    const char *name;
    uint32_t block, bytes;
};

struct gsv_gguf_tensor {
    struct gsv_gguf_text name;
    uint32_t type; /* gsv_gguf_type_of() knows it */
    uint32_t rank;
    uint64_t dims[GSV_GGUF_MAX_RANK]; /* the first is that of adjacent elements: a row's length */
    uint64_t count;                   /* number of elements */
    uint64_t offset;                  /* bytes from the start of the file */
    uint64_t size_bytes;
};

struct gsv_gguf {
    const char *shown; /* the file's name for messages; borrowed */
    uint64_t file_size;
    struct gsv_gguf_value *values; /* [n_values] sorted by key */
    size_t n_values;
    struct gsv_gguf_tensor *tensors; /* [n_tensors] sorted by name */
    size_t n_tensors;
    /* Set by gsv_gguf_open() only. */
    unsigned char *header; /* owned */
    char *name;            /* owned */
    int fd;                /* -1: none */
    /* Split files: [n_parts] the parts after this one, owned. Their tensors have names of their
     * own. */
    struct gsv_gguf **parts;
    size_t n_parts;
};

/* Parse the first `size` bytes of a file of `file_size` bytes; they are borrowed until
 * gsv_gguf_close(). *is_short is true if parsing failed only because the header is longer than
 * `size`. */
gpuserve_status gsv_gguf_parse(struct gsv_gguf **gguf, const unsigned char *bytes, size_t size,
                               uint64_t file_size, const char *shown, bool *is_short,
                               gpuserve_error *error);

/* Open the GGUF file of a directory, see gsv_dir_gguf(), and the other parts if it is the first
 * part of a split file. */
gpuserve_status gsv_gguf_open(struct gsv_gguf **gguf, const struct gsv_dir *dir,
                              gpuserve_error *error);
void gsv_gguf_close(struct gsv_gguf **gguf); /* accepts NULL, leaves NULL */

/* Parts of a split file, by name (gguf_parts.c). */
struct gsv_gguf_part_name {
    size_t stem;           /* length of NAME in NAME-00001-of-0000N.gguf */
    int32_t number, count; /* 1 <= number <= count */
};

/* False if the file name is not that of a part of several. */
bool gsv_gguf_part_name(struct gsv_gguf_part_name *part, const char *name);

/* True if the file is the first of `n` parts. */
bool gsv_gguf_is_first_part(const char *name, size_t n);

/* If `path` names a part, *real, the real path of the file, becomes that of its directory with the
 * name in `path`. False if out of memory, or if the directory is gone. */
bool gsv_gguf_part_path(char **real, const char *path);

/* Open the parts after the first and check that they belong together. Implemented in
 * gguf_parts.c with gsv_gguf_open_file(). */
gpuserve_status gsv_gguf_open_parts(struct gsv_gguf *gguf, const struct gsv_dir *dir,
                                    gpuserve_error *error);
/* Open one file; takes ownership of `shown`, also on failure. */
gpuserve_status gsv_gguf_open_file(struct gsv_gguf **gguf, const struct gsv_dir *dir,
                                   const char *name, char *shown, uint64_t max_header,
                                   gpuserve_error *error);

/* NULL if the number is unknown. */
const struct gsv_gguf_type *gsv_gguf_type_of(uint32_t number);

bool gsv_gguf_text_is(struct gsv_gguf_text text, const char *other);

/* NULL if absent. Key-values are those of the first part, tensors those of all parts. */
const struct gsv_gguf_value *gsv_gguf_find(const struct gsv_gguf *gguf, const char *key);
const struct gsv_gguf_tensor *gsv_gguf_find_tensor(const struct gsv_gguf *gguf, const char *name);

/* Typed key-values. An absent key leaves *value unchanged and returns GPUSERVE_OK. Another type, or
 * a number outside [minimum, maximum], is GPUSERVE_E_FORMAT. */
gpuserve_status gsv_gguf_int(const struct gsv_gguf *gguf, const char *key, int64_t minimum,
                             int64_t maximum, int64_t *value, gpuserve_error *error);
gpuserve_status gsv_gguf_float(const struct gsv_gguf *gguf, const char *key, double *value,
                               gpuserve_error *error);
gpuserve_status gsv_gguf_bool(const struct gsv_gguf *gguf, const char *key, bool *value,
                              gpuserve_error *error);
gpuserve_status gsv_gguf_string(const struct gsv_gguf *gguf, const char *key,
                                struct gsv_gguf_text *value, gpuserve_error *error);
/* *value is borrowed. INT8 and UINT8, INT32 and UINT32 are each taken for the other. */
gpuserve_status gsv_gguf_array(const struct gsv_gguf *gguf, const char *key,
                               enum gsv_gguf_kind kind, const struct gsv_gguf_value **value,
                               gpuserve_error *error);

/* Element i of an array of INT32 or FLOAT32. */
int32_t gsv_gguf_int_at(const struct gsv_gguf_value *array, uint64_t i);
float gsv_gguf_float_at(const struct gsv_gguf_value *array, uint64_t i);

/* The strings of an array, in order: *at counts the bytes read and begins at 0. Call it at most
 * array->n times. */
struct gsv_gguf_text gsv_gguf_next_string(const struct gsv_gguf_value *array, size_t *at);

#endif
