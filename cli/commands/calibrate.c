/*
 * calibrate.c - `gpuserve calibrate`: the range of each dimension over many texts, as a .npy file
 * for `embed --precision int8 --ranges`. Memory does not grow with the number of texts.
 */
#include "cli/model.h"
#include "cli/io/output.h"
#include "cli/io/pipeline.h"

#include <math.h>
#include <stdlib.h>

#define MIN_TEXTS 2
#define FEW_TEXTS 100 /* sentence-transformers warns below it, too */

struct calibrate {
    struct cli_progress progress;
    float *ranges; /* [2, dim] */
    size_t dim;
};

static int add_chunk(void *user, const struct cli_chunk *chunk)
{
    struct calibrate *c = user;
    float *const min = c->ranges, *const max = c->ranges + c->dim;

    cli_progress_update(&c->progress, (double)(chunk->first + chunk->n), chunk->share);
    for (size_t row = 0; row < chunk->n; row++) {
        const float *values = chunk->rows + row * c->dim;

        for (size_t i = 0; i < c->dim; i++) {
            min[i] = fminf(min[i], values[i]);
            max[i] = fmaxf(max[i], values[i]);
        }
    }
    return CLI_OK;
}

static int measure(struct calibrate *c, gpuserve_model *model, struct cli_input *input,
                   const struct cli_args *args)
{
    struct cli_pump pump = { .model = model, .job = GPUSERVE_JOB_INIT };
    int result;

    for (size_t i = 0; i < c->dim; i++) {
        c->ranges[i] = INFINITY;
        c->ranges[c->dim + i] = -INFINITY;
    }
    pump.job.task = GPUSERVE_TASK_EMBED;
    cli_vector_options(&pump.job, args);
    pump.row_floats = c->dim;
    pump.chunk_texts = args->batch;
    pump.sink = add_chunk;
    pump.user = c;
    cli_pump_from_input(&pump, input);
    cli_progress_begin(&c->progress, "texts", args->quiet);
    result = cli_pump_run(&pump);
    cli_progress_end(&c->progress);
    if (result != CLI_OK)
        return result;
    if (pump.n_texts < MIN_TEXTS)
        return cli_fail("ranges need at least %d texts, %zu are given", MIN_TEXTS, pump.n_texts);
    if (pump.n_texts < FEW_TEXTS && !args->quiet)
        cli_warn("%zu texts are few: vectors of other texts will often be outside the ranges; "
                 "some hundreds are better",
                 pump.n_texts);
    cli_pump_remarks(&pump, args);
    return CLI_OK;
}

static int write_ranges(const struct calibrate *c, const struct cli_args *args)
{
    struct cli_output output;
    int result = cli_output_open(&output, args->output);

    if (result == CLI_OK)
        result = cli_npy_begin(&output, CLI_NPY_FLOAT32, c->dim);
    if (result == CLI_OK)
        result = cli_npy_rows(&output, c->ranges, 2 * c->dim * sizeof(float));
    if (result == CLI_OK)
        result = cli_npy_end(&output, CLI_NPY_FLOAT32, 2, c->dim);
    if (result == CLI_OK)
        result = cli_output_finish(&output);
    cli_output_abandon(&output);
    return result;
}

int cli_calibrate(const struct cli_args *args)
{
    gpuserve_model *model = NULL;
    struct calibrate c = { 0 };
    struct cli_input input;
    int result;

    if (!args->output)
        return cli_usage("calibrate needs --output FILE, a .npy file of ranges");
    result = cli_input_from(&input, args, false);
    if (result != CLI_OK)
        return result;
    result = cli_model_open(&model, args);
    if (result == CLI_OK)
        result = cli_vector_dim(&c.dim, model, args);
    if (result == CLI_OK && c.dim == 0)
        result = cli_fail("%s: the model has no embeddings", args->model);
    if (result == CLI_OK) {
        c.ranges = cli_alloc(2 * c.dim, sizeof(*c.ranges));
        result = measure(&c, model, &input, args);
    }
    if (result == CLI_OK)
        result = write_ranges(&c, args);
    free(c.ranges);
    gpuserve_model_close(&model);
    cli_input_close(&input);
    return result;
}
