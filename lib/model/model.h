/*
 * model.h - what a model directory says (gsv_spec), and the same model on a device (gsv_net).
 *
 *   directory --gsv_spec_load--> spec --gsv_net_load--> net --gsv_net_run--> rows of floats
 *
 * The spec is made from configuration and file headers alone; it knows sizes, names, labels and
 * the tensor that stands for each weight. The net holds packed weights in device memory. Both are
 * immutable and shared by threads; a gsv_exec holds one stream and its activations, and one
 * thread uses it at a time.
 *
 * Not here: text (lib/text), queues and threads (lib/runtime).
 */
#ifndef GSV_MODEL_MODEL_H
#define GSV_MODEL_MODEL_H

#include "lib/base/dir.h"

#include <gpuserve/gpuserve.h>
#include <gpuserve/sys/backend.h>

#include <stdbool.h>

#define GSV_MAX_POOLINGS 6
#define GSV_MAX_DENSE 4

struct gsv_prompt {
    char *name;
    char *text;
};

/* One Dense module between pooling and output, or one layer of a head. */
struct gsv_dense_spec {
    int32_t in_features;
    int32_t out_features;
    int32_t activation; /* gpuserve_activation */
    bool has_bias;
};

/* The facts that the runtime, the program and the documentation need; the tensor table behind them
 * is private to lib/model. Everything is lent by the spec. */
struct gsv_spec_facts {
    const char *architecture; /* "BertModel" */
    const char *model_type;   /* "bert" */
    int32_t vocab_size;
    int32_t hidden_size;
    int32_t n_layers;
    int32_t n_heads;
    int32_t intermediate_size;
    int32_t max_positions;  /* rows of the position table */
    int32_t first_position; /* BERT counts from 0, RoBERTa and MPNet from padding_idx + 1 */
    int32_t type_vocab_size;
    int32_t max_tokens; /* of a text: the smallest of what the files and the positions allow */
    bool is_sparse;     /* it weighs the words of its vocabulary */
    int32_t dim;        /* of an embedding, after Dense modules; 0 when the model only classifies */
    int32_t poolings[GSV_MAX_POOLINGS]; /* gpuserve_pooling, concatenated in this order */
    int32_t n_poolings;
    bool skips_prompt;  /* pooling leaves out what gsv_run.skip says */
    bool normalize;     /* the model has a Normalize module */
    int32_t n_dense;    /* Dense modules of the embedding */
    const char *folder; /* of the transformer and its tokenizer: "", "0_Transformer" */
    bool do_lower_case; /* texts are lowercased before they are tokenized */
    const struct gsv_prompt *prompts;
    size_t n_prompts;
    const char *default_prompt; /* a prompt's name, or NULL */
    const char *const *labels;  /* [n_labels], from id2label or the head file */
    size_t n_labels;            /* 0: the model only embeds */
    bool own_classifier;        /* the labels are the model's, not a head file's */
    bool labels_tokens;         /* ... and are of tokens, not of texts */
    int32_t score;              /* gpuserve_score: SOFTMAX, SIGMOID or RAW (regression) */
    uint64_t parameter_count;
    uint64_t file_bytes;       /* of the tensors that are needed */
    const char *weights_dtype; /* "F32", "F16", "BF16", "mixed" */
};

/* Positions of a text's tokens, as transformers numbers them: pad tokens inside a text take the
 * position before the first and are not counted (create_position_ids_from_input_ids()). RoBERTa's
 * padding_idx is its pad_token_id, MPNet's is 1 whatever its pad_token_id is. BERT and DistilBERT
 * count every token: where positions begin at 0 no id matches. */
static inline void gsv_positions(const struct gsv_spec_facts *facts, const int32_t *ids, size_t n,
                                 int32_t *positions)
{
    const int32_t padding_idx = facts->first_position - 1;
    int32_t next = facts->first_position;

    for (size_t i = 0; i < n; i++)
        positions[i] = ids[i] == padding_idx ? padding_idx : next++;
}

struct gsv_spec;

/* Read the configuration and the headers of the weights. `head` is a head file's path or NULL;
 * `pooling` a gpuserve_pooling_kind that replaces the model's own, 0 for none. */
gpuserve_status gsv_spec_load(struct gsv_spec **spec, const struct gsv_dir *dir, const char *head,
                              uint32_t pooling, gpuserve_error *error);
void gsv_spec_free(struct gsv_spec **spec);
const struct gsv_spec_facts *gsv_spec_facts(const struct gsv_spec *spec);

/* ------------------------------------------------------------------------------------- sizes */

struct gsv_exec_options {
    uint32_t dtype;        /* gpuserve_dtype, never DEFAULT */
    int32_t n_threads;     /* that share each operation */
    int32_t max_tokens;    /* of a batch */
    int32_t max_sequences; /* of a batch */
    int32_t max_seqlen;    /* longest text */
};

/* Exact bytes of device memory: the weights as packed, INT8 with room for the products that may be
 * kept in higher precision, whether or not any is; activations of one gsv_exec; and what the
 * backend takes for its stream. GSV_TOO_MANY_BYTES (lib/base/alloc.h) when `dtype` cannot be had on
 * this backend or a size does not fit. */
