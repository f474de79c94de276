/*
 * random_weights.c - the tensors of a random model, computed when they are read.
 *
 *   shape -> table of names, shapes, offsets -> gsv_tensor_fetch: Philox4x32-10 at the offset
 *
 * The tensors form one sequence in the order of the list below. Element i of the sequence is output
 * i of the seed's generator, so any thread reads any chunk. Immutable once open.
 */
#include "lib/model/formats/formats.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/philox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 72
#define LIMIT 0.034641016f /* uniform in [-LIMIT, LIMIT) has a standard deviation of 0.02 */
#define TYPES 2
#define BLOCK 4 /* outputs of a Philox block */

struct random_tensor {
    char name[NAME_BYTES];
    uint64_t rows, columns; /* rows 0: a vector of `columns` elements */
    uint64_t first;         /* element of the sequence */
};

struct random_weights {
    struct gsv_weight_file file; /* first */
    uint64_t seed;
    struct random_tensor *table; /* [n] sorted by name; owned */
    size_t n, capacity;
    uint64_t n_elements;
};

static const struct random_weights *as_random(const struct gsv_weight_file *file)
{
    return (const struct random_weights *)(const void *)file; /* its first field */
}

/* --------------------------------------------------------------------------------------- values */

static bool ends_in(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);

    return n >= m && strcmp(name + n - m, ending) == 0;
}

static void fill(float *to, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        to[i] = value;
}

static void generate(float *to, uint64_t seed, uint64_t first, size_t n)
{
    for (size_t i = 0; i < n;) {
        const uint64_t element = first + i;
        uint32_t words[BLOCK];

        gsv_philox_at(words, seed, element / BLOCK);
        for (size_t k = (size_t)(element % BLOCK); k < BLOCK && i < n; k++)
            to[i++] = gsv_philox_uniform(words[k], LIMIT);
    }
}

/* The offset counts from the start of the sequence, also for a tensor of some rows of another. */
static gpuserve_status fetch(const struct gsv_tensor *tensor, uint64_t first, size_t n, void *raw,
                             gpuserve_error *error)
{
    const struct random_weights *weights = as_random(tensor->file);
    float *to = raw;

    if (ends_in(tensor->name, ".bias"))
        fill(to, n, 0.0f);
    else if (ends_in(tensor->name, "LayerNorm.weight"))
        fill(to, n, 1.0f);
    else
        generate(to, weights->seed, tensor->offset / sizeof(float) + first, n);
    (void)error;
    return GPUSERVE_OK;
}

/* --------------------------------------------------------------------------------------- table */

static void add_tensor(struct random_weights *weights, int64_t layer, const char *name,
                       uint64_t rows, uint64_t columns)
{
    struct random_tensor *to = &weights->table[weights->n++];

    if (layer < 0)
        snprintf(to->name, sizeof(to->name), "embeddings.%s", name);
    else
        snprintf(to->name, sizeof(to->name), "encoder.layer.%d.%s", (int)layer, name);
    to->rows = rows;
    to->columns = columns;
    to->first = weights->n_elements;
    weights->n_elements += (rows ? rows : 1) * columns;
}

#define N_EMBEDDINGS 5
#define N_OF_LAYER 16

/* The sizes are bounded by gsv_random_parse(): the sum of all elements is below 2^44. */
static void add_layer(struct random_weights *weights, int64_t layer, uint64_t hidden, uint64_t wide)
{
    const struct {
        const char *name;
        uint64_t rows, columns;
    } tensors[N_OF_LAYER] = {
        { "attention.self.query.weight", hidden, hidden },
        { "attention.self.query.bias", 0, hidden },
        { "attention.self.key.weight", hidden, hidden },
        { "attention.self.key.bias", 0, hidden },
        { "attention.self.value.weight", hidden, hidden },
        { "attention.self.value.bias", 0, hidden },
        { "attention.output.dense.weight", hidden, hidden },
        { "attention.output.dense.bias", 0, hidden },
        { "attention.output.LayerNorm.weight", 0, hidden },
        { "attention.output.LayerNorm.bias", 0, hidden },
        { "intermediate.dense.weight", wide, hidden },
        { "intermediate.dense.bias", 0, wide },
        { "output.dense.weight", hidden, wide },
        { "output.dense.bias", 0, hidden },
        { "output.LayerNorm.weight", 0, hidden },
        { "output.LayerNorm.bias", 0, hidden },
    };

    for (size_t i = 0; i < N_OF_LAYER; i++)
        add_tensor(weights, layer, tensors[i].name, tensors[i].rows, tensors[i].columns);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct random_tensor *)a)->name, ((const struct random_tensor *)b)->name);
}

