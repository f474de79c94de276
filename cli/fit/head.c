/*
 * head.c - writes a head: a safetensors file of `weight` [n_labels, dim] and `bias` [n_labels].
 *
 * Tensors are float32. Labels, activation and provenance are strings in the metadata; docs/heads.md
 * describes the format. The file appears under its name only when complete (io/output.c).
 */
#include "cli/fit/fit.h"
#include "cli/io/output.h"

#include <jansson.h>

#include <stdlib.h>
#include <string.h>

static void set_text(json_t *object, const char *key, const char *text)
{
    json_object_set_new(object, key, json_string(text));
}

static void set_number(json_t *object, const char *key, double number)
{
    char text[32];

    snprintf(text, sizeof(text), "%.6g", number);
    set_text(object, key, text);
}

/* How C was chosen. */
static void set_selection(json_t *object, const struct fit_origin *origin)
{
    const struct fit_selection *selection = origin->selection;

    set_text(object, "C_selection", selection->method);
    if (!selection->folds.n)
        return;
    set_number(object, "n_folds", (double)selection->folds.n);
    set_number(object, "seed", (double)origin->seed);
}

/* Fields that a reader needs, then the provenance. Safetensors metadata values are strings. */
static json_t *metadata(const struct fit_labels *labels, const struct fit_origin *origin)
{
    json_t *object = json_object(), *names = json_array();
    char *text;

    for (size_t i = 0; i < labels->n; i++)
        json_array_append_new(names, json_string(labels->items[i].name));
    text = json_dumps(names, JSON_COMPACT);
    set_text(object, "labels", text);
    free(text);
    json_decref(names);
    set_text(object, "activation", "softmax");
    set_text(object, "input", "normalized");
    set_text(object, "made_by", "gpuserve fit");
    set_text(object, "gpuserve_version", gpuserve_version());
    set_text(object, "model_fingerprint", origin->fingerprint);
    set_text(object, "provenance", origin->data);
    set_number(object, "C", origin->selection->c);
    set_selection(object, origin);
    set_number(object, "n_train", (double)origin->n_train);
    set_number(object, "train_accuracy", origin->train_accuracy);
    if (origin->n_validation) {
        set_number(object, "n_validation", (double)origin->n_validation);
        set_number(object, "validation_accuracy", origin->validation_accuracy);
    }
    if (origin->n_test) {
        set_number(object, "n_test", (double)origin->n_test);
        set_number(object, "test_accuracy", origin->test_accuracy);
    }
    return object;
}

static json_t *tensor(size_t rows, size_t columns, size_t begin, size_t end)
{
    json_t *shape = columns ? json_pack("[I, I]", (json_int_t)rows, (json_int_t)columns)
                            : json_pack("[I]", (json_int_t)rows);

    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)end);
}

/* Header as JSON, padded with spaces so that the data begins at a multiple of 8 bytes. Owned. */
static char *header_text(const struct fit_head *head, const struct fit_labels *labels,
                         const struct fit_origin *origin)
{
    const size_t n_weights = head->n_labels * head->dim;
    json_t *header =
        json_pack("{s:o, s:o, s:o}", "__metadata__", metadata(labels, origin), "weight",
                  tensor(head->n_labels, head->dim, 0, 4 * n_weights), "bias",
                  tensor(head->n_labels, 0, 4 * n_weights, 4 * (n_weights + head->n_labels)));
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL, *padded = NULL;

    json_decref(header);
    if (text)
        padded = cli_format("%s%*s", text, (int)(-strlen(text) & 7), "");
    free(text);
    return padded;
}

static int write_head(struct cli_output *output, const struct fit_head *head, const char *header)
{
    const size_t n = head->n_labels * (head->dim + 1);
    const uint64_t size = strlen(header); /* little-endian, like all supported machines */

    fwrite(&size, sizeof(size), 1, output->stream);
    fwrite(header, 1, size, output->stream);
    for (size_t i = 0; i < n; i++) {
        const float value = (float)head->weight[i];

        fwrite(&value, sizeof(value), 1, output->stream);
    }
    return cli_output_check(output);
}

int cli_fit_save(const char *path, const struct fit_head *head, const struct fit_labels *labels,
                 const struct fit_origin *origin)
{
    struct cli_output output;
    char *header = header_text(head, labels, origin);
    int result;

    if (!header)
        return cli_fail("%s: a label is not UTF-8", path);
    result = cli_output_open(&output, path);
    if (result == CLI_OK)
        result = write_head(&output, head, header);
    if (result == CLI_OK)
        result = cli_output_finish(&output);
    cli_output_abandon(&output);
    free(header);
    return result;
}
