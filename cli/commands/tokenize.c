/*
 * tokenize.c - `gpuserve tokenize`: the token ids of texts, and their byte spans with --spans.
 *
 * One JSON line per text or pair. Only the tokenizer's files are read. The buffers grow to the size
 * that the library asks for.
 */
#include "cli/io/input.h"
#include "cli/model.h"
#include "cli/io/output.h"

#include <stdio.h>
#include <stdlib.h>

#define FIRST_CAPACITY 512

struct tokens {
    int32_t *ids, *type_ids;
    gpuserve_span *spans;
    size_t capacity, n;
};

static void tokens_grow(struct tokens *tokens, size_t needed)
{
    size_t types = tokens->capacity, spans = tokens->capacity;

    tokens->type_ids = cli_grow(tokens->type_ids, &types, needed, sizeof(*tokens->type_ids));
    tokens->spans = cli_grow(tokens->spans, &spans, needed, sizeof(*tokens->spans));
    tokens->ids = cli_grow(tokens->ids, &tokens->capacity, needed, sizeof(*tokens->ids));
}

static int tokenize(gpuserve_tokenizer *tokenizer, const struct cli_input *input,
                    const struct cli_record *record, const gpuserve_tokenize_options *options,
                    struct tokens *tokens)
{
    gpuserve_tokenizer_input texts = GPUSERVE_TOKENIZER_INPUT_INIT;
    gpuserve_tokenizer_output output = GPUSERVE_TOKENIZER_OUTPUT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status status;

    texts.text = record->text;
    texts.size = record->text_size;
    texts.pair = record->second;
    texts.pair_size = record->second_size;
    for (;;) {
        output.capacity = tokens->capacity;
        output.ids = tokens->ids;
        output.type_ids = tokens->type_ids;
        output.spans = tokens->spans;
        status = gpuserve_tokenizer_encode(tokenizer, &texts, &output, &tokens->n, options, &error);
        if (status == GPUSERVE_OK)
            return CLI_OK;
        if (status != GPUSERVE_E_TOO_LARGE || tokens->n <= tokens->capacity)
            break;
        tokens_grow(tokens, tokens->n);
    }
    char *where = cli_input_where(input);
    cli_fail_with(&error, where);
    free(where);
    return CLI_FAILED;
}

static void write_ids(FILE *out, const char *name, const int32_t *ids, size_t n)
{
    fprintf(out, "%s\":[", name);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%d", i ? "," : "", ids[i]);
}

static void write_tokens(struct cli_output *output, const struct tokens *tokens,
                         const struct cli_args *args)
{
    FILE *out = output->stream;

    write_ids(out, "{\"ids", tokens->ids, tokens->n);
    if (args->pairs)
        write_ids(out, "],\"type_ids", tokens->type_ids, tokens->n);
    if (args->spans) {
        fputs("],\"spans\":[", out);
        for (size_t i = 0; i < tokens->n; i++)
            fprintf(out, "%s[%u,%u]", i ? "," : "", tokens->spans[i].begin, tokens->spans[i].end);
    }
    fputs("]}\n", out);
}

static int tokenize_input(gpuserve_tokenizer *tokenizer, struct cli_input *input,
                          struct cli_output *output, const struct cli_args *args)
{
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;
    struct tokens tokens = { 0 };
    struct cli_record record;
    int found, result = CLI_OK;

    tokens_grow(&tokens, FIRST_CAPACITY);
    options.no_special = args->no_special;
    options.max_tokens = args->max_tokens;
    options.truncation = args->truncate;
    while (result == CLI_OK && (found = cli_input_next(input, &record)) != 0) {
        if (found < 0) {
            result = CLI_FAILED;
            break;
        }
        tokens.n = 0;
        result = tokenize(tokenizer, input, &record, &options, &tokens);
        if (result == CLI_OK)
            write_tokens(output, &tokens, args);
        if (result == CLI_OK)
            result = cli_output_check(output);
        if (cli_input_would_wait(input))
            fflush(output->stream);
    }
    free(tokens.ids);
    free(tokens.spans);
    free(tokens.type_ids);
    return result;
}

static int open_tokenizer(gpuserve_tokenizer **tokenizer, const struct cli_args *args)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context;
    gpuserve_status status;

    if (!args->model)
        return cli_model_missing();
    if (cli_context(&context, args) != CLI_OK)
        return CLI_FAILED;
    status = gpuserve_tokenizer_open(tokenizer, context, args->model, &error);
    gpuserve_context_unref(&context);
    return status == GPUSERVE_OK ? CLI_OK : cli_fail_with(&error, NULL);
}

int cli_tokenize(const struct cli_args *args)
{
    struct cli_output output = { 0 };
    gpuserve_tokenizer *tokenizer = NULL;
    struct cli_input input;
    int result = cli_output_suffix(args, "tokenize", ".json .jsonl .txt");

    if (result == CLI_OK)
        result = cli_input_from(&input, args, args->pairs);
    if (result != CLI_OK)
        return result;
    result = open_tokenizer(&tokenizer, args);
    if (result == CLI_OK)
        result = cli_output_open(&output, args->output);
    if (result == CLI_OK)
        result = tokenize_input(tokenizer, &input, &output, args);
    if (result == CLI_OK)
        result = cli_output_finish(&output);
    cli_output_abandon(&output);
    gpuserve_tokenizer_close(&tokenizer);
    cli_input_close(&input);
    return result;
}
