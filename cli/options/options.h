/*
 * options.h - the command line: which commands there are, what options they take, and their help.
 *
 * One table of options for all commands, each row with the set of commands that take it: an option
 * means the same everywhere, and help and shell completions are made from the same rows.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "cli/cli.h"

/* Which commands take an option: bit N is the command at N in cli_commands. */
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
    CMD_PROFILE = 1 << 13
};

enum cli_format { CLI_BY_NAME = 0, CLI_JSON, CLI_NPY, CLI_TEXT };
enum cli_input_format { CLI_INPUT_BY_NAME = 0, CLI_INPUT_LINES, CLI_INPUT_JSONL, CLI_INPUT_CSV };

/* An option that may be given several times. */
#define CLI_LIST_MAX 256
struct cli_list {
    const char *items[CLI_LIST_MAX];
    size_t n;
};

/* All options of all commands; zero means not given. Texts are lent by argv. */
/* One more than the gpuserve_lost_policy has: the server ends. */
#define CLI_LOST_EXIT 100u

struct cli_args {
    /* model */
    const char *model, *device, *head, *cache_dir;
    uint32_t dtype, threads, max_tokens, batch_tokens, queue_tokens, pooling, mmap, on_device_lost,
        verbose, memory_policy, max_wait, queue_ms; /* the last two plus 1 */
    uint64_t memory_budget, cache_bytes;
    /* input */
    const char *input, *text_column, *pair_column;
    uint32_t input_format, batch;
    /* run */
    const char *prompt, *prompt_name;
    uint32_t dimensions, truncate, normalize, score, top, pairs, no_special, spans, sparse,
        aggregation; /* the last plus 1 */
    struct cli_list ignored_labels;
    /* output */
    const char *output;
    uint32_t format, json, quiet;
    /* bench */
    const char *workload;
    double seconds;
    /* fit */
    const char *train, *validation, *test, *label_column, *data_name;
    double c, tolerance, split, seed;
    uint32_t limit;
    struct cli_list label_names, where;
    /* profile */
    const char *trace;
    uint32_t text_tokens, texts, rounds, timing;
    /* devices */
    const char *select;
    uint32_t watch, looks;
    double interval;
    /* pull */
    const char *revision;
    struct cli_list include;
    /* serve */
    const char *host;
    uint32_t port; /* one more than given: 0 is a port too */
    uint32_t insecure, http_threads, max_connections, max_body_bytes, max_client_batch,
        auto_truncate, drain_timeout, model_control, header_timeout, body_timeout, idle_timeout,
        min_body_rate, max_address_connections, max_unread_bytes;
    double shutdown_delay;
    struct cli_list aliases, api_keys, cors_origins, allowed_hosts;
    const char *default_prompt, *default_prompt_name;
    const char *api_key_file, *access_log, *config, *unix_path, *tls_cert, *tls_key, *tls_client_ca,
        *tls_client_crl;
    uint32_t key_rate, key_burst, open_metrics, check_config, no_sandbox;
    void **owned; /* [n_owned] memory of what --config says */
    size_t n_owned, owned_capacity;
    /* the program itself */
    uint32_t help;
    /* arguments that are no options */
    const char *const *rest;
    size_t n_rest;
};

struct cli_command {
    const char *name;
    int (*run)(const struct cli_args *args);
    const char *usage;   /* "embed --model MODEL [TEXT...]" */
    const char *summary; /* one line */
    const char *about;   /* what to know, with examples */
};

enum cli_option_kind {
    OPTION_FLAG,   /* sets a uint32_t to `value` */
    OPTION_TEXT,   /* const char * */
    OPTION_COUNT,  /* uint32_t, 1 to `maximum` */
    OPTION_PORT,   /* uint32_t, 0 to `maximum`, kept plus one */
    OPTION_REAL,   /* double, 0 to `maximum` */
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

/* options_tei.c: what text-embeddings-inference calls options of `serve`. */
enum cli_tei_kind {
    TEI_SAME,   /* as `option` of ours */
    TEI_PASSED, /* changes no answer: passed over, and `remark` says what is done instead */
    TEI_REFUSED /* would change answers: `remark` says what to use */
};
enum cli_tei_value {
    TEI_VALUE,
    TEI_FLAG,
    TEI_BOOL /* a flag that "true" or "false" may follow */
};

struct cli_tei_name {
    const char *flag, *variable;
    const char *option, *remark; /* one of them is NULL */
    uint8_t kind, value;
};

extern const struct cli_tei_name cli_tei_names[];
extern const size_t cli_n_tei_names;

const struct cli_command *cli_command_find(const char *name);
/* By the first `size` bytes of `name`; NULL: none of them, or of another command. */
const struct cli_tei_name *cli_tei_flag(const struct cli_command *command, const char *name,
                                        size_t size);
/* Tell of one that is no option of ours, as it was given; CLI_OK or CLI_USAGE. */
int cli_tei_tell(const struct cli_tei_name *tei, const char *given);
bool cli_option_of(const struct cli_option *option, const struct cli_command *command);

/* Parse what follows the command's name. argv is reordered: arguments that are no options are moved
 * to its front and lent by args->rest. CLI_OK or CLI_USAGE. */
int cli_parse(struct cli_args *args, const struct cli_command *command, int argc, char **argv);

/* Give an option a value, as the command line would; CLI_OK or CLI_USAGE. */
int cli_option_set(struct cli_args *args, const struct cli_option *option, const char *text);
/* Whether it has one. */
bool cli_option_given(const struct cli_args *args, const struct cli_option *option);
const struct cli_option *cli_option_find(const struct cli_command *command, const char *name);
/* config.c: what the command line leaves open, from the environment, then from --config; to
 * be released, whatever the result. */
int cli_serve_complete(struct cli_args *args);
void cli_serve_release(struct cli_args *args);
/* What holds in the end, in the form of --config; keys are not shown. */
int cli_serve_print(const struct cli_args *args);

/* Help on standard output. */
void cli_help(const struct cli_command *command); /* NULL: the program's own */

/* The name nearest to a mistyped one, or NULL when none is near. */
const char *cli_nearest(const char *name, const char *const *names, size_t n);

/* One function a command. */
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
int cli_rerank(const struct cli_args *args);
int cli_serve(const struct cli_args *args);

#endif
