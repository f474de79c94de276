/*
 * options_table.c - every option once.
 */
#include "cli/options/options.h"

#define RUNS \
    (CMD_EMBED | CMD_CLASSIFY | CMD_SIMILARITY | CMD_BENCH | CMD_FIT | CMD_RERANK | CMD_SERVE)
#define OPENS (RUNS | CMD_TOKENIZE)
#define READS (CMD_EMBED | CMD_CLASSIFY | CMD_SIMILARITY | CMD_TOKENIZE | CMD_BENCH | CMD_RERANK)
#define VECTORS (CMD_EMBED | CMD_SIMILARITY | CMD_BENCH)

static const struct cli_choice dtypes[] = { { "fp32", GPUSERVE_DTYPE_FLOAT32 },
                                            { "fp16", GPUSERVE_DTYPE_FLOAT16 },
                                            { "bf16", GPUSERVE_DTYPE_BFLOAT16 },
                                            { "tf32", GPUSERVE_DTYPE_TF32 },
                                            { "int8", GPUSERVE_DTYPE_INT8 },
                                            { "float32", GPUSERVE_DTYPE_FLOAT32 },
                                            { "float16", GPUSERVE_DTYPE_FLOAT16 },
                                            { "bfloat16", GPUSERVE_DTYPE_BFLOAT16 },
                                            { 0 } };
static const struct cli_choice poolings[] = { { "cls", GPUSERVE_POOLING_CLS },
                                              { "mean", GPUSERVE_POOLING_MEAN },
                                              { "max", GPUSERVE_POOLING_MAX },
                                              { "mean_sqrt_len", GPUSERVE_POOLING_MEAN_SQRT_LEN },
                                              { "weighted_mean", GPUSERVE_POOLING_WEIGHTED_MEAN },
                                              { "last", GPUSERVE_POOLING_LAST },
                                              { "last-token", GPUSERVE_POOLING_LAST },
                                              { 0 } };
static const struct cli_choice lost_policies[] = {
    { "fail", GPUSERVE_LOST_FAIL }, { "cpu", GPUSERVE_LOST_CPU },
    { "gpu", GPUSERVE_LOST_GPU },   { "gpu-or-cpu", GPUSERVE_LOST_GPU_OR_CPU },
    { "exit", CLI_LOST_EXIT },      { 0 }
};
static const struct cli_choice truncations[] = { { "left", GPUSERVE_TRUNCATE_LEFT },
                                                 { "right", GPUSERVE_TRUNCATE_RIGHT },
                                                 { "strict", GPUSERVE_TRUNCATE_STRICT },
                                                 { 0 } };
static const struct cli_choice memory_policies[] = { { "refuse", GPUSERVE_MEMORY_REFUSE },
                                                     { "wait", GPUSERVE_MEMORY_WAIT },
                                                     { "evict", GPUSERVE_MEMORY_EVICT },
                                                     { 0 } };
static const struct cli_choice formats[] = {
    { "json", CLI_JSON }, { "npy", CLI_NPY }, { "text", CLI_TEXT }, { 0 }
};
static const struct cli_choice input_formats[] = {
    { "lines", CLI_INPUT_LINES }, { "jsonl", CLI_INPUT_JSONL }, { "csv", CLI_INPUT_CSV }, { 0 }
};

static const struct cli_choice aggregations[] = { { "simple", GPUSERVE_AGGREGATION_SIMPLE + 1 },
                                                  { "none", GPUSERVE_AGGREGATION_NONE + 1 },
                                                  { 0 } };

static const struct cli_choice timings[] = { { "operations", GPUSERVE_PROFILE_OPERATIONS },
                                             { "differences", GPUSERVE_PROFILE_DIFFERENCES },
                                             { 0 } };

/* clang-format off */
#define AT(field) offsetof(struct cli_args, field)
#define FLAG(name, letter, commands, field, value, help) \
    { name, letter, OPTION_FLAG, commands, value, 0, 0, help, 0, AT(field) }
#define TEXT(name, letter, commands, field, argument, help) \
    { name, letter, OPTION_TEXT, commands, 0, 0, argument, help, 0, AT(field) }