uint64_t gsv_net_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                       uint32_t dtype);
void gsv_exec_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                    const struct gsv_exec_options *options, uint64_t *activations,
                    uint64_t *stream);

/* --------------------------------------------------------------------------------------- net */

struct gsv_net;
struct gsv_exec;

struct gsv_net_options {
    uint32_t dtype;    /* gpuserve_dtype, never DEFAULT */
    int32_t n_threads; /* that may help to read and pack */
    /* INT8 only: token ids of ordinary texts from which the activations' ranges are taken, packed
     * as in gpuserve_host_batch. NULL: no smoothing. */
    const struct gpuserve_host_batch *calibration;
    /* INT8 only: ordinary, odd and repeated texts on which the vectors are compared with those of
     * full precision; see struct gsv_int8_facts. NULL: nothing is measured. */
    const struct gpuserve_host_batch *probes;
    /* Told how many bytes of the files have been read so far, from the calling thread; not 0 ends
     * the loading with GPUSERVE_E_CANCELLED. May be NULL. */
    int32_t (*progress)(void *user, uint64_t bytes);
    void *progress_user;
};

/* Read, check (shapes, NaN) and pack the weights into device memory. The spec and the device must
 * outlive the net, the net its works. Blocks until the weights are on the device. */
gpuserve_status gsv_net_load(struct gsv_net **net, const struct gsv_spec *spec,
                             const struct gpuserve_backend *backend, struct gpuserve_device *device,
                             const struct gsv_net_options *options, gpuserve_error *error);
void gsv_net_free(struct gsv_net **net);

/* The least cosine to full precision that INT8 vectors are to have, and the least one on the
 * probes: other texts lose a little more, which is estimated too (mixed_precision.c). */
#define GSV_INT8_BOUND 0.997
#define GSV_INT8_TARGET 0.998

#define GSV_MAX_PRODUCTS 2048 /* four a layer: config.c allows 512 */

/* What INT8 costs a net, as measured when it was loaded. The products of layer i are 4i (query, key
 * and value), 4i + 1 (attention's output), 4i + 2 and 4i + 3 (feed-forward). */
struct gsv_int8_facts {
    bool is_measured;
    float cosine; /* the least of all probes */
    int32_t n_probes;
    int32_t n_products, n_kept;
    uint64_t kept[GSV_MAX_PRODUCTS / 64]; /* bit: the product computes in kept_dtype */
    uint32_t kept_dtype;                  /* FLOAT32 or, on a GPU, FLOAT16 */
};

static inline bool gsv_int8_keeps(const struct gsv_int8_facts *facts, int32_t product)
{
    return (facts->kept[product / 64] >> product % 64 & 1) != 0;
}

/* All zero unless the net is INT8 and was measured. */
const struct gsv_int8_facts *gsv_net_int8(const struct gsv_net *net);

/* Give a net's device memory back, its packed weights copied to `host` first, gsv_net_bytes() long;
 * NULL: not copied, another replica's are the same. No work of the net is left. On failure nothing
 * has changed. */
gpuserve_status gsv_net_offload(struct gsv_net *net, void *host, gpuserve_error *error);
/* Bring them back from `host`. On failure the net is still parked. */
gpuserve_status gsv_net_reload(struct gsv_net *net, const void *host, gpuserve_error *error);

/* XXH3-128 over the tensors as the file holds them (their names, shapes, types and bytes) and the
 * pooling, Dense, normalization and head: the weights' part of the fingerprint. */
void gsv_net_digest(const struct gsv_net *net, uint64_t digest[2]);

gpuserve_status gsv_exec_create(struct gsv_exec **work, const struct gsv_net *net,
                                const struct gsv_exec_options *options, gpuserve_error *error);
void gsv_exec_free(struct gsv_exec **work);

/* What to compute of a batch. */
struct gsv_run {
    uint32_t task;      /* gpuserve_task */
    int32_t dimensions; /* EMBED: columns kept, 1 to dim */
    bool normalize;     /* EMBED */
    int32_t skip;       /* EMBED: tokens at the start of each text that only CLS pooling sees; 0
                           unless the model skips prompts */
    uint32_t score;     /* CLASSIFY, TOKEN_LABELS: gpuserve_score, never DEFAULT */
    float *output;      /* host memory: [n_sequences, columns] or [n_tokens, columns], tight */
};

/* Whether the task has a row for each token instead of one for each text. */
static inline bool gsv_is_by_token(uint32_t task)
{
    return task == GPUSERVE_TASK_TOKEN_VECTORS || task == GPUSERVE_TASK_TOKEN_LABELS;
}

/* Whether its labels are of whole texts. */
static inline bool gsv_classifies(const struct gsv_spec_facts *facts)
{
    return facts->n_labels > 0 && !facts->labels_tokens;
}

/* Columns of the output of a run. */
int32_t gsv_run_columns(const struct gsv_spec_facts *facts, const struct gsv_run *run);

/* Run one packed batch and wait for it. The batch's sizes are within the work's options and its
 * ids within the vocabulary: the runtime has checked them. */
gpuserve_status gsv_net_run(struct gsv_exec *work, const struct gpuserve_host_batch *batch,
                            const struct gsv_run *run, gpuserve_error *error);

#endif
