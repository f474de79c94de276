/*
 * classify.c - `gpuserve classify`: the best label of each text and the scores of all labels. With
 * several heads these are members of "heads", by the head's name; one pass computes all.
 *
 * For a model that labels tokens, the output is the named entities instead (io/entities.c); for one
 * that takes labels, those of --labels (io/label_entities.c). Output is one JSON line per text, in
 * input order, written a chunk at a time. With --candidate-labels (zero-shot classification) each
 * text is paired with the hypothesis of each candidate:
 *
 *   text -> pairs (text, hypothesis) -> pipeline -> logits -> scores of the candidates -> line
 *
 * Memory of the candidates: their hypotheses, and the logits of one text.
 */
#include "cli/io/entity_texts.h"
#include "cli/io/output.h"
#include "cli/model.h"
#include "cli/io/pipeline.h"

#include <stdlib.h>
#include <string.h>

/* Options of zero-shot classification. */
struct candidates {
    char *bytes;
    const char **names; /* [n] */
    char **hypotheses;  /* [n] */
    size_t n;
    struct cli_input *input;
    struct cli_record record; /* the text being paired */
    size_t next;              /* candidate of the next pair; 0: of the next text */
    gpuserve_model *model;
    float *logits; /* [n, n_labels] of the text being scored */
    size_t n_scored, n_labels;
    size_t n_texts, n_cut;
    bool multi_label, is_cut;
};

/* Labels with scores of their own: the model's, those of a head, or the candidates. */
struct label_set {
    char *name;    /* of the head, encoded as a JSON string */
    char **labels; /* [n_labels] encoded as JSON strings */
    size_t n_labels;
    size_t top; /* number of labels to print; 0: all, in the model's order */
};

