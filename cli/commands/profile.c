/*
 * profile.c - `gpuserve profile`: time of a model by stage, layer and matrix product.
 *
 * The library measures and returns one JSON object. --json prints it, otherwise it is printed as
 * tables. --trace writes its trace to a separate file.
 */
#include "cli/io/output.h"
#include "cli/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double real_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static void print_rate(const json_t *row)
{
    if (json_object_get(row, "gflops"))
        printf(" %10.1f", real_of(row, "gflops"));
    if (json_object_get(row, "of_peak"))
        printf(" %8.0f%%", real_of(row, "of_peak") * 100);
    putchar('\n');
}

static void print_stages(const json_t *profile)
{
    const json_t *stages = json_object_get(profile, "stages");

    printf("%-18s %10s %7s %6s %10s %9s\n", "stage", "us", "share", "calls", "GFLOP/s", "of peak");
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *stage = json_array_get(stages, i);

        printf("%-18s %10.1f %6.1f%% %6lld", text_of(stage, "stage"), real_of(stage, "us"),
               real_of(stage, "share") * 100,
               (long long)json_integer_value(json_object_get(stage, "calls")));
        print_rate(stage);
    }
    printf("%-18s %10.1f\n\n", "all", real_of(profile, "us"));
}

static void print_layers(const json_t *profile)
{
    const json_t *layers = json_object_get(profile, "layers");

    fputs("layers, us:", stdout);
    for (size_t i = 0; i < json_array_size(layers); i++)
        printf("%s%.1f",
               i % 12 ? "  "
               : i    ? "\n            "
                      : " ",
               real_of(json_array_get(layers, i), "us"));
    puts("\n");
}

static void print_products(const json_t *profile)
{
    const json_t *products = json_object_get(profile, "products");

    printf("%-18s %7s %8s %7s %6s %10s %9s\n", "product", "rows", "columns", "inner", "calls",
           "GFLOP/s", "of peak");
    for (size_t i = 0; i < json_array_size(products); i++) {
        const json_t *p = json_array_get(products, i);

        printf("%-18s %7lld %8lld %7lld %6lld", text_of(p, "stage"),
               (long long)json_integer_value(json_object_get(p, "rows")),
               (long long)json_integer_value(json_object_get(p, "columns")),
               (long long)json_integer_value(json_object_get(p, "inner")),
               (long long)json_integer_value(json_object_get(p, "calls")));
        print_rate(p);
    }
    putchar('\n');
}

static void print_tables(const json_t *profile)
{
    const json_t *memory = json_object_get(profile, "memory"), *bytes;
    const char *purpose;

    printf(
        "%s on %s (%s, %s), %s, %lld threads: %lld texts, %lld tokens, median of %lld rounds\n\n",
        text_of(profile, "model"), text_of(profile, "device"), text_of(profile, "device_name"),
        text_of(profile, "isa"), text_of(profile, "dtype"),
        (long long)json_integer_value(json_object_get(profile, "threads")),
        (long long)json_integer_value(json_object_get(profile, "texts")),
        (long long)json_integer_value(json_object_get(profile, "tokens")),
        (long long)json_integer_value(json_object_get(profile, "rounds")));
    print_stages(profile);
    print_layers(profile);
    print_products(profile);
    printf("peak of square products: %.1f GFLOP/s; times are %s\n\nmemory, MiB:",
           real_of(profile, "peak_gflops"),
           strcmp(text_of(profile, "timing"), "operations") == 0
               ? "of each operation"
               : "difference of batch times with and without the stage");
    json_object_foreach((json_t *)memory, purpose, bytes)
        printf("  %.*s %.1f", (int)(strlen(purpose) - strlen("_bytes")), purpose,
               json_number_value(bytes) / (1 << 20));
    putchar('\n');
}

/* Writes only the trace, in the format that trace viewers read. */
static int write_trace(const json_t *profile, const char *path)
{
    FILE *file = fopen(path, "w");
    int failed;

    if (!file)
        return cli_fail("%s: %s", path, strerror(errno));
    failed = json_dumpf(json_object_get(profile, "trace"), file,
                        JSON_COMPACT | JSON_REAL_PRECISION(12)) != 0;
    failed |= fclose(file) != 0;
    return failed ? cli_fail("%s: %s", path, strerror(errno)) : CLI_OK;
}

static void take_text(void *user, const char *text, size_t size)
{
    *(char **)user = cli_copy(text, size);
}

static int profile(gpuserve_context *context, const char *model, const struct cli_args *args)
{
    const gpuserve_model_options options = cli_model_options(args);
    gpuserve_profile_options how = GPUSERVE_PROFILE_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char *text = NULL;
    json_t *facts;
    int result = CLI_OK;

    how.text_tokens = args->text_tokens;
    how.n_texts = args->texts;
    how.rounds = args->rounds;
    how.timing = args->timing;
    how.trace = args->trace != NULL;
    if (gpuserve_model_profile(context, model, &options, &how, take_text, &text, &error) !=
        GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    facts = cli_facts_parse(text);
    if (!facts)
        return CLI_FAILED;
    if (args->trace)
        result = write_trace(facts, args->trace);
    json_object_del(facts, "trace");
    if (result != CLI_OK || !args->json) {
        if (result == CLI_OK)
            print_tables(facts);
        json_decref(facts);
        return result;
    }
    return cli_facts_print(facts, true);
}

int cli_profile(const struct cli_args *args)
{
    const char *model = args->n_rest == 1 ? args->rest[0] : args->model;
    gpuserve_context *context;
    int result;

    if (!model || args->n_rest > 1 || (args->n_rest && args->model)) {
        cli_usage("profile needs one model");
        cli_hint("usage: gpuserve profile MODEL; MODEL is a directory or a name in the Hugging "
                 "Face cache");
        return CLI_USAGE;
    }
    if (cli_context(&context, args) != CLI_OK)
        return CLI_FAILED;
    result = profile(context, model, args);
    gpuserve_context_unref(&context);
    return result;
}
