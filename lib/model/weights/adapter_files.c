/*
 * adapter_files.c - LoRA adapters in directories of their own, chosen by run.
 *
 *   directory -> gsv_lora_open(): factors of each tensor -> A and B of each item of the encoder
 *
 * An item stacks several tensors, such as query, key and value: A stacks the right factors, and B
 * has the left ones as blocks on its diagonal. A and B are tensors in memory.
 */
#include "lib/model/weights/adapters.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/formats/lora.h"

#include <stdlib.h>
#include <string.h>

/* Ranks are rounded up with zeros: rows of factors are aligned for vectors and tensor cores. */
#define RANK_STEP 16

struct gsv_adapter_files {
    struct gsv_weight_file file;                        /* first: has the tensors in memory */
    struct gsv_weight_file *adapters[GSV_MAX_ADAPTERS]; /* closed by gsv_adapter_files_finish() */
    size_t n;
    float **values; /* [n_values] owned */
    size_t n_values, capacity;
    uint64_t bytes; /* of the values */
};

/* ------------------------------------------------------------------------------ file in memory */

/* The offset of a tensor is the address of its values. */
static gpuserve_status fetch(const struct gsv_tensor *tensor, uint64_t first, size_t n, void *raw,
                             gpuserve_error *error)
{
    const float *values = (const float *)(uintptr_t)tensor->offset;

    memcpy(raw, values + first, n * sizeof(*values));
    (void)error;
    return GPUSERVE_OK;
}

static bool find_none(const struct gsv_weight_file *file, const char *name,
                      struct gsv_tensor *tensor)
{
    (void)file;
    (void)name;
    (void)tensor;
    return false;
}

static bool at_none(const struct gsv_weight_file *file, size_t i, struct gsv_tensor *tensor)
{
    (void)file;
    (void)i;
    (void)tensor;
    return false;
}

static const struct gsv_weight_format memory_format = { "LoRA", find_none, at_none, NULL, fetch };

/* Zeros, [rows, columns], as a tensor for an item. NULL: out of memory. */
static float *add_matrix(struct gsv_adapter_files *files, struct gsv_tensor *tensor,
                         const char *name, size_t rows, size_t columns)
{
    float *values;

    if (!gsv_grow((void **)&files->values, &files->capacity, files->n_values + 1, sizeof(float *),
                  (size_t)1 << 24))
        return NULL;
    values = gsv_alloc_array(rows * columns, sizeof(*values));
    if (!values)
        return NULL;
    files->values[files->n_values++] = values;
    files->bytes += rows * columns * sizeof(*values);
    *tensor = (struct gsv_tensor){
        .name = name,
        .file = &files->file,
        .type = GSV_TENSOR_F32,
        .type_name = "F32",
        .rank = 2,
        .shape = { rows, columns },
        .count = rows * columns,
        .offset = (uint64_t)(uintptr_t)values,
        .size_bytes = rows * columns * sizeof(*values),
    };
    return values;
}

/* -------------------------------------------------------------------------------------- opening */

static void close_adapters(struct gsv_adapter_files *files)
{
    for (size_t i = 0; i < files->n; i++)
        gsv_weight_file_close(&files->adapters[i]);
}

void gsv_adapter_files_close(struct gsv_spec *spec)
{
    struct gsv_adapter_files *files = spec->adapter_files;

    if (!files)
        return;
    close_adapters(files);
    for (size_t i = 0; i < files->n_values; i++)
        free(files->values[i]);
    free(files->values);
    free(files);
    spec->adapter_files = NULL;
}

static gpuserve_status copy_names(struct gsv_adapters *adapters,
                                  const struct gsv_adapter_dirs *dirs, gpuserve_error *error)
{
    adapters->names = gsv_alloc_array(dirs->n, sizeof(*adapters->names));
    adapters->texts = gsv_alloc_array(dirs->n, sizeof(*adapters->texts));
    if (!adapters->names || !adapters->texts)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu adapters", dirs->n);
    adapters->n = dirs->n;
    for (size_t i = 0; i < dirs->n; i++) {
        adapters->names[i] = gsv_copy_text(dirs->names[i], strlen(dirs->names[i]));
        adapters->texts[i] = gsv_copy_text("", 0);
        if (!adapters->names[i] || !adapters->texts[i])
            return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu adapters", dirs->n);
    }
    return GPUSERVE_OK;
}

