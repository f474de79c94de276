/*
 * pairs.c - similarities of text pairs as a stream.
 *
 * Both texts of a pair are consecutive items of the pipeline. The dot product of L2-normalized
 * vectors is the cosine.
 */
#include "cli/commands/pairs.h"

#include <stdlib.h>
#include <string.h>

static int next_text(void *source, struct cli_record *record)
{
    struct cli_pairs *p = source;
    int found = 1;

    memset(record, 0, sizeof(*record));
    if (p->second_is_next) {
        record->text = p->record.second;
        record->text_size = p->record.second_size;
    } else {
        found = cli_input_next(p->input, &p->record);
        if (found > 0 && p->read && p->read(p->user, &p->record) != CLI_OK)
            return -1;
        record->text = p->record.text;
        record->text_size = p->record.text_size;
    }
    p->second_is_next = !p->second_is_next;
    return found;
}

static bool would_wait(const void *source)
{
    const struct cli_pairs *p = source;

    return !p->second_is_next && cli_input_would_wait(p->input);
}

static double share(const void *source)
{
    return cli_reader_share(&((const struct cli_pairs *)source)->input->reader);
}

/* A chunk may end between the texts of a pair, so the first vector is kept across chunks. */
static int write_chunk(void *user, const struct cli_chunk *chunk)
{
    struct cli_pairs *p = user;

    if (p->convert && p->convert(p->user, chunk->rows, chunk->n) != CLI_OK)
        return CLI_FAILED;
    for (size_t i = 0; i < chunk->n; i++) {
        const float *vector = chunk->rows + i * p->dim;

        p->have_first = !p->have_first;
        if (p->have_first)
            memcpy(p->first, vector, p->dim * sizeof(*vector));
        else if (p->write(p->user, gpuserve_dot(p->first, vector, p->dim)) != CLI_OK)
            return CLI_FAILED;
    }
    cli_progress_update(&p->progress, (double)(chunk->first + chunk->n), chunk->share);
    return p->end_chunk ? p->end_chunk(p->user) : CLI_OK;
}

int cli_pairs_run(struct cli_pairs *pairs, gpuserve_model *model, const struct cli_args *args)
{
    struct cli_pump pump = { .model = model, .job = GPUSERVE_JOB_INIT };
    int result = cli_vector_dim(&pairs->dim, model, args);

    if (result != CLI_OK)
        return result;
    pairs->first = cli_alloc(pairs->dim, sizeof(*pairs->first));
    pump.job.task = GPUSERVE_TASK_EMBED;
    cli_vector_options(&pump.job, args);
    pump.job.normalize = pairs->normalize;
    pump.row_floats = pairs->dim;
    pump.chunk_texts = args->batch;
    cli_pump_from_input(&pump, pairs->input);
    pump.source = pairs;
    pump.next = next_text;
    pump.would_wait = would_wait;
    pump.share = share;
    pump.user = pairs;
    pump.sink = write_chunk;
    cli_progress_begin(&pairs->progress, "texts", args->quiet);
    result = cli_pump_run(&pump);
    cli_progress_end(&pairs->progress);
    if (result == CLI_OK)
        cli_pump_remarks(&pump, args);
    free(pairs->first);
    return result;
}
