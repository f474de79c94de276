/*
 * vectors.c - computes the embeddings of a set of texts.
 *
 * Feeds the texts to the pipeline (io/pipeline.c) and copies each chunk of rows into set->vectors.
 * Prints the progress.
 */
#include "cli/fit/fit.h"
#include "cli/io/output.h"
#include "cli/io/pipeline.h"
#include "cli/model.h"

#include <stdlib.h>
#include <string.h>

struct embedding {
    struct fit_set *set;
    struct cli_progress progress;
    size_t next, dim;
};

static int next_text(void *source, struct cli_record *record)
{
    struct embedding *e = source;
    const struct fit_set *set = e->set;

    if (e->next == set->n)
        return 0;
    record->text = set->bytes + set->offsets[e->next];
    record->text_size = set->offsets[e->next + 1] - set->offsets[e->next];
    record->second = NULL;
    record->second_size = 0;
    e->next++;
    return 1;
}

static int keep_rows(void *user, const struct cli_chunk *chunk)
{
    struct embedding *e = user;

    memcpy(e->set->vectors + chunk->first * e->dim, chunk->rows,
           chunk->n * e->dim * sizeof(*chunk->rows));
    cli_progress_update(&e->progress, (double)(chunk->first + chunk->n),
                        (double)(chunk->first + chunk->n) / (double)e->set->n);
    return CLI_OK;
}

int cli_fit_embed(struct fit_set *set, gpuserve_model *model, const char *what,
                  const struct cli_args *args)
{
    struct embedding e = { .set = set };
    struct cli_pump pump = { .model = model, .job = GPUSERVE_JOB_INIT };
    int result = cli_vector_dim(&e.dim, model, args);

    if (result != CLI_OK)
        return result;
    cli_vector_options(&pump.job, args);
    pump.job.task = GPUSERVE_TASK_EMBED;
    pump.job.normalize = GPUSERVE_NORMALIZE_YES;
    pump.row_floats = e.dim;
    pump.chunk_texts = args->batch;
    pump.name = what;
    pump.next = next_text;
    pump.source = &e;
    pump.sink = keep_rows;
    pump.user = &e;
    set->vectors = cli_alloc(set->n, e.dim * sizeof(*set->vectors));
    cli_progress_begin(&e.progress, "texts", args->quiet);
    result = cli_pump_run(&pump);
    cli_progress_end(&e.progress);
    if (result == CLI_OK)
        cli_pump_remarks(&pump, args);
    return result;
}
