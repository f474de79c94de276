/*
 * fake_open.c - opens the fake model and makes jobs for it, by public calls.
 */
#include "tests/runtime/fake.h"

#include <criterion/criterion.h>

static gpuserve_model *open_with(uint32_t n_threads, gpuserve_model_options options)
{
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;

    context_options.n_threads = n_threads;
    cr_assert_eq(gpuserve_context_create(&context, &context_options, &error), GPUSERVE_OK, "%s",
                 error.message);
    options.device = "cpu";
    cr_assert_eq(gpuserve_model_open(&model, context, ".", &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    gpuserve_context_unref(&context);
    return model;
}

gpuserve_model *fake_open(uint32_t n_threads, uint32_t max_batch_tokens, uint32_t max_queue_tokens)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.max_batch_tokens = max_batch_tokens;
    options.max_queue_tokens = max_queue_tokens;
    return open_with(n_threads ? n_threads : 2, options);
}

gpuserve_model *fake_open_one_worker(uint64_t cache_bytes)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    fake_set_sparse_and_skipping();
    options.cache_bytes = cache_bytes;
    return open_with(1, options);
}

gpuserve_job fake_job(const char *const *texts, size_t n, float *output)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.n_items = n;
    job.texts = texts;
    job.output = output;
    job.output_capacity = n * FAKE_DIM;
    return job;
}
