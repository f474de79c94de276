/*
 * model.h - a model directory (gsv_spec), its weights on a device (gsv_net), and runs (gsv_exec).
 *
 *   directory --gsv_spec_load--> spec --gsv_net_load--> net --gsv_net_run--> rows of floats
 *
 * The spec is read from configuration files and weight file headers: sizes, names, labels, and the
 * tensor of each weight. The net holds the packed weights in device memory.
 *
 * Threading: spec and net are immutable and shared by threads. A gsv_exec holds one stream and its
 * activations; one thread uses it at a time.
 *
 * Not here: text (lib/text), queues and threads (lib/runtime).
 */
#ifndef GSV_MODEL_MODEL_H
#define GSV_MODEL_MODEL_H

#include "lib/base/dir.h"

#include "kernels/kernels.h"

#include <gpuserve/gpuserve.h>
#include <gpuserve/sys/backend.h>

#include <stdbool.h>

#define GSV_MAX_POOLINGS 6
#define GSV_MAX_STEPS 8
#define GSV_MAX_ROUTES 4

struct gsv_prompt {
    char *name;
    char *text;
    int32_t adapter; /* of gsv_run, of the same name; 0: none */
};

/* What a text of a late interaction model is; the name of its prompt says which. */
enum gsv_role { GSV_ROLE_NONE, GSV_ROLE_QUERY, GSV_ROLE_DOCUMENT, GSV_ROLES };

/* How queries and documents of late interaction are encoded; all zero: as any text. Owned by the
 * modules. */
struct gsv_late_facts {
    int32_t length;            /* a shorter query is filled up to so many tokens; 0: it is not */
    bool is_min;               /* a longer query keeps its tokens */
    bool attends;              /* the text's tokens attend to those that fill it up */
    char *token;               /* that fills a query up; not NULL with a length */
    int32_t limits[GSV_ROLES]; /* most tokens of a text; 0: those of any text */
    char **skipped;            /* [n_skipped] tokens that have no vector */
    size_t n_skipped;
    bool skips[GSV_ROLES]; /* texts of this role, for which GSV_ROLE_NONE counts as a document */
    char *prefixes[GSV_ROLES]; /* text before a text, or NULL: a token of the vocabulary, or begins
                               with one and white space */
    bool has_mask;             /* a module says which vectors count */
};

/* One Dense module between pooling and output, or one layer of a head. */
struct gsv_dense_spec {
    int32_t in_features;
    int32_t out_features;
    int32_t activation; /* gpuserve_activation */
    bool has_bias;
    bool has_residual; /* the input is added to the output, projected if their widths differ */
};

/* A head file: labels and their default scores. All pointers are borrowed from the spec. */
struct gsv_label_head {
    const char *name;
    const char *const *labels; /* [n_labels] */
    size_t n_labels;
    int32_t score; /* gpuserve_score: SOFTMAX, SIGMOID or RAW */
};

#define GSV_MAX_HEADS 32     /* program_of() in run.c has a bit for each */
#define GSV_MAX_HEAD_NAME 64 /* bytes */

/* Heads of a run, in the order of their columns. n 0: the first head, or the model's own
 * classifier. */
struct gsv_head_choice {
    uint8_t n;
    uint8_t at[GSV_MAX_HEADS]; /* [n] indices, each once; zeros behind */
};

/* The text around a pair whose classifier is a language model: before, instruction_key,
 * instruction, text_key, the text, pair_key, its pair, after. `before` and `after` end at borders
 * of tokens and are never cut. */
struct gsv_pair_template {
    const char *name;
    const char *before, *instruction_key, *text_key, *pair_key, *after;
    const char *instruction; /* of jobs without a prompt */
};

/* How the token vectors of a word become one vector. */
enum gsv_subtokens {
    GSV_SUBTOKENS_FIRST,
    GSV_SUBTOKENS_LAST,
    GSV_SUBTOKENS_MEAN,
    GSV_SUBTOKENS_MAX
};

/* The head of a model that finds entities of labels given with the text (GLiNER). Its input is
 * [class_token label]... separator words; see encoder/entity.h. */
