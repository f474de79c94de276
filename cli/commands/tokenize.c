/*
 * tokenize.c - `gpuserve tokenize`: the token ids of texts, and their byte spans with --spans.
 *
 * One JSON line per text. The buffers grow to the size that the library asks for.
 */
#include "cli/io/input.h"
#include "cli/model.h"
#include "cli/io/output.h"

#include <stdlib.h>

#define FIRST_CAPACITY 512

struct tokens {
    int32_t *ids;
    gpuserve_span *spans;
    size_t capacity, n;
};

static int tokenize(gpuserve_model *model, const struct cli_input *input,
                    const struct cli_record *record, const gpuserve_tokenize_options *options,
                    struct tokens *tokens)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status status;

    for (;;) {
        status = gpuserve_tokenize(model, record->text, record->text_size, tokens->ids,
                                   tokens->spans, tokens->capacity, &tokens->n, options, &error);
        if (status == GPUSERVE_OK)
            return CLI_OK;
        if (status != GPUSERVE_E_TOO_LARGE || tokens->n <= tokens->capacity)
            break;
        size_t capacity = tokens->capacity;
        tokens->spans = cli_grow(tokens->spans, &capacity, tokens->n, sizeof(*tokens->spans));
        tokens->ids = cli_grow(tokens->ids, &tokens->capacity, tokens->n, sizeof(*tokens->ids));
    }
    char *where = cli_input_where(input);
    cli_fail_with(&error, where);
    free(where);
    return CLI_FAILED;
}

static void write_tokens(struct cli_output *output, const struct tokens *tokens, bool spans)
{
    FILE *out = output->stream;

    fputs("{\"ids\":[", out);
    for (size_t i = 0; i < tokens->n; i++)
        fprintf(out, "%s%d", i ? "," : "", tokens->ids[i]);
    if (spans) {
        fputs("],\"spans\":[", out);
        for (size_t i = 0; i < tokens->n; i++)
            fprintf(out, "%s[%u,%u]", i ? "," : "", tokens->spans[i].begin, tokens->spans[i].end);
    }
    fputs("]}\n", out);
}

static int tokenize_input(gpuserve_model *model, struct cli_input *input, struct cli_output *output,
                          const struct cli_args *args)
{
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;
    struct tokens tokens = { .capacity = FIRST_CAPACITY };
    struct cli_record record;
    int found, result = CLI_OK;

    tokens.ids = cli_alloc(FIRST_CAPACITY, sizeof(*tokens.ids));
    tokens.spans = cli_alloc(FIRST_CAPACITY, sizeof(*tokens.spans));
    options.no_special = args->no_special;
    options.max_tokens = args->max_tokens;
    options.truncation = args->truncate;
    while (result == CLI_OK && (found = cli_input_next(input, &record)) != 0) {
        if (found < 0) {
            result = CLI_FAILED;
            break;
        }
        tokens.n = 0;
        result = tokenize(model, input, &record, &options, &tokens);
        if (result == CLI_OK)
            write_tokens(output, &tokens, args->spans);
        if (result == CLI_OK)
            result = cli_output_check(output);
        if (cli_input_would_wait(input))
            fflush(output->stream);
    }
    free(tokens.ids);
    free(tokens.spans);
    return result;
}

int cli_tokenize(const struct cli_args *args)
{
    struct cli_output output = { 0 };
    gpuserve_model *model = NULL;
    struct cli_input input;
    int result = cli_input_from(&input, args, false);

    if (result != CLI_OK)
        return result;
    result = cli_model_open(&model, args);
    if (result == CLI_OK)
        result = cli_output_open(&output, args->output);
    if (result == CLI_OK)
        result = tokenize_input(model, &input, &output, args);
    if (result == CLI_OK)
        result = cli_output_finish(&output);
    cli_output_abandon(&output);
    gpuserve_model_close(&model);
    cli_input_close(&input);
    return result;
}
