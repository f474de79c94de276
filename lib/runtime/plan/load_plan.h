/*
 * load_plan.h - load plan of a model, made before its weights are read: directory, device, dtype,
 * threads, batch sizes, bytes.
 *
 *   name + options --gsv_plan_read, _size--> plan --> gpuserve_model_inspect, _footprint, _open
 */
#ifndef GSV_RUNTIME_LOAD_PLAN_H
#define GSV_RUNTIME_LOAD_PLAN_H

#include "lib/base/dir.h"
#include "lib/model/model.h"
#include "lib/runtime/core/metrics.h"
#include "lib/runtime/devices/cuda_devices.h"
#include "lib/runtime/devices/device.h"
#include "lib/text/tokenizer.h"

#include <gpuserve/gpuserve.h>

#define GSV_MAX_BATCH_TOKENS (1 << 20)

/* Bytes available to a model: in total over all kinds of memory, and on each of its devices. */
struct gsv_capacity {
    uint64_t all;
    uint64_t devices[GSV_MAX_CUDA]; /* [gsv_plan.n_devices] */
};

/* The tokens before and after the changing part of a pair template. Zero: there is no template. */
struct gsv_pair_frame {
    int32_t *ids; /* [n_before + n_after]; owned */
    size_t n_before, n_after;
};

/* gsv_late_facts as token ids; see below. */
struct gsv_late_plan {
    int32_t fill_id;  /* that fills a query up */
    int32_t *skipped; /* [n_skipped], ascending; owned */
    size_t n_skipped;
};

struct gsv_plan {
    struct gsv_dir *dir;
    struct gsv_spec *spec;
    const struct gsv_spec_facts *facts; /* borrowed from the spec */
    struct gsv_tokenizer *tokenizer;
    struct gsv_device_choice device;   /* the first of `devices` */
    struct gsv_device_choice *devices; /* [n_devices], of one backend */
    size_t n_devices;                  /* at most GSV_MAX_CUDA (64) */
    size_t n_replicas; /* copies of the weights: one on each device, or one on all (pipeline) */
    struct gsv_layer_range layers[GSV_MAX_CUDA]; /* [n_devices] of a pipeline */
    uint32_t dtype;                              /* never DEFAULT */
    bool may_widen;     /* float16 was chosen by default: use bfloat16 if values exceed its range */
    bool maps_weights;  /* packed weights of any dtype are kept on disk and mapped read-only */
    bool may_move;      /* failover: another device may replace a lost one */
    int32_t max_tokens; /* of a text */
    const char *default_prompt;      /* before texts of jobs without a prompt, or NULL */
    const char *default_prompt_name; /* its name, if it is one of the model's prompts */
    int32_t default_adapter;         /* of jobs without a prompt, as in gsv_run */
    char *prompt_text;               /* owned: the default prompt of the options */
    struct gsv_pair_frame frame;     /* of facts->pair_template */
    struct gsv_late_plan late;       /* of facts->late */
    int32_t n_streamed; /* stored layers whose weights are streamed: gsv_streamed_net_bytes() */
    uint64_t streamed_bytes; /* of them in host memory, for each replica */
    int32_t n_workers;       /* batches at a time, a stream each; as many for each replica */
    int32_t n_threads;       /* that were asked for: see gsv_plan_threads() */
    bool has_wide;           /* one more stream shared by all workers: see batch_formation.c */
    bool prefers_wide; /* ... also for short batches: every batch reads the weights from memory */
    int32_t cached_tokens; /* of a batch: as in struct gsv_batcher_options */
    struct gsv_exec_options narrow;
    struct gsv_exec_options wide;
    uint64_t max_wait_ns; /* of a partial batch, while the device is busy */
    uint64_t max_queue_tokens;
    uint64_t max_queue_bytes;
    uint64_t max_queue_ns;          /* maximum queueing time; 0: no limit */
    uint64_t max_tokens_per_second; /* quota; 0: none */
    bool deterministic;             /* always true on the CPU */
    bool portable_bits;             /* the same on every instruction set of a CPU */
    uint64_t cache_bytes;
    struct gsv_memory memory;
    uint64_t total_bytes;
    uint64_t device_bytes[GSV_MAX_CUDA]; /* of total_bytes on each device; all of them on the CPU */
    struct gsv_capacity available;       /* free now */
    struct gsv_capacity max_available;   /* free if no other model were loaded */
};

/* Read the directory's configuration, headers and tokenizer. Accesses no device. */
gpuserve_status gsv_plan_read(struct gsv_plan *plan, gpuserve_context *context, const char *model,
                              const gpuserve_model_options *options, gpuserve_error *error);

/* After gsv_plan_read: choose the device and count the bytes. A model that does not fit is no error
 * here. */
gpuserve_status gsv_plan_size(struct gsv_plan *plan, gpuserve_context *context,
                              const gpuserve_model_options *options, gpuserve_error *error);

/* Set plan->available (free now) and plan->max_available (free if no other model were loaded).
 * Implemented one layer above, in budget.c. */
void gsv_budget_measure(gpuserve_context *context, struct gsv_plan *plan, uint64_t model_budget);

/* Worker threads: one for each batch at a time, on a GPU all that were asked for, since those
 * beyond its streams tokenize. */
static inline int32_t gsv_plan_threads(const struct gsv_plan *plan)
{
    return plan->n_threads > plan->n_workers ? plan->n_threads : plan->n_workers;
}