struct gsv_entity_facts {
    int32_t width;          /* columns of a word's vector; 0: the model has no such head */
    int32_t inner;          /* columns of a start, an end and a query */
    int32_t max_words;      /* of a text */
    int32_t max_span;       /* words of an entity; 0: no limit */
    bool by_token;          /* scores of start, end and inside for each word, not of spans */
    bool after_class_token; /* the label's vector is that of the token after its class token */
    enum gsv_subtokens subtokens;
    const char *class_token, *separator; /* texts of the tokens before a label, after all labels */
    int32_t class_token_id;              /* of a tokenizer that lacks `class_token`; -1: unknown */
};

/* Model properties for the runtime, the CLI and the documentation. The tensor table is private to
 * lib/model. All pointers are borrowed from the spec. */
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
    int32_t long_from;      /* longer texts are numbered from here: LongRoPE; 0: none are */
    int32_t type_vocab_size;
    int32_t max_tokens; /* maximum tokens of a text: the minimum over the files and the positions */
    bool is_sparse;     /* sparse encoder: outputs weights of vocabulary words */
    bool weighs_tokens; /* SPARSE of gsv_net_run() is a weight by token: gsv_gather_words() */
    int32_t dim;        /* of an embedding, after Dense modules; 0 if the model makes none */
    int32_t token_dim;  /* of a token vector: hidden_size, or after Dense modules on tokens */
    bool is_by_token;   /* ColBERT: the model's output is its token vectors */
    bool is_late;       /* the token vectors are made for late interaction */
    int32_t first_vector; /* of a text's token vectors in late interaction; those before it are not
                             part of it */
    const struct gsv_late_facts *late;  /* all zero unless is_by_token */
    int32_t poolings[GSV_MAX_POOLINGS]; /* gpuserve_pooling, concatenated in this order */
    int32_t n_poolings;
    bool skips_prompt;  /* pooling excludes the first gsv_run.skip tokens */
    bool normalize;     /* the model ends with a Normalize module */
    bool is_token_mean; /* the embedding is the mean of the token vectors, then at most Normalize */
    int32_t n_dense;    /* number of Dense modules of the embedding */
    const char *folder; /* of the transformer and its tokenizer: "", "0_Transformer" */
    bool do_lower_case; /* texts are lowercased before tokenization */
    bool skips_unknown; /* unknown tokens are left out of texts (model2vec) */
    bool no_special;    /* texts have no special tokens */
    bool reads_end;     /* the classifier reads the vector of the last token end_id of a text */
    int32_t end_id;     /* of reads_end */
    int32_t empty_id; /* the token of a text without tokens, whose vector is 0; 0: there is none */
    const struct gsv_prompt *prompts;
    size_t n_prompts;
    const char *const *adapters; /* [n_adapters]: names of LoRA adapters */
    size_t n_adapters;
    const char *merged_adapter; /* file of the adapter that is merged, or NULL */
    uint64_t adapter_bytes;     /* host memory of the adapters' factors */
    const char *only_float32;   /* the part that computes in float32 alone, or NULL */
    const char *no_int8;        /* the part that does not compute in INT8, or NULL */
    char *const *routes;        /* [n_routes] names; a text takes the one with its prompt's name */
    int32_t n_routes;           /* 0: no Router module */
    int32_t default_route;      /* -1: each text must name one */
    const char *default_prompt; /* the name of a prompt, or NULL */
    const char *const *labels;  /* [n_labels], from id2label or the first head file */
    size_t n_labels;            /* 0: the model only embeds */
    const struct gsv_label_head *label_heads; /* [n_label_heads]: the head files */
    size_t n_label_heads;                     /* 0: none; n_heads is that of attention */
    size_t n_head_labels;                     /* of all head files together */
    bool own_classifier; /* the labels belong to the model, not to a head file */
    bool labels_tokens;  /* the model's labels apply to tokens, not to texts */
    bool scores_answers; /* the one label's logit is that of a token minus that of another, as the
                            next token of the text */
    bool needs_answers;  /* gsv_spec_set_answers() must name these tokens before a net is loaded */
    const struct gsv_pair_template *pair_template; /* NULL: the tokenizer joins the pair */
    int32_t score; /* gpuserve_score: SOFTMAX, SIGMOID or RAW (regression) */
    struct gsv_entity_facts entity;
    uint64_t parameter_count;
    uint64_t file_bytes;        /* of the tensors in use */
    const char *weights_dtype;  /* "F32", "F16", "BF16", "mixed" */
    const char *weights_format; /* "safetensors", "pickle" */
};

