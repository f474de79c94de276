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

#define BATCH 1000

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

/* Writes the label with the highest score of each text. */
static int classify(gpuserve_model *model, const struct fit_set *set, int32_t *found)
{
    const size_t n_labels = gpuserve_model_label_count(model);
    const char *texts[BATCH];
    size_t sizes[BATCH];
    float *scores = cli_alloc(BATCH * n_labels, sizeof(*scores));
    int result = CLI_OK;

    for (size_t first = 0; first < set->n && result == CLI_OK; first += BATCH) {
        const size_t n = set->n - first < BATCH ? set->n - first : BATCH;
        gpuserve_job job = GPUSERVE_JOB_INIT;
        gpuserve_error error = GPUSERVE_ERROR_INIT;

        for (size_t i = 0; i < n; i++) {
            texts[i] = set->bytes + set->offsets[first + i];
            sizes[i] = set->offsets[first + i + 1] - set->offsets[first + i];
        }
        job.task = GPUSERVE_TASK_CLASSIFY;
        job.n_items = n;
        job.texts = texts;
        job.text_sizes = sizes;
        job.output = scores;
        job.output_capacity = n * n_labels;
        if (gpuserve_run(model, &job, &error) != GPUSERVE_OK)
            result = cli_fail_with(&error, NULL);
        for (size_t i = 0; i < n && result == CLI_OK; i++) {
            found[first + i] = 0;
            for (size_t j = 1; j < n_labels; j++)
                if (scores[i * n_labels + j] > scores[i * n_labels + (size_t)found[first + i]])
                    found[first + i] = (int32_t)j;
        }
    }
    free(scores);
    return result;
}

/* The index of each label of the data among the model's labels. */
static int map_labels(const gpuserve_model *model, const struct fit_labels *labels, int32_t *map)
{
    const size_t n = gpuserve_model_label_count(model);

    for (size_t i = 0; i < labels->n; i++) {
        map[i] = -1;
        for (size_t j = 0; j < n; j++)
            if (strcmp(gpuserve_model_label(model, j), labels->names[i]) == 0)
                map[i] = (int32_t)j;
        if (map[i] < 0) {
            cli_fail("the model has no label \"%s\"", labels->names[i]);
            cli_hint("name the labels of the data as the model does: --label-name OLD=NEW");
            return CLI_FAILED;
        }
    }
    return CLI_OK;
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
        result = map_labels(model, &data->labels, map);
        if (result == CLI_OK)
            result = classify(model, &data->set, found);
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