struct classify {
    struct cli_output output;
    struct cli_progress progress;
    struct label_set *sets; /* [n_sets] */
    size_t n_sets;
    size_t columns; /* labels of all sets */
    size_t *order;  /* [labels of the largest set] */
    struct candidates candidates;
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

/* The members of one object. */
static void write_set(struct classify *classify, const struct label_set *set, const float *scores)
{
    const size_t n = set->top ? set->top : set->n_labels;
    FILE *out = classify->output.stream;
    size_t best;

    find_best(classify->order, set->n_labels, set->top ? set->top : 1, scores);
    best = classify->order[0];
    fprintf(out, "{\"label\":%s,\"score\":", set->labels[best]);
    write_score(&classify->output, scores[best]);
    fputs(",\"scores\":{", out);
    for (size_t i = 0; i < n; i++) {
        const size_t label = set->top ? classify->order[i] : i;

        fprintf(out, "%s%s:", i ? "," : "", set->labels[label]);
        write_score(&classify->output, scores[label]);
    }
    fputs("}}", out);
}

static void write_text(struct classify *classify, const float *scores)
{
    FILE *out = classify->output.stream;

    if (classify->n_sets == 1) {
        write_set(classify, classify->sets, scores);
    } else {
        for (size_t i = 0; i < classify->n_sets; i++) {
            fprintf(out, "%s%s:", i ? "," : "{\"heads\":{", classify->sets[i].name);
            write_set(classify, &classify->sets[i], scores);
            scores += classify->sets[i].n_labels;
        }
        fputs("}}", out);
    }
    fputc('\n', out);
}

static int write_chunk(void *user, const struct cli_chunk *chunk)
{
    struct classify *classify = user;

    cli_progress_update(&classify->progress, (double)(chunk->first + chunk->n), chunk->share);
    for (size_t i = 0; i < chunk->n; i++)
        write_text(classify, chunk->rows + i * classify->columns);
    if (fflush(classify->output.stream))
        return cli_output_check(&classify->output);
    return CLI_OK;
}

/* ---------------------------------------------------------------------------------- zero-shot */

static int next_pair(void *source, struct cli_record *record)
{
    struct candidates *c = source;
    const int found = c->next == 0 ? cli_input_next(c->input, &c->record) : 1;

    if (found <= 0)
        return found;
    *record = c->record;
    record->second = c->hypotheses[c->next];
    record->second_size = strlen(record->second);
    c->next = (c->next + 1) % c->n;
    return 1;
}

static bool pair_would_wait(const void *source)
{
    const struct candidates *c = source;

    return c->next == 0 && cli_input_would_wait(c->input);
}

static double pair_share(const void *source)
{
    return cli_reader_share(&((const struct candidates *)source)->input->reader);
}

static int write_candidates(struct classify *classify)
{
    struct candidates *c = &classify->candidates;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (gpuserve_zero_shot_scores(c->model, c->logits, c->n_labels, 1, c->n, c->multi_label,
                                  c->logits, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    write_text(classify, c->logits);
    c->n_scored = 0;
    c->n_texts++;
    c->n_cut += c->is_cut;
    c->is_cut = false;
    return CLI_OK;
}

/* A chunk may end between the candidates of a text. */
static int write_pairs(void *user, const struct cli_chunk *chunk)
{
    struct classify *classify = user;
    struct candidates *c = &classify->candidates;
    int result = CLI_OK;

    for (size_t i = 0; i < chunk->n && result == CLI_OK; i++) {
        memcpy(c->logits + c->n_scored * c->n_labels, chunk->rows + i * c->n_labels,
               c->n_labels * sizeof(float));
        c->is_cut |= chunk->items[i].truncated != 0;
        if (++c->n_scored == c->n)
            result = write_candidates(classify);
    }
    cli_progress_update(&classify->progress, (double)c->n_texts, chunk->share);
    if (fflush(classify->output.stream))
        return cli_output_check(&classify->output);
    return result;
}

/* The call without texts checks that the model supports the task. */
static int set_model(struct candidates *c, gpuserve_model *model)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    c->model = model;
    c->n_labels = gpuserve_model_label_count(model);
    c->logits = cli_alloc(c->n * c->n_labels, sizeof(float));
    if (gpuserve_zero_shot_scores(model, c->logits, c->n_labels, 0, c->n, 0, c->logits, &error) !=
        GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    return CLI_OK;
}

static int read_candidates(struct candidates *c, gpuserve_model *model, const struct cli_args *args)
{
    const char *template =
        args->hypothesis_template ? args->hypothesis_template : "This example is {}.";
    const char *gap = strstr(template, "{}");

    if (!gap)
        return cli_usage("--hypothesis-template \"%s\" has no {} for the label", template);
    c->bytes = cli_split_labels(args->candidate_labels, &c->names, &c->n);
    c->hypotheses = cli_alloc(c->n, sizeof(*c->hypotheses));
    for (size_t i = 0; i < c->n; i++) {
        if (!c->names[i][0])
            return cli_usage("--candidate-labels: label %zu is empty", i + 1);
        c->hypotheses[i] =
            cli_format("%.*s%s%s", (int)(gap - template), template, c->names[i], gap + 2);
    }
    c->multi_label = args->multi_label;
    return set_model(c, model);
}

static void free_candidates(struct candidates *c)
{
    for (size_t i = 0; c->hypotheses && i < c->n; i++)
        free(c->hypotheses[i]);
    free(c->hypotheses);
    free(c->names);
    free(c->bytes);
    free(c->logits);
}

static int classify_candidates(struct classify *classify, struct cli_input *input,
                               const struct cli_args *args)
{
    struct candidates *c = &classify->candidates;
    struct cli_pump pump = { .model = c->model, .job = GPUSERVE_JOB_INIT };
    int result;

    c->input = input;
    pump.job.task = GPUSERVE_TASK_CLASSIFY;
    pump.job.score = GPUSERVE_SCORE_RAW;
    pump.job.truncation = args->truncate;
    pump.pairs = true;
    pump.row_floats = c->n_labels;
    pump.chunk_texts = args->batch;
    pump.next = next_pair;
    pump.would_wait = pair_would_wait;
    pump.share = pair_share;
    pump.source = c;
    pump.name = input->arguments ? NULL : input->reader.name;
    pump.sink = write_pairs;
    pump.user = classify;
    cli_progress_begin(&classify->progress, "texts", args->quiet);
    result = cli_pump_run(&pump);
    cli_progress_end(&classify->progress);
    if (result == CLI_OK && c->n_cut > 0 && !args->quiet)
        cli_warn("%zu of %zu texts were longer than %zu tokens with a hypothesis and were cut",
                 c->n_cut, c->n_texts, gpuserve_model_max_tokens(c->model));
    return result;
}

/* -------------------------------------------------------------------------- the model's labels */

static int classify_input(struct classify *classify, gpuserve_model *model, struct cli_input *input,
                          const struct cli_args *args)
{
    struct cli_pump pump = { .model = model, .job = GPUSERVE_JOB_INIT };
    int result;

    pump.job.task = GPUSERVE_TASK_CLASSIFY;
    pump.job.score = args->score;
    pump.job.truncation = args->truncate;
    pump.pairs = args->pairs;
    pump.row_floats = classify->columns;
    if (classify->n_sets > 1)
        pump.job.heads = "*";
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

/* `text` as a JSON string; NULL: it is not UTF-8. */
static char *encode(const char *text)
{
    json_t *string = json_string(text);
    char *encoded = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;

    json_decref(string);
    return encoded;
}

static int fill_set(struct label_set *set, const char *name, const char *const *labels, size_t n,
                    const struct cli_args *args)
{
    set->labels = cli_alloc(n, sizeof(*set->labels));
    set->n_labels = n;
    set->top = args->top < n ? args->top : n;
    set->name = encode(name);
    if (!set->name)
        return cli_fail("the name of a head is not UTF-8");
    for (size_t i = 0; i < n; i++) {
        set->labels[i] = encode(labels[i]);
        if (!set->labels[i])
            return cli_fail("label %zu is not UTF-8", i);
    }
    return CLI_OK;
}

/* The labels of the model's own classifier. */
static int fill_own(struct label_set *set, const gpuserve_model *model, const struct cli_args *args)
{
    const size_t n = gpuserve_model_label_count(model);
    const char **labels;
    int result;

    if (n == 0) {
        cli_fail("%s: the model has no classifier, it only makes embeddings", args->model);
        cli_hint("set a classifier head for its embeddings with --head; `gpuserve fit` trains one");
        return CLI_FAILED;
    }
    labels = cli_alloc(n, sizeof(*labels));
    for (size_t i = 0; i < n; i++)
        labels[i] = gpuserve_model_label(model, i);
    result = fill_set(set, "", labels, n, args);
    free(labels);
    return result;
}

static int fill_head(struct label_set *set, const gpuserve_model *model, size_t index,
                     const struct cli_args *args)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_head head = GPUSERVE_HEAD_INIT;

    if (gpuserve_model_head(model, index, &head, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    return fill_set(set, head.name, head.labels, head.n_labels, args);
}

/* Labels of the heads or of the model, or the candidate labels of zero-shot classification. */
static int read_labels(struct classify *classify, const gpuserve_model *model,
                       const struct cli_args *args)
{
    const struct candidates *c = &classify->candidates;
    const size_t n_heads = c->n > 0 ? 0 : cli_model_properties(model).n_heads;
    size_t widest = 0;
    int result = CLI_OK;

    classify->n_sets = n_heads > 0 ? n_heads : 1;
    classify->sets = cli_alloc(classify->n_sets, sizeof(*classify->sets));
    for (size_t i = 0; i < classify->n_sets && result == CLI_OK; i++) {
        struct label_set *set = &classify->sets[i];

        result = c->n > 0      ? fill_set(set, "", c->names, c->n, args)
                 : n_heads > 0 ? fill_head(set, model, i, args)
                               : fill_own(set, model, args);
        classify->columns += set->n_labels;
        widest = set->n_labels > widest ? set->n_labels : widest;
    }
    classify->order = cli_alloc(widest, sizeof(*classify->order));
    return result;
}

static void free_labels(struct classify *classify)
{
    for (size_t i = 0; i < classify->n_sets; i++) {
        struct label_set *set = &classify->sets[i];

        for (size_t j = 0; j < set->n_labels; j++)
            free(set->labels[j]);
        free(set->labels);
        free(set->name);
    }
    free(classify->sets);
    free(classify->order);
}

/* The options that fit what the model labels. */
static int check_options(const struct cli_args *args, bool by_token, bool takes_labels)
{
    const bool zero_shot = args->candidate_labels != NULL;

    if (zero_shot && (by_token || takes_labels))
        return cli_usage("%s labels %s, not texts: --candidate-labels is not valid", args->model,
                         takes_labels ? "spans" : "tokens");
    if (!zero_shot && args->hypothesis_template)
        return cli_usage("--hypothesis-template needs --candidate-labels");
    if (zero_shot && (args->pairs || args->score))
        return cli_usage("--pairs and --raw are not valid with --candidate-labels");
    if (!by_token && (args->aggregation || args->ignored_labels.n > 0))
        return cli_usage("%s labels %s, not tokens: --aggregation and --ignore-label are not valid",
                         args->model, takes_labels ? "spans" : "texts");
    if (!takes_labels &&
        (args->labels || args->threshold > 0 || args->nested || (args->multi_label && !zero_shot)))
        return cli_usage("%s has labels of its own: --labels, --threshold, --nested and "
                         "--multi-label are for GLiNER models",
                         args->model);
    return CLI_OK;
}

static int prepare(struct classify *classify, gpuserve_model *model, const struct cli_args *args)
{
    int result =
        args->candidate_labels ? read_candidates(&classify->candidates, model, args) : CLI_OK;

    return result == CLI_OK ? read_labels(classify, model, args) : result;
}

int cli_classify(const struct cli_args *args)
{
    struct classify classify = { 0 };
    gpuserve_model *model = NULL;
    struct cli_input input;
    bool by_token, takes_labels;
    int result = cli_output_suffix(args, "classify", ".json .jsonl .txt");

    if (result == CLI_OK)
        result = cli_input_from(&input, args, args->pairs);
    if (result != CLI_OK)
        return result;
    result = cli_model_open(&model, args);
    by_token = result == CLI_OK && cli_labels_tokens(model);
    takes_labels = result == CLI_OK && cli_takes_labels(model);
    if (result == CLI_OK)
        result = check_options(args, by_token, takes_labels);
    if (result == CLI_OK && !by_token && !takes_labels)
        result = prepare(&classify, model, args);
    if (result == CLI_OK)
        result = cli_output_open(&classify.output, args->output);
    if (result == CLI_OK)
        result = by_token       ? cli_entities(model, &input, &classify.output, args)
                 : takes_labels ? cli_label_entities(model, &input, &classify.output, args)
                 : args->candidate_labels ? classify_candidates(&classify, &input, args)
                                          : classify_input(&classify, model, &input, args);
    if (result == CLI_OK)
        result = cli_output_finish(&classify.output);
    cli_output_abandon(&classify.output);
    free_labels(&classify);
    free_candidates(&classify.candidates);
    gpuserve_model_close(&model);
    cli_input_close(&input);
    return result;
}
