/*
 * doctor.c - `gpuserve doctor`: the layers of the GPU stack, the first cause of a failure first.
 *
 * The library returns one JSON object (gpuserve_context_doctor); --json prints it. Otherwise the
 * verdict with its remedy comes first, then a table of the layers, then the facts of this machine.
 * The exit status is 0, or that of the layer that is the cause.
 */
#include "cli/io/output.h"
#include "cli/model.h"

#include <stdio.h>
#include <string.h>

struct doctor_request {
    gpuserve_context *context;
    gpuserve_doctor_options options;
};

static gpuserve_status doctor_text(void *of, const char *name, char *text, size_t capacity,
                                   size_t *size, gpuserve_error *error)
{
    struct doctor_request *const request = of;

    (void)name;
    return gpuserve_context_doctor(request->context, &request->options, text, capacity, size,
                                   error);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static void print_layer(const json_t *layer)
{
    const json_t *findings = json_object_get(layer, "findings");
    const char *const path = text_of(layer, "path"), *const version = text_of(layer, "version");

    printf("%-14s %-8s %s%s%s\n", text_of(layer, "layer"), text_of(layer, "verdict"), version,
           path[0] && version[0] ? "  " : "", path);
    for (size_t i = 0; i < json_array_size(findings); i++) {
        const json_t *finding = json_array_get(findings, i);

        printf("%-23s %s\n", "", text_of(finding, "finding"));
        if (text_of(finding, "remedy")[0])
            printf("%-23s remedy: %s\n", "", text_of(finding, "remedy"));
    }
}

static void print_stack(const json_t *stack)
{
    const json_t *layers = json_object_get(stack, "layers");

    puts(text_of(stack, "verdict"));
    if (text_of(stack, "remedy")[0])
        printf("remedy: %s\n", text_of(stack, "remedy"));
    putchar('\n');
    for (size_t i = 0; i < json_array_size(layers); i++)
        print_layer(json_array_get(layers, i));
    putchar('\n');
}

static int print_facts(json_t *facts, bool as_json)
{
    const json_t *stack = json_object_get(facts, "stack");
    const int status = (int)json_integer_value(json_object_get(stack, "exit_status"));
    int result;

    if (!as_json) {
        print_stack(stack);
        json_object_del(facts, "stack");
    }
    result = cli_facts_print(facts, as_json);
    return result == CLI_OK ? status : result;
}

int cli_doctor(const struct cli_args *args)
{
    struct doctor_request request = { .options = GPUSERVE_DOCTOR_OPTIONS_INIT };
    json_t *facts;

    if (args->n_rest)
        return cli_usage("doctor does not accept arguments");
    if (cli_context(&request.context, args) != CLI_OK)
        return CLI_FAILED;
    request.options.root = args->root;
    request.options.device = args->device;
    facts = cli_facts_parse(cli_text_of(doctor_text, &request, NULL));
    gpuserve_context_unref(&request.context);
    return facts ? print_facts(facts, args->json) : CLI_FAILED;
}
