/*
 * options.h - command line: tables of commands and options, the parsed arguments, and help.
 *
 * One table holds the options of all commands; each row has the set of commands that accept it. So
 * an option has the same meaning everywhere. Help and shell completions come from the same rows.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "cli/cli.h"

/* Commands that accept an option: bit N is the command at index N of cli_commands. */
enum {
    CMD_EMBED = 1 << 0,
    CMD_CLASSIFY = 1 << 1,
    CMD_SIMILARITY = 1 << 2,
    CMD_TOKENIZE = 1 << 3,
    CMD_INSPECT = 1 << 4,
    CMD_DEVICES = 1 << 5,
    CMD_DOCTOR = 1 << 6,
    CMD_BENCH = 1 << 7,
    CMD_FIT = 1 << 8,
    CMD_PULL = 1 << 9,
    CMD_COMPLETION = 1 << 10,
    CMD_RERANK = 1 << 11,
    CMD_SERVE = 1 << 12,
    CMD_PROFILE = 1 << 13,
    CMD_CONVERT = 1 << 14,
    CMD_CALIBRATE = 1 << 15,
    CMD_PRUNE = 1 << 16,
    CMD_PLAN = 1 << 17,
    CMD_EVAL = 1 << 18
};

enum cli_format { CLI_BY_NAME = 0, CLI_JSON, CLI_NPY, CLI_TEXT };
enum cli_input_format { CLI_INPUT_BY_NAME = 0, CLI_INPUT_LINES, CLI_INPUT_JSONL, CLI_INPUT_CSV };

/* The values of a repeatable option. */
#define CLI_LIST_MAX 256
struct cli_list {
    const char *items[CLI_LIST_MAX];
    size_t n;
};

/* struct cli_args holds all options of all commands; zero means not given. Strings are borrowed
 * from argv. */
/* Value of --on-device-lost other than those of gpuserve_lost_policy: the server exits. */
#define CLI_LOST_EXIT 100u

enum cli_log_format { CLI_LOG_DEFAULT = 0, CLI_LOG_TEXT, CLI_LOG_JSON };

enum cli_eval_task {
    CLI_EVAL_NONE = 0,
    CLI_EVAL_STS,
    CLI_EVAL_PAIRS,
    CLI_EVAL_RETRIEVAL,
    CLI_EVAL_CLASSIFICATION
};
enum cli_similarity { CLI_SIMILARITY_COSINE = 0, CLI_SIMILARITY_DOT };

enum cli_table { CLI_TABLE_NONE = 0, CLI_TABLE_DTYPES, CLI_TABLE_BATCHES };

#define CLI_RANDOM_BYTES 300
#define CLI_OPTIONS_MAX 192 /* rows of cli_options */

