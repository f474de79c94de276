/*
 * prune.c - `gpuserve prune`: a model's directory with weights set to zero, and what that costs.
 *
 *   gpuserve_convert() -> accuracy, size -> bench of both directories -> speed
 *
 * The size without the zeros is an estimate: the values that remain, and a bit for each value. The
 * files stay dense, so their size and the speed do not change.
 */
#include "cli/commands/bench/bench.h"
#include "cli/commands/convert.h"
#include "cli/io/output.h"
#include "cli/model.h"

#include <stdio.h>

#define N_TEXTS 200
#define MAX_TOKENS 256

/* Texts a second of a model on this machine; 0 for a model without embeddings. */
static int measure(gpuserve_context *context, const struct cli_args *args, const char *path,
                   double *rate)
{
    const gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct cli_bench bench = { .args = args };
    int result;

    *rate = 0;
    if (gpuserve_model_open(&bench.model, context, path, &options, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    if (gpuserve_model_dim(bench.model) == 0) { /* nothing that bench runs */
        gpuserve_model_close(&bench.model);
        return CLI_OK;
    }
    result = cli_bench_prepare(&bench);
    if (result == CLI_OK)
        result = cli_bench_add_mixed(&bench, N_TEXTS, MAX_TOKENS);
    if (result == CLI_OK)
        result = cli_bench_measure(&bench);
    if (result == CLI_OK)
        *rate = cli_bench_rate(&bench);
    cli_bench_end(&bench);
    gpuserve_model_close(&bench.model);
    return result;
}

/* Bytes of the tensors if the pruned ones were stored as a bit for each value, and the values that
 * are not zero. */
static double sparse_bytes(const gpuserve_convert_report *r)
{
    const double value = r->dtype == GPUSERVE_DTYPE_INT8      ? 1
                         : r->dtype == GPUSERVE_DTYPE_FLOAT32 ? 4
                                                              : 2;

    return (double)r->bytes_after - (double)r->zero_values * value + (double)r->pruned_values / 8;
}

static json_t *facts_of(const gpuserve_convert_report *r, const struct cli_args *args,
                        const double rates[2])
{
    json_t *facts = cli_convert_facts(r, args->rest[1]);

    if (!facts)
        return NULL;
    json_object_set_new(facts, "pruning",
                        args->prune == GPUSERVE_PRUNE_2_4 ? json_string("2:4")
                                                          : json_sprintf("%u %%", args->prune));
    json_object_set_new(facts, "tensors_pruned", json_integer((json_int_t)r->n_pruned));
    json_object_set_new(facts, "pruned_values", json_integer((json_int_t)r->pruned_values));
    json_object_set_new(facts, "zero_values", json_integer((json_int_t)r->zero_values));
    json_object_set_new(facts, "bytes_without_zeros", json_integer((json_int_t)sparse_bytes(r)));
    json_object_set_new(facts, "texts_per_s_before",
                        rates[0] > 0 ? json_real(rates[0]) : json_null());
    json_object_set_new(facts, "texts_per_s_after",
                        rates[1] > 0 ? json_real(rates[1]) : json_null());
    return facts;
}

static int prune(gpuserve_context *context, const struct cli_args *args)
{
    gpuserve_convert_report report = GPUSERVE_CONVERT_REPORT_INIT;
    double rates[2] = { 0, 0 };
    json_t *facts;
    int result = cli_convert_run(context, args, &report);

    for (int i = 0; i < 2 && result == CLI_OK; i++)
        result = measure(context, args, args->rest[i], &rates[i]);
    if (result != CLI_OK)
        return result;
    facts = facts_of(&report, args, rates);
    return facts ? cli_facts_print(facts, args->json)
                 : cli_fail("%s: the path is not UTF-8", args->rest[1]);
}

int cli_prune(const struct cli_args *args)
{
    gpuserve_context *context;
    int result;

    if (args->n_rest != 2 || !args->prune) {
        cli_usage(args->n_rest != 2 ? "prune needs a model and an output directory"
                                    : "--percent or --pattern is missing");
        cli_hint("usage: gpuserve prune MODEL OUTPUT --percent N, or --pattern 2:4");
        return CLI_USAGE;
    }
    if (cli_context(&context, args) != CLI_OK)
        return CLI_FAILED;
    result = prune(context, args);
    gpuserve_context_unref(&context);
    return result;
}