/* Number the positions of a text's tokens as transformers does. A pad token inside a text gets
 * padding_idx and is not counted (create_position_ids_from_input_ids()). padding_idx is
 * pad_token_id for RoBERTa, and always 1 for MPNet. BERT and DistilBERT count every token: with
 * first_position 0, no id equals padding_idx. With LongRoPE, the rotary table has a second part for
 * the positions of long texts. */
static inline void gsv_positions(const struct gsv_spec_facts *facts, const int32_t *ids, size_t n,
                                 int32_t *positions)
{
    const int32_t padding_idx = facts->first_position - 1;
    int32_t next = facts->first_position;

    if (facts->long_from > 0 && n > (size_t)facts->long_from)
        next = facts->long_from;
    for (size_t i = 0; i < n; i++)
        positions[i] = ids[i] == padding_idx ? padding_idx : next++;
}

static inline bool gsv_computes_in(const struct gsv_spec_facts *facts, uint32_t dtype)
{
    if (facts->only_float32)
        return dtype == GPUSERVE_DTYPE_FLOAT32;
    return dtype != GPUSERVE_DTYPE_INT8 || !facts->no_int8;
}

/* Fail because the model does not compute in a dtype; names the part that does not. */
gpuserve_status gsv_fail_dtype(const struct gsv_spec_facts *facts, gpuserve_error *error);

struct gsv_spec;

/* Directories of LoRA adapters in PEFT's format. */
#define GSV_MAX_ADAPTERS 64
struct gsv_adapter_dirs {
    size_t n;
    char *names[GSV_MAX_ADAPTERS];          /* owned */
    struct gsv_dir *dirs[GSV_MAX_ADAPTERS]; /* owned */
};

/* Head files: `one`, then the lines "NAME=FILE" or "FILE" of `lines`, as `head` and `heads` of
 * gpuserve_model_options; each may be NULL. */
struct gsv_head_files {
    const char *one, *lines;
};

/* As gsv_spec_load(), with any number of heads, and with adapters that a run chooses, named as
 * prompts. The adapters are read before the function returns. */
gpuserve_status gsv_spec_load_with(struct gsv_spec **spec, const struct gsv_dir *dir,
                                   const struct gsv_adapter_dirs *adapters,
                                   const struct gsv_head_files *heads, uint32_t pooling,
                                   gpuserve_error *error);

/* Read the configuration and the weight file headers. `head` is a head file's path or NULL.
 * `pooling` is a gpuserve_pooling_kind that replaces the model's own; 0: none. */
gpuserve_status gsv_spec_load(struct gsv_spec **spec, const struct gsv_dir *dir, const char *head,
                              uint32_t pooling, gpuserve_error *error);
void gsv_spec_free(struct gsv_spec **spec);
/* Set the tokens whose logits the classifier compares, if facts->scores_answers; no -1: the logit
 * of `yes` alone. */
gpuserve_status gsv_spec_set_answers(struct gsv_spec *spec, int32_t yes, int32_t no,
                                     gpuserve_error *error);
/* Add token ids that have no weight in sparse vectors of BGE-M3: those around a text, pad and
 * unknown tokens. Ids outside the vocabulary and repeated ones are ignored. Does nothing for other
 * models. GPUSERVE_E_UNSUPPORTED over 8 different ids. */
gpuserve_status gsv_spec_add_unweighted(struct gsv_spec *spec, const int32_t *ids, size_t n,
                                        gpuserve_error *error);
/* The id of the pad token by config.json; -1: none. */
int32_t gsv_spec_pad_id(const struct gsv_spec *spec);
const struct gsv_spec_facts *gsv_spec_facts(const struct gsv_spec *spec);

/* ------------------------------------------------------------------------------------- sizes */

struct gsv_exec_options {
    uint32_t dtype;        /* gpuserve_dtype, never DEFAULT */
    int32_t n_threads;     /* threads that share each operation */
    int32_t max_tokens;    /* maximum tokens of a batch */
    int32_t max_sequences; /* maximum texts of a batch */
    int32_t max_seqlen;    /* maximum tokens of a text */
    bool deterministic;    /* bits that do not depend on the batch, on a GPU too */
};

