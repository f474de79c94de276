/*
 * adapters.c - finds the LoRA adapters of a checkpoint and names them as prompts.
 *
 * A weight X of such a checkpoint is X.parametrizations.weight.original, and the adapters of it are
 * X.parametrizations.weight.0.lora_A and lora_B, whose first dimension is the adapter. A linear has
 * A [rank, k] and B [n, rank]; a table A [rows, rank] and B [rank, k].
 */
#include "lib/model/weights/adapters.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SUM_ELEMENTS ((int64_t)1 << 24) /* of a table of types: 64 MiB of float32 */

gpuserve_status gsv_check_adapters(const struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_config *config = &spec->config;

    if (spec->adapter_files)
        return gsv_adapter_files_check(spec, error);
    if (config->adapters.n == 0)
        return GPUSERVE_OK;
    if (!spec->names->qkv || spec->names->projection || config->is_gated || spec->facts.is_sparse)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: \"lora_adaptations\" in config.json next to it is not supported for "
                        "these tensors or this class",
                        gsv_weight_file_name(spec->weights.files[0]));
    if ((int64_t)config->type_vocab_size * config->embedding_size > MAX_SUM_ELEMENTS)
        return gsv_fail(
            error, GPUSERVE_E_TOO_LARGE,
            "%s: \"lora_adaptations\" in config.json next to it with a table of %d types "
            "of %d columns; the limit is %d elements",
            gsv_weight_file_name(spec->weights.files[0]), config->type_vocab_size,
            config->embedding_size, (int)MAX_SUM_ELEMENTS);
    return GPUSERVE_OK;
}

/* Matrix `adapter`, from 0, of the tensor NAME SUFFIX with the shape [adapters, rows, cols]. */
static gpuserve_status find_matrix(const struct gsv_collector *c, struct gsv_tensor *matrix,
                                   const char *name, const char *suffix, size_t adapter,
                                   int32_t rows, int32_t cols)
{
    const struct gsv_adapters *adapters = &c->spec->config.adapters;
    char full[GSV_TENSOR_NAME_BYTES];

    if (!gsv_lookup(c, matrix, name, suffix, full))
        return gsv_fail(c->error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is missing",
                        gsv_weight_file_name(c->from->files[0]), full);
    if (matrix->rank != 3 || matrix->shape[0] != adapters->n ||
        matrix->shape[1] != (uint64_t)rows || matrix->shape[2] != (uint64_t)cols)
        return gsv_fail(c->error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%s' has rank %llu and %llu elements, expected shape "
                        "[%zu, %d, %d]",
                        gsv_weight_file_name(matrix->file), matrix->name,
                        (unsigned long long)matrix->rank, (unsigned long long)matrix->count,
                        adapters->n, rows, cols);
    matrix->rank = 2;
    matrix->shape[0] = (uint64_t)rows;
    matrix->shape[1] = (uint64_t)cols;
    matrix->count = (uint64_t)rows * (uint64_t)cols;
    matrix->size_bytes = gsv_tensor_bytes(matrix->type, matrix->count);
    matrix->offset += adapter * matrix->size_bytes;
    return gsv_check_tensor(matrix, (uint64_t)rows, (uint64_t)cols, c->error);
}

#define SUFFIX_A ".parametrizations.weight.0.lora_A"
#define SUFFIX_B ".parametrizations.weight.0.lora_B"

/* An activation follows the sum, so the linear cannot apply it: the sum becomes the gates of a
 * gated linear unit, and the rows beyond those of B are its values, all 1. */
gpuserve_status gsv_add_linear_adapters(const struct gsv_collector *c, const char *name)
{
    const struct gsv_adapters *adapters = &c->spec->config.adapters;
    const struct gsv_weight of = c->spec->items[c->spec->n_items - 1];
    const int32_t n_ones = of.activation == GPUSERVE_ACT_NONE ? 0 : of.n;
    gpuserve_status st = GPUSERVE_OK;

    if (c->spec->adapter_files)
        return gsv_adapter_files_add(c);
    for (size_t i = 0; i < adapters->n && st == GPUSERVE_OK; i++) {
        struct gsv_weight *a = gsv_add_item(c->spec, GSV_ITEM_LINEAR_PLAIN, adapters->rank, of.k);
        struct gsv_weight *b =
            gsv_add_item(c->spec, GSV_ITEM_LINEAR_PLAIN, of.n + n_ones, adapters->rank);

        b->rows[0] = of.n;
        b->n_ones = n_ones;
        b->scale = adapters->scale;
        st = find_matrix(c, &a->weight[0], name, SUFFIX_A, i, adapters->rank, of.k);
        if (st == GPUSERVE_OK)
            st = find_matrix(c, &b->weight[0], name, SUFFIX_B, i, of.n, adapters->rank);
    }
    return st;
}

