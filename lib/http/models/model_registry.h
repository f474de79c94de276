/*
 * model_registry.h - the served models by name and alias, with reference counts.
 *
 * A name always means the same entry; an entry's model may be unloaded and loaded again. A request
 * holds a reference until gsv_served_release(). So an unload does not wait, and no model in use is
 * freed. `lock` protects which model an entry has.
 */
#ifndef GSV_HTTP_MODEL_REGISTRY_H
#define GSV_HTTP_MODEL_REGISTRY_H

#include "lib/http/core/json_write.h"

#include <gpuserve/gpuserve.h>
#include <gpuserve/http.h>
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/*
 * Batch statistics of a model since it started to serve.
 *
 * They include the host program's own use of the model. Work before that point, such as the test
 * run of a reload, is subtracted as a baseline.
 */

struct gsv_served;

/* Batch counts by number of texts, in ascending order. */
struct gsv_batches {
    gpuserve_batch_counts *rows; /* [n] */
    size_t n;
};

void gsv_batches_free(struct gsv_batches *batches);

/* Takes the baseline: later results exclude all work before this call. */
gpuserve_status gsv_served_begin_stats(struct gsv_served *served, gpuserve_error *error);

/* Counts of batches and texts; the caller frees `batches` with gsv_batches_free(). */
gpuserve_status gsv_served_stats(const struct gsv_served *served, gpuserve_model_counts *counts,
                                 struct gsv_batches *batches, gpuserve_error *error);

/* Job statistics of a model since it was loaded. A request may have several jobs. */
struct gsv_model_stats {
    _Atomic uint64_t n_ok, n_failed, total_us, tokenize_us, queue_us, compute_us;
    _Atomic uint64_t last_ms; /* start of the latest job, in ms since 1970; 0: none */
};

/* Ranges for one form of a model's vectors; an immutable entry of a linked list. */
struct gsv_ranges {
    struct gsv_ranges *next;
    char fingerprint[40]; /* a swap by the host program changes it */
    uint32_t normalize;
    size_t columns, depth; /* depth: entries from this one on */
    float values[];        /* [2, columns] */
};

/* One loaded model, shared by reference. Immutable except for the atomic fields. */
struct gsv_served {
    _Atomic size_t n_users;
    struct gsv_model_stats stats;
    gpuserve_model_counts tried;      /* baseline counts from when it started to serve */
    struct gsv_batches tried_batches; /* baseline batch counts */
    gpuserve_model *model;
    bool owned;       /* opened by the server, which closes it */
    const char *name; /* borrowed from the entry */
    json_t *facts;    /* model info: the JSON of gpuserve_model_info() */
    gpuserve_model_properties properties;
    const char *device, *dtype, *products_dtype, *space; /* borrowed from facts and model */
    size_t dim, max_tokens;
    size_t n_labels, n_token_labels; /* one of them is 0: labels are of texts or of tokens */
    bool can_embed, is_reranker, finds_entities;
    time_t modified; /* of the model's directory or file; 0: unknown */
    /* For idle.h. */
    _Atomic int64_t keep_ms;  /* time without a job before the model is suspended; -1: never */
    _Atomic uint64_t used_ns; /* end of the last job */
    _Atomic size_t n_active;  /* jobs */
    _Atomic bool is_suspended;
    const float *given_ranges; /* [2, ranges_dim] of int8 vectors, or NULL; of the entry */
    size_t ranges_dim;
    _Atomic(struct gsv_ranges *) ranges; /* of int8 vectors, a list; owned; see
                                            embedding_outputs.c */
};

struct gsv_entry {
    char *name, *path;
    char **aliases;
    size_t n_aliases;
    gpuserve_model_options options; /* its strings are copies, below */
    char *device, *head, *heads, *adapters, *default_prompt, *default_prompt_name;
    gpuserve_model *borrowed;
    float *ranges; /* [2, ranges_dim] of int8 vectors, or NULL */
    size_t ranges_dim;
    struct gsv_served *served; /* NULL: unloaded */
    char *reason;              /* why it is not loaded, or NULL */
};

struct gsv_models {
    pthread_rwlock_t lock;   /* protects `served` and `reason` of every entry */
    pthread_mutex_t loading; /* serializes loads */
    gpuserve_context *context;
    struct gsv_entry *entries; /* [n]; the first is the default */
    size_t n;
};

gpuserve_status gsv_models_open(struct gsv_models *models, gpuserve_context *context,
                                const gpuserve_http_model *given, size_t n, gpuserve_error *error);
void gsv_models_close(struct gsv_models *models);

/* The entry with this name or alias; NULL: none. */
struct gsv_entry *gsv_models_entry(struct gsv_models *models, const char *name);
/* A reference to the entry's model; NULL if not loaded. */
struct gsv_served *gsv_models_hold(struct gsv_models *models, struct gsv_entry *entry);
/* Releases a reference; accepts NULL. */
void gsv_served_release(struct gsv_served *served);
/* A label as text. "" if the program that lends its model swapped in one with fewer labels. */
const char *gsv_served_label(const struct gsv_served *served, size_t index);
/* Runs one text, different each time to bypass the cache. */
gpuserve_status gsv_served_try(const struct gsv_served *served, gpuserve_error *error);

/* Runs one text through each loaded model in turn. Appends the results as `{"models":[...]`,
 * without the closing brace. True: every model succeeded or was busy. */
bool gsv_models_try(struct gsv_models *models, struct gsv_buffer *to);

/* Loads (again) or unloads a model that the server opens itself. With `instead` the load replaces a
 * model and is discarded if a client unloads that one meanwhile. */
gpuserve_status gsv_models_load(struct gsv_models *models, struct gsv_entry *entry, bool instead,
                                gpuserve_error *error);
gpuserve_status gsv_models_unload(struct gsv_models *models, struct gsv_entry *entry,
                                  gpuserve_error *error);

/* Whether the model supports a gpuserve_task. */
static inline bool gsv_served_has(const struct gsv_served *served, uint32_t task)
{
    return served->properties.tasks >> task & 1;
}

/* The model's prompts by name, a JSON object; borrowed from the model info. */
const json_t *gsv_served_prompts(const struct gsv_served *served);

#endif