/* Exact bytes of device memory: the packed weights, the activations of one gsv_exec, and the
 * backend's memory for its stream. INT8 includes the memory reserved for products kept in higher
 * precision, used or not. GSV_TOO_MANY_BYTES (lib/base/alloc.h) if the backend does not support
 * `dtype` or a size overflows. */
uint64_t gsv_net_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                       uint32_t dtype);
/* Bytes of the layers' weight matrices, a part of gsv_net_bytes(): every batch reads them. */
uint64_t gsv_product_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                           uint32_t dtype);
/* Memory of a net of which the last `n_streamed` stored layers are streamed: their products are in
 * host memory and are copied to the device, layer by layer, in each batch. Two buffers on the
 * device take turns. */
struct gsv_streamed_bytes {
    uint64_t device; /* of gsv_net_load()'s allocation */
    uint64_t host;
};

/* Layers with weights of their own; 0 of an LSTM. */
int32_t gsv_stored_layers(const struct gsv_spec *spec);

/* n_streamed: 0, or 3 to gsv_stored_layers(): two layers take what the buffers need.
 * GSV_TOO_MANY_BYTES as above. */
struct gsv_streamed_bytes gsv_streamed_net_bytes(const struct gsv_spec *spec,
                                                 const struct gpuserve_backend *backend,
                                                 uint32_t dtype, int32_t n_streamed);
void gsv_exec_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                    const struct gsv_exec_options *options, uint64_t *activations,
                    uint64_t *stream);

/*
 * A pipeline: each of several devices has a range of the layers. The first one also has the
 * embeddings, the last one what follows the encoder, and each a gsv_exec of the full size.
 */

/* Layers first to end - 1. */
struct gsv_layer_range {
    int32_t first, end;
};

/* Layers that devices may share; 0 of an LSTM and of static embeddings. */
int32_t gsv_pipeline_layers(const struct gsv_spec *spec);

/* Exact bytes of the weights on a device with this range. Not INT8. */
uint64_t gsv_range_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                         uint32_t dtype, struct gsv_layer_range range);

/* Divide the layers among n devices, one or more for each, so that the largest bytes of weights on
 * a device are smallest. `free_bytes` are those that each device may take; NULL: any. False if they
 * do not fit. Layers that share weights count each. */
bool gsv_pipeline_split(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                        uint32_t dtype, const uint64_t *free_bytes, int32_t n,
                        struct gsv_layer_range *ranges);

/* Pinned host memory of one gsv_exec, through which rows go from device to device. */
uint64_t gsv_pipeline_host_bytes(const struct gsv_spec *spec,
                                 const struct gpuserve_backend *backend,
                                 const struct gsv_exec_options *options);

/* --------------------------------------------------------------------------------------- net */

struct gsv_net;
struct gsv_exec;

/* What the operations of a batch belong to, in order. */
enum gsv_phase {
    GSV_PHASE_EMBED, /* sum of the embedding tables, their norm and projection; a convolution */
    GSV_PHASE_QKV,   /* product; those of an adapter too, here and below */
    GSV_PHASE_ATTENTION,
    GSV_PHASE_OUTPUT,   /* product */
    GSV_PHASE_NORM,     /* residual and norm after attention */
    GSV_PHASE_EXPAND,   /* first feed-forward product and its activation; the router of experts */
    GSV_PHASE_CONTRACT, /* second feed-forward product */
    GSV_PHASE_FFN_NORM, /* residual and norm after the feed-forward */
    GSV_PHASE_POOL,     /* pooling of tokens, or of layers */
    GSV_PHASE_HEAD,     /* Dense modules, classifier, normalization, scores */
    GSV_PHASES
};

/* Told the phase of the operations that follow, on the thread that issues them; `layer` is -1
 * outside the layers. */
struct gsv_phase_observer {
    void (*begin)(void *user, enum gsv_phase phase, int32_t layer); /* NULL: none */
    void *user;
};

/* Result of gsv_net_load() for its file of packed weights. */
enum gsv_packed_state {
    GSV_PACKED_ABSENT,
    GSV_PACKED_USED,   /* the net was restored from it */
    GSV_PACKED_STALE,  /* of another key: other files, options, library or processor */
    GSV_PACKED_INVALID /* damaged, or not safe to read: `note` says why */
};