struct cli_args {
    /* model */
    const char *model, *device, *cache_dir, *weights_cache;
    const char *random; /* becomes `model` */
    struct cli_list heads, adapters;
    char random_path[CLI_RANDOM_BYTES];
    uint32_t dtype, threads, max_tokens, batch_tokens, queue_tokens, tokens_per_second, pooling,
        mmap, deterministic, portable_bits, stream_weights, pipeline, on_device_lost, warmup,
        verbose, memory_policy, max_wait, queue_ms; /* the last two are stored plus 1 */
    uint64_t memory_budget, device_budget, cache_bytes;
    /* input */
    const char *input, *text_column, *pair_column;
    uint32_t input_format, batch;
    /* run */
    const char *prompt, *prompt_name, *ranges, *outputs;
    uint32_t dimensions, truncate, normalize, score, rerank_method, top, pairs, no_special, spans,
        sparse, precision, aggregation; /* the last is stored plus 1 */
    struct cli_list ignored_labels;
    uint32_t chunking, chunk_by, chunk_tokens, window_tokens, stride; /* the first two plus 1 */
    const char *labels; /* of an entity model: "person,city" */
    const char *candidate_labels, *hypothesis_template;
    double threshold;
    uint32_t nested, multi_label;
    /* output */
    const char *output;
    uint32_t format, json, quiet;
    /* bench */
    const char *workload, *plot, *operations;
    double seconds, rate;
    uint32_t share, table; /* one of enum cli_table */
    uint32_t chain, lstm, transfer;
    uint64_t max_bytes; /* of a copy of --transfer; 0: the default */
    /* plan; `rate` and `seconds` too */
    const char *measured;
    double p99_ms, core_price;
    /* fit */
    const char *train, *validation, *test, *label_column, *data_name;
    double c, tolerance, split, seed;
    uint32_t limit, folds;
    struct cli_list label_names, where;
    /* eval */
    const char *dtypes, *precisions; /* "float32,int8" */
    uint32_t eval_task;              /* one of enum cli_eval_task */
    uint32_t similarity;             /* one of enum cli_similarity */
    /* profile */
    const char *trace;
    uint32_t text_tokens, texts, rounds, timing;
    /* devices */
    const char *select;
    const char *root;
    uint32_t watch, looks;
    double interval;
    /* convert and prune */
    uint32_t force, prune;
    uint64_t max_shard_size;
    /* pull */
    const char *revision;
    struct cli_list include;
    /* serve */
    const char *host;
    uint32_t port; /* stored plus 1, because 0 is a valid port */
    uint32_t insecure, http_threads, max_connections, max_body_bytes, max_client_batch,
        auto_truncate, drain_timeout, model_control, header_timeout, body_timeout, idle_timeout,
        min_body_rate, max_address_connections, max_unread_bytes;
    double shutdown_delay;
    struct cli_list aliases, served_ranges, api_keys, cors_origins, allowed_hosts;
    const char *default_prompt, *default_prompt_name;
    const char *api_key_file, *access_log, *config, *unix_path, *tls_cert, *tls_key, *tls_client_ca,
        *tls_client_crl, *batch_dir, *predict_route, *health_route, *dialects, *otlp_endpoint,
        *otlp_service_name;
    uint64_t batch_disk;
    uint32_t compress;
    uint32_t key_rate, key_burst, open_metrics, check_config, no_sandbox;
    uint32_t log_format;     /* one of enum cli_log_format */
    uint32_t list_endpoints; /* CLI_JSON or CLI_TEXT */
    void **owned;            /* [n_owned] memory of the values from --config */
    size_t n_owned, owned_capacity;
    /* general */
    uint32_t help;
    /* positional arguments */
    const char *const *rest;
    size_t n_rest;
    bool model_is_argument;       /* `model` was the first of them */
    bool is_set[CLI_OPTIONS_MAX]; /* by row of cli_options: given, even if its field is zero */
};

struct cli_command {
    const char *name;
    int (*run)(const struct cli_args *args);
    bool takes_model;    /* without --model the first argument is the model */
    const char *usage;   /* "embed --model MODEL [TEXT...]" */
    const char *summary; /* one line */
    const char *about;   /* description with examples */
};

enum cli_option_kind {
    OPTION_FLAG,   /* sets a uint32_t to `value` */
    OPTION_STRING, /* const char * */
    OPTION_COUNT,  /* uint32_t, 1 to `maximum` */
    OPTION_PORT,   /* uint32_t, 0 to `maximum`, stored plus 1 */
    OPTION_NUMBER, /* double, 0 to `maximum`; with `value` 1 above 0 */
    OPTION_SIZE,   /* uint64_t bytes: 12G, 800MB */
    OPTION_CHOICE, /* uint32_t, one of `choices` */
    OPTION_LIST    /* struct cli_list */
};

struct cli_choice {
    const char *name;
    uint32_t value;
};

struct cli_option {
    const char *name;
    char letter; /* 0: none */
    uint8_t kind;
    uint32_t commands;
    uint32_t value;
    double maximum;
    const char *argument; /* "FILE"; NULL for flags and choices */
    const char *help;
    const struct cli_choice *choices; /* ended by a NULL name */
    size_t offset;                    /* in struct cli_args */
};

