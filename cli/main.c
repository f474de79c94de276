/*
 * main.c - entry point: the table of commands, and dispatch of the first argument to one of them.
 *
 * Handles --version and --help itself. Single-threaded; a command may start threads.
 */
#include "cli/options/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct cli_command cli_commands[] = {
    { "embed", cli_embed, true, "embed MODEL [OPTION...] [TEXT...]", "compute embeddings of texts",
      "Reads texts from the arguments, --input, or standard input, one per line. Each text gives\n"
      "one JSON object with its `embedding`, or one row of a .npy file (float32, C order).\n\n"
      "  gpuserve embed MODEL \"a text\" \"another\"\n"
      "  gpuserve embed MODEL --input texts.jsonl --output vectors.npy\n"
      "  gpuserve embed MODEL --input texts.txt --plot map.html\n"
      "  head texts.txt | gpuserve embed MODEL --format text\n" },
    { "classify", cli_classify, true, "classify MODEL [--head FILE] [OPTION...] [TEXT...]",
      "compute labels with scores of texts",
      "Each text gives one JSON object: the best `label`, its `score`, and `scores` of all "
      "labels.\n"
      "The classifier is part of the model, or --head names one over its embeddings. For a text\n"
      "pair model (a reranker) the input is objects with `text` and `pair`. For a token\n"
      "classification model the object has the `entities` of the text, and for a GLiNER model\n"
      "those of --labels.\n\n"
      "  gpuserve classify MODEL --head sentiment.safetensors \"a fine film\"\n"
      "  gpuserve classify MODEL --input reviews.csv --text-column review --top 3\n"
      "  gpuserve classify MODEL --labels person,city \"Ada was born in London\"\n" },
    { "similarity", cli_similarity, true, "similarity MODEL [OPTION...] [TEXT...]",
      "compute the similarity of texts",
      "Cosine similarity matrix of all texts: one JSON object per text, with its row of the\n"
      "matrix. With --pairs: the similarity of `text` and `pair` in each input object.\n\n"
      "  gpuserve similarity MODEL \"a cat\" \"a kitten\" \"a bill\"\n"
      "  gpuserve similarity MODEL --pairs --input pairs.jsonl\n" },
    { "tokenize", cli_tokenize, true, "tokenize MODEL [OPTION...] [TEXT...]",
      "convert texts to token ids",
      "Each text gives one JSON object with its `ids`. Only --max-tokens cuts texts. MODEL may be "
      "a\n"
      "directory that has only tokenizer files: weights and config.json are not read. With "
      "--pairs\n"
      "the input is objects with `text` and `pair`, and `type_ids` are added.\n\n"
      "  gpuserve tokenize MODEL \"a text\"\n"
      "  gpuserve tokenize MODEL --no-special --input texts.txt\n" },
    { "inspect", cli_inspect, true, "inspect MODEL [OPTION...]",
      "show a model's properties and memory footprint",
      "Reads only configuration and file headers; does not load the model. --head and --adapter\n"
      "are listed; --dtype, --max-batch-tokens and other options change only its `footprint`.\n"
      "With --dtype int8 the model is loaded, to measure the accuracy loss of int8: `int8` has\n"
      "the lowest cosine similarity to full precision over the probe texts, and the products\n"
      "kept in higher precision. A model that is not accurate enough in int8 is refused.\n\n"
      "  gpuserve inspect MODEL\n"
      "  gpuserve inspect MODEL --dtype int8\n"
      "  gpuserve inspect MODEL --device cuda:0 --dtype fp16 --json\n" },
    { "devices", cli_devices, false, "devices [OPTION...]", "list the usable devices",
      "Lists the values of --device, with memory, load, temperature, power and processes, and "
      "the\nchoice of `auto` with its reason; also GPUs that CUDA does not show, and what hides "
      "them.\n\n"
      "  gpuserve devices --json\n"
      "  gpuserve devices --watch --interval 1\n"
      "  gpuserve devices --select auto:order=memory,limit=2,max_load=0.2\n" },
    { "doctor", cli_doctor, false, "doctor [OPTION...]",
      "diagnose the GPU stack: what works, what does not and why",
      "Walks from the program over plugin, CUDA libraries and driver to the devices. The first\n"
      "cause comes first and sets the exit status: 0, or 10 and up for a layer (see man "
      "gpuserve).\n"
      "A machine without a GPU has no fault. Attach the output to a bug report.\n\n"
      "  gpuserve doctor\n"
      "  gpuserve doctor --device cuda:0 --json\n"
      "  gpuserve doctor --root /proc/1234/root\n" },
    { "bench", cli_bench, true, "bench MODEL [OPTION...]",
      "measure the speed of a model on this machine",
      "W1-N is a single text of N tokens (latency). W2 is 2,000 texts of log-normal lengths, 40\n"
      "tokens on average and 256 at most; W3 is 32 texts of 256 tokens (throughput). With --input\n"
      "the benchmark uses the texts of a file instead, up to 20,000. --dtypes, --batches and\n"
      "--share print a table instead: the compute types, the batch sizes, or copies of the model\n"
      "that share the device.\n"
      "--chain, --lstm and --transfer are experiments of docs/lessons.md; they need no model.\n\n"
      "  gpuserve bench MODEL --threads 2\n"
      "  gpuserve bench --random bert-base --dtypes\n"
      "  gpuserve bench MODEL --share 4 --plot share.svg\n"
      "  gpuserve bench MODEL --dtype int8 --workload W1-8,W2 --json\n" },
    { "fit", cli_fit, true, "fit MODEL --train FILE --output HEAD.safetensors [OPTION...]",
      "train a classifier head on labelled texts",
      "Logistic regression on the embeddings of the texts; the encoder is not changed. The head\n"
      "is a small file for `gpuserve classify --head`. A cross-validation over the training texts\n"
      "chooses the regularization; --C sets it.\n\n"
      "  gpuserve fit MODEL --train train.csv --test test.csv -o head.safetensors\n"
      "  gpuserve fit MODEL --train all.jsonl --split 0.2 --label-name 1=spam -o "
      "spam.safetensors\n" },
    { "pull", cli_pull, false, "pull NAME [FILE.gguf] [OPTION...]",
      "download a model from the Hugging Face hub",
      "Downloads to the standard Hugging Face cache, which other programs share; only the files\n"
      "that gpuserve reads. A repository with GGUF files only: its only file, or FILE.gguf; the\n"
      "printed path is that of the file. An interrupted download resumes where it stopped. "
      "Environment:\n"
      "HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE, https_proxy, "
      "CURL_CA_BUNDLE.\n\n"
      "  gpuserve pull sentence-transformers/all-MiniLM-L6-v2\n"
      "  gpuserve pull intfloat/e5-small-v2 --revision main\n"
      "  gpuserve pull ORG/NAME-GGUF NAME-Q8_0.gguf\n" },
    { "completion", cli_completion, false, "completion bash|zsh|fish",
      "print a shell completion script", "  source <(gpuserve completion bash)\n" },
    { "rerank", cli_rerank, true, "rerank MODEL [OPTION...] QUERY [DOCUMENT...]",
      "sort documents by relevance to a query",
      "Best first, one JSON object per document: its `index`, `score` and `text`. Documents are\n"
      "the arguments after the query, or come from --input or standard input. A cross-encoder (a\n"
      "classifier with one label) scores pairs from 0 to 1; any other model gives the cosine of\n"
      "the embeddings, with the model's prompts for queries and documents if it has them.\n\n"
      "  gpuserve rerank MODEL \"what do cats eat\" \"cats eat mice\" \"the price of oil\"\n"
      "  gpuserve rerank MODEL \"a query\" --input passages.txt --top 5 --format text\n" },
    { "serve", cli_serve, false, "serve MODEL [MODEL...] [OPTION...]", "serve models over HTTP",
      "Serves the APIs of OpenAI, text-embeddings-inference and others on one port. The first\n"
      "model serves requests that name no model; NAME=MODEL sets the name of a model. The server\n"
      "prints its address when it is ready. On SIGTERM it completes the accepted requests and\n"
      "exits.\n\n"
      "  gpuserve serve sentence-transformers/all-MiniLM-L6-v2\n"
      "  gpuserve serve minilm=./all-MiniLM-L6-v2 --port 8080 --alias text-embedding-3-small\n" },
    { "profile", cli_profile, true, "profile MODEL [OPTION...]",
      "measure where a model spends its time",
      "Runs one batch repeatedly and reports microseconds by stage and layer, the rate of each\n"
      "matrix product and its ratio to the best rate of square products, and memory by\n"
      "purpose.\n\n"
      "  gpuserve profile MODEL\n"
      "  gpuserve profile MODEL --text-tokens 32 --texts 16 --trace trace.json\n" },
    { "convert", cli_convert, false, "convert MODEL OUTPUT --dtype TYPE [OPTION...]",
      "write a model with weights of another type",
      "Writes an ordinary Hugging Face directory: configuration, tokenizer and modules are "
      "copied,\n"
      "the weights are written as safetensors of the given type. Both models are loaded in "
      "float32\n"
      "and compared on built-in texts; the cosine similarity of their vectors, the sizes and the\n"
      "time are printed, and stored in OUTPUT/gpuserve-convert.json. OUTPUT appears only when it "
      "is\n"
      "complete. int8 weights are a quarter of the size; only gpuserve reads them.\n\n"
      "  gpuserve convert all-MiniLM-L6-v2 minilm-f16 --dtype float16\n"
      "  gpuserve convert BAAI/bge-base-en-v1.5 bge-int8 --dtype int8 --json\n" },
    { "calibrate", cli_calibrate, true, "calibrate MODEL --output FILE [OPTION...] [TEXT...]",
      "measure the ranges of vectors for int8",
      "Embeds texts and writes the minimum and the maximum of each dimension, a .npy file of two\n"
      "rows, for `embed --precision int8 --ranges FILE`. Vectors are comparable only if the same\n"
      "ranges made them: use texts like those to be searched, some hundreds or more.\n\n"
      "  gpuserve calibrate MODEL --input texts.jsonl --output ranges.npy\n"
      "  gpuserve embed MODEL --precision int8 --ranges ranges.npy --input texts.jsonl\n" },
    { "prune", cli_prune, false, "prune MODEL OUTPUT --percent N|--pattern 2:4 [OPTION...]",
      "write a model with the smallest weights set to zero",
      "As `convert`, with weights of the layers' matrices set to zero: N percent of each matrix, "
      "or "
      "two\nof each four values. Prints the accuracy, the size, the size without the zeros, and "
      "the "
      "speed of\nboth models on this machine. The files stay dense: size and speed do not "
      "change.\n\n"
      "  gpuserve prune all-MiniLM-L6-v2 minilm-30 --percent 30\n"
      "  gpuserve prune all-MiniLM-L6-v2 minilm-24 --pattern 2:4 --dtype float16\n" },
    { "plan", cli_plan, true, "plan MODEL --rate R [--p99-ms MS] [OPTION...]",
      "compute the CPU cores, dtype, memory and cost for a rate of texts",
      "Measures the model on this machine in float32, bfloat16 and int8 (--dtype: in one), 10\n"
      "seconds in all, and simulates the queue for more and more cores until 99 of 100 texts\n"
      "complete in time. Texts are those of --input, or generated. Prints how sure the answer is.\n"
      "--json has the measurement too; --measured reads it again for other targets.\n\n"
      "  gpuserve plan MODEL --rate 500 --p99-ms 50\n"
      "  gpuserve plan MODEL --rate 500 --input texts.txt --json >plan.json\n"
      "  gpuserve plan --measured plan.json --rate 5000 --core-price 0.03\n" },
    { "eval", cli_eval, true,
      "eval MODEL --task sts|pairs|retrieval|classification --input FILE [OPTION...]",
      "measure how good a model is on your text pairs or labelled texts",
      "The file is CSV or JSON Lines with `text`, `pair`, and `score` (sts) or `label` (pairs);\n"
      "classification: `text` and `label`.\n"
      "sts: Spearman and Pearson correlation of the cosine similarity with the scores. pairs:\n"
      "average precision, best accuracy and best F1 with their thresholds, for labels 0 and 1.\n"
      "retrieval: each pair is a query and a document relevant to it; nDCG@10, MRR@10,\n"
      "recall@10 and accuracy@1 of a search in all documents of the file.\n"
      "classification: accuracy, F1, and precision and recall of each label, of the model's\n"
      "classifier; for an embedding model of the linear head that `gpuserve fit` trains, on\n"
      "--train or on a part of each label's texts (--split, --seed), measured on the rest.\n"
      "--dtypes and --precisions print a row for each compute format and element type.\n\n"
      "  gpuserve eval MODEL --task sts --input sts.csv --dtypes float32,bfloat16,int8\n"
      "  gpuserve eval MODEL --task pairs --input pairs.jsonl --dimensions 128 --json\n"
      "  gpuserve eval MODEL --task retrieval --input questions.csv --pair-column answer\n"
      "  gpuserve eval MODEL --task classification --input tickets.csv --precisions "
      "float32,int8\n" },
};

