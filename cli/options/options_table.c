/*
 * options_table.c - the table of all options: name, type, range, help text, and the commands that
 * accept it.
 */
#include "cli/options/options.h"

#include <gpuserve/http.h>

#define RUNS                                                                                    \
    (CMD_EMBED | CMD_CLASSIFY | CMD_SIMILARITY | CMD_BENCH | CMD_FIT | CMD_RERANK | CMD_SERVE | \
     CMD_CALIBRATE | CMD_PLAN | CMD_EVAL)
#define OPENS (RUNS | CMD_TOKENIZE)
#define READS                                                                            \
    (CMD_EMBED | CMD_CLASSIFY | CMD_SIMILARITY | CMD_TOKENIZE | CMD_BENCH | CMD_RERANK | \
     CMD_CALIBRATE | CMD_PLAN | CMD_EVAL)
#define VECTORS (CMD_EMBED | CMD_SIMILARITY | CMD_BENCH | CMD_CALIBRATE | CMD_EVAL)

static const struct cli_choice dtypes[] = { { "fp32", GPUSERVE_DTYPE_FLOAT32 },
                                            { "fp16", GPUSERVE_DTYPE_FLOAT16 },
                                            { "bf16", GPUSERVE_DTYPE_BFLOAT16 },
                                            { "tf32", GPUSERVE_DTYPE_TF32 },
                                            { "int8", GPUSERVE_DTYPE_INT8 },
                                            { "float32", GPUSERVE_DTYPE_FLOAT32 },
                                            { "float16", GPUSERVE_DTYPE_FLOAT16 },
                                            { "bfloat16", GPUSERVE_DTYPE_BFLOAT16 },
                                            { 0 } };
static const struct cli_choice weight_dtypes[] = {
    { "float32", GPUSERVE_DTYPE_FLOAT32 },   { "float16", GPUSERVE_DTYPE_FLOAT16 },
    { "bfloat16", GPUSERVE_DTYPE_BFLOAT16 }, { "int8", GPUSERVE_DTYPE_INT8 },
    { "fp32", GPUSERVE_DTYPE_FLOAT32 },      { "fp16", GPUSERVE_DTYPE_FLOAT16 },
    { "bf16", GPUSERVE_DTYPE_BFLOAT16 },     { 0 }
};
static const struct cli_choice eval_tasks[] = { { "sts", CLI_EVAL_STS },
                                                { "pairs", CLI_EVAL_PAIRS },
                                                { "retrieval", CLI_EVAL_RETRIEVAL },
                                                { "classification", CLI_EVAL_CLASSIFICATION },
                                                { 0 } };
