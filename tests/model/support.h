/*
 * support.h - models and reference vectors for the tests of lib/model.
 *
 * All functions assert: a test continues only if they succeeded.
 */
#ifndef GSV_TESTS_MODEL_SUPPORT_H
#define GSV_TESTS_MODEL_SUPPORT_H

#include "kernels/kernels.h"
#include "lib/model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The tokens that a reranker which is a language model answers with, in all fixtures. */
enum { NO = 5, YES = 7 };

#define MAX_STAGES 4 /* devices of a pipeline */

struct loaded {
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    struct gpuserve_device *before[MAX_STAGES - 1]; /* of a pipeline */
    struct gsv_spec *spec;
    struct gsv_net *net;
    struct gsv_exec *work;
};

/* Folder of a real model; fails the test if it is missing. Borrowed until the next call. */
const char *real_model(const char *name);
/* tests/data/NAME. Borrowed until the next call. */
const char *test_data(const char *name);

/* A whole file with a NUL after it, owned. */
char *read_file(const char *path, size_t *size);
void write_file(const char *path, const char *bytes, size_t size);
/* Copies a folder with one level of subfolders to `to`, or removes it if `to` is NULL. Files whose
 * names begin with a dot are left out. */
void each_file(const char *folder, const char *to);

struct load_options {
    const char *head;
    const char *heads; /* lines NAME=FILE */
    uint32_t pooling;
    uint32_t dtype;                         /* 0: float32 */
    bool may_be_imprecise;                  /* a model that int8 refuses has no net and no work */
    const struct gpuserve_backend *backend; /* NULL: the CPU's */
    const struct gpuserve_host_batch *calibration, *probes;
    gpuserve_status (*calibrate)(void *user, gpuserve_error *error);
    void *calibrate_user;
    int32_t max_tokens, max_sequences; /* 0: 1024, 64 */
    struct gsv_phase_observer observer;
    struct gsv_packed_file *packed;
    int32_t n_streamed;
    /* A pipeline of devices 0, 1, ...; NULL: one device. Those of a host backend are all device 0.
     */
    const struct gsv_layer_range *ranges;
    int32_t n_ranges;
    const char *lora;                        /* directory of a LoRA adapter to merge */
    const struct gsv_adapter_dirs *adapters; /* by request; NULL: none */
};

void load_model(struct loaded *model, const char *path, const struct load_options *options);
void unload_model(struct loaded *model);

/* Opens the adapter NAME of tests/data/lora as the next of `adapters`; close_adapters(). */
void add_adapter(struct gsv_adapter_dirs *adapters, const char *name);
void close_adapters(struct gsv_adapter_dirs *adapters);

/* A head of random weights. */
struct head_shape {
    const char *name, *activation, *input;
    int32_t widths[4]; /* columns of each layer's output; those behind the last are 0 */
};

/* Writes NAME.safetensors to `folder`, for an embedding of `dim` columns; labels are "NAME 0", ...
 */
void write_head(const char *folder, const struct head_shape *shape, int32_t dim);

/* Status and message of loading a directory's files and weights. */
gpuserve_status try_load(const char *path, const char *head, gpuserve_error *error);

/* The models of tests/data/models/families.txt. */
#define MAX_MODELS 512

struct model_name {
    char text[96];
};

/* Fill `names`; returns their number. */
size_t read_families(struct model_name names[MAX_MODELS]);
/* True if refused.txt names the model; `reason` receives what the error must contain. */
bool is_refused(const char *name, char reason[96]);

/* Texts as concatenated token ids. */
struct texts {
    int32_t *ids;
    int32_t *n_tokens; /* [n] */
    size_t n;
    int32_t *type_ids; /* of each id; NULL: zeros */
};

/* Runs texts [first, first + n) in one batch; `columns` floats of output per text (or token). */
void run_texts(const struct loaded *model, const struct texts *texts, size_t first, size_t n,
               const struct gsv_run *run);
/* Runs all texts, in the largest batches possible; rows of gsv_run_columns() floats, owned. */
float *run_all(const struct loaded *model, const struct texts *texts, struct gsv_run run);

/* A host batch of texts with owned arrays: free_batch(). */
struct gpuserve_host_batch make_batch(const struct gsv_spec_facts *facts, const struct texts *texts,
                                      size_t first, size_t n);
void free_batch(struct gpuserve_host_batch *batch);

/* True if the safetensors file has the tensor. */
bool has_reference(const char *path, const char *name);
/* Bytes of a tensor in a safetensors file, owned; *count receives the number of elements. */
void *read_reference(const char *path, const char *name, size_t *count);
struct texts read_texts(const char *path); /* `ids`, `n_tokens`, `type_ids` if it is there */
void free_texts(struct texts *texts);

struct difference {
    double largest; /* max |a - b| */
    double min_cosine, mean_cosine;
};

/* Rows of floats against rows of float64. */
struct difference compare_rows(const float *got, const double *want, size_t rows, size_t columns);

#endif
