/*
 * modules.h - the sentence-transformers modules around a transformer: folders, pooling, the steps
 * before and after it, routes, the token limit and prompts.
 */
#ifndef GSV_MODEL_MODULES_H
#define GSV_MODEL_MODULES_H

#include "lib/model/formats/checkpoint.h"
#include "lib/model/model.h"

enum gsv_row_step_kind { GSV_STEP_DENSE, GSV_STEP_LAYER_NORM, GSV_STEP_NORMALIZE };

/* A module on the token vectors before pooling, or on the pooled vectors. */
struct gsv_module_step {
    enum gsv_row_step_kind kind;
    bool by_token;
    int32_t route;               /* of a Router; -1: every text */
    char *folder;                /* of its weights; owned; NULL: it has none */
    struct gsv_dense_spec dense; /* LAYER_NORM: equal features */
};

/* WeightedLayerPooling: token vectors from the outputs of layers `first` to the last. */
struct gsv_layer_weights {
    char *folder; /* owned; NULL: the model has no such module */
    int32_t first, n;
};

/* WordEmbeddings in place of a transformer, and the LSTM after it. */
struct gsv_word_modules {
    bool present; /* `transformer` is the folder of WordEmbeddings */
    char *folder; /* of the LSTM; owned; NULL: there is none */
    int32_t inputs, units, n_layers;
    bool is_bidirectional;
};

struct gsv_modules {
    bool present;      /* modules.json exists and names a module after the transformer */
    bool is_alone;     /* modules.json names only a transformer: a cross-encoder */
    char *transformer; /* folder of config.json and the weights, usually ""; owned */
    bool is_static;    /* StaticEmbedding, or WordEmbeddings without an LSTM */
    int32_t poolings[GSV_MAX_POOLINGS];
    int32_t n_poolings;
    struct gsv_layer_weights layer_weights;
    struct gsv_word_modules words;
    struct gsv_module_step steps[GSV_MAX_STEPS]; /* in the order of modules.json */
    int32_t n_steps;
    char *routes[GSV_MAX_ROUTES]; /* names; owned */
    int32_t n_routes;
    int32_t default_route; /* -1: each text must name one */
    bool skips_prompt;     /* pooling excludes the prompt's tokens */
    bool is_sparse;        /* a SpladePooling module instead of Pooling */
    bool log_twice;        /* the sparse activation is log(1 + log(1 + relu)) */
    bool by_token;         /* no Pooling: the output is the token vectors (ColBERT) */
    bool normalizes_tokens;
    struct gsv_late_facts late;
    bool normalize;      /* the last step of the pooled vectors; not in `steps` */
    int32_t max_tokens;  /* 0: not specified */
    bool do_lower_case;  /* from sentence_bert_config.json: lowercase before tokenization */
    bool scores_answers; /* a LogitScore module: a language model as a reranker */
    int32_t yes, no;     /* token ids of LogitScore; no -1: none */
    int32_t score;       /* gpuserve_score of a cross-encoder's activation_fn; DEFAULT: none */
    struct gsv_prompt *prompts; /* owned */
    size_t n_prompts;
    const char *default_prompt; /* the name of a prompt, or NULL; borrowed from `prompts` */
};

/* Read the modules. A directory without modules.json is a plain transformer: mean pooling, no
 * normalization, as in sentence-transformers. */
gpuserve_status gsv_modules_read(struct gsv_modules *modules, const struct gsv_dir *dir,
                                 gpuserve_error *error);

/* What the functions that add a module share; the messages name modules.json. */
struct gsv_module_reader {
    struct gsv_modules *modules;
    const struct gsv_dir *dir;
    gpuserve_error *error;
};

/* module_steps.c: add the module of class `name` and `folder`; *known is false if no step has this
 * name. */
gpuserve_status gsv_step_add(const struct gsv_module_reader *r, const char *name, bool is_pylate,
                             const char *folder, int32_t route, bool *known);
gpuserve_status gsv_layer_weights_add(const struct gsv_module_reader *r, const char *folder);

/* Set what follows from the whole list: a final Normalize, and output by token. */
gpuserve_status gsv_steps_finish(const struct gsv_module_reader *r);