static const struct cli_choice similarities[] = { { "cosine", CLI_SIMILARITY_COSINE },
                                                  { "dot", CLI_SIMILARITY_DOT },
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
static const struct cli_choice warmups[] = { { "on", GPUSERVE_WARMUP_AUTO },
                                             { "off", GPUSERVE_WARMUP_OFF },
                                             { 0 } };
static const struct cli_choice truncations[] = { { "left", GPUSERVE_TRUNCATE_LEFT },
                                                 { "right", GPUSERVE_TRUNCATE_RIGHT },
                                                 { "strict", GPUSERVE_TRUNCATE_STRICT },
                                                 { 0 } };
static const struct cli_choice rerank_methods[] = { { "cross-encoder",
                                                      GPUSERVE_RERANK_CROSS_ENCODER },
                                                    { "cosine", GPUSERVE_RERANK_COSINE },
                                                    { "max-sim", GPUSERVE_RERANK_MAX_SIM },
                                                    { 0 } };
static const struct cli_choice memory_policies[] = { { "refuse", GPUSERVE_MEMORY_REFUSE },
                                                     { "wait", GPUSERVE_MEMORY_WAIT },
                                                     { "evict", GPUSERVE_MEMORY_EVICT },
                                                     { 0 } };
static const struct cli_choice prune_patterns[] = { { "2:4", GPUSERVE_PRUNE_2_4 }, { 0 } };
static const struct cli_choice formats[] = {
    { "json", CLI_JSON }, { "npy", CLI_NPY }, { "text", CLI_TEXT }, { 0 }
};
static const struct cli_choice list_formats[] = { { "text", CLI_TEXT },
                                                  { "json", CLI_JSON },
                                                  { 0 } };
static const struct cli_choice precisions[] = { { "float32", GPUSERVE_PRECISION_FLOAT32 },
                                                { "float16", GPUSERVE_PRECISION_FLOAT16 },
                                                { "int8", GPUSERVE_PRECISION_INT8 },
                                                { "uint8", GPUSERVE_PRECISION_UINT8 },
                                                { "binary", GPUSERVE_PRECISION_BINARY },
                                                { "ubinary", GPUSERVE_PRECISION_UBINARY },
                                                { 0 } };
static const struct cli_choice input_formats[] = {
    { "lines", CLI_INPUT_LINES }, { "jsonl", CLI_INPUT_JSONL }, { "csv", CLI_INPUT_CSV }, { 0 }
};

static const struct cli_choice aggregations[] = {
    { "simple", GPUSERVE_AGGREGATION_SIMPLE + 1 }, { "none", GPUSERVE_AGGREGATION_NONE + 1 },
    { "first", GPUSERVE_AGGREGATION_FIRST + 1 },   { "average", GPUSERVE_AGGREGATION_AVERAGE + 1 },
    { "max", GPUSERVE_AGGREGATION_MAX + 1 },       { 0 }
};

static const struct cli_choice methods[] = { { "window", GPUSERVE_LONG_WINDOWS + 1 },
                                             { "late", GPUSERVE_LONG_LATE + 1 },
                                             { 0 } };
static const struct cli_choice chunk_kinds[] = { { "tokens", GPUSERVE_CHUNK_BY_TOKENS + 1 },
                                                 { "sentence", GPUSERVE_CHUNK_BY_SENTENCES + 1 },
                                                 { "spans", GPUSERVE_CHUNK_BY_SPANS + 1 },
                                                 { 0 } };
static const struct cli_choice compressions[] = { { "remote", GPUSERVE_COMPRESSION_REMOTE },
                                                  { "always", GPUSERVE_COMPRESSION_ALWAYS },
                                                  { "never", GPUSERVE_COMPRESSION_NEVER },
                                                  { 0 } };

static const struct cli_choice log_formats[] = { { "text", CLI_LOG_TEXT },
                                                 { "json", CLI_LOG_JSON },
                                                 { 0 } };

static const struct cli_choice timings[] = { { "operations", GPUSERVE_PROFILE_OPERATIONS },
                                             { "differences", GPUSERVE_PROFILE_DIFFERENCES },
                                             { 0 } };

/* clang-format off */
#define AT(field) offsetof(struct cli_args, field)
#define FLAG(name, letter, commands, field, value, help) \
    { name, letter, OPTION_FLAG, commands, value, 0, 0, help, 0, AT(field) }
#define STRING(name, letter, commands, field, argument, help) \
    { name, letter, OPTION_STRING, commands, 0, 0, argument, help, 0, AT(field) }
#define COUNT(name, commands, field, maximum, help) \
    { name, 0, OPTION_COUNT, commands, 0, maximum, "N", help, 0, AT(field) }
#define PORT(name, commands, field, maximum, help) \
    { name, 0, OPTION_PORT, commands, 0, maximum, "N", help, 0, AT(field) }
#define NUMBER(name, commands, field, maximum, argument, help) \
    { name, 0, OPTION_NUMBER, commands, 0, maximum, argument, help, 0, AT(field) }
#define POSITIVE(name, commands, field, maximum, argument, help) \
    { name, 0, OPTION_NUMBER, commands, 1, maximum, argument, help, 0, AT(field) }
#define SIZE(name, commands, field, maximum, help) \
    { name, 0, OPTION_SIZE, commands, 0, maximum, "SIZE", help, 0, AT(field) }
#define CHOICE(name, commands, field, choices, help) \
    { name, 0, OPTION_CHOICE, commands, 0, 0, 0, help, choices, AT(field) }
#define LIST(name, commands, field, argument, help) \
    { name, 0, OPTION_LIST, commands, 0, 0, argument, help, 0, AT(field) }

const struct cli_option cli_options[] = {
    STRING("model", 'm', OPENS | CMD_INSPECT | CMD_PROFILE, model, "MODEL",
         "model directory, GGUF file, or model name in the Hugging Face cache"),
    STRING("random", 0, OPENS | CMD_INSPECT | CMD_PROFILE, random, "SHAPE",
         "a BERT with seeded random weights instead of a model: bert-tiny to bert-large, minilm-l6, or keys such as layers=4,hidden=256,seed=1"),
    LIST("head", CMD_CLASSIFY | CMD_EMBED | CMD_INSPECT | CMD_BENCH | CMD_SERVE | CMD_EVAL, heads, "[NAME=]FILE",
         "classifier head over the embedding, as written by `gpuserve fit` (embed: with --outputs labels); several are computed in one pass"),
    LIST("adapter", RUNS | CMD_INSPECT, adapters, "NAME=DIR",
         "LoRA adapter in PEFT's format, which requests choose by NAME as prompt name (--prompt-name, --default-prompt-name)"),
    STRING("device", 'd', OPENS | CMD_INSPECT | CMD_PROFILE, device, "DEVICE",
         "auto, cpu, cuda:N, several as cuda:0,cuda:1 or cuda:*, a UUID, or auto with options, such as auto:order=load,max_load=0.5 (default auto: the usable GPU with the most free memory, else the CPU)"),
    STRING("device", 'd', CMD_DOCTOR, device, "DEVICE",
         "device that must work: cuda:N, a UUID; cpu judges no GPU (default: a GPU if the machine is set up for one)"),
    STRING("root", 0, CMD_DOCTOR, root, "DIR", "examine the files below DIR, such as an unpacked image or /proc/PID/root; nothing of it is executed"),
    CHOICE("on-device-lost", RUNS, on_device_lost, lost_policies,
           "action after a GPU failure: reject requests with the cause, move the model to another device, or exit the server with status 1 (default fail)"),
    CHOICE("dtype", RUNS | CMD_INSPECT | CMD_PROFILE, dtype, dtypes,
           "compute format (default fp32 on a CPU, fp16 on a GPU)"),
    CHOICE("dtype", CMD_CONVERT | CMD_PRUNE, dtype, weight_dtypes, "type of the weights to write (prune: default float32)"),
    COUNT("percent", CMD_PRUNE, prune, 95, "set N percent of the values of each matrix to zero, those with the smallest magnitudes"),
    CHOICE("pattern", CMD_PRUNE, prune, prune_patterns, "of each four adjacent values, set the two with the smaller magnitudes to zero"),
    FLAG("force", 'f', CMD_CONVERT | CMD_PRUNE, force, 1, "replace the output directory if it exists and is a model's, or empty"),
    SIZE("max-shard-size", CMD_CONVERT | CMD_PRUNE, max_shard_size, 0x1p60, "max size of a weight file, such as 2GB; larger weights are sharded (default 5GB)"),
    COUNT("threads", OPENS | CMD_INSPECT | CMD_PROFILE | CMD_CONVERT | CMD_PRUNE, threads, 4096, "compute threads (default: all usable cores)"),
    COUNT("max-tokens", RUNS | CMD_TOKENIZE | CMD_INSPECT | CMD_PROFILE, max_tokens, 1048576,
          "cut texts at N tokens (default: the model's limit; tokenize: no limit)"),
    COUNT("batch-tokens", RUNS | CMD_INSPECT | CMD_PROFILE, batch_tokens, 1048576, "max tokens of a batch, which one thread computes"),
    PORT("max-wait-us", CMD_SERVE | CMD_BENCH, max_wait, 60000000,
         "max wait for a fuller batch while the device is busy, in microseconds (default 300 on a GPU, 0 on a CPU)"),
    CHOICE("warmup", CMD_SERVE, warmup, warmups,
           "run batches of a model before it is ready (default: on a GPU, where the first batches are slow)"),
    COUNT("queue-tokens", CMD_SERVE, queue_tokens, UINT32_MAX,
          "max tokens in the queue; above it, requests are rejected with 429 (default 1048576)"),
    PORT("queue-ms", CMD_SERVE, queue_ms, 3600000,
         "max queued work in milliseconds, at the recently measured throughput; above it, requests are rejected with 429; 0: no limit (default 500)"),
    COUNT("tokens-per-second", CMD_SERVE, tokens_per_second, UINT32_MAX,
          "quota of each model in computed tokens per second; above it, requests are rejected with 429 (default: none)"),
    CHOICE("pooling", VECTORS | CMD_FIT | CMD_INSPECT | CMD_RERANK | CMD_SERVE, pooling, poolings,
           "pooling method, overrides the model's own"),
    FLAG("mmap", 0, OPENS, mmap, 1, "CPU: map packed weights read-only from the weights cache, so that processes share their memory"),
    FLAG("deterministic", 0, OPENS | CMD_PROFILE, deterministic, 1, "GPU: results whose bits do not depend on the other texts of a batch, at a cost in speed (CPU: always)"),
    FLAG("portable-bits", 0, OPENS | CMD_PROFILE, portable_bits, 1, "CPU: results whose bits are the same on every processor"),
    FLAG("stream-weights", 0, RUNS | CMD_INSPECT, stream_weights, 1, "GPU: a model that does not fit keeps layers in host memory and copies them in each batch"),
    FLAG("pipeline", 0, RUNS | CMD_INSPECT, pipeline, 1, "the GPUs of a DEVICE of several share the layers of one copy of the model"),
    STRING("weights-cache", 0, OPENS, weights_cache, "DIR",
         "CPU: folder of packed weights, an absolute path; off: none (default gpuserve/weights in XDG_CACHE_HOME or ~/.cache)"),
    SIZE("memory-budget", OPENS | CMD_INSPECT | CMD_PROFILE | CMD_CONVERT | CMD_PRUNE, memory_budget, 0x1p60,
         "max memory of all models together, such as 12G or 800MB (default: the device's free memory)"),
    SIZE("device-budget", RUNS | CMD_INSPECT, device_budget, 0x1p60,
         "max memory of all models on each GPU, such as 4G (default: its free memory)"),
    SIZE("result-cache", CMD_SERVE | CMD_INSPECT, cache_bytes, 0x1p46,
         "size of the cache for results of repeated texts, such as 200MB (default: none)"),
    CHOICE("memory-policy", CMD_SERVE | CMD_INSPECT, memory_policy, memory_policies,
           "action for a model over the memory budget: refuse it (the default), wait, or evict idle models in LRU order"),
    STRING("input", 'i', READS, input, "FILE",
         "read texts from FILE: .jsonl objects, .csv rows, else one text per line; - is standard input"),
    CHOICE("input-format", READS, input_format, input_formats, "input format (default: by the suffix of FILE)"),
    STRING("text-column", 0, READS | CMD_FIT, text_column, "NAME",
         "JSON field or CSV column of the text (default text)"),
    STRING("pair-column", 0, CMD_EVAL | CMD_CLASSIFY | CMD_SIMILARITY | CMD_TOKENIZE, pair_column, "NAME",
         "JSON field or CSV column of the second text (default pair)"),
    COUNT("batch", CMD_EVAL | CMD_EMBED | CMD_CLASSIFY | CMD_SIMILARITY | CMD_CALIBRATE | CMD_FIT, batch, 65536, "texts per submission to the model (default 512)"),
    STRING("prompt", 0, VECTORS | CMD_FIT, prompt, "TEXT", "prepend TEXT to every text"),
    STRING("instruction", 0, CMD_RERANK, prompt, "TEXT", "instruction of a reranker that is a language model (default: the model's own)"),
    CHOICE("method", CMD_RERANK, rerank_method, rerank_methods,
           "score of a document: the classifier of a cross-encoder, the cosine of embeddings, or MaxSim of token vectors (default: the model's own)"),
    STRING("prompt-name", 0, VECTORS | CMD_FIT, prompt_name, "NAME", "prepend one of the model's prompts to every text, such as query"),
    COUNT("dimensions", VECTORS, dimensions, 1048576, "keep the first N values of a vector, then normalize"),
    CHOICE("precision", CMD_EMBED | CMD_EVAL, precision, precisions,
           "element type of the vectors (default float32); binary types have 8 dimensions per byte"),
    STRING("ranges", 0, CMD_EMBED | CMD_EVAL, ranges, "FILE",
         "ranges of int8 and uint8 vectors, a .npy file of `gpuserve calibrate` (default: ranges of built-in texts)"),
    FLAG("normalize", 0, CMD_EMBED | CMD_CALIBRATE, normalize, GPUSERVE_NORMALIZE_YES, "normalize vectors to L2 norm 1, whatever the model's setting"),
    FLAG("no-normalize", 0, CMD_EMBED | CMD_CALIBRATE, normalize, GPUSERVE_NORMALIZE_NO, "do not normalize vectors"),
    CHOICE("truncate", CMD_EVAL | CMD_EMBED | CMD_CALIBRATE | CMD_CLASSIFY | CMD_SIMILARITY | CMD_TOKENIZE | CMD_RERANK, truncate, truncations,
           "side on which texts over the token limit are cut; strict rejects them"),
    CHOICE("chunking", CMD_EMBED, chunking, methods,
           "embedding of whole texts over the token limit; window: one vector per text; late: late chunking, one vector per chunk"),
    CHOICE("chunk-by", CMD_EMBED, chunk_by, chunk_kinds,
           "late chunking: unit of a chunk (default tokens); spans: byte ranges in the field \"spans\" of JSON lines"),
    COUNT("chunk-tokens", CMD_EMBED, chunk_tokens, 16777216, "late chunking: tokens per chunk (default 256); with sentence: adjacent sentences with at most N tokens together"),
    COUNT("window-tokens", CMD_EMBED, window_tokens, 1048576, "tokens per window, including prompt and special tokens (default: the model's limit)"),
    COUNT("stride", CMD_EMBED, stride, 1048576, "distance between the starts of two windows, in tokens (default: no overlap; late: overlap of 256 tokens, at most a quarter of a window)"),
    FLAG("pairs", 0, CMD_CLASSIFY | CMD_SIMILARITY | CMD_TOKENIZE, pairs, 1, "the input is pairs of texts"),
    STRING("plot", 0, CMD_EMBED, plot, "FILE",
         "write a page with a map of the texts (HTML): two principal components, clusters, nearest neighbours; without --output no vectors are written"),
    STRING("outputs", 0, CMD_EMBED, outputs, "LIST",
         "several outputs of each text from one pass, as JSON: dense, sparse, colbert, labels, separated by commas"),
    FLAG("sparse", 0, CMD_EMBED, sparse, 1, "sparse vectors (SPLADE) instead of dense ones: the token ids with a weight above zero"),
    FLAG("raw", 0, CMD_CLASSIFY | CMD_RERANK, score, GPUSERVE_SCORE_RAW, "output raw scores (logits) instead of probabilities"),
    CHOICE("aggregation", CMD_CLASSIFY, aggregation, aggregations,
           "token classification: merge adjacent tokens of one kind into an entity (default simple), output each token, or label whole words by their first token, the mean or the best token"),
    LIST("ignore-label", CMD_CLASSIFY, ignored_labels, "LABEL", "omit entities of LABEL (default O)"),
    STRING("labels", 0, CMD_CLASSIFY, labels, "LABELS", "find entities of these labels, separated by commas, with a GLiNER model"),
    STRING("candidate-labels", 0, CMD_CLASSIFY, candidate_labels, "LABELS",
         "zero-shot classification: score these labels, separated by commas, with a model of natural language inference (NLI)"),
    STRING("hypothesis-template", 0, CMD_CLASSIFY, hypothesis_template, "TEXT",
         "with --candidate-labels: the hypothesis, with {} for the label (default \"This example is {}.\")"),
    POSITIVE("threshold", CMD_CLASSIFY, threshold, 1, "P", "with --labels: minimum score of an entity (default 0.5)"),
    FLAG("nested", 0, CMD_CLASSIFY, nested, 1, "with --labels: an entity may lie inside another one"),
    FLAG("multi-label", 0, CMD_CLASSIFY, multi_label, 1, "with --labels: a span may have several labels; with --candidate-labels: score each label by itself"),
    COUNT("top", CMD_CLASSIFY | CMD_RERANK, top, 1048576, "output only the N best labels or documents, best first"),
    FLAG("no-special", 0, CMD_TOKENIZE, no_special, 1, "omit special tokens ([CLS], [SEP] and similar)"),
    FLAG("spans", 0, CMD_TOKENIZE, spans, 1, "add the byte range of each token in its text"),
    STRING("output", 'o', CMD_EMBED | CMD_CLASSIFY | CMD_TOKENIZE | CMD_SIMILARITY | CMD_FIT | CMD_RERANK | CMD_CALIBRATE, output, "FILE",
         "write to FILE, which is renamed into place when complete (default standard output)"),
    CHOICE("format", CMD_EMBED | CMD_RERANK, format, formats,
           "output format (default: npy for a .npy file, text for .txt, .tsv and .csv, else json)"),
    FLAG("json", 0, CMD_EVAL | CMD_CONVERT | CMD_PRUNE | CMD_INSPECT | CMD_DEVICES | CMD_DOCTOR | CMD_BENCH | CMD_FIT | CMD_PROFILE | CMD_PLAN, json, 1, "output a JSON object instead of readable text"),
    COUNT("text-tokens", CMD_PROFILE, text_tokens, 1048576, "tokens of each text (default 128)"),
    COUNT("texts", CMD_PROFILE, texts, 1048576, "texts in the batch (default: as many as fit)"),
    COUNT("rounds", CMD_PROFILE, rounds, 10000, "number of runs of the batch; results are medians (default 20)"),
    CHOICE("timing", CMD_PROFILE, timing, timings,
           "time each operation, or take the difference of batch times with and without a stage (default: depends on the device)"),
    STRING("trace", 0, CMD_PROFILE, trace, "FILE", "write the last run as a trace for the viewers of Chrome and Perfetto"),
    STRING("select", 0, CMD_DEVICES, select, "DEVICE", "list only the devices that DEVICE matches, one per line: cuda:*, auto:limit=2,order=memory"),
    FLAG("watch", 0, CMD_DEVICES, watch, 1, "refresh until interrupted"),
    POSITIVE("interval", CMD_DEVICES, interval, 3600, "S", "seconds between refreshes (default 2)"),
    COUNT("looks", CMD_DEVICES, looks, 1000000000, "exit after N refreshes"),
    STRING("workload", 0, CMD_BENCH, workload, "LIST",
         "comma-separated workloads: W1-N, W2, W3 (default W1-8,W1-32,W1-128,W2,W3)"),
    FLAG("dtypes", 0, CMD_BENCH, table, CLI_TABLE_DTYPES, "print a table of speed, memory and accuracy in every compute type"),
    FLAG("batches", 0, CMD_BENCH, table, CLI_TABLE_BATCHES, "print a table of milliseconds per text against the batch size"),
    COUNT("share", CMD_BENCH, share, 64, "run 1 to N copies of the model on the device at a set load; print utilization and latency"),
    POSITIVE("rate", CMD_BENCH | CMD_PLAN, rate, 1e6, "R", "plan: texts per second of the busiest minute; bench: for each model of --share (default: a quarter of the throughput of one)"),
    POSITIVE("p99-ms", CMD_PLAN, p99_ms, 1e6, "MS", "99 of 100 texts complete within MS milliseconds (default 50)"),
    POSITIVE("core-price", CMD_PLAN, core_price, 1e6, "PRICE", "price of a core and hour, in any currency (default 0.04)"),
    STRING("measured", 0, CMD_PLAN, measured, "FILE", "use the measurement in FILE, the output of plan --json, instead of measuring"),
    STRING("plot", 0, CMD_BENCH, plot, "FILE", "write the table of --share as an SVG plot"),
    FLAG("chain", 0, CMD_BENCH, chain, 1, "500 elementwise operations over 1 million numbers, also in numpy and jax"),
    STRING("operations", 0, CMD_BENCH, operations, "LIST",
         "comma-separated operations of --chain, repeated (default sin,cos)"),
    FLAG("lstm", 0, CMD_BENCH, lstm, 1,
         "the forward pass of an LSTM by every path; with --model and --input also the accuracy on every device"),
    FLAG("transfer", 0, CMD_BENCH, transfer, 1,
         "time and bandwidth of copies between host memory, pageable and pinned, and the device"),
    SIZE("max-bytes", CMD_BENCH, max_bytes, 0x1p30, "with --transfer: the largest copy (default 256MiB, or what the memory holds)"),
    POSITIVE("seconds", CMD_BENCH | CMD_PRUNE | CMD_PLAN, seconds, 3600, "S", "duration of each workload (default 3); plan: of the measurement (default 10)"),
    STRING("train", 0, CMD_FIT | CMD_EVAL, train, "FILE", "labelled texts to train on, .csv or .jsonl"),
    STRING("validation", 0, CMD_FIT, validation, "FILE", "labelled texts to choose C on, instead of a cross-validation"),
    STRING("test", 0, CMD_FIT, test, "FILE", "labelled texts to measure accuracy on"),
    NUMBER("split", CMD_FIT | CMD_EVAL, split, 0.9, "PART", "fraction of the training texts to hold out for the test, such as 0.2 (the default of eval)"),
    CHOICE("task", CMD_EVAL, eval_task, eval_tasks, "what to measure: correlation with scores, separation of labels 0 and 1, documents found for queries, or labels of texts"),
    STRING("dtypes", 0, CMD_EVAL, dtypes, "LIST", "compute formats separated by commas, a row for each"),
    STRING("precisions", 0, CMD_EVAL, precisions, "LIST", "element types of the vectors separated by commas, a row for each"),
    CHOICE("similarity", CMD_EVAL, similarity, similarities, "compare vectors by cosine (default) or by dot product, with the lengths that the model gives"),
    STRING("label-column", 0, CMD_FIT | CMD_BENCH | CMD_EVAL, label_column, "NAME", "JSON field or CSV column of the label (default label; eval --task sts: score)"),
    LIST("label-name", CMD_FIT | CMD_BENCH | CMD_EVAL, label_names, "OLD=NEW", "rename label OLD of the data to NEW, a label of the head or the classifier"),
    LIST("where", CMD_FIT | CMD_BENCH | CMD_EVAL, where, "COLUMN=VALUE", "use only rows with this value"),
    COUNT("limit", CMD_FIT, limit, 100000000, "train on a random sample of N texts"),
    POSITIVE("C", CMD_FIT | CMD_EVAL, c, 1e9, "C", "inverse regularization strength (default of fit: chosen by cross-validation or on --validation; of eval: 10)"),
    COUNT("folds", CMD_FIT, folds, 1000, "folds of the cross-validation that chooses C (default 5, fewer if a label has fewer texts)"),
    POSITIVE("tolerance", CMD_FIT | CMD_EVAL, tolerance, 1, "T",
         "stop when the gradient of the mean loss is below T (default 0.0001)"),
    NUMBER("seed", CMD_FIT | CMD_EVAL, seed, 4294967295.0, "N", "random seed of --split, --limit and --folds (default 0)"),
    STRING("data-name", 0, CMD_FIT, data_name, "TEXT", "source of the texts, stored in the head (default: the file name)"),
    STRING("revision", 0, CMD_PULL | CMD_SERVE, revision, "REV", "branch, tag or commit of the model (default main)"),
    LIST("include", CMD_PULL, include, "GLOB", "also download files that match GLOB"),
    STRING("host", 0, CMD_SERVE, host, "ADDRESS", "listen on ADDRESS (default 127.0.0.1: this machine only)"),
    { "port", 'p', OPTION_PORT, CMD_SERVE, 0, 65535, "N", "listen on port N (default 8080); 0: any free port", 0, AT(port) },
    STRING("unix", 0, CMD_SERVE, unix_path, "FILE", "listen on a unix socket instead of a port; only this user may connect"),
    FLAG("insecure", 0, CMD_SERVE, insecure, 1, "allow a --host that other machines can reach without a key: every client may send requests"),
    STRING("default-prompt", 0, CMD_SERVE, default_prompt, "TEXT", "prepend TEXT to the texts of requests that name no prompt, instead of the model's default prompt"),
    STRING("default-prompt-name", 0, CMD_SERVE, default_prompt_name, "NAME", "as --default-prompt, with one of the model's prompts, such as query"),
    LIST("ranges", CMD_SERVE, served_ranges, "[MODEL=]FILE",
         "ranges of int8 and uint8 vectors of the first model, or of MODEL: a .npy file of `gpuserve calibrate` (default: ranges of built-in texts)"),
    LIST("alias", CMD_SERVE, aliases, "NAME[=MODEL]", "additional name of the first model, or of MODEL"),
    COUNT("max-client-batch-size", CMD_SERVE, max_client_batch, 1048576, "max texts per request (default 2048)"),
    COUNT("max-body-bytes", CMD_SERVE, max_body_bytes, 1073741824, "max request body in bytes (default 33554432)"),
    COUNT("max-connections", CMD_SERVE, max_connections, 1048576, "max concurrent connections (default 4096)"),
    COUNT("max-address-connections", CMD_SERVE, max_address_connections, 1048576, "max connections per client address (default half of --max-connections)"),
    COUNT("header-timeout", CMD_SERVE, header_timeout, 3600, "seconds to receive a request header (default 10)"),
    COUNT("body-timeout", CMD_SERVE, body_timeout, 86400, "seconds to receive a request body (default 60)"),
    COUNT("idle-timeout", CMD_SERVE, idle_timeout, 86400, "seconds an idle connection stays open (default 75)"),
    COUNT("min-body-rate", CMD_SERVE, min_body_rate, 1073741824, "min bytes per second of a client, sending or receiving, after 5 seconds (default 1024)"),
    COUNT("max-unread-bytes", CMD_SERVE, max_unread_bytes, 1073741824, "limit on reply bytes not yet read by clients; above it slow readers are disconnected (default 12582912)"),
    COUNT("http-threads", CMD_SERVE, http_threads, 256, "worker threads for long requests (default 2)"),
    FLAG("auto-truncate", 0, CMD_SERVE, auto_truncate, 1, "cut texts over the token limit if the request does not specify it (default: reject them)"),
    FLAG("model-control", 0, CMD_SERVE, model_control, 1, "allow clients to load and unload models (KServe model repository API)"),
    LIST("api-key", CMD_SERVE, api_keys, "KEY", "require this API key, or another configured one; safer in a file or GPUSERVE_API_KEY, because `ps` shows arguments"),
    STRING("api-key-file", 0, CMD_SERVE, api_key_file, "FILE", "require one of the keys in FILE: one per line, plain or sha256:HEX, # for comments; reloaded on SIGHUP"),
    COUNT("key-rate", CMD_SERVE, key_rate, 1000000000, "rate limit: requests per minute and key (default: no limit)"),
    COUNT("key-burst", CMD_SERVE, key_burst, 1000000000, "burst size of --key-rate (default: a sixth of it, plus one)"),
    STRING("tls-cert", 0, CMD_SERVE, tls_cert, "FILE", "serve HTTPS with this certificate chain (PEM); reloaded when the file changes and on SIGHUP"),
    STRING("tls-key", 0, CMD_SERVE, tls_key, "FILE", "private key of --tls-cert (PEM, not encrypted; default: in the certificate's file)"),
    STRING("tls-client-ca", 0, CMD_SERVE, tls_client_ca, "FILE", "mutual TLS: accept only clients with a certificate of a CA in FILE (PEM); reloaded as --tls-cert"),
    STRING("tls-client-crl", 0, CMD_SERVE, tls_client_crl, "FILE", "reject clients with a revoked certificate (PEM revocation lists, one per CA); reloaded as --tls-cert"),
    LIST("cors-origin", CMD_SERVE, cors_origins, "ORIGIN", "allow requests from pages of this origin, such as https://example.com; *: all"),
    LIST("allowed-host", CMD_SERVE, allowed_hosts, "HOST", "without keys: accept requests with this host name too; *: all"),
    FLAG("open-metrics", 0, CMD_SERVE, open_metrics, 1, "serve /metrics without a key"),
    STRING("access-log", 0, CMD_SERVE, access_log, "FILE", "append one JSON line per request to FILE; - is standard output; reopened on SIGHUP"),
    CHOICE("log-format", CMD_SERVE, log_format, log_formats, "format of messages on standard error (default text); json: an object per line with time, level and message, which lines of --access-log then have too"),
    CHOICE("compress", CMD_SERVE, compress, compressions, "gzip or zstd replies for clients that accept it: remote (default), always or never"),
    STRING("batch-dir", 0, CMD_SERVE, batch_dir, "DIR", "keep the files and batches of OpenAI's Batch API in DIR (default: /v1/files and /v1/batches are refused)"),
    SIZE("batch-disk", CMD_SERVE, batch_disk, 0x1p50, "max size of the files in --batch-dir together, such as 2GB (default 10GiB)"),
    STRING("dialects", 0, CMD_SERVE, dialects, "LIST", "serve only the endpoints of these dialects, separated by commas, such as openai,tei, and those of health, metrics, models and pages (default: all)"),
    STRING("predict-route", 0, CMD_SERVE, predict_route, "PATH", "answer prediction requests of Google Vertex AI at PATH too (default AIP_PREDICT_ROUTE of the environment)"),
    STRING("health-route", 0, CMD_SERVE, health_route, "PATH", "answer health checks at PATH too (default AIP_HEALTH_ROUTE of the environment)"),
    STRING("otlp-endpoint", 0, CMD_SERVE, otlp_endpoint, "URL", "send OpenTelemetry traces of requests to the collector at URL, such as http://localhost:4318, by OTLP/JSON over HTTP (default OTEL_EXPORTER_OTLP_ENDPOINT of the environment; else no traces)"),
    STRING("otlp-service-name", 0, CMD_SERVE, otlp_service_name, "NAME", "service.name of the traces (default OTEL_SERVICE_NAME of the environment; else gpuserve)"),
    STRING("config", 0, CMD_SERVE, config, "FILE", "JSON object of these options and \"models\"; flags and GPUSERVE_OPTION variables override it"),
    FLAG("check-config", 0, CMD_SERVE, check_config, 1, "print the configuration merged from flags, environment and file, and exit"),
    CHOICE("list-endpoints", CMD_SERVE, list_endpoints, list_formats, "print each endpoint with the protocol of its clients, and exit; needs no model"),
    FLAG("no-sandbox", 0, CMD_SERVE, no_sandbox, 1, "keep the permissions to open other files, start programs and trace processes"),
    COUNT("drain-timeout", CMD_SERVE, drain_timeout, 86400, "seconds to complete accepted requests after SIGTERM (default 30)"),
    NUMBER("shutdown-delay", CMD_SERVE, shutdown_delay, 3600, "S", "seconds to keep serving after SIGTERM while /health returns 503, before the drain (default 0)"),
    STRING("cache-dir", 0, OPENS | CMD_INSPECT | CMD_PROFILE | CMD_PULL | CMD_CONVERT | CMD_PRUNE, cache_dir, "DIR",
         "the Hugging Face cache (default HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub)"),
    FLAG("quiet", 'q', OPENS | CMD_PULL | CMD_CONVERT | CMD_PRUNE, quiet, 1, "print errors only, no progress or warnings"),
    FLAG("verbose", 'v', OPENS | CMD_CONVERT | CMD_PRUNE | CMD_INSPECT | CMD_PROFILE | CMD_DEVICES | CMD_DOCTOR, verbose, 1, "print debug messages of the library"),
    FLAG("help", 'h', ~0u, help, 1, "print this help"),
};
/* clang-format on */

const size_t cli_n_options = sizeof(cli_options) / sizeof(cli_options[0]);
_Static_assert(sizeof(cli_options) / sizeof(cli_options[0]) <= CLI_OPTIONS_MAX,
               "cli_args has a flag of each option");

bool cli_option_of(const struct cli_option *option, const struct cli_command *command)
{
    return option->commands >> (command - cli_commands) & 1;
}
