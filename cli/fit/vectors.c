/*
 * vectors.c - computes the embeddings, or the predicted labels, of a set of texts.
 *
 * Feeds the texts to the pipeline (io/pipeline.c) and copies each chunk of rows into set->vectors,
 * or keeps the index of each row's highest score. Prints the progress.
 */
#include "cli/fit/fit.h"
#include "cli/io/output.h"
#include "cli/io/pipeline.h"
#include "cli/model.h"

#include <stdlib.h>
#include <string.h>

struct run {
    struct fit_set *set;
    struct cli_progress progress;
    size_t next, columns; /* of a row: dimensions or labels */
    int32_t *found;       /* [set->n] of classify */
};

static int next_text(void *source, struct cli_record *record)
{
    struct run *run = source;
    const struct fit_set *set = run->set;

    if (run->next == set->n)
        return 0;
    record->text = set->bytes + set->offsets[run->next];
    record->text_size = set->offsets[run->next + 1] - set->offsets[run->next];
    record->second = NULL;
    record->second_size = 0;
    run->next++;
    return 1;
}

static void show_progress(struct run *run, const struct cli_chunk *chunk)
{
    const double done = (double)(chunk->first + chunk->n);

    cli_progress_update(&run->progress, done, done / (double)run->set->n);
}

static int keep_rows(void *user, const struct cli_chunk *chunk)
{
    struct run *run = user;

    memcpy(run->set->vectors + chunk->first * run->columns, chunk->rows,
           chunk->n * run->columns * sizeof(*chunk->rows));
    show_progress(run, chunk);
    return CLI_OK;
}

static int keep_best(void *user, const struct cli_chunk *chunk)
{
    struct run *run = user;

    for (size_t i = 0; i < chunk->n; i++) {
        const float *scores = chunk->rows + i * run->columns;
        size_t best = 0;

        for (size_t k = 1; k < run->columns; k++) {
            if (scores[k] > scores[best])
                best = k;
        }
        run->found[chunk->first + i] = (int32_t)best;
    }
    show_progress(run, chunk);
    return CLI_OK;
}

/* Completes a pump with its job, model and sink, and runs the texts. */
static int run_texts(struct run *run, struct cli_pump *pump, const struct cli_args *args)
{
    int result;

    pump->row_floats = run->columns;
    pump->chunk_texts = args->batch;
    pump->next = next_text;
    pump->source = run;
    pump->user = run;
    cli_progress_begin(&run->progress, "texts", args->quiet);
    result = cli_pump_run(pump);
    cli_progress_end(&run->progress);
    if (result == CLI_OK)
        cli_pump_remarks(pump, args);
    return result;
}

int cli_fit_embed(struct fit_set *set, gpuserve_model *model, const char *what, uint32_t normalize,
                  const struct cli_args *args)
{
    struct run run = { .set = set };
    struct cli_pump pump = {
        .model = model, .job = GPUSERVE_JOB_INIT, .name = what, .sink = keep_rows
    };
    const int result = cli_vector_dim(&run.columns, model, args);

    if (result != CLI_OK)
        return result;
    cli_vector_options(&pump.job, args);
    pump.job.task = GPUSERVE_TASK_EMBED;
    pump.job.normalize = normalize;
    set->vectors = cli_alloc(set->n, run.columns * sizeof(*set->vectors));
    return run_texts(&run, &pump, args);
}

int cli_fit_classify(int32_t *found, struct fit_set *set, gpuserve_model *model,
                     const struct cli_args *args)
{
    struct run run = { .set = set, .columns = gpuserve_model_label_count(model), .found = found };
    struct cli_pump pump = {
        .model = model, .job = GPUSERVE_JOB_INIT, .name = "texts", .sink = keep_best
    };

    pump.job.task = GPUSERVE_TASK_CLASSIFY;
    pump.job.score = GPUSERVE_SCORE_RAW; /* sigmoid and softmax round different logits to 1 */
    pump.job.truncation = args->truncate;
    return run_texts(&run, &pump, args);
}