/* A file of packed weights, see weights/weights.h. */
struct gsv_packed_file {
    const char *path;
    uint64_t key[2];                   /* everything that the bits of the weights depend on */
    bool maps;                         /* map the file read-only; else read it into memory */
    const struct gsv_packing *packing; /* of the net's backend; see kernels.h */
    enum gsv_packed_state state;       /* written by gsv_net_load() */
    char note[160];
};

/* A device of a pipeline. */
struct gsv_pipeline_stage {
    struct gpuserve_device *device;
    struct gsv_layer_range layers;
};

struct gsv_net_options {
    uint32_t dtype;    /* gpuserve_dtype, never DEFAULT */
    int32_t n_threads; /* maximum threads for reading and packing */
    /* INT8 only: token ids of ordinary texts that give the activation ranges for SmoothQuant,
     * packed as in gpuserve_host_batch. NULL: no smoothing. */
    const struct gpuserve_host_batch *calibration;
    /* INT8 only: ordinary, odd and repeated texts whose vectors are compared with full precision,
     * see struct gsv_int8_facts. NULL: no measurement. */
    const struct gpuserve_host_batch *probes;
    /* Fills both, on the calling thread, unless `packed` is valid. NULL: they are filled. */
    gpuserve_status (*calibrate)(void *user, gpuserve_error *error);
    void *calibrate_user;
    /* Receives the bytes of the files read so far, on the calling thread. A nonzero result cancels
     * the load with GPUSERVE_E_CANCELLED. May be NULL. */
    int32_t (*progress)(void *user, uint64_t bytes);
    void *progress_user;
    struct gsv_phase_observer observer; /* of every batch of the net; all zero: none */
    /* Stored layers that are streamed, as in gsv_streamed_net_bytes(). Not INT8, no `packed`; only
     * one gsv_exec of the net may run at a time. */
    int32_t n_streamed;
    /* A pipeline: devices and their layers, in order; `device` is the last one. Neither INT8 nor
     * `packed` nor `n_streamed`. 0 or 1: `device` has all layers. */
    const struct gsv_pipeline_stage *stages;
    int32_t n_stages;
    /* A valid file takes the place of the model's weights, `calibration` and `probes`. NULL: none.
     * Not for spec items of an LSTM. */
    struct gsv_packed_file *packed;
};

/* Read, check (shapes, NaN) and pack the weights into device memory. The spec and the device must
 * outlive the net, and the net must outlive each gsv_exec. Blocks until the weights are on the
 * device. */
gpuserve_status gsv_net_load(struct gsv_net **net, const struct gsv_spec *spec,
                             const struct gpuserve_backend *backend, struct gpuserve_device *device,
                             const struct gsv_net_options *options, gpuserve_error *error);
void gsv_net_free(struct gsv_net **net);

/* Minimum cosine to full precision of INT8 vectors: of any text (BOUND), and of the probes
 * (TARGET). Other texts lose a little more than the probes; mixed_precision.c estimates how
 * much. */
#define GSV_INT8_BOUND 0.997
#define GSV_INT8_TARGET 0.998

/* Of 512 layers: two of attention, two of each of 8 feed-forward networks. */
#define GSV_MAX_PRODUCTS 9216

/* The loss of an INT8 net, measured when it was loaded. The products of layer i begin at
 * i * n_layer_products: query, key and value, attention output, two of each feed-forward network.
 */
struct gsv_int8_facts {
    bool is_measured;
    bool exact_attention; /* in float32, where the processor would round it to 16 bits */
    float cosine;         /* minimum over all probes */
    int32_t n_probes;
    int32_t n_products, n_layer_products, n_kept;
    uint64_t kept[GSV_MAX_PRODUCTS / 64]; /* bitmap: products that compute in kept_dtype */
    uint32_t kept_dtype;                  /* INT16, BFLOAT16, FLOAT16, FLOAT32; GPU: FLOAT16 */
};

static inline bool gsv_int8_keeps(const struct gsv_int8_facts *facts, int32_t product)
{
    return (facts->kept[product / 64] >> product % 64 & 1) != 0;
}

/* All zero unless the net is INT8 and was measured. */
const struct gsv_int8_facts *gsv_net_int8(const struct gsv_net *net);

/* Offload a net: copy its device memory to `host`, which is as long, and free the device memory.
 * NULL: no copy, since another replica has the same weights. No gsv_exec of the net may exist. On
 * failure the net is unchanged. The memory of a pipeline is that of its devices, in order. */
