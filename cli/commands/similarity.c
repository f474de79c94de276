/*
 * similarity.c - `gpuserve similarity`: cosine similarity of all texts with each other, or of
 * pairs.
 *
 *   matrix: all vectors in memory, one JSON line per row
 *   pairs:  streamed by pairs.c
 *
 * Vectors are L2-normalized, so the dot product is the cosine. Models of token vectors compare by
 * MaxSim: late_similarity.c.
 */
#include "cli/commands/embed.h"
#include "cli/commands/pairs.h"
#include "cli/model.h"
#include "cli/io/output.h"
#include "cli/io/pipeline.h"

#include <stdlib.h>
#include <string.h>

/* All vectors of a matrix are in memory. */
#define MATRIX_TEXTS 100000

struct similarity {
    struct cli_output output;
    struct cli_progress progress;
    size_t dim;
    /* matrix: all vectors, [n, dim] */
    float *vectors;
    size_t n, capacity;
};

static int keep_vectors(void *user, const struct cli_chunk *chunk)
{
    struct similarity *s = user;

    if (s->n + chunk->n > MATRIX_TEXTS)
        return cli_fail("the input has more than %d texts: the matrix is too large", MATRIX_TEXTS);
    s->vectors = cli_grow(s->vectors, &s->capacity, s->n + chunk->n, s->dim * sizeof(*s->vectors));
    memcpy(s->vectors + s->n * s->dim, chunk->rows, chunk->n * s->dim * sizeof(*s->vectors));
    s->n += chunk->n;
    cli_progress_update(&s->progress, (double)s->n, chunk->share);
    return CLI_OK;
}

static int write_matrix(struct similarity *s)
{
    float *row = cli_alloc(s->n, sizeof(*row));
    int result = CLI_OK;

    for (size_t i = 0; i < s->n && result == CLI_OK; i++) {
        for (size_t j = 0; j < s->n; j++)
            row[j] = gpuserve_dot(s->vectors + i * s->dim, s->vectors + j * s->dim, s->dim);
        fprintf(s->output.stream, "{\"index\":%zu,\"similarity\":[", i);
        cli_output_floats(&s->output, row, s->n, ",");
        fputs("]}\n", s->output.stream);
        result = cli_output_check(&s->output);
    }
    free(row);
    return result;
}

static int write_pair(void *user, float similarity)
{
    struct similarity *s = user;

    fputs("{\"similarity\":", s->output.stream);
    cli_output_floats(&s->output, &similarity, 1, "");
    fputs("}\n", s->output.stream);
    return CLI_OK;
}

static int flush_pairs(void *user)
{
    struct similarity *s = user;

    return fflush(s->output.stream) ? cli_output_check(&s->output) : CLI_OK;
}

static int compare_pairs(struct similarity *s, gpuserve_model *model, struct cli_input *input,
                         const struct cli_args *args)
{
    struct cli_pairs pairs = {
        .input = input,
        .write = write_pair,
        .end_chunk = flush_pairs,
        .user = s,
        .normalize = GPUSERVE_NORMALIZE_YES,
    };

    return cli_pairs_run(&pairs, model, args);
}

static int compare_all(struct similarity *s, gpuserve_model *model, struct cli_input *input,
                       const struct cli_args *args)
{
    struct cli_pump pump = { .model = model, .job = GPUSERVE_JOB_INIT };
    int result = cli_vector_dim(&s->dim, model, args);

    if (result != CLI_OK)
        return result;
    pump.job.task = GPUSERVE_TASK_EMBED;
    cli_vector_options(&pump.job, args);
    pump.job.normalize = GPUSERVE_NORMALIZE_YES; /* makes the dot product the cosine */
    pump.row_floats = s->dim;
    pump.chunk_texts = args->batch;
    cli_pump_from_input(&pump, input);
    pump.user = s;
    pump.sink = keep_vectors;
    cli_progress_begin(&s->progress, "texts", args->quiet);
    result = cli_pump_run(&pump);
    cli_progress_end(&s->progress);
    if (result == CLI_OK)
        result = write_matrix(s);
    if (result == CLI_OK)
        cli_pump_remarks(&pump, args);
    return result;
}

int cli_similarity(const struct cli_args *args)
{
    struct similarity s = { 0 };
    gpuserve_model *model = NULL;
    struct cli_input input;
    int result = cli_output_suffix(args, "similarity", ".json .jsonl .txt");

    if (result == CLI_OK)
        result = cli_input_from(&input, args, args->pairs);
    if (result != CLI_OK)
        return result;
    result = cli_model_open(&model, args);
    if (result == CLI_OK)
        result = cli_output_open(&s.output, args->output);
    if (result == CLI_OK)
        result = cli_model_properties(model).rerank_method == GPUSERVE_RERANK_MAX_SIM
                     ? cli_late_similarity(&s.output, model, &input, args)
                 : args->pairs ? compare_pairs(&s, model, &input, args)
                               : compare_all(&s, model, &input, args);
    if (result == CLI_OK)
        result = cli_output_finish(&s.output);
    cli_output_abandon(&s.output);
    free(s.vectors);
    gpuserve_model_close(&model);
    cli_input_close(&input);
    return result;
}