static gpuserve_status open_one(struct gsv_spec *spec, const struct gsv_dir *dir, size_t i,
                                gpuserve_error *error)
{
    struct gsv_weight_file **file = &spec->adapter_files->adapters[i];
    struct gsv_lora_facts facts;
    gpuserve_status st = gsv_lora_open(file, dir, &spec->weights, error);

    if (st != GPUSERVE_OK)
        return st;
    spec->adapter_files->n++;
    gsv_lora_read_facts(*file, &facts);
    if (facts.has_magnitudes)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      "%s/" GSV_LORA_CONFIG ": \"use_dora\" is not supported by request",
                      gsv_dir_path(dir));
    else if (facts.n_whole > 0)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      "%s: the adapter has %zu whole tensors, such as a classifier or biases",
                      gsv_dir_path(dir), facts.n_whole);
    if (st == GPUSERVE_OK)
        return st;
    return gsv_hint(error, st, "load the adapter's directory as a model of its own");
}

gpuserve_status gsv_adapter_files_open(struct gsv_spec *spec, const struct gsv_adapter_dirs *dirs,
                                       gpuserve_error *error)
{
    gpuserve_status st;

    if (spec->config.adapters.n > 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: the model has LoRA adapters of its own and takes no others",
                        gsv_weight_file_name(spec->weights.files[0]));
    spec->adapter_files = gsv_alloc_array(1, sizeof(*spec->adapter_files));
    if (!spec->adapter_files)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu adapters", dirs->n);
    spec->adapter_files->file.format = &memory_format;
    spec->adapter_files->file.fd = -1;
    spec->adapter_files->file.shown = spec->weights.files[0]->shown; /* borrowed */
    st = copy_names(&spec->config.adapters, dirs, error);
    for (size_t i = 0; i < dirs->n && st == GPUSERVE_OK; i++)
        st = open_one(spec, dirs->dirs[i], i, error);
    return st;
}

uint64_t gsv_adapter_files_bytes(const struct gsv_spec *spec)
{
    return spec->adapter_files ? spec->adapter_files->bytes : 0;
}

/* ---------------------------------------------------------------------------------------- items */

/* True if an adapter targets a tensor of this name. */
static bool is_targeted(const struct gsv_adapter_files *files, const struct gsv_tensor *tensor)
{
    struct gsv_lora_factors factors;

    for (size_t i = 0; i < files->n; i++)
        if (gsv_lora_factors(files->adapters[i], tensor, &factors))
            return true;
    return false;
}

gpuserve_status gsv_adapter_files_check(const struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_config *config = &spec->config;
    const char *part = NULL;

    if (config->n_decoder_layers > 0)
        part = "a decoder";
    else if (config->bottleneck.width > 0)
        part = "bottlenecks";
    else if (config->experts.n > 0)
        part = "a mixture of experts";
    else if (config->convolution.kernel > 0)
        part = "a convolution";
    else if (config->relative.kind == GSV_RELATIVE_DISENTANGLED)
        part = "disentangled attention";
    if (!part)
        return GPUSERVE_OK;
    gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
             "%s: adapters by request do not support a model with %s",
             gsv_weight_file_name(spec->weights.files[0]), part);
    return gsv_hint(error, GPUSERVE_E_UNSUPPORTED,
                    "load the adapter's directory as a model of its own");
}

static size_t rank_of(const struct gsv_weight_file *adapter, const struct gsv_weight *of)
{
    size_t rank = 0;

    for (int32_t part = 0; part < of->n_parts; part++) {
        struct gsv_lora_factors factors;

        if (gsv_lora_factors(adapter, &of->weight[part], &factors))
            rank += factors.rank;
    }
    rank = (rank + RANK_STEP - 1) / RANK_STEP * RANK_STEP;
    return rank > 0 ? rank : RANK_STEP;
}

/* right: A [rank, k]; left: B [n, rank]. */
static void fill(const struct gsv_weight_file *adapter, const struct gsv_weight *of, size_t rank,
                 float *right, float *left)
{
    const size_t k = (size_t)of->k;
    size_t row = 0, at = 0;

    for (int32_t part = 0; part < of->n_parts; part++) {
        const size_t rows = of->n_parts == 1 ? (size_t)of->n : (size_t)of->rows[part];
        struct gsv_lora_factors factors;

        if (gsv_lora_factors(adapter, &of->weight[part], &factors)) {
            memcpy(right + at * k, factors.right, factors.rank * k * sizeof(*right));
            for (size_t i = 0; i < rows; i++)
                memcpy(left + (row + i) * rank + at, factors.left + i * factors.rank,
                       factors.rank * sizeof(*left));
            at += factors.rank;
        }
        row += rows;
    }
}

