/*
 * inspect.c - `gpuserve inspect`: facts of a model with the options given, such as a head, read
 * from the files, and its memory footprint.
 *
 * For --dtype int8 the model is loaded as well, because the accuracy loss of int8 is measured at
 * load.
 */
#include "cli/io/output.h"
#include "cli/model.h"

struct inspection {
    gpuserve_context *context;
    const gpuserve_model_options *options;
};

static gpuserve_status inspect_text(void *of, const char *name, char *text, size_t capacity,
                                    size_t *size, gpuserve_error *error)
{
    const struct inspection *inspection = of;

    return gpuserve_model_inspect(inspection->context, name, inspection->options, text, capacity,
                                  size, error);
}

static json_t *footprint_facts(const gpuserve_footprint *f)
{
    return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "fits", (int)f->fits,
                     "total_bytes", (json_int_t)f->total_bytes, "weights_bytes",
                     (json_int_t)f->weights_bytes, "workspace_bytes",
                     (json_int_t)f->workspace_bytes, "stream_bytes", (json_int_t)f->stream_bytes,
                     "host_bytes", (json_int_t)f->host_bytes, "available_bytes",
                     (json_int_t)f->available_bytes, "max_batch_tokens",
                     (json_int_t)f->max_batch_tokens, "n_streams", (json_int_t)f->n_streams);
}

static gpuserve_status info_text(void *of, const char *name, char *text, size_t capacity,
                                 size_t *size, gpuserve_error *error)
{
    (void)name;
    return gpuserve_model_info(of, text, capacity, size, error);
}

/* Adds the accuracy loss of int8 and the matrix products that stay in higher precision. */
static int add_int8(json_t *facts, gpuserve_context *context, const char *name,
                    const gpuserve_model_options *options)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    json_t *info;
    int result = CLI_OK;

    if (gpuserve_model_open(&model, context, name, options, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    info = cli_facts_parse(cli_text_of(info_text, model, name));
    if (!info)
        result = CLI_FAILED;
    else if (json_object_set(facts, "int8", json_object_get(info, "int8")))
        result = cli_fail("out of memory");
    json_decref(info);
    gpuserve_model_close(&model);
    return result;
}

/* The footprint. A CPU does not compute in float16: bfloat16, which has the same size, stands for
 * it unless --device asks for this device. */
static gpuserve_status find_footprint(gpuserve_context *context, const char *name,
                                      const struct cli_args *args, gpuserve_model_options *options,
                                      gpuserve_footprint *footprint, gpuserve_error *error)
{
    gpuserve_status status = gpuserve_model_footprint(context, name, options, footprint, error);

    if (status != GPUSERVE_E_UNSUPPORTED || options->dtype != GPUSERVE_DTYPE_FLOAT16 ||
        args->device)
        return status;
    options->dtype = GPUSERVE_DTYPE_BFLOAT16;
    if (gpuserve_model_footprint(context, name, options, footprint, NULL) != GPUSERVE_OK)
        return status;
    cli_warn("%s; the footprint is that of bfloat16 on it, which has the same size",
             error->message);
    return GPUSERVE_OK;
}

static int inspect_model(gpuserve_context *context, const char *name, const struct cli_args *args)
{
    gpuserve_model_options options = cli_model_options(args);
    gpuserve_footprint footprint = GPUSERVE_FOOTPRINT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct inspection inspection = { context, &options };
    json_t *facts = cli_facts_parse(cli_text_of(inspect_text, &inspection, name));

    if (!facts)
        return CLI_FAILED;
    if (find_footprint(context, name, args, &options, &footprint, &error) != GPUSERVE_OK) {
        json_decref(facts);
        return cli_fail_with(&error, NULL);
    }
    if (json_object_set_new(facts, "footprint", footprint_facts(&footprint)))
        return cli_fail("out of memory");
    if (options.dtype == GPUSERVE_DTYPE_INT8 &&
        add_int8(facts, context, name, &options) != CLI_OK) {
        json_decref(facts);
        return CLI_FAILED;
    }
    return cli_facts_print(facts, args->json);
}

int cli_inspect(const struct cli_args *args)
{
    const char *model = args->n_rest == 1 ? args->rest[0] : args->model;
    gpuserve_context *context;
    int result;

    if (!model || args->n_rest > 1 || (args->n_rest && args->model)) {
        cli_usage("inspect needs one model");
        cli_hint("usage: gpuserve inspect MODEL, or --random SHAPE; MODEL is a directory or a name "
                 "in the Hugging Face cache");
        return CLI_USAGE;
    }
    if (cli_context(&context, args) != CLI_OK)
        return CLI_FAILED;
    result = inspect_model(context, model, args);
    gpuserve_context_unref(&context);
    return result;
}