/* Threads of the entity head. */
int32_t gsv_plan_entity_threads(const struct gsv_plan *plan);

/* True if the devices share the layers of one copy of the weights. */
static inline bool gsv_plan_is_pipeline(const struct gsv_plan *plan)
{
    return plan->n_devices > plan->n_replicas;
}

/* The devices of a replica, which follow each other in plan->devices. */
static inline size_t gsv_plan_stages(const struct gsv_plan *plan)
{
    return plan->n_devices / plan->n_replicas;
}

/* Count the bytes by purpose for batches of `batch_tokens`, and divide the layers of a pipeline;
 * false if the sum is too large to count. */
bool gsv_plan_count(struct gsv_plan *plan, int32_t batch_tokens);

bool gsv_plan_fits(const struct gsv_plan *plan, const struct gsv_capacity *available);

/* Tokens of a batch whose rows stay in the cache of a core, of a small model on a CPU; else 0. */
int32_t gsv_plan_cached_tokens(const struct gsv_plan *plan);

/* Tokens of the largest batches that fit in a capacity; 0 if not even one text of maximum length
 * fits. */
int32_t gsv_plan_largest_batch(const struct gsv_plan *plan, const struct gsv_capacity *available);

void gsv_plan_reset(struct gsv_plan *plan);

/* "cpu", or "cuda:0,cuda:1" for several devices; only those of replicas whose bit is set in
 * `which`. */
void gsv_plan_selector(const struct gsv_plan *plan, uint64_t which, char *selector,
                       size_t capacity);

/* Maximum number of floats that one batch returns. */
size_t gsv_plan_output_floats(const struct gsv_plan *plan);

/* Copy and check a caller's options; all zero for NULL. */
gpuserve_status gsv_read_model_options(gpuserve_model_options *to,
                                       const gpuserve_model_options *from, gpuserve_error *error);

/* "float32"; "unknown" if `dtype` is invalid. */
const char *gsv_dtype_name(uint32_t dtype);

/*
 * Prompt selection: the text before a job's texts, and the route of that name.
 */

/* Set the plan's default prompt: from the options, else from the model. */
gpuserve_status gsv_prompt_choose(struct gsv_plan *plan, const gpuserve_model_options *options,
                                  gpuserve_error *error);

/* The prompt of `job`, borrowed from the job or the plan; NULL or empty: none. `adapter` is as in
 * gsv_run. */
gpuserve_status gsv_prompt_of(const struct gsv_plan *plan, const gpuserve_job *job,
                              const char **prompt, int32_t *adapter, gpuserve_error *error);

/* The route of `job` in a model with a Router: the one with the name of its prompt, else the
 * model's default route. 0 in other models. */
gpuserve_status gsv_route_of(const struct gsv_plan *plan, const gpuserve_job *job, int32_t *route,
                             gpuserve_error *error);

/*
 * The pair template of a reranker that is a language model.
 *
 *   before | <Instruct>: INSTRUCTION <Query>: TEXT <Document>: PAIR | after
 *
 * Only the middle is cut to the token limit. The tokens around it are made once, with the plan.
 */

/* Name the tokens of the answers to the model, and tokenize the fixed parts of its template; does
 * nothing for a model without one. The plan's tokenizer and max_tokens must be set. */
gpuserve_status gsv_pair_frame_make(struct gsv_plan *plan, gpuserve_error *error);

/* True if the pairs of a job are written into the template. A single text is not. */
static inline bool gsv_uses_template(const struct gsv_plan *plan, const gpuserve_job *job)
{
    return plan->facts->pair_template && job->pairs && job->task == GPUSERVE_TASK_CLASSIFY;
}

/* A text and its pair, as parts of the middle. */
struct gsv_pair_middle {
    const char *instruction; /* NULL or empty: the template's own */
    const char *text, *pair;
    size_t size, pair_size;
};

/* The bytes of the middle, which are written to `to` unless that is NULL. */
size_t gsv_pair_middle_write(const struct gsv_pair_template *template,
                             struct gsv_pair_middle middle, char *to);

/*
 * Queries and documents of a late interaction model (ColBERT): the roles of texts, and what
 * gsv_late_facts names, as token ids.
 *
 * A query is filled up with expansion tokens, which have vectors as any other token. A token of the
 * skip list has none: its row is left out of the job's output.
 */

/* Find the ids of the expansion token and of the skipped words, and make the prefixes tokens
 * of the tokenizer. The plan's tokenizer and max_tokens must be set. */
gpuserve_status gsv_late_plan_make(struct gsv_plan *plan, gpuserve_error *error);
void gsv_late_plan_reset(struct gsv_late_plan *late);

/* The role of the texts of a job: job.role, else by the name of the prompt. */
enum gsv_role gsv_role_of(const gpuserve_job *job);

/* Most tokens of a text of this role. */
int32_t gsv_role_limit(const struct gsv_plan *plan, enum gsv_role role);

/* Whether the token vectors of a job are those of expanded queries, or without skipped words. A job
 * of ids has both only for the role that it names. */
bool gsv_job_fills(const struct gsv_plan *plan, const gpuserve_job *job);
bool gsv_job_skips(const struct gsv_plan *plan, const gpuserve_job *job);

bool gsv_is_skipped(const struct gsv_late_plan *late, int32_t id);

#endif
