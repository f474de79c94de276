/*
 * model.c - command line options to library options, context and model.
 *
 * The context is unreferenced after the model is open: the model holds its own reference. Texts of
 * unknown size are read in a loop that grows the buffer until the library's answer fits.
 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>

int32_t cli_log_level(const struct cli_args *args)
{
    if (args->verbose)
        return GPUSERVE_LOG_DEBUG;
    return args->quiet ? GPUSERVE_LOG_ERROR : GPUSERVE_LOG_WARNING;
}

int cli_context(gpuserve_context **context, const struct cli_args *args)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (args->weights_cache) /* the library reads the variable; there are no threads yet */
        setenv("GPUSERVE_WEIGHTS_CACHE", args->weights_cache, 1);
    options.n_threads = args->threads;
    options.cache_dir = args->cache_dir;
    options.memory_budget_bytes = args->memory_budget;
    options.memory_policy = args->memory_policy;
    options.log = cli_log;
    options.log_level = cli_log_level(args);
    if (gpuserve_context_create(context, &options, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    if (args->device_budget > 0 &&
        gpuserve_context_set_budget(*context, "cuda", args->device_budget, &error) != GPUSERVE_OK) {
        gpuserve_context_unref(context);
        return cli_fail_with(&error, "--device-budget");
    }
    return CLI_OK;
}

/* Items as lines. Allocated once, until the process ends. */
struct lines {
    char *text;
    size_t n;
};

/* NULL: no items. */
static const char *join_lines(struct lines *joined, const struct cli_list *list)
{
    for (; joined->n < list->n; joined->n++) {
        char *longer =
            cli_format("%s%s\n", joined->text ? joined->text : "", list->items[joined->n]);

        free(joined->text);
        joined->text = longer;
    }
    return joined->text;
}

gpuserve_model_options cli_model_options(const struct cli_args *args)
{
    static struct lines heads, adapters;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.dtype = args->dtype;
    options.device = args->device;
    options.heads = join_lines(&heads, &args->heads);
    options.adapters = join_lines(&adapters, &args->adapters);
    options.default_prompt = args->default_prompt;
    options.default_prompt_name = args->default_prompt_name;
    options.max_tokens = args->max_tokens;
    options.max_batch_tokens = args->batch_tokens;
    options.max_queue_tokens = args->queue_tokens;
    options.max_tokens_per_second = args->tokens_per_second;
    options.max_queue_ms = args->queue_ms > 0 ? args->queue_ms - 1 : 0;
    options.pooling = args->pooling;
    options.use_mmap = args->mmap;
    options.deterministic = args->deterministic;
    options.portable_bits = args->portable_bits;
    options.stream_weights = args->stream_weights;
    options.on_device_lost =
        args->on_device_lost == CLI_LOST_EXIT ? GPUSERVE_LOST_FAIL : args->on_device_lost;
    options.cache_bytes = args->cache_bytes;
    if (args->max_wait > 0)
        options.max_wait_us = args->max_wait > 1 ? args->max_wait - 1 : GPUSERVE_WAIT_NONE;
    return options;
}

int cli_model_missing(void)
{
    cli_usage("the model is missing");
    cli_hint("set a model with --model; `gpuserve pull NAME` downloads one");
    return CLI_USAGE;
}

int cli_model_open(gpuserve_model **model, const struct cli_args *args)
{
    const gpuserve_model_options options = cli_model_options(args);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context;
    gpuserve_status status;

    *model = NULL;
    if (!args->model)
        return cli_model_missing();
    if (cli_context(&context, args) != CLI_OK)
        return CLI_FAILED;
    status = gpuserve_model_open(model, context, args->model, &options, &error);
    gpuserve_context_unref(&context); /* the model holds a reference */
    if (status == GPUSERVE_OK)
        return CLI_OK;
    cli_fail_with(&error, NULL);
    if (args->model_is_argument)
        cli_hint("without --model the first argument is the model");
    return CLI_FAILED;
}

char *cli_text_of(cli_text_call call, void *of, const char *name)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status status;
    size_t capacity = 4096, size = 0;
    char *text = cli_alloc(capacity, 1);

    /* The text can grow between two calls, so a loop. */
    while ((status = call(of, name, text, capacity, &size, &error)) == GPUSERVE_E_TOO_LARGE &&
           size > capacity)
        text = cli_grow(text, &capacity, size, 1);
    if (status == GPUSERVE_OK)
        return text;
    cli_fail_with(&error, NULL);
    free(text);
    return NULL;
}

static gpuserve_status model_info(void *of, const char *name, char *text, size_t capacity,
                                  size_t *size, gpuserve_error *error)
{
    (void)name;
    return gpuserve_model_info(of, text, capacity, size, error);
}

char *cli_model_facts(gpuserve_model *model)
{
    return cli_text_of(model_info, model, NULL);
}

gpuserve_model_properties cli_model_properties(const gpuserve_model *model)
{
    gpuserve_model_properties properties = GPUSERVE_MODEL_PROPERTIES_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (gpuserve_model_get_properties(model, &properties, &error) != GPUSERVE_OK)
        cli_fail_with(&error, NULL);
    return properties;
}

void cli_vector_options(gpuserve_job *job, const struct cli_args *args)
{
    job->dimensions = args->dimensions;
    job->normalize = args->normalize;
    job->truncation = args->truncate;
    job->prompt = args->prompt;
    job->prompt_name = args->prompt_name;
}

int cli_vector_dim(size_t *dim, const gpuserve_model *model, const struct cli_args *args)
{
    const size_t all = gpuserve_model_dim(model);

    *dim = args->dimensions ? args->dimensions : all;
    return *dim <= all ? CLI_OK
                       : cli_fail("--dimensions %zu: the model has %zu dimensions", *dim, all);
}