/* False if out of memory. */
static bool fill_table(struct random_weights *weights, const struct gsv_random_shape *shape)
{
    const uint64_t hidden = (uint64_t)shape->hidden;

    weights->table =
        gsv_alloc_array(N_EMBEDDINGS + N_OF_LAYER * (size_t)shape->layers, sizeof(*weights->table));
    if (!weights->table)
        return false;
    add_tensor(weights, -1, "word_embeddings.weight", (uint64_t)shape->vocab, hidden);
    add_tensor(weights, -1, "position_embeddings.weight", (uint64_t)shape->positions, hidden);
    add_tensor(weights, -1, "token_type_embeddings.weight", TYPES, hidden);
    add_tensor(weights, -1, "LayerNorm.weight", 0, hidden);
    add_tensor(weights, -1, "LayerNorm.bias", 0, hidden);
    for (int64_t layer = 0; layer < shape->layers; layer++)
        add_layer(weights, layer, hidden, (uint64_t)shape->intermediate);
    qsort(weights->table, weights->n, sizeof(*weights->table), compare_names);
    return true;
}

/* ---------------------------------------------------------------------------------------- file */

static void describe(const struct random_weights *weights, const struct random_tensor *from,
                     struct gsv_tensor *to)
{
    const uint64_t count = (from->rows ? from->rows : 1) * from->columns;

    *to = (struct gsv_tensor){ .name = from->name,
                               .file = &weights->file,
                               .type = GSV_TENSOR_F32,
                               .type_name = "F32",
                               .rank = from->rows ? 2 : 1,
                               .count = count,
                               .offset = from->first * sizeof(float),
                               .size_bytes = count * sizeof(float) };
    to->shape[0] = from->rows ? from->rows : from->columns;
    to->shape[1] = from->rows ? from->columns : 0;
}

static bool find_tensor(const struct gsv_weight_file *file, const char *name,
                        struct gsv_tensor *tensor)
{
    const struct random_weights *weights = as_random(file);
    struct random_tensor key;
    const struct random_tensor *found;

    if (strlen(name) >= sizeof(key.name))
        return false;
    strcpy(key.name, name);
    found = bsearch(&key, weights->table, weights->n, sizeof(key), compare_names);
    if (found)
        describe(weights, found, tensor);
    return found != NULL;
}

static bool tensor_at(const struct gsv_weight_file *file, size_t i, struct gsv_tensor *tensor)
{
    const struct random_weights *weights = as_random(file);

    if (i >= weights->n)
        return false;
    describe(weights, &weights->table[i], tensor);
    return true;
}

static void close_file(struct gsv_weight_file *file)
{
    free(as_random(file)->table);
}

static const struct gsv_weight_format random_format = { "random", find_tensor, tensor_at,
                                                        close_file, fetch };

gpuserve_status gsv_random_weights_open(struct gsv_weight_file **file, const struct gsv_dir *dir,
                                        gpuserve_error *error)
{
    const char *const path = gsv_dir_path(dir);
    struct gsv_random_shape shape;
    struct random_weights *weights;
    gpuserve_status st = gsv_random_parse(&shape, path, error);

    *file = NULL;
    if (st != GPUSERVE_OK)
        return st;
    weights = gsv_alloc_array(1, sizeof(*weights));
    if (!weights)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", path);
    *file = &weights->file;
    weights->file.format = &random_format;
    weights->file.fd = -1;
    weights->file.shown = gsv_copy_text(path, strlen(path));
    weights->seed = (uint64_t)shape.seed;
    if (!weights->file.shown || !fill_table(weights, &shape)) {
        gsv_weight_file_close(file);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", path);
    }
    weights->file.size_bytes = weights->n_elements * sizeof(float);
    return GPUSERVE_OK;
}
