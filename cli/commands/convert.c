/*
 * convert.c - `gpuserve convert`: a model's directory with weights of another type.
 *
 * The library writes and measures. A signal only sets a flag: the progress callback cancels the
 * conversion, the library removes what it wrote, and then the program ends by the signal.
 */
#include "cli/commands/convert.h"
#include "cli/io/output.h"
#include "cli/model.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static int32_t progress(void *user, uint32_t stage, uint64_t done, uint64_t total)
{
    if (stage == GPUSERVE_STAGE_CONVERT && total > 0)
        cli_progress_update(user, (double)done, (double)done / (double)total);
    return cli_signal_pending() != 0;
}

static const char *task_name(uint32_t task)
{
    return task == GPUSERVE_TASK_EMBED    ? "embeddings"
           : task == GPUSERVE_TASK_SPARSE ? "sparse vectors"
                                          : "token vectors";
}

static const char *dtype_name(uint32_t dtype)
{
    return dtype == GPUSERVE_DTYPE_FLOAT16    ? "float16"
           : dtype == GPUSERVE_DTYPE_BFLOAT16 ? "bfloat16"
           : dtype == GPUSERVE_DTYPE_INT8     ? "int8"
                                              : "float32";
}

json_t *cli_convert_facts(const gpuserve_convert_report *r, const char *output)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:f}", "output",
                     output, "dtype", dtype_name(r->dtype), "compared", task_name(r->task),
                     "probes", (int)r->n_probes, "cosine_mean", r->cosine_mean, "cosine_min",
                     r->cosine_min, "score_difference", r->score_difference, "bytes_before",
                     (json_int_t)r->bytes_before, "bytes_after", (json_int_t)r->bytes_after,
                     "tensors", (json_int_t)r->n_tensors, "tensors_int8",
                     (json_int_t)r->n_quantized, "seconds", r->seconds);
}

int cli_convert_run(gpuserve_context *context, const struct cli_args *args,
                    gpuserve_convert_report *report)
{
    gpuserve_convert_options options = GPUSERVE_CONVERT_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct cli_progress shown;
    gpuserve_status status;

    options.dtype = args->dtype ? args->dtype : GPUSERVE_DTYPE_FLOAT32;
    options.prune = args->prune;
    options.force = args->force;
    options.max_file_bytes = args->max_shard_size;
    options.progress = progress;
    options.progress_user = &shown;
    cli_signals_defer();
    cli_progress_begin(&shown, "bytes", args->quiet);
    status = gpuserve_convert(context, args->rest[0], args->rest[1], &options, report, &error);
    cli_progress_end(&shown);
    cli_signals_end_by_pending();
    return status == GPUSERVE_OK ? CLI_OK : cli_fail_with(&error, NULL);
}

static int convert(gpuserve_context *context, const struct cli_args *args)
{
    gpuserve_convert_report report = GPUSERVE_CONVERT_REPORT_INIT;
    const int result = cli_convert_run(context, args, &report);
    json_t *facts;

    if (result != CLI_OK)
        return result;
    facts = cli_convert_facts(&report, args->rest[1]);
    return facts ? cli_facts_print(facts, args->json)
                 : cli_fail("%s: the path is not UTF-8", args->rest[1]);
}

int cli_convert(const struct cli_args *args)
{
    gpuserve_context *context;
    int result;

    if (args->n_rest != 2 || !args->dtype) {
        cli_usage(args->n_rest != 2 ? "convert needs a model and an output directory"
                                    : "--dtype is missing");
        cli_hint("usage: gpuserve convert MODEL OUTPUT --dtype float16|bfloat16|int8|float32");
        return CLI_USAGE;
    }
    if (cli_context(&context, args) != CLI_OK)
        return CLI_FAILED;
    result = convert(context, args);
    gpuserve_context_unref(&context);
    return result;
}
