/*
 * eval.c - `gpuserve eval`: accuracy of a model on text pairs or labelled texts of the user.
 *
 *   for each dtype and precision:
 *     file -> pairs.c -> similarity and label of each pair -> eval_scores.c -> row
 *          -> eval_retrieval.c, which keeps the vectors of all texts        -> row
 *          -> eval_classification.c, which keeps all texts                  -> row
 *
 * Texts of sts and pairs are streamed. In memory are 16 bytes of each pair.
 */
#include "cli/commands/eval/eval.h"
#include "cli/commands/pairs.h"
#include "cli/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EVAL_PAIRS 10000000

struct eval {
    const struct cli_args *args;
    struct cli_input input;
    struct eval_vectors vectors;
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

static int convert(void *user, float *rows, size_t n)
{
    struct eval *e = user;

    return cli_eval_vectors_convert(&e->vectors, rows, n);
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

static int measure_pairs(struct eval *e, json_t *row, gpuserve_model *model)
{
    struct cli_pairs pairs = { .input = &e->input,
                               .read = add_label,
                               .write = add_similarity,
                               .convert = convert,
                               .normalize = cli_eval_normalize(e->args),
                               .user = e };
    int result = cli_eval_vectors_open(&e->vectors, model, e->args);

    if (result == CLI_OK)
        result = cli_pairs_run(&pairs, model, e->args);
    cli_eval_vectors_close(&e->vectors);
    return result == CLI_OK ? score(e, row) : result;
}

static int measure(const struct cli_args *args, json_t *row)
{
    struct eval e = { .args = args };
    const bool retrieval = args->eval_task == CLI_EVAL_RETRIEVAL;
    const char *label = args->label_column                ? args->label_column
                        : args->eval_task == CLI_EVAL_STS ? "score"
                                                          : "label";
    gpuserve_model *model = NULL;
    int result;

    if (args->eval_task == CLI_EVAL_CLASSIFICATION)
        return cli_eval_classification(row, args);
    result = cli_input_open(&e.input, args->input, args->input_format, args->text_column,
                            args->pair_column ? args->pair_column : "pair",
                            retrieval ? NULL : label, &args->where);
    if (result != CLI_OK)
        return result;
    if (e.input.format == CLI_INPUT_LINES)
        result = cli_fail("%s: a file of pairs must be .csv or .jsonl", args->input);
    if (result == CLI_OK)
        result = cli_model_open(&model, args);
    if (result == CLI_OK)
        result = retrieval ? cli_eval_retrieval(row, &e.input, model, args)
                           : measure_pairs(&e, row, model);
    gpuserve_model_close(&model);
    cli_input_close(&e.input);
    free(e.pairs);
    return result;
}

/* ------------------------------------------------------------------------------------------ rows
 */

/* Replaces the rows by one for each of them and each name of the list; checks the names. */
static int multiply_rows(json_t *rows, const char *list, const struct cli_option *option,
                         const struct cli_args *args)
{
    struct cli_args *copy = cli_alloc(1, sizeof(*copy));
    char *names = cli_copy(list, strlen(list)), *rest = names, *name;
    json_t *before = json_copy(rows), *row;
    size_t i;
    int result = CLI_OK;

    *copy = *args;
    json_array_clear(rows);
    json_array_foreach(before, i, row)
    {
        memcpy(names, list, strlen(list));
        rest = names;
        while (result == CLI_OK && (name = strsep(&rest, ","))) {
            json_t *one = json_copy(row);

            json_object_set_new(one, option->name, json_string(name));
            json_array_append_new(rows, one);
            result = cli_option_set(copy, option, name);
        }
    }
    json_decref(before);
    free(names);
    free(copy);
    return result;
}

/* A row for each dtype of --dtypes and precision of --precisions. All names are checked before the
 * first model is opened. */
static int measure_all(const struct cli_args *args, json_t *rows)
{
    const struct cli_command *command = cli_command_find("eval");
    const struct cli_option *const options[] = { cli_option_find(command, "dtype"),
                                                 cli_option_find(command, "precision") };
    const char *const lists[] = { args->dtypes, args->precisions };
    struct cli_args *copy = cli_alloc(1, sizeof(*copy));
    json_t *row;
    size_t i;
    int result = CLI_OK;

    *copy = *args;
    json_array_append_new(rows, json_object());
    for (size_t k = 0; k < 2 && result == CLI_OK; k++) {
        if (lists[k])
            result = multiply_rows(rows, lists[k], options[k], args);
    }
    json_array_foreach(rows, i, row)
    {
        for (size_t k = 0; k < 2 && result == CLI_OK; k++) {
            if (lists[k])
                result = cli_option_set(copy, options[k],
                                        json_string_value(json_object_get(row, options[k]->name)));
        }
        if (result == CLI_OK)
            result = measure(copy, row);
    }
    free(copy);
    return result;
}

static void print_value(const char *key, const json_t *value)
{
    if (json_is_real(value))
        printf("%s %.6f  ", key, json_real_value(value));
    else if (json_is_integer(value))
        printf("%s %lld  ", key, (long long)json_integer_value(value));
    else if (json_is_string(value))
        printf("%-9s ", json_string_value(value));
}

/* Labels of --task classification: a line each below their row. */
static void print_labels(const json_t *labels)
{
    const char *key;
    json_t *label, *value;
    size_t i;

    json_array_foreach((json_t *)labels, i, label)
    {
        fputs("  ", stdout);
        json_object_foreach(label, key, value) print_value(key, value);
        putchar('\n');
    }
}

static void print_rows(const json_t *rows)
{
    const char *key;
    json_t *row, *value;
    size_t i;

    json_array_foreach((json_t *)rows, i, row)
    {
        json_object_foreach(row, key, value) print_value(key, value);
        putchar('\n');
        print_labels(json_object_get(row, "labels"));
    }
}

/* Options of one task only. */
static int check_task(const struct cli_args *args)
{
    const bool classification = args->eval_task == CLI_EVAL_CLASSIFICATION;

    if (args->eval_task == CLI_EVAL_RETRIEVAL && args->label_column)
        return cli_usage("--task retrieval reads no labels: --label-column belongs to sts, pairs "
                         "and classification");
    if (classification && (args->pair_column || args->similarity))
        return cli_usage("--task classification has one text in a row: --pair-column and "
                         "--similarity are not valid");
    if (!classification && (args->train || args->split > 0 || args->seed > 0 || args->c > 0 ||
                            args->tolerance > 0 || args->label_names.n || args->heads.n))
        return cli_usage(
            "--head, --train, --split, --seed, --C, --tolerance and --label-name belong "
            "to --task classification");
    if (args->train && args->split > 0)
        return cli_usage("--train and --split exclude each other");
    return cli_fit_check_where(args);
}

static int check_usage(const struct cli_args *args)
{
    if (!args->model)
        return cli_model_missing();
    if (!args->eval_task || !args->input || args->n_rest)
        return cli_usage("eval needs --task and --input, and no texts as arguments");
    if (args->dtypes && args->dtype)
        return cli_usage("--dtype and --dtypes exclude each other");
    if (args->precisions && args->precision)
        return cli_usage("--precision and --precisions exclude each other");
    if ((args->dtypes || args->precisions) && strcmp(args->input, "-") == 0)
        return cli_usage("--dtypes and --precisions read the input several times: it must be a "
                         "file");
    if (args->ranges && !args->precisions && !cli_has_ranges(args))
        return cli_usage("--ranges needs --precision int8 or uint8");
    return check_task(args);
}

int cli_eval(const struct cli_args *args)
{
    json_t *rows;
    int result = check_usage(args);

    if (result != CLI_OK)
        return result;
    rows = json_array();
    result = measure_all(args, rows);
    if (result == CLI_OK && args->json)
        return cli_facts_print(json_pack("{s:s, s:o}", "model", args->model, "rows", rows), true);
    if (result == CLI_OK)
        print_rows(rows);
    json_decref(rows);
    return result;
}