#define COUNT(name, commands, field, maximum, help) \
    { name, 0, OPTION_COUNT, commands, 0, maximum, "N", help, 0, AT(field) }
#define PORT(name, commands, field, maximum, help) \
    { name, 0, OPTION_PORT, commands, 0, maximum, "N", help, 0, AT(field) }
#define REAL(name, commands, field, maximum, argument, help) \
    { name, 0, OPTION_REAL, commands, 0, maximum, argument, help, 0, AT(field) }
#define SIZE(name, commands, field, maximum, help) \
    { name, 0, OPTION_SIZE, commands, 0, maximum, "SIZE", help, 0, AT(field) }
#define CHOICE(name, commands, field, choices, help) \
    { name, 0, OPTION_CHOICE, commands, 0, 0, 0, help, choices, AT(field) }
#define LIST(name, commands, field, argument, help) \
    { name, 0, OPTION_LIST, commands, 0, 0, argument, help, 0, AT(field) }

const struct cli_option cli_options[] = {
    TEXT("model", 'm', OPENS | CMD_INSPECT | CMD_PROFILE, model, "MODEL",
         "a model's directory, or its name in the Hugging Face cache"),
    TEXT("head", 0, CMD_CLASSIFY | CMD_INSPECT | CMD_BENCH | CMD_SERVE, head, "FILE",
         "a classifier head over the embedding, as made by `gpuserve fit`"),
    TEXT("device", 'd', OPENS | CMD_INSPECT | CMD_PROFILE, device, "DEVICE",
         "auto, cpu, cuda:N, a UUID, or auto:order=load,max_load=0.5 and the like (default auto: the GPU with the most memory free if one works)"),
    CHOICE("on-device-lost", RUNS, on_device_lost, lost_policies,
           "what to do when the GPU fails: refuse requests with the cause, go on elsewhere, or end the server, which then exits with 1 (default fail)"),
    CHOICE("dtype", RUNS | CMD_INSPECT | CMD_PROFILE, dtype, dtypes,
           "what to compute in (default fp32 on a CPU, fp16 on a GPU)"),
    COUNT("threads", OPENS | CMD_INSPECT | CMD_PROFILE, threads, 4096, "compute threads (default: all that may be used)"),
    COUNT("max-tokens", RUNS | CMD_TOKENIZE | CMD_INSPECT | CMD_PROFILE, max_tokens, 1048576,
          "cut texts at N tokens (default: the model's limit; of tokenize: none)"),
    COUNT("batch-tokens", RUNS | CMD_INSPECT | CMD_PROFILE, batch_tokens, 1048576, "most tokens computed together by one thread"),
    PORT("max-wait-us", CMD_SERVE | CMD_BENCH, max_wait, 60000000,
         "longest wait for a fuller batch while the device is busy, in microseconds (default 300 on a GPU, 0 on a CPU)"),
    COUNT("queue-tokens", CMD_SERVE, queue_tokens, UINT32_MAX,
          "most tokens waiting to be computed; what comes then is refused with 429 (default 1048576)"),
    PORT("queue-ms", CMD_SERVE, queue_ms, 3600000,
         "most work waiting, in milliseconds at the speed measured of late; what comes then is refused with 429; 0 for no such bound (default 500)"),
    CHOICE("pooling", VECTORS | CMD_FIT | CMD_INSPECT | CMD_RERANK | CMD_SERVE, pooling, poolings,
           "how token vectors become one, instead of the model's own way"),
    FLAG("mmap", 0, OPENS, mmap, 1, "accepted and without effect: weights are read, never mapped"),
    SIZE("memory-budget", OPENS | CMD_INSPECT | CMD_PROFILE, memory_budget, 0x1p60,
         "most memory for all models together, such as 12G or 800MB (default: what the device has free)"),
    SIZE("result-cache", CMD_SERVE | CMD_INSPECT, cache_bytes, 0x1p46,
         "memory for results of texts that may come again, such as 200MB (default: none)"),
    CHOICE("memory-policy", CMD_SERVE | CMD_INSPECT, memory_policy, memory_policies,
           "what a model does that is over it: refuse (the default), wait, or evict the idle one used longest ago"),
    TEXT("input", 'i', READS, input, "FILE",
         "read texts from FILE: .jsonl objects, .csv rows, else one text a line; - is standard input"),
    CHOICE("input-format", READS, input_format, input_formats, "what the input is, whatever its name"),
    TEXT("text-column", 0, READS | CMD_FIT, text_column, "NAME",
         "the member or column that holds the text (default text)"),
    TEXT("pair-column", 0, CMD_CLASSIFY | CMD_SIMILARITY, pair_column, "NAME",
         "the member or column that holds the second text (default pair)"),
    COUNT("batch", (READS & ~CMD_RERANK) | CMD_FIT, batch, 65536, "texts handed to the model at a time (default 512)"),
    TEXT("prompt", 0, VECTORS | CMD_FIT, prompt, "TEXT", "put TEXT before every text"),
    TEXT("prompt-name", 0, VECTORS | CMD_FIT, prompt_name, "NAME", "put one of the model's prompts before every text, such as query"),
    COUNT("dimensions", VECTORS, dimensions, 1048576, "keep the first N numbers of a vector, then normalize"),
    FLAG("normalize", 0, CMD_EMBED, normalize, GPUSERVE_NORMALIZE_YES, "make vectors of length 1, whatever the model says"),
    FLAG("no-normalize", 0, CMD_EMBED, normalize, GPUSERVE_NORMALIZE_NO, "leave the length of vectors as it is"),
    CHOICE("truncate", CMD_EMBED | CMD_CLASSIFY | CMD_SIMILARITY | CMD_TOKENIZE | CMD_RERANK, truncate, truncations,
           "which end of a text over the limit is cut; strict refuses it"),
    FLAG("pairs", 0, CMD_CLASSIFY | CMD_SIMILARITY, pairs, 1, "the input holds pairs of texts"),
    FLAG("sparse", 0, CMD_EMBED, sparse, 1, "weights of the vocabulary's words (SPLADE) instead of a vector: the ids and weights above zero"),
    FLAG("raw", 0, CMD_CLASSIFY | CMD_RERANK, score, GPUSERVE_SCORE_RAW, "scores as the head gives them, not as probabilities"),
    CHOICE("aggregation", CMD_CLASSIFY, aggregation, aggregations,
           "with a model that labels tokens: neighbours of one kind as one entity (default simple), or each token"),
    LIST("ignore-label", CMD_CLASSIFY, ignored_labels, "LABEL", "leave out the entities of LABEL (default O)"),
    COUNT("top", CMD_CLASSIFY | CMD_RERANK, top, 1048576, "only the N best labels or documents, best first"),
    FLAG("no-special", 0, CMD_TOKENIZE, no_special, 1, "leave out [CLS], [SEP] and their like"),
    FLAG("spans", 0, CMD_TOKENIZE, spans, 1, "add the place of each token in its text, in bytes"),
    TEXT("output", 'o', CMD_EMBED | CMD_CLASSIFY | CMD_TOKENIZE | CMD_SIMILARITY | CMD_FIT | CMD_RERANK, output, "FILE",
         "write to FILE, which appears when it is whole (default standard output)"),
    CHOICE("format", CMD_EMBED | CMD_RERANK, format, formats,
           "what to write (default: npy for a .npy file, text for .txt, else json)"),
    FLAG("json", 0, CMD_INSPECT | CMD_DEVICES | CMD_DOCTOR | CMD_BENCH | CMD_FIT | CMD_PROFILE, json, 1, "a JSON object instead of text to read"),
    COUNT("text-tokens", CMD_PROFILE, text_tokens, 1048576, "tokens of each text (default 128)"),
    COUNT("texts", CMD_PROFILE, texts, 1048576, "texts of the batch (default: as many as fit)"),
    COUNT("rounds", CMD_PROFILE, rounds, 10000, "how often the batch runs; figures are medians (default 20)"),
    CHOICE("timing", CMD_PROFILE, timing, timings,
           "by each operation's time, or by what a batch takes less without a stage (default: as fits the device)"),
    TEXT("trace", 0, CMD_PROFILE, trace, "FILE", "write the last round as a trace for Chrome's and Perfetto's viewers"),
    TEXT("select", 0, CMD_DEVICES, select, "DEVICE", "only the devices that DEVICE names, one a line: cuda:*, auto:limit=2,order=memory"),
    FLAG("watch", 0, CMD_DEVICES, watch, 1, "look again and again, until interrupted"),
    REAL("interval", CMD_DEVICES, interval, 3600, "S", "seconds between two looks (default 2)"),
    COUNT("looks", CMD_DEVICES, looks, 1000000000, "end after N looks"),
    TEXT("workload", 0, CMD_BENCH, workload, "LIST",
         "of W1-N, W2, W3, separated by commas (default W1-8,W1-32,W1-128,W2,W3)"),
    REAL("seconds", CMD_BENCH, seconds, 3600, "S", "how long to measure each workload (default 3)"),
    TEXT("train", 0, CMD_FIT, train, "FILE", "labelled texts to learn from, .csv or .jsonl"),
    TEXT("validation", 0, CMD_FIT, validation, "FILE", "labelled texts to choose C with"),
    TEXT("test", 0, CMD_FIT, test, "FILE", "labelled texts to measure the accuracy on"),
    REAL("split", CMD_FIT, split, 0.9, "PART", "keep this part of the training texts for the test, such as 0.2"),
    TEXT("label-column", 0, CMD_FIT, label_column, "NAME", "the member or column that holds the label (default label)"),
    LIST("label-name", CMD_FIT, label_names, "OLD=NEW", "call label OLD of the data NEW in the head"),
    LIST("where", CMD_FIT, where, "COLUMN=VALUE", "only rows with that value"),
    COUNT("limit", CMD_FIT, limit, 100000000, "learn from a random sample of N texts"),
    REAL("C", CMD_FIT, c, 1e9, "C", "inverse strength of the regularization (default 10, or the best on --validation)"),
    REAL("tolerance", CMD_FIT, tolerance, 1, "T",
         "stop when the slope of the mean loss is below T (default 0.0001)"),
    REAL("seed", CMD_FIT, seed, 4294967295.0, "N", "of --split and --limit (default 0)"),
    TEXT("data-name", 0, CMD_FIT, data_name, "TEXT", "where the texts come from, kept in the head (default: the file's name)"),
    TEXT("revision", 0, CMD_PULL | CMD_SERVE, revision, "REV", "a branch, a tag or a commit of the model (default main)"),
    LIST("include", CMD_PULL, include, "GLOB", "fetch files of that name too"),
    TEXT("host", 0, CMD_SERVE, host, "ADDRESS", "listen on ADDRESS (default 127.0.0.1: this machine only)"),
    { "port", 'p', OPTION_PORT, CMD_SERVE, 0, 65535, "N", "listen on port N (default 8080); 0: one that is free", 0, AT(port) },
    TEXT("unix", 0, CMD_SERVE, unix_path, "FILE", "listen on a unix socket for this user alone, instead of a port"),
    FLAG("insecure", 0, CMD_SERVE, insecure, 1, "allow a --host that other machines reach, without a key: anyone may ask"),
    TEXT("default-prompt", 0, CMD_SERVE, default_prompt, "TEXT", "put TEXT before the texts of requests that name no prompt, instead of the model's default one"),
    TEXT("default-prompt-name", 0, CMD_SERVE, default_prompt_name, "NAME", "the same with one of the model's prompts, such as query"),
    LIST("alias", CMD_SERVE, aliases, "NAME[=MODEL]", "call the first model, or MODEL, NAME too"),
    COUNT("max-client-batch-size", CMD_SERVE, max_client_batch, 1048576, "most texts in one request (default 2048)"),
    COUNT("max-body-bytes", CMD_SERVE, max_body_bytes, 1073741824, "largest request (default 33554432)"),
    COUNT("max-connections", CMD_SERVE, max_connections, 1048576, "most connections at once (default 4096)"),
    COUNT("max-address-connections", CMD_SERVE, max_address_connections, 1048576, "of them from one address (default half)"),
    COUNT("header-timeout", CMD_SERVE, header_timeout, 3600, "seconds for a request's header (default 10)"),
    COUNT("body-timeout", CMD_SERVE, body_timeout, 86400, "seconds for its body (default 60)"),
    COUNT("idle-timeout", CMD_SERVE, idle_timeout, 86400, "seconds between two requests of a connection (default 75)"),
    COUNT("min-body-rate", CMD_SERVE, min_body_rate, 1073741824, "least bytes a second, sending or receiving, after 5 seconds (default 1024)"),
    COUNT("max-unread-bytes", CMD_SERVE, max_unread_bytes, 1073741824, "of replies that wait for their readers (default 12582912)"),
    COUNT("http-threads", CMD_SERVE, http_threads, 256, "threads for requests that take long (default 2)"),
    FLAG("auto-truncate", 0, CMD_SERVE, auto_truncate, 1, "cut texts over the limit where the client does not say (default: refuse them)"),
    FLAG("model-control", 0, CMD_SERVE, model_control, 1, "let clients load and unload models (KServe's repository)"),
    LIST("api-key", CMD_SERVE, api_keys, "KEY", "ask for this key, or another that is given; better in a file or GPUSERVE_API_KEY, where `ps` does not show it"),
    TEXT("api-key-file", 0, CMD_SERVE, api_key_file, "FILE", "ask for one of its keys: one a line, plain or sha256:HEX, # for remarks; read again at SIGHUP"),
    COUNT("key-rate", CMD_SERVE, key_rate, 1000000000, "requests a minute for each key (default: no limit)"),
    COUNT("key-burst", CMD_SERVE, key_burst, 1000000000, "of them at once (default a sixth, plus one)"),
    TEXT("tls-cert", 0, CMD_SERVE, tls_cert, "FILE", "speak TLS with this certificate and those above it (PEM); read again when it changes, and at SIGHUP"),
    TEXT("tls-key", 0, CMD_SERVE, tls_key, "FILE", "its private key (PEM, not encrypted; default: in the certificate's file)"),
    TEXT("tls-client-ca", 0, CMD_SERVE, tls_client_ca, "FILE", "answer only clients with a certificate by one of its CAs (PEM); read again as the others"),
    TEXT("tls-client-crl", 0, CMD_SERVE, tls_client_crl, "FILE", "refuse those that its lists name (PEM, one of each of these CAs); read again as the others"),
    LIST("cors-origin", CMD_SERVE, cors_origins, "ORIGIN", "let pages of https://example.com ask, or of all with *"),
    LIST("allowed-host", CMD_SERVE, allowed_hosts, "HOST", "without keys: answer requests to this host name too, or to all with *"),
    FLAG("open-metrics", 0, CMD_SERVE, open_metrics, 1, "answer /metrics without a key"),
    TEXT("access-log", 0, CMD_SERVE, access_log, "FILE", "add a JSON line for each request; - is standard output; opened anew at SIGHUP"),
    TEXT("config", 0, CMD_SERVE, config, "FILE", "a JSON object of these options and \"models\"; flags and GPUSERVE_OPTION variables go before it"),
    FLAG("check-config", 0, CMD_SERVE, check_config, 1, "print what flags, environment and file say together, and end"),
    FLAG("no-sandbox", 0, CMD_SERVE, no_sandbox, 1, "keep the right to open other files, to start programs and to trace"),
    COUNT("drain-timeout", CMD_SERVE, drain_timeout, 86400, "seconds for accepted requests after SIGTERM (default 30)"),
    REAL("shutdown-delay", CMD_SERVE, shutdown_delay, 3600, "S", "seconds to serve on after SIGTERM while /health says 503, before the drain (default 0)"),
    TEXT("cache-dir", 0, OPENS | CMD_INSPECT | CMD_PROFILE | CMD_PULL, cache_dir, "DIR",
         "the Hugging Face cache (default HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub)"),
    FLAG("quiet", 'q', OPENS | CMD_PULL, quiet, 1, "no progress and no remarks, only errors"),
    FLAG("verbose", 'v', OPENS | CMD_INSPECT | CMD_PROFILE | CMD_DEVICES | CMD_DOCTOR, verbose, 1, "tell what the library does"),
    FLAG("help", 'h', ~0u, help, 1, "this help"),
};
/* clang-format on */

const size_t cli_n_options = sizeof(cli_options) / sizeof(cli_options[0]);

bool cli_option_of(const struct cli_option *option, const struct cli_command *command)
{
    return option->commands >> (command - cli_commands) & 1;
}