extern const struct cli_option cli_options[];
extern const size_t cli_n_options;
extern const struct cli_command cli_commands[];
extern const size_t cli_n_commands;

/* options_tei.c: the names of `serve` options in text-embeddings-inference. */
enum cli_tei_kind {
    TEI_SAME,   /* alias of `option` */
    TEI_PASSED, /* does not change results: ignored, `remark` names the equivalent behaviour */
    TEI_REFUSED /* would change results: an error, `remark` names the alternative */
};
enum cli_tei_value {
    TEI_VALUE,
    TEI_FLAG,
    TEI_BOOL /* a flag with an optional "true" or "false" */
};

struct cli_tei_name {
    const char *flag, *variable;
    const char *option, *remark; /* one of them is NULL */
    uint8_t kind, value;
    const char *text; /* of a flag: the value of `option` that it stands for, or NULL */
};

extern const struct cli_tei_name cli_tei_names[];
extern const size_t cli_n_tei_names;

const struct cli_command *cli_command_find(const char *name);
/* Find by the first `size` bytes of `name`; NULL if unknown or if the command is not `serve`. */
const struct cli_tei_name *cli_tei_flag(const struct cli_command *command, const char *name,
                                        size_t size);
/* Report an option without a counterpart, by the name given; CLI_OK or CLI_USAGE. */
int cli_tei_tell(const struct cli_tei_name *tei, const char *given);
bool cli_option_of(const struct cli_option *option, const struct cli_command *command);

/* Parse the arguments after the command's name. Reorders argv: positional arguments move to its
 * front, and args->rest borrows them. CLI_OK or CLI_USAGE. */
int cli_parse(struct cli_args *args, const struct cli_command *command, int argc, char **argv);

/* Set an option as the command line does; CLI_OK or CLI_USAGE. */
int cli_option_set(struct cli_args *args, const struct cli_option *option, const char *text);
/* A flag that is given as false: a source of lower priority does not set it. */
void cli_option_set_false(struct cli_args *args, const struct cli_option *option);
/* Whether the option is given, by this or another row with its field. */
bool cli_option_given(const struct cli_args *args, const struct cli_option *option);
const struct cli_option *cli_option_find(const struct cli_command *command, const char *name);
/* cli/serve/config.c: fill options that the command line leaves unset, from the environment, then
 * from --config. Call cli_serve_release() whatever the result. */
int cli_serve_complete(struct cli_args *args);
void cli_serve_release(struct cli_args *args);
/* Print the merged configuration in the format of --config, without keys. */
int cli_serve_print(const struct cli_args *args);

/* Print help on standard output. */
void cli_help(const struct cli_command *command); /* NULL: help of the program */

/* The name with the smallest edit distance to a mistyped one, or NULL if all are too distant. */
const char *cli_nearest(const char *name, const char *const *names, size_t n);

/* Entry points of the commands. */
int cli_embed(const struct cli_args *args);
int cli_classify(const struct cli_args *args);
int cli_similarity(const struct cli_args *args);
int cli_tokenize(const struct cli_args *args);
int cli_inspect(const struct cli_args *args);
int cli_devices(const struct cli_args *args);
int cli_doctor(const struct cli_args *args);
int cli_bench(const struct cli_args *args);
int cli_fit(const struct cli_args *args);
int cli_pull(const struct cli_args *args);
int cli_completion(const struct cli_args *args);
int cli_profile(const struct cli_args *args);
int cli_convert(const struct cli_args *args);
int cli_calibrate(const struct cli_args *args);
int cli_prune(const struct cli_args *args);
int cli_plan(const struct cli_args *args);
int cli_rerank(const struct cli_args *args);
int cli_serve(const struct cli_args *args);
int cli_eval(const struct cli_args *args);

#endif