gpuserve_status gsv_add_word_adapters(const struct gsv_collector *c)
{
    const struct gsv_adapters *adapters = &c->spec->config.adapters;
    const char *name = c->spec->names->word;
    const struct gsv_weight of = c->spec->items[c->spec->n_items - 1];
    gpuserve_status st = GPUSERVE_OK;

    if (c->spec->adapter_files)
        return gsv_adapter_files_add_words(c);
    for (size_t i = 0; i < adapters->n && st == GPUSERVE_OK; i++) {
        struct gsv_weight *a = gsv_add_item(c->spec, GSV_ITEM_TABLE, of.n, adapters->rank);
        struct gsv_weight *b = gsv_add_item(c->spec, GSV_ITEM_LINEAR_PLAIN, of.k, adapters->rank);

        b->scale = adapters->scale;
        b->transposed = true;
        st = find_matrix(c, &a->weight[0], name, SUFFIX_A, i, of.n, adapters->rank);
        if (st == GPUSERVE_OK)
            st = find_matrix(c, &b->weight[0], name, SUFFIX_B, i, adapters->rank, of.k);
    }
    return st;
}

gpuserve_status gsv_add_type_adapters(const struct gsv_collector *c)
{
    const struct gsv_adapters *adapters = &c->spec->config.adapters;
    const char *name = c->spec->names->type;
    const struct gsv_weight of = c->spec->items[c->spec->n_items - 1];
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0;
         i < adapters->n && adapters->types && c->spec->type >= 0 && st == GPUSERVE_OK; i++) {
        struct gsv_weight *sum = gsv_add_item(c->spec, GSV_ITEM_SUM_TABLE, of.n, of.k);

        sum->scale = adapters->scale;
        sum->weight[0] = of.weight[0];
        st = find_matrix(c, &sum->weight[1], name, SUFFIX_A, i, of.n, adapters->rank);
        if (st == GPUSERVE_OK)
            st = find_matrix(c, &sum->weight[2], name, SUFFIX_B, i, adapters->rank, of.k);
    }
    return st;
}

/* -------------------------------------------------------------------------------------- prompts */

static gpuserve_status add_prompt(struct gsv_modules *modules, const char *name, const char *text)
{
    struct gsv_prompt *prompts = gsv_alloc_array(modules->n_prompts + 1, sizeof(*prompts));
    struct gsv_prompt *prompt;

    if (!prompts)
        return GPUSERVE_E_NOMEM;
    if (modules->n_prompts > 0)
        memcpy(prompts, modules->prompts, modules->n_prompts * sizeof(*prompts));
    free(modules->prompts);
    modules->prompts = prompts;
    prompt = &prompts[modules->n_prompts++];
    prompt->name = gsv_copy_text(name, strlen(name));
    prompt->text = gsv_copy_text(text, strlen(text));
    return prompt->name && prompt->text ? GPUSERVE_OK : GPUSERVE_E_NOMEM;
}

gpuserve_status gsv_add_adapter_prompts(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_adapters *adapters = &spec->config.adapters;
    struct gsv_modules *modules = &spec->modules;

    for (size_t i = 0; i < adapters->n; i++) {
        size_t at = 0;

        while (at < modules->n_prompts && strcmp(modules->prompts[at].name, adapters->names[i]))
            at++;
        if (at == modules->n_prompts &&
            add_prompt(modules, adapters->names[i], adapters->texts[i]) != GPUSERVE_OK)
            return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the prompts");
        modules->prompts[at].adapter = (int32_t)i + 1;
    }
    return GPUSERVE_OK;
}

/* -------------------------------------------------------------------------------------- loading */

/* rows += scale * a b */
static void add_product(float *rows, const float *a, const float *b, const struct gsv_weight *item,
                        int32_t rank)
{
    const size_t n = (size_t)item->n, k = (size_t)item->k;

    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < k; j++) {
            float sum = 0.0f;

            for (size_t r = 0; r < (size_t)rank; r++)
                sum += a[i * (size_t)rank + r] * b[r * k + j];
            rows[i * k + j] += item->scale * sum;
        }
    }
}

gpuserve_status gsv_load_sum_table(const struct gsv_net *net, struct gsv_reader *reader,
                                   size_t index, gpuserve_error *error)
{
    const struct gsv_weight *item = &net->spec->items[index];
    const int32_t rank = net->spec->config.adapters.rank;
    const size_t elements = (size_t)item->n * (size_t)item->k;
    float *a = gsv_alloc_array((size_t)rank, ((size_t)item->n + (size_t)item->k) * sizeof(float));
    gpuserve_status st =
        a ? gsv_read_tensor(reader, item, 0, reader->floats, error)
          : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the adapters of a table");

    if (st == GPUSERVE_OK)
        st = gsv_read_tensor(reader, item, 1, a, error);
    if (st == GPUSERVE_OK)
        st = gsv_read_tensor(reader, item, 2, a + (size_t)rank * (size_t)item->n, error);
    if (st == GPUSERVE_OK) {
        add_product(reader->floats, a, a + (size_t)rank * (size_t)item->n, item, rank);
        st = net->backend->memory_write_table(net->device, net->addresses[index], reader->floats,
                                              elements, net->dtype, error);
    }
    free(a);
    return st;
}