/* output_modules.c: parse the config.json of a module's folder. */
gpuserve_status gsv_pooling_add(const struct gsv_module_reader *r, const char *folder);
gpuserve_status gsv_splade_add(const struct gsv_module_reader *r, const char *folder);
gpuserve_status gsv_logit_score_add(const struct gsv_module_reader *r, const char *folder);

/* word_modules.c: parse wordembedding_config.json, and lstm_config.json of the module after it. */
gpuserve_status gsv_word_embeddings_add(const struct gsv_module_reader *r, const char *folder);
gpuserve_status gsv_lstm_add(const struct gsv_module_reader *r, const char *folder);

/* prompts.c: read config_sentence_transformers.json, if the directory has it. */
gpuserve_status gsv_prompts_read(struct gsv_modules *modules, const struct gsv_dir *dir,
                                 gpuserve_error *error);
/* Add a prompt, unless there is one of this name. */
gpuserve_status gsv_prompt_add(struct gsv_modules *modules, const struct gsv_dir *dir,
                               const char *name, const char *text, gpuserve_error *error);
/* Add a prompt for each route: a text names its route as it names a prompt. */
gpuserve_status gsv_route_prompts_add(struct gsv_modules *modules, const struct gsv_dir *dir,
                                      gpuserve_error *error);

/* late_interaction.c: add the MultiVectorMask of a folder; read the settings of the files next to a
 * model with modules.json, or of a checkpoint of Stanford. */
gpuserve_status gsv_late_mask_add(const struct gsv_module_reader *r, const char *folder);
gpuserve_status gsv_late_read(struct gsv_modules *modules, const struct gsv_dir *dir,
                              gpuserve_error *error);
gpuserve_status gsv_late_read_stanford(struct gsv_modules *modules, const struct gsv_dir *dir,
                                       gpuserve_error *error);
void gsv_late_reset(struct gsv_late_facts *late);

/* router.c: add the steps of all routes. */
gpuserve_status gsv_router_add(const struct gsv_module_reader *r, const char *folder,
                               const char *config_name);

/* The last word of a Python class: "torch.nn.modules.activation.Tanh" -> "Tanh". */
const char *gsv_class_name(const char *path);
gpuserve_status gsv_modules_nomem(const struct gsv_dir *dir, gpuserve_error *error);

void gsv_modules_reset(struct gsv_modules *modules);

/* Parse the config.json of a Pooling module, in the old or the new format. */
gpuserve_status gsv_pooling_parse(struct gsv_modules *modules, const struct gsv_json_value *json,
                                  gpuserve_error *error);
/* Parse the config.json of a Dense module. */
gpuserve_status gsv_dense_parse(struct gsv_dense_spec *spec, const struct gsv_json_value *json,
                                gpuserve_error *error);

/*
 * A custom classification head over any embedding model: a small safetensors file.
 *
 * docs/heads.md describes the format.
 */

#define GSV_MAX_HEAD_LAYERS 4

enum gsv_head_input {
    GSV_HEAD_INPUT_MODEL, /* the embedding as the model returns it */
    GSV_HEAD_INPUT_NORMALIZED,
    GSV_HEAD_INPUT_RAW
};

struct gsv_head_layer {
    struct gsv_tensor weight; /* [out, in] */
    struct gsv_tensor bias;   /* [out]; count 0: no bias */
};

struct gsv_head {
    struct gsv_weight_file *file;
    struct gsv_head_layer layers[GSV_MAX_HEAD_LAYERS]; /* with RELU between layers */
    int32_t n_layers;
    char **labels; /* owned */
    size_t n_labels;
    int32_t score; /* gpuserve_score */
    enum gsv_head_input input;
    char *name;         /* owned */
    int32_t first_item; /* of n_layers items of the spec */
    bool normalizes;    /* the input is normalized */
};

/* The heads of a model. */
struct gsv_heads {
    struct gsv_head *at; /* [n] */
    size_t n;
};

/* Open heads, in order; a file is a safetensors file, a folder with head.safetensors or the name of
 * an installed head. Names are unique. After a failure gsv_heads_close() frees what was opened. */
gpuserve_status gsv_heads_open(struct gsv_heads *heads, const struct gsv_head_files *files,
                               gpuserve_error *error);
void gsv_heads_close(struct gsv_heads *heads);

#endif