gpuserve_status gsv_net_offload(struct gsv_net *net, void *host, gpuserve_error *error);
/* Restore an offloaded net from `host`. On failure the net remains offloaded; of a pipeline some
 * devices may be restored, and it can only be freed. */
gpuserve_status gsv_net_reload(struct gsv_net *net, const void *host, gpuserve_error *error);

/* XXH3-128 of the tensors as in the files (names, shapes, types, bytes) and of the pooling, Dense,
 * normalization and head settings: the weights' part of the fingerprint. */
void gsv_net_digest(const struct gsv_net *net, uint64_t digest[2]);

/* Write a net to a file of packed weights, which is replaced as a whole. A failure leaves the
 * previous file. */
gpuserve_status gsv_net_save(const struct gsv_net *net, const struct gsv_packed_file *packed,
                             int32_t n_threads, gpuserve_error *error);

/* Identity of a spec and of the weight files it was read from; the weights are not read. */
struct gsv_identity {
    bool is_known;     /* false: weights that are not in files, or of an LSTM */
    uint64_t shape[2]; /* of settings, and of the names, types and shapes of tensors */
    uint64_t files[2]; /* of inode, size and times of the weight files, and of tensors' places */
    int64_t changed;   /* seconds of the last change of a weight file, CLOCK_REALTIME */
};

gpuserve_status gsv_spec_identify(const struct gsv_spec *spec, struct gsv_identity *identity,
                                  gpuserve_error *error);

gpuserve_status gsv_exec_create(struct gsv_exec **work, const struct gsv_net *net,
                                const struct gsv_exec_options *options, gpuserve_error *error);
void gsv_exec_free(struct gsv_exec **work);

/* The tasks of gpuserve_task, as bits of a set. */
#define GSV_TASKS (GPUSERVE_TASK_MAX_SIM + 1)
#define GSV_TASK_BIT(task) (UINT32_C(1) << (task))

/* The token vectors of a query on the way to the device. */
struct gsv_late_query {
    const float *vectors; /* [n, token_dim] */
    int32_t first, n;     /* its rows among those of all queries */
};

/* MaxSim in a batch: each text has a query, which others may share. */
struct gsv_late_batch {
    const struct gsv_late_query *queries; /* [n_queries], at most GPUSERVE_MAX_QUERY_VECTORS rows */
    const struct gpuserve_max_sim_text *texts; /* [max_sequences], zeros after the batch's texts */
    const int32_t *rows; /* [n_rows] tokens of the batch whose vectors count, text by text */
    int32_t n_queries, n_rows;
};

/* An embedding as bytes, see gpuserve_op_compact; all zero: as floats. */
struct gsv_compact_run {
    uint32_t precision;  /* gpuserve_precision */
    int32_t columns;     /* leading ones that are converted */
    int32_t words;       /* of a row, with the last one */
    const float *ranges; /* [2, columns] of INT8 and UINT8 */
};

/* The computation of a run. */
struct gsv_run {
    uint32_t task;      /* gpuserve_task */
    bool again;         /* the batch is that of the exec's last run, which did not fail, with the
                           same adapters: its encoder output is used, not computed again */
    int32_t dimensions; /* EMBED: number of columns to keep, 1 to dim */
    bool normalize;     /* EMBED */
    int32_t skip;       /* EMBED: tokens at the start of each text that only CLS pooling includes; 0
                           unless the model skips prompts */
    int32_t adapter;    /* of all texts: 0: none, else 1 to n_adapters */
    const int32_t *adapters; /* [n_sequences] of each text, ascending; NULL: `adapter` */
    int32_t route;           /* EMBED, and CLASSIFY with a head: below n_routes; else 0 */
    bool raw;                /* TOKEN_VECTORS: the encoder's output, without the modules after it */
    uint32_t score; /* CLASSIFY, TOKEN_LABELS: gpuserve_score; DEFAULT with heads only: that
                       of each head */
    struct gsv_head_choice heads;      /* CLASSIFY */
    const struct gsv_late_batch *late; /* MAX_SIM */
    struct gsv_compact_run compact;    /* EMBED; the output has `words` columns */
    float *output; /* host memory: [n_sequences, columns], or [n_tokens, columns] if
                      gsv_runs_by_token(), without padding */
};

