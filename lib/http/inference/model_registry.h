/*
 * model_registry.h - the models a server answers with, by name and alias, counted by those who use
 * them.
 *
 * A name always means one entry; an entry's model may be unloaded and loaded again. Whoever asked
 * for a model holds it until gsv_served_release, so unloading waits for nobody and frees nothing
 * that is in use.
 */
#ifndef GSV_HTTP_MODEL_REGISTRY_H
#define GSV_HTTP_MODEL_REGISTRY_H

#include "lib/http/core/buffer.h"
#include "lib/http/inference/model_stats.h"

#include <gpuserve/http.h>

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* What clients have had computed by a model since it was loaded: jobs, of which a request may have
 * several. */
struct gsv_model_stats {
    _Atomic uint64_t n_ok, n_failed, total_us, tokenize_us, queue_us, compute_us;
    _Atomic uint64_t last_ms; /* when a job began last, since 1970; 0: none yet */
};

/* One loaded model. Immutable but for its counts. */
struct gsv_served {
    _Atomic size_t n_users;
    struct gsv_model_stats stats;
    gpuserve_model_counts tried;      /* what it had computed when it took its place */
    struct gsv_batches tried_batches; /* of these */
    gpuserve_model *model;
    bool owned;                         /* opened here */
    const char *name;                   /* lent by the entry */
    json_t *facts;                      /* as gpuserve_model_info() tells them */
    const char *device, *dtype, *space; /* lent by facts and model */
    size_t dim, max_tokens;
    size_t n_labels, n_token_labels; /* one of them is 0: labels are of texts or of tokens */
    bool can_embed, is_reranker;
};

struct gsv_entry {
    char *name, *path;
    char **aliases;
    size_t n_aliases;
    gpuserve_model_options options; /* with strings of our own */
    char *device, *head, *default_prompt, *default_prompt_name;
    gpuserve_model *borrowed;
    struct gsv_served *served; /* NULL: unloaded */
    char *reason;              /* why it is not there, or NULL */
};

struct gsv_models {
    pthread_rwlock_t lock;   /* over every `served` and `reason` */
    pthread_mutex_t loading; /* one load at a time */
    gpuserve_context *context;
    struct gsv_entry *entries; /* the first is the default */
    size_t n;
};

gpuserve_status gsv_models_open(struct gsv_models *models, gpuserve_context *context,
                                const gpuserve_http_model *given, size_t n, gpuserve_error *error);
void gsv_models_close(struct gsv_models *models);

/* The entry of a name or an alias; NULL: none. */
struct gsv_entry *gsv_models_entry(struct gsv_models *models, const char *name);
/* The model of an entry, held; NULL when it is not loaded. */
struct gsv_served *gsv_models_hold(struct gsv_models *models, struct gsv_entry *entry);
/* One text through it, another one each time, so that no cache can answer. */
gpuserve_status gsv_served_try(const struct gsv_served *served, gpuserve_error *error);

/* One text after the other through each model that is loaded; what became of each is appended as
 * `{"models":[...]`, without the closing brace. True: all are good or busy. */
bool gsv_models_try(struct gsv_models *models, struct gsv_buffer *to);

/* Load (again) or unload what the server opened itself. Instead of what is loaded: not if a client
 * unloads it meanwhile. */
gpuserve_status gsv_models_load(struct gsv_models *models, struct gsv_entry *entry, bool instead,
                                gpuserve_error *error);
gpuserve_status gsv_models_unload(struct gsv_models *models, struct gsv_entry *entry,
                                  gpuserve_error *error);

/* The prompt names of a model as ["query", "passage"]; lent text of the facts. */
const json_t *gsv_served_prompts(const struct gsv_served *served);

#endif