const size_t cli_n_commands = sizeof(cli_commands) / sizeof(cli_commands[0]);

static int unknown_command(const char *given)
{
    const char *names[sizeof(cli_commands) / sizeof(cli_commands[0])], *nearest;

    for (size_t i = 0; i < cli_n_commands; i++)
        names[i] = cli_commands[i].name;
    nearest = cli_nearest(given, names, cli_n_commands);
    cli_usage("unknown command \"%s\"", given);
    if (nearest)
        cli_hint("did you mean %s?", nearest);
    else
        cli_hint("`gpuserve --help` lists them");
    return CLI_USAGE;
}

/* Flushes standard output, so that a write error such as a full disk changes the exit code. */
static int flush_output(int result)
{
    if ((fflush(stdout) || ferror(stdout)) && result == CLI_OK)
        return cli_fail("standard output: %s", strerror(errno));
    return result;
}

static int run_command(const struct cli_command *command, int argc, char **argv)
{
    struct cli_args *args = cli_alloc(1, sizeof(*args));
    int result = cli_parse(args, command, argc, argv);

    if (result == CLI_OK && args->help)
        cli_help(command);
    else if (result == CLI_OK)
        result = command->run(args);
    free(args);
    return flush_output(result);
}

int main(int argc, char **argv)
{
    const struct cli_command *command;

    cli_signals_init();
    if (argc < 2) {
        cli_usage("the command is missing");
        cli_hint("for example:\n"
                 "  gpuserve embed sentence-transformers/all-MiniLM-L6-v2 \"a text\" \"another\"\n"
                 "  gpuserve serve sentence-transformers/all-MiniLM-L6-v2 --port 8080\n"
                 "  gpuserve pull sentence-transformers/all-MiniLM-L6-v2\n"
                 "`gpuserve --help` lists the commands");
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("gpuserve %s\n", gpuserve_version());
        return flush_output(CLI_OK);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        command = argc > 2 ? cli_command_find(argv[2]) : NULL;
        if (argc > 2 && !command)
            return unknown_command(argv[2]);
        cli_help(command);
        return flush_output(CLI_OK);
    }
    command = cli_command_find(argv[1]);
    return command ? run_command(command, argc - 2, argv + 2) : unknown_command(argv[1]);
}
