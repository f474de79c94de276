/*
 * support.h - models and reference vectors for the tests of lib/model.
 *
 * Everything here asserts: a test goes on only with what it asked for.
 */
#ifndef GSV_TESTS_MODEL_SUPPORT_H
#define GSV_TESTS_MODEL_SUPPORT_H

#include "kernels/kernels.h"
#include "lib/model/model.h"

#include <stddef.h>
#include <stdint.h>

/* A model on the host, ready to run. */
struct loaded {
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    struct gsv_spec *spec;
    struct gsv_net *net;
    struct gsv_exec *work;
};

/* The folder of a real model; fails the test when it is not there. Lent, until the next call. */
const char *real_model(const char *name);
/* tests/data/NAME. Lent, until the next call. */
const char *test_data(const char *name);

struct load_options {
    const char *head;
    uint32_t pooling;
    uint32_t dtype;                         /* 0: float32 */
    const struct gpuserve_backend *backend; /* NULL: the CPU's */
    const struct gpuserve_host_batch *calibration, *probes;
    int32_t max_tokens, max_sequences; /* 0: 1024, 64 */
};

void load_model(struct loaded *model, const char *path, const struct load_options *options);
void unload_model(struct loaded *model);

/* What loading a directory's files and weights says, with its message. */
gpuserve_status try_load(const char *path, const char *head, gpuserve_error *error);

/* Texts as token ids, one after the other. */
struct texts {
    int32_t *ids;
    int32_t *n_tokens; /* [n] */
    size_t n;
};

/* Run texts [first, first + n) in one batch; the output is `columns` a text (or a token). */
void run_texts(const struct loaded *model, const struct texts *texts, size_t first, size_t n,
               const struct gsv_run *run);
/* All texts, in batches as large as the work takes; rows of gsv_run_columns() floats, owned. */
float *run_all(const struct loaded *model, const struct texts *texts, struct gsv_run run);

/* A host batch of texts, its arrays owned: free_batch(). */
struct gpuserve_host_batch make_batch(const struct gsv_spec_facts *facts, const struct texts *texts,
                                      size_t first, size_t n);
void free_batch(struct gpuserve_host_batch *batch);

/* A tensor's bytes from a safetensors file, owned; *count receives its elements. */
void *read_reference(const char *path, const char *name, size_t *count);
struct texts read_texts(const char *path); /* `ids` and `n_tokens` */
void free_texts(struct texts *texts);

struct difference {
    double largest; /* max |a - b| */
    double min_cosine, mean_cosine;
};

/* Rows of floats against rows of float64. */
struct difference compare_rows(const float *got, const double *want, size_t rows, size_t columns);

#endif