/* True if the task outputs a row for each token, not for each text. */
static inline bool gsv_is_by_token(uint32_t task)
{
    return task == GPUSERVE_TASK_TOKEN_VECTORS || task == GPUSERVE_TASK_TOKEN_LABELS;
}

/* True if a run of the task writes a row for each token. */
static inline bool gsv_runs_by_token(const struct gsv_spec_facts *facts, uint32_t task)
{
    return gsv_is_by_token(task) || (task == GPUSERVE_TASK_SPARSE && facts->weighs_tokens);
}

/* True if the model's labels apply to whole texts. */
static inline bool gsv_classifies(const struct gsv_spec_facts *facts)
{
    return facts->n_labels > 0 && !facts->labels_tokens;
}

/* The heads of a choice: 1 for the model's own classifier. */
static inline size_t gsv_chosen_count(const struct gsv_head_choice *choice)
{
    return choice->n > 0 ? choice->n : 1;
}

/* The number of columns of a run's output. */
int32_t gsv_run_columns(const struct gsv_spec_facts *facts, const struct gsv_run *run);

/* Make the sparse vector [vocab_size] of a text of facts->weighs_tokens: for each token id the
 * largest of its weights, 0 for ids that do not occur or have no weight. */
void gsv_gather_words(const struct gsv_spec *spec, const int32_t *ids, const float *weights,
                      size_t n, float *row);

/* Run one packed batch and wait for it. The caller (the runtime) ensures that the sizes are within
 * the gsv_exec's options and the ids within the vocabulary. */
gpuserve_status gsv_net_run(struct gsv_exec *work, const struct gpuserve_host_batch *batch,
                            const struct gsv_run *run, gpuserve_error *error);

/* ------------------------------------------------------------------------------ entity head */

/* The head of gsv_entity_facts on rows of floats in host memory, apart from the encoder's batches:
 * a stream and the activations of GSV_ENTITY_ROWS rows, or of a text's words if these are more. One
 * thread uses it at a time.
 *
 *   vectors of words  -> gsv_entity_words  -> a start and an end for each word
 *   vectors of labels -> gsv_entity_labels -> a query and an offset for each label
 *   start, end, query, offset -> gsv_entity_score -> logit of the span from start to end
 */
#define GSV_ENTITY_ROWS 512

struct gsv_entity_exec;

/* Device memory, as gsv_exec_bytes(); 0 for a model without such a head. */
void gsv_entity_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                      int32_t n_threads, uint64_t *activations, uint64_t *stream);
gpuserve_status gsv_entity_exec_create(struct gsv_entity_exec **exec, const struct gsv_net *net,
                                       int32_t n_threads, bool deterministic,
                                       gpuserve_error *error);
void gsv_entity_exec_free(struct gsv_entity_exec **exec);

/* Texts of words, packed: those of text i are cu_words[i] to cu_words[i + 1]. */
struct gsv_entity_texts {
    const float *words; /* [cu_words[n_texts], width] */
    const int32_t *cu_words;
    int32_t n_texts;
};

/* Span heads: starts and ends, each [n_words, inner]. Token heads: `starts` receives the word's
 * rows, [n_words, 2 * width]; `ends` is not written. At most max_words words of a text. */
gpuserve_status gsv_entity_words(struct gsv_entity_exec *exec, const struct gsv_entity_texts *texts,
                                 float *starts, float *ends, gpuserve_error *error);
/* Span heads: queries [n, inner] and offsets [n]. Token heads: `queries` receives the label's rows,
 * [n, 2 * width]; `offsets` is not written. */
gpuserve_status gsv_entity_labels(struct gsv_entity_exec *exec, const float *labels, int32_t n,
                                  float *queries, float *offsets, gpuserve_error *error);
/* Token heads: the logits of start, end and inside of each word with each label,
 * [n_words, n_labels, 3]. */
gpuserve_status gsv_entity_pairs(struct gsv_entity_exec *exec, const float *words, int32_t n_words,
                                 const float *labels, int32_t n_labels, float *logits,
                                 gpuserve_error *error);

/* Span heads: relu(start + end), which all labels share, and its logit with one query. */
void gsv_entity_span(const float *start, const float *end, int32_t inner, float *span);
float gsv_entity_score(const float *span, const float *query, float offset, int32_t inner);

#endif
