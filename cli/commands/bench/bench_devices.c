/*
 * bench_devices.c - the second table of `gpuserve bench --lstm`: a classifier's accuracy on
 * labelled texts, on every device and with two instruction sets of the CPU. The device does not
 * change it.
 */
#include "cli/commands/bench/bench.h"
#include "cli/cli.h"
#include "cli/fit/fit.h"
#include "cli/model.h"

#include <stdlib.h>
#include <string.h>

struct labelled {
    struct fit_set set;
    struct fit_labels labels;
};

static int read_texts(struct labelled *data, const struct cli_args *args)
{
    struct fit_set *sets[] = { &data->set };

    if (!args->input)
        return cli_usage("bench --lstm with --model needs --input, a file of labelled texts");
    if (cli_fit_read(&data->set, &data->labels, args->input, args) != CLI_OK)
        return CLI_FAILED;
    if (data->set.n == 0)
        return cli_fail("%s: the file has no texts", args->input);
    return cli_fit_order_labels(&data->labels, sets, 1, &args->label_names);
}

static void add_row(json_t *table, const char *name, const struct labelled *data,
                    const int32_t *map, const int32_t *found, const int32_t *first)
{
    size_t right = 0, different = 0;

    for (size_t i = 0; i < data->set.n; i++) {
        right += found[i] == map[data->set.labels[i]];
        different += found[i] != first[i];
    }
    json_array_append_new(table, json_pack("{s:s, s:I, s:f, s:I}", "path", name, "texts",
                                           (json_int_t)data->set.n, "accuracy",
                                           (double)right / (double)data->set.n, "different",
                                           (json_int_t)different));
}

/* Opens the model on one device; NULL without a message if the device does not exist. */
static gpuserve_model *open_on(const char *device, const struct cli_args *args, int *result)
{
    struct cli_args on = *args;
    gpuserve_compute_options options = GPUSERVE_COMPUTE_OPTIONS_INIT;
    gpuserve_compute *compute = NULL;
    gpuserve_model *model = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    options.device = device;
    if (gpuserve_compute_open(&compute, NULL, &options, &error) != GPUSERVE_OK)
        return NULL;
    gpuserve_compute_close(&compute);
    on.device = device;
    *result = cli_model_open(&model, &on);
    return model;
}

int cli_bench_devices(const struct cli_args *args, json_t *table)
{
    static const struct {
        const char *name, *device, *isa;
    } devices[] = {
        { "CPU", "cpu", NULL },
        { "CPU, generic instructions", "cpu", "generic" },
        { "CUDA", "cuda:0", NULL },
    };
    struct labelled *data = cli_alloc(1, sizeof(*data));
    int result = read_texts(data, args);
    int32_t *found = cli_alloc(2 * data->set.n + 1, sizeof(*found)), *first = found + data->set.n;
    int32_t *map = cli_alloc(FIT_LABELS, sizeof(*map));

    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]) && result == CLI_OK; i++) {
        char *kept = cli_limit_isa(devices[i].isa);
        gpuserve_model *model = open_on(devices[i].device, args, &result);

        cli_restore_isa(devices[i].isa, kept);
        if (!model) {
            cli_lesson_row(table, devices[i].name, -1, "no such device");
            continue;
        }
        result = cli_fit_map_labels(map, &data->labels, model);
        if (result == CLI_OK)
            result = cli_fit_classify(found, &data->set, model, args);
        if (i == 0)
            memcpy(first, found, data->set.n * sizeof(*first));
        if (result == CLI_OK)
            add_row(table, devices[i].name, data, map, found, first);
        gpuserve_model_close(&model);
    }
    cli_fit_set_free(&data->set);
    cli_fit_labels_free(&data->labels);
    free(data);
    free(found);
    free(map);
    return result;
}