/* A linear reads A, and B adds rows of ones for an activation: see gsv_add_linear_adapters(). A
 * table has the left factor in place of A, and the right one, transposed, in place of B. */
static gpuserve_status add_items(const struct gsv_collector *c, const struct gsv_weight *of,
                                 const struct gsv_weight_file *adapter)
{
    struct gsv_adapter_files *files = c->spec->adapter_files;
    struct gsv_adapters *adapters = &c->spec->config.adapters;
    const bool is_table = of->kind == GSV_ITEM_TABLE;
    const size_t rank = rank_of(adapter, of);
    const int32_t width = (int32_t)rank;
    const int32_t n_ones = is_table || of->activation == GPUSERVE_ACT_NONE ? 0 : of->n;
    struct gsv_weight *a = gsv_add_item(c->spec, is_table ? GSV_ITEM_TABLE : GSV_ITEM_LINEAR_PLAIN,
                                        is_table ? of->n : width, is_table ? width : of->k);
    struct gsv_weight *b =
        gsv_add_item(c->spec, GSV_ITEM_LINEAR_PLAIN, is_table ? of->k : of->n + n_ones, width);
    const char *name = of->weight[0].name;
    float *left =
        add_matrix(files, is_table ? &a->weight[0] : &b->weight[0], name, (size_t)of->n, rank);
    float *right =
        add_matrix(files, is_table ? &b->weight[0] : &a->weight[0], name, rank, (size_t)of->k);

    if (!left || !right)
        return gsv_fail(c->error, GPUSERVE_E_NOMEM, "out of memory for the adapters of '%s'", name);
    b->transposed = is_table;
    b->rows[0] = is_table ? of->k : of->n;
    b->n_ones = n_ones;
    adapters->rank = width > adapters->rank ? width : adapters->rank;
    fill(adapter, of, rank, right, left);
    return GPUSERVE_OK;
}

gpuserve_status gsv_adapter_files_add(const struct gsv_collector *c)
{
    const struct gsv_weight of = c->spec->items[c->spec->n_items - 1];
    const struct gsv_adapter_files *files = c->spec->adapter_files;
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; files && i < files->n && st == GPUSERVE_OK; i++)
        st = add_items(c, &of, files->adapters[i]);
    return st;
}

gpuserve_status gsv_adapter_files_add_words(const struct gsv_collector *c)
{
    struct gsv_config *config = &c->spec->config;
    const struct gsv_weight *words = &c->spec->items[c->spec->n_items - 1];

    if (!is_targeted(c->spec->adapter_files, &words->weight[0]))
        return GPUSERVE_OK;
    if (config->word_scale != 0.0f || config->embedding_size != config->hidden_size)
        return gsv_fail(c->error, GPUSERVE_E_UNSUPPORTED,
                        "adapters by request do not support scaled or projected word embeddings: "
                        "'%s' is targeted",
                        words->weight[0].name);
    config->adapters.words = true;
    return gsv_adapter_files_add(c);
}

/* --------------------------------------------------------------------------------------- finish */

/* True if an item reads the tensor and is followed by no items of adapters. */
static bool is_left_out(const struct gsv_spec *spec, const char *name)
{
    for (size_t i = 0; i < spec->n_items; i++) {
        const struct gsv_weight *item = &spec->items[i];
        const bool is_adapted =
            i + 1 < spec->n_items && (item[1].weight[0].file == &spec->adapter_files->file);

        for (int32_t part = 0; part < 3; part++)
            if (item->weight[part].count > 0 && item->weight[part].name == name &&
                item->weight[part].file != &spec->adapter_files->file && !is_adapted)
                return true;
    }
    return false;
}

gpuserve_status gsv_adapter_files_finish(struct gsv_spec *spec, gpuserve_error *error)
{
    struct gsv_adapter_files *files = spec->adapter_files;
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < files->n && st == GPUSERVE_OK; i++) {
        struct gsv_tensor tensor;

        for (size_t j = 0; gsv_weight_file_at(files->adapters[i], j, &tensor); j++) {
            if (st != GPUSERVE_OK || !is_left_out(spec, tensor.name))
                continue;
            st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                          "%s: the adapter targets '%s', which adapters by request do not support",
                          gsv_weight_file_name(files->adapters[i]), tensor.name);
            gsv_hint(error, st, "load the adapter's directory as a model of its own");
        }
    }
    close_adapters(files);
    files->n = 0;
    return st;
}
