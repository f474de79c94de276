/*
 * eval.c - `gpuserve eval`: accuracy of a model on text pairs of the user.
 *
 *   for each dtype: file -> pairs.c -> similarity and label of each pair -> eval_scores.c -> row
 *                        -> eval_retrieval.c, which keeps the vectors of all texts        -> row
 *
 * Texts of sts and pairs are streamed. In memory are 16 bytes of each pair.
 */
#include "cli/commands/eval.h"
#include "cli/commands/pairs.h"
#include "cli/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EVAL_PAIRS 10000000

struct eval {
    const struct cli_args *args;
    struct cli_input input;
    struct eval_pair *pairs;
    size_t n_read, n, capacity;
};

static int add_label(void *user, const struct cli_record *record)
{
    struct eval *e = user;
    char *text = cli_copy(record->label, record->label_size), *end;
    const double label = strtod(text, &end);
    const bool ok = end > text && !*end && isfinite(label) &&
                    (e->args->eval_task == CLI_EVAL_STS || label == 0 || label == 1);
    char *where = cli_input_where(&e->input);
    int result = CLI_OK;

    if (!ok)
        result = cli_fail("%s: \"%s\" is not %s", where, text,
                          e->args->eval_task == CLI_EVAL_STS ? "a number" : "a label, 0 or 1");
    else if (e->n_read == EVAL_PAIRS)
        result = cli_fail("%s: the file has more than %d pairs", where, EVAL_PAIRS);
    free(where);
    free(text);
    if (result != CLI_OK)
        return result;
    e->pairs = cli_grow(e->pairs, &e->capacity, e->n_read + 1, sizeof(*e->pairs));
    e->pairs[e->n_read++].label = label;
    return CLI_OK;
}

static int add_similarity(void *user, float similarity)
{
    struct eval *e = user;

    e->pairs[e->n++].similarity = similarity;
    return CLI_OK;
}

static int score(struct eval *e, json_t *row)
{
    struct eval_binary b;
    double positive = 0;

    json_object_set_new(row, "n", json_integer((json_int_t)e->n));
    if (e->n < 2)
        return cli_fail("%s: %zu pairs, eval needs two or more", e->args->input, e->n);
    if (e->args->eval_task == CLI_EVAL_STS) {
        const double pearson = cli_eval_pearson(e->pairs, e->n);

        if (isnan(pearson))
            return cli_fail("%s: all scores or all similarities are equal", e->args->input);
        json_object_set_new(row, "spearman", json_real(cli_eval_spearman(e->pairs, e->n)));
        json_object_set_new(row, "pearson", json_real(pearson));
        return CLI_OK;
    }
    for (size_t i = 0; i < e->n; i++)
        positive += e->pairs[i].label;
    if (positive == 0 || positive == (double)e->n)
        return cli_fail("%s: all labels are %d, eval needs both", e->args->input, positive > 0);
    cli_eval_binary(&b, e->pairs, e->n);
    json_object_set_new(row, "average_precision", json_real(b.average_precision));
    json_object_set_new(row, "accuracy", json_real(b.accuracy));
    json_object_set_new(row, "accuracy_threshold", json_real(b.accuracy_threshold));
    json_object_set_new(row, "f1", json_real(b.f1));
    json_object_set_new(row, "f1_threshold", json_real(b.f1_threshold));
    return CLI_OK;
}

static int measure(const struct cli_args *args, json_t *row)
{
    struct eval e = { .args = args };
    struct cli_pairs pairs = {
        .input = &e.input, .read = add_label, .write = add_similarity, .user = &e
    };
    const bool retrieval = args->eval_task == CLI_EVAL_RETRIEVAL;
    const char *label = args->label_column                ? args->label_column
                        : args->eval_task == CLI_EVAL_STS ? "score"
                                                          : "label";
    gpuserve_model *model = NULL;
    int result = cli_input_open(&e.input, args->input, args->input_format, args->text_column,
                                args->pair_column ? args->pair_column : "pair",
                                retrieval ? NULL : label, NULL);

    if (result != CLI_OK)
        return result;
    if (e.input.format == CLI_INPUT_LINES)
        result = cli_fail("%s: a file of pairs must be .csv or .jsonl", args->input);
    if (result == CLI_OK)
        result = cli_model_open(&model, args);
    if (result == CLI_OK && retrieval) {
        result = cli_eval_retrieval(row, &e.input, model, args);
    } else if (result == CLI_OK) {
        result = cli_pairs_run(&pairs, model, args);
        if (result == CLI_OK)
            result = score(&e, row);
    }
    gpuserve_model_close(&model);
    cli_input_close(&e.input);
    free(e.pairs);
    return result;
}

/* A row for each name of --dtypes. All names are checked before the first model is opened. */
static int measure_all(const struct cli_args *args, json_t *rows)
{
    struct cli_args *copy = cli_alloc(1, sizeof(*copy));
    const struct cli_option *option = cli_option_find(cli_command_find("eval"), "dtype");
    char *names = cli_copy(args->dtypes, strlen(args->dtypes)), *rest = names, *name;
    json_t *row;
    size_t i;
    int result = CLI_OK;

    *copy = *args;
    while (result == CLI_OK && (name = strsep(&rest, ","))) {
        result = cli_option_set(copy, option, name);
        if (result == CLI_OK)
            json_array_append_new(rows, json_pack("{s:s, s:i}", "dtype", name, "n", 0));
    }
    json_array_foreach(rows, i, row)
    {
        if (result == CLI_OK)
            result = cli_option_set(copy, option, json_string_value(json_object_get(row, "dtype")));
        if (result == CLI_OK)
            result = measure(copy, row);
    }
    free(names);
    free(copy);
    return result;
}

static void print_rows(const json_t *rows)
{
    const char *key;
    json_t *row, *value;
    size_t i;

    json_array_foreach((json_t *)rows, i, row)
    {
        json_object_foreach(row, key, value)
        {
            if (json_is_real(value))
                printf("%s %.6f  ", key, json_real_value(value));
            else if (json_is_integer(value))
                printf("%s %lld  ", key, (long long)json_integer_value(value));
            else
                printf("%-9s ", json_string_value(value));
        }
        putchar('\n');
    }
}

int cli_eval(const struct cli_args *args)
{
    json_t *rows;
    int result;

    if (!args->model)
        return cli_model_missing();
    if (!args->eval_task || !args->input || args->n_rest)
        return cli_usage("eval needs --task and --input, and no texts as arguments");
    if (args->eval_task == CLI_EVAL_RETRIEVAL && args->label_column)
        return cli_usage(
            "--task retrieval reads no labels: --label-column belongs to sts and pairs");
    if (args->dtypes && args->dtype)
        return cli_usage("--dtype and --dtypes exclude each other");
    if (args->dtypes && strcmp(args->input, "-") == 0)
        return cli_usage("--dtypes reads the input several times: it must be a file");
    rows = json_array();
    if (args->dtypes) {
        result = measure_all(args, rows);
    } else {
        json_array_append_new(rows, json_object());
        result = measure(args, json_array_get(rows, 0));
    }
    if (result == CLI_OK && args->json)
        return cli_facts_print(json_pack("{s:s, s:o}", "model", args->model, "rows", rows), true);
    if (result == CLI_OK)
        print_rows(rows);
    json_decref(rows);
    return result;
}
