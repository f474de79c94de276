/*
 * classify.c - `gpuserve classify`: the best label of each text and the scores of all labels.
 *
 * For a model that labels tokens, the output is the named entities instead (io/entities.c); for one
 * that takes labels, those of --labels (io/label_entities.c). Output is one JSON line per text, in
 * input order, written a chunk at a time.
 */
#include "cli/io/output.h"
#include "cli/model.h"
#include "cli/io/pipeline.h"

#include <stdlib.h>

struct classify {
    const struct cli_input *input;
    struct cli_output output;
    struct cli_progress progress;
    char **labels; /* [n_labels] encoded as JSON strings */
    size_t n_labels;
    size_t top;    /* number of labels to print; 0: all, in the model's order */
    size_t *order; /* [n_labels] */
};

/* Partial selection sort: moves the `n` best labels to the front of `order`, best first. Equal
 * scores keep the model's order. */
static void find_best(size_t *order, size_t n_labels, size_t n, const float *scores)
{
    for (size_t i = 0; i < n_labels; i++)
        order[i] = i;
    for (size_t rank = 0; rank < n; rank++) {
        size_t best = rank;

        for (size_t i = rank + 1; i < n_labels; i++) {
            if (scores[order[i]] > scores[order[best]])
                best = i;
        }
        const size_t label = order[best];
        for (; best > rank; best--)
            order[best] = order[best - 1];
        order[rank] = label;
    }
}

static void write_score(struct cli_output *output, float score)
{
    cli_output_floats(output, &score, 1, "");
}

static void write_text(struct classify *classify, const float *scores)
{
    const size_t n = classify->top ? classify->top : classify->n_labels;
    FILE *out = classify->output.stream;
    size_t best;

    find_best(classify->order, classify->n_labels, classify->top ? classify->top : 1, scores);
    best = classify->order[0];
    fprintf(out, "{\"label\":%s,\"score\":", classify->labels[best]);
    write_score(&classify->output, scores[best]);
    fputs(",\"scores\":{", out);
    for (size_t i = 0; i < n; i++) {
        const size_t label = classify->top ? classify->order[i] : i;

        fprintf(out, "%s%s:", i ? "," : "", classify->labels[label]);
        write_score(&classify->output, scores[label]);
    }
    fputs("}}\n", out);
}

static int write_chunk(void *user, const struct cli_chunk *chunk)
{
    struct classify *classify = user;

    cli_progress_update(&classify->progress, (double)(chunk->first + chunk->n), chunk->share);
    for (size_t i = 0; i < chunk->n; i++)
        write_text(classify, chunk->rows + i * classify->n_labels);
    if (fflush(classify->output.stream))
        return cli_output_check(&classify->output);
    return CLI_OK;
}

static int classify_input(struct classify *classify, gpuserve_model *model, struct cli_input *input,
                          const struct cli_args *args)
{
    struct cli_pump pump = { .model = model, .job = GPUSERVE_JOB_INIT };
    int result;

    pump.job.task = GPUSERVE_TASK_CLASSIFY;
    pump.job.score = args->score;
    pump.job.truncation = args->truncate;
    pump.pairs = args->pairs;
    pump.row_floats = classify->n_labels;
    pump.chunk_texts = args->batch;
    pump.sink = write_chunk;
    pump.user = classify;
    cli_pump_from_input(&pump, input);
    cli_progress_begin(&classify->progress, "texts", args->quiet);
    result = cli_pump_run(&pump);
    cli_progress_end(&classify->progress);
    if (result == CLI_OK)
        cli_pump_remarks(&pump, args);
    return result;
}

static int read_labels(struct classify *classify, const gpuserve_model *model,
                       const struct cli_args *args)
{
    classify->n_labels = gpuserve_model_label_count(model);
    if (classify->n_labels == 0) {
        cli_fail("%s: the model has no classifier, it only makes embeddings", args->model);
        cli_hint("set a classifier head for its embeddings with --head; `gpuserve fit` trains one");
        return CLI_FAILED;
    }
    classify->labels = cli_alloc(classify->n_labels, sizeof(*classify->labels));
    classify->order = cli_alloc(classify->n_labels, sizeof(*classify->order));
    classify->top = args->top < classify->n_labels ? args->top : classify->n_labels;
    if (!args->top)
        classify->top = 0;
    for (size_t i = 0; i < classify->n_labels; i++) {
        json_t *label = json_string(gpuserve_model_label(model, i));

        classify->labels[i] = label ? json_dumps(label, JSON_ENCODE_ANY) : NULL;
        json_decref(label);
        if (!classify->labels[i])
            return cli_fail("label %zu is not UTF-8", i);
    }
    return CLI_OK;
}

static void free_labels(struct classify *classify)
{
    for (size_t i = 0; classify->labels && i < classify->n_labels; i++)
        free(classify->labels[i]);
    free(classify->labels);
    free(classify->order);
}

/* The options that fit what the model labels. */
static int check_options(const struct cli_args *args, bool by_token, bool takes_labels)
{
    if (!by_token && (args->aggregation || args->ignored_labels.n > 0))
        return cli_usage("%s labels %s, not tokens: --aggregation and --ignore-label are not valid",
                         args->model, takes_labels ? "spans" : "texts");
    if (!takes_labels && (args->labels || args->threshold > 0 || args->nested || args->multi_label))
        return cli_usage("%s has labels of its own: --labels, --threshold, --nested and "
                         "--multi-label are for GLiNER models",
                         args->model);
    return CLI_OK;
}

int cli_classify(const struct cli_args *args)
{
    struct classify classify = { 0 };
    gpuserve_model *model = NULL;
    struct cli_input input;
    bool by_token, takes_labels;
    int result = cli_input_from(&input, args, args->pairs);

    if (result != CLI_OK)
        return result;
    classify.input = &input;
    result = cli_model_open(&model, args);
    by_token = result == CLI_OK && cli_labels_tokens(model);
    takes_labels = result == CLI_OK && cli_takes_labels(model);
    if (result == CLI_OK)
        result = check_options(args, by_token, takes_labels);
    if (result == CLI_OK && !by_token && !takes_labels)
        result = read_labels(&classify, model, args);
    if (result == CLI_OK)
        result = cli_output_open(&classify.output, args->output);
    if (result == CLI_OK)
        result = by_token       ? cli_entities(model, &input, &classify.output, args)
                 : takes_labels ? cli_label_entities(model, &input, &classify.output, args)
                                : classify_input(&classify, model, &input, args);
    if (result == CLI_OK)
        result = cli_output_finish(&classify.output);
    cli_output_abandon(&classify.output);
    free_labels(&classify);
    gpuserve_model_close(&model);
    cli_input_close(&input);
    return result;
}
