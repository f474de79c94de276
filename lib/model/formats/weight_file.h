/*
 * weight_file.h - an open file of weights in any format, and the tensors in it.
 *
 * A format validates a file completely when it opens it (gsv_safetensors_open(),
 * gsv_torch_file_open()). After that, lookups cannot fail, and the rest of the library does not
 * know the format. Immutable once open.
 */
#ifndef GSV_MODEL_WEIGHT_FILE_H
#define GSV_MODEL_WEIGHT_FILE_H

#include "lib/base/dir.h"

#include <stdbool.h>
#include <stddef.h>

#define GSV_TENSOR_MAX_RANK 4 /* of tensors in use; others are only validated */

enum gsv_tensor_type {
    GSV_TENSOR_F32,
    GSV_TENSOR_F16,
    GSV_TENSOR_BF16,
    GSV_TENSOR_F64,
    GSV_TENSOR_F8_E4M3, /* 4 exponent bits, no infinity (float8_e4m3fn) */
    GSV_TENSOR_F8_E5M2, /* 5 exponent bits, the upper half of a float16 */
    GSV_TENSOR_I8_ROWS, /* int8 with a float32 scale for each row: see row_scales.c */
    GSV_TENSOR_Q4_0,    /* from here on blocks of GGUF files, see gguf_quant.c */
    GSV_TENSOR_Q4_1,
    GSV_TENSOR_Q5_0,
    GSV_TENSOR_Q5_1,
    GSV_TENSOR_Q8_0,
    GSV_TENSOR_IQ4_NL,
    GSV_TENSOR_Q2_K,
    GSV_TENSOR_Q3_K,
    GSV_TENSOR_Q4_K,
    GSV_TENSOR_Q5_K,
    GSV_TENSOR_Q6_K,
    GSV_TENSOR_I8, /* never of a file: static_table.c reads OTHER as one of these */
    GSV_TENSOR_I32,
    GSV_TENSOR_I64,
    GSV_TENSOR_OTHER /* integers and others: validated, never read as weights */
};

struct gsv_weight_file;

/* One tensor, as described in the file. */
struct gsv_tensor {
    const char *name;                   /* borrowed from the file */
    const struct gsv_weight_file *file; /* borrowed */
    enum gsv_tensor_type type;
    const char *type_name; /* "F32", static */
    bool is_strided;       /* its elements are not in row order (PyTorch only): not readable */
    uint64_t rank;
    uint64_t shape[GSV_TENSOR_MAX_RANK]; /* the first GSV_TENSOR_MAX_RANK dimensions */
    uint64_t count;                      /* number of elements */
    uint64_t offset;                     /* bytes from the start of the file */
    uint64_t size_bytes;                 /* 0 if is_strided */
    /* I8_ROWS, else 0. Unchanged in a tensor that describes some rows of another one. */
    uint64_t rows_offset;   /* bytes from the start of the file to row 0 of the whole tensor */
    uint64_t scales_offset; /* to the scale of row 0 */
};

/* The functions of a format. */
struct gsv_weight_format {
    const char *name; /* "safetensors" */
    bool (*find)(const struct gsv_weight_file *file, const char *name, struct gsv_tensor *tensor);
    bool (*at)(const struct gsv_weight_file *file, size_t i, struct gsv_tensor *tensor);
    void (*close)(struct gsv_weight_file *file); /* frees the format's own fields */
    /* Computes elements of a tensor whose values are not in a file; NULL: they are in the file. */
    gpuserve_status (*fetch)(const struct gsv_tensor *tensor, uint64_t first, size_t n, void *raw,
                             gpuserve_error *error);
};

/* The part that all formats have; the first field of each format's struct. */
struct gsv_weight_file {
    const struct gsv_weight_format *format;
    char *shown; /* DIR/NAME */
    int fd;      /* -1: the values are computed */
    uint64_t size_bytes;
};

/* Allocate a format's struct of `bytes` bytes and open DIR/NAME. On an error *file is NULL. The
 * descriptor stays open until gsv_weight_file_close(). A Git LFS pointer is refused. */
gpuserve_status gsv_weight_file_open(struct gsv_weight_file **file, size_t bytes,
                                     const struct gsv_weight_format *format,
                                     const struct gsv_dir *dir, const char *name,
                                     gpuserve_error *error);
void gsv_weight_file_close(struct gsv_weight_file **file); /* accepts NULL, sets NULL */

/* Find a tensor by name; false if it does not exist. */
bool gsv_weight_file_find(const struct gsv_weight_file *file, const char *name,
                          struct gsv_tensor *tensor);

/* Tensor i, in an order of the format's own; false if there are no more than i tensors. */
bool gsv_weight_file_at(const struct gsv_weight_file *file, size_t i, struct gsv_tensor *tensor);

const char *gsv_weight_file_name(const struct gsv_weight_file *file); /* for messages */
int gsv_weight_file_fd(const struct gsv_weight_file *file);

/* Refuse, by name, a tensor whose elements are not in row order. */
gpuserve_status gsv_tensor_check_order(const struct gsv_tensor *tensor, gpuserve_error *error);

/* Bytes of n elements, whole blocks of the type; 0 for OTHER. The scales of I8_ROWS are not
 * included. */
uint64_t gsv_tensor_bytes(enum gsv_tensor_type type, uint64_t n);

#endif
