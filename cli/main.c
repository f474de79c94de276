/*
 * main.c - finds the command and runs it.
 */
#include "cli/options/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct cli_command cli_commands[] = {
    { "embed", cli_embed, "embed -m MODEL [OPTION...] [TEXT...]", "texts to vectors",
      "Texts come from the arguments, from --input, or from standard input, one a line. Each "
      "gives\n"
      "one JSON object with its `embedding`, or one row of a .npy file (float32, C order).\n\n"
      "  gpuserve embed -m MODEL \"a text\" \"another\"\n"
      "  gpuserve embed -m MODEL --input texts.jsonl --output vectors.npy\n"
      "  head texts.txt | gpuserve embed -m MODEL --format text\n" },
    { "classify", cli_classify, "classify -m MODEL [--head FILE] [OPTION...] [TEXT...]",
      "texts to labels with scores",
      "Each text gives one JSON object: the best `label`, its `score`, and `scores` of all "
      "labels.\n"
      "The model has a classifier of its own, or --head names one over its embeddings. For a "
      "model\n"
      "of pairs (a reranker) the input holds objects with `text` and `pair`. Of a model that "
      "labels\n"
      "tokens the object has the `entities` of the text.\n\n"
      "  gpuserve classify -m MODEL --head sentiment.safetensors \"a fine film\"\n"
      "  gpuserve classify -m MODEL --input reviews.csv --text-column review --top 3\n" },
    { "similarity", cli_similarity, "similarity -m MODEL [OPTION...] [TEXT...]",
      "how alike texts are",
      "Cosine similarity of every text with every other: one JSON object a text, with its row of\n"
      "the matrix. With --pairs only of `text` with `pair` in each object of the input.\n\n"
      "  gpuserve similarity -m MODEL \"a cat\" \"a kitten\" \"a bill\"\n"
      "  gpuserve similarity -m MODEL --pairs --input pairs.jsonl\n" },
    { "tokenize", cli_tokenize, "tokenize -m MODEL [OPTION...] [TEXT...]", "texts to token ids",
      "Each text gives one JSON object with its `ids`. Texts are cut only with --max-tokens.\n\n"
      "  gpuserve tokenize -m MODEL \"a text\"\n"
      "  gpuserve tokenize -m MODEL --no-special --input texts.txt\n" },
    { "inspect", cli_inspect, "inspect MODEL [OPTION...]",
      "what a model is and the memory it takes",
      "From configuration and file headers only; nothing is loaded. The facts are those of the\n"
      "model's files; --head, --dtype, --max-tokens and the like count in its `footprint` "
      "alone.\n"
      "With --dtype int8 the model is loaded, as that measures what int8 costs it: `int8` has the\n"
      "least cosine to full precision of the probe texts, and the products that stay in a\n"
      "higher precision for it. A model that int8 cannot hold is refused.\n\n"
      "  gpuserve inspect MODEL\n"
      "  gpuserve inspect MODEL --dtype int8\n"
      "  gpuserve inspect MODEL --device cuda:0 --dtype fp16 --json\n" },
    { "devices", cli_devices, "devices [OPTION...]", "the processors that can be used",
      "What --device takes, with memory, load, temperature, power and processes, and which one "
      "`auto`\nchooses and why; GPUs that are in the machine but not shown, and what hides "
      "them.\n\n"
      "  gpuserve devices --json\n"
      "  gpuserve devices --watch --interval 1\n"
      "  gpuserve devices --select auto:order=memory,limit=2,max_load=0.2\n" },
    { "doctor", cli_doctor, "doctor [OPTION...]", "what works here, and what does not and why",
      "Attach its output to a report of a fault.\n\n"
      "  gpuserve doctor\n" },
    { "bench", cli_bench, "bench -m MODEL [OPTION...]", "how fast a model is here",
      "W1-N is one text of N tokens, alone (latency). W2 is 2,000 texts of log-normal lengths, 40\n"
      "tokens on average and 256 at most; W3 is 32 texts of 256 tokens (throughput). With --input\n"
      "the texts of a file are measured instead, up to 20,000 of them.\n\n"
      "  gpuserve bench -m MODEL --threads 2\n"
      "  gpuserve bench -m MODEL --dtype int8 --workload W1-8,W2 --json\n" },
    { "fit", cli_fit, "fit -m MODEL --train FILE --output HEAD.safetensors [OPTION...]",
      "train a classifier head on labelled texts",
      "Logistic regression on the embeddings of the texts, which stay as they are. The head is a\n"
      "small file for `gpuserve classify --head`.\n\n"
      "  gpuserve fit -m MODEL --train train.csv --test test.csv -o head.safetensors\n"
      "  gpuserve fit -m MODEL --train all.jsonl --split 0.2 --label-name 1=spam -o "
      "spam.safetensors\n" },
    { "pull", cli_pull, "pull NAME [OPTION...]", "fetch a model from the Hugging Face hub",
      "Into the usual cache, where every program that uses the hub finds it; only the files that\n"
      "gpuserve reads. A download that was broken off goes on where it stopped. Environment:\n"
      "HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE, https_proxy, "
      "CURL_CA_BUNDLE.\n\n"
      "  gpuserve pull sentence-transformers/all-MiniLM-L6-v2\n"
      "  gpuserve pull intfloat/e5-small-v2 --revision main\n" },
    { "completion", cli_completion, "completion bash|zsh|fish",
      "a script for the shell's completion", "  source <(gpuserve completion bash)\n" },
    { "rerank", cli_rerank, "rerank -m MODEL [OPTION...] QUERY [DOCUMENT...]",
      "documents in the order in which they answer a query",
      "Best first, one JSON object a document: its `index`, `score` and `text`. Documents are the\n"
      "arguments after the query, or come from --input or standard input. A cross-encoder (a\n"
      "classifier of one label) scores pairs from 0 to 1; any other model gives the cosine of the\n"
      "embeddings, with its prompts for queries and documents where it has them.\n\n"
      "  gpuserve rerank -m MODEL \"what do cats eat\" \"cats eat mice\" \"the price of oil\"\n"
      "  gpuserve rerank -m MODEL \"a query\" --input passages.txt --top 5 --format text\n" },
    { "serve", cli_serve, "serve MODEL [MODEL...] [OPTION...]", "models over HTTP",
      "Answers the clients of OpenAI, text-embeddings-inference and others on one port. The first\n"
      "model answers for clients that name none; NAME=MODEL chooses the name of a model. The "
      "address\n"
      "is printed when the server is ready. SIGTERM ends it after the requests it has accepted.\n\n"
      "  gpuserve serve sentence-transformers/all-MiniLM-L6-v2\n"
      "  gpuserve serve minilm=./all-MiniLM-L6-v2 --port 8080 --alias text-embedding-3-small\n" },
    { "profile", cli_profile, "profile MODEL [OPTION...]", "where the time of a model goes here",
      "Runs one batch again and again: microseconds by stage and layer, the rate of each matrix\n"
      "product and its part of the best that square products reach here, memory by purpose.\n\n"
      "  gpuserve profile MODEL\n"
      "  gpuserve profile MODEL --text-tokens 32 --texts 16 --trace trace.json\n" },
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

/* What was printed is not done before it has left: a full disk shows here. */
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
        cli_hint("`gpuserve --help` lists them");
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
