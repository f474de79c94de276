/*
 * static_table.c - static embeddings: a table of token vectors without an encoder.
 *
 *   StaticEmbedding of sentence-transformers   "embedding.weight" [vocabulary, dim]
 *   WordEmbeddings of sentence-transformers    "emb_layer.weight" [vocabulary, dim]
 *   model2vec                                  "embeddings" [rows, dim], "mapping" [vocabulary],
 *                                              "weights" [vocabulary]
 *
 * The embedding is the mean of the vectors of a text's tokens. The table has one more row, of
 * zeros: the token of texts without tokens, whose embedding is 0.
 *
 * A directory of model2vec with modules.json is one of sentence-transformers. Without it, the rules
 * are those of model2vec: unknown tokens are left out.
 */
#include "lib/model/weights/weights.h"
#include "lib/model/weight_map.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ROWS ((1 << 24) - 1)
#define MAX_POSITIONS 8192       /* there is no limit: longer texts take more memory */
#define MODEL2VEC_MAX_TOKENS 512 /* the default of model2vec */

static const char *const no_names[] = { NULL };
static const struct gsv_tensor_names static_names = { .word = "embedding" };
static const struct gsv_family static_family = {
    .model_types = no_names,
    .classes = no_names,
    .names = { &static_names },
    .norm_position = GSV_NORM_AFTER,
    .unbounded = true,
    .norm_bias = GSV_ABSENT,
};

/* ------------------------------------------------------------------------------------ model2vec */

static gpuserve_status read_model2vec(struct gsv_modules *modules,
                                      const struct gsv_json_value *json, gpuserve_error *error)
{
    int64_t limit = MODEL2VEC_MAX_TOKENS;
    gpuserve_status st =
        gsv_json_bool(json, "normalize", GSV_CONFIG_NAME, &modules->normalize, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "max_length", GSV_CONFIG_NAME, 1, INT32_MAX, &limit, error);
    modules->max_tokens = (int32_t)(limit < MAX_POSITIONS ? limit : MAX_POSITIONS);
    return st;
}

/* The configuration of model2vec names no architecture of transformers. Its first releases wrote no
 * model type. */
static bool is_model2vec(const struct gsv_json_value *json)
{
    const char *type = gsv_json_get_string(gsv_json_member(json, "model_type"));

    if (type)
        return strcmp(type, "model2vec") == 0;
    return !gsv_json_member(json, "architectures") && gsv_json_member(json, "normalize") &&
           gsv_json_member(json, "embedding_dtype");
}

gpuserve_status gsv_static_detect(struct gsv_spec *spec, const struct gsv_dir *dir,
                                  gpuserve_error *error)
{
    struct gsv_modules *modules = &spec->modules;
    struct gsv_json_value *json;
    gpuserve_status st;

    if (modules->present || gsv_dir_gguf(dir))
        return GPUSERVE_OK;
    st = gsv_read_optional_json(&json, dir, "", GSV_CONFIG_NAME, error);
    if (st != GPUSERVE_OK || !json)
        return st;
    modules->is_static = is_model2vec(json);
    if (modules->is_static)
        st = read_model2vec(modules, json, error);
    gsv_json_free(&json);
    return st;
}

/* --------------------------------------------------------------------------------- configuration
 */

struct tables {
    struct gsv_tensor vectors, mapping, weights;
};

/* Integers are no weights in other models, so a file gives them the type OTHER. */
static void name_integers(struct gsv_tensor *tensor)
{
    static const struct {
        const char *name;
        enum gsv_tensor_type type;
    } types[] = {
        { "I8", GSV_TENSOR_I8 },
        { "I32", GSV_TENSOR_I32 },
        { "I64", GSV_TENSOR_I64 },
    };

    for (size_t i = 0; tensor->count && i < sizeof(types) / sizeof(types[0]); i++)
        if (tensor->type == GSV_TENSOR_OTHER && strcmp(tensor->type_name, types[i].name) == 0)
            tensor->type = types[i].type;
}

static gpuserve_status find_tables(const struct gsv_spec *spec, struct tables *tables,
                                   gpuserve_error *error)
{
    const struct gsv_checkpoint *from = &spec->weights;

    memset(tables, 0, sizeof(*tables));
    if (gsv_checkpoint_find(from, spec->modules.words.present ? GSV_WORD_TABLE : "embedding.weight",
                            &tables->vectors))
        return GPUSERVE_OK;
    if (!gsv_checkpoint_find(from, "embeddings", &tables->vectors))
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor 'embedding.weight' or 'embeddings' is missing",
                        gsv_weight_file_name(from->files[0]));
    gsv_checkpoint_find(from, "mapping", &tables->mapping);
    gsv_checkpoint_find(from, "weights", &tables->weights);
    name_integers(&tables->vectors);
    name_integers(&tables->mapping);
    return GPUSERVE_OK;
}

gpuserve_status gsv_static_configure(struct gsv_spec *spec, gpuserve_error *error)
{
    struct gsv_config *config = &spec->config;
    struct tables tables;
    gpuserve_status st = find_tables(spec, &tables, error);
    const struct gsv_tensor *rows = tables.mapping.count ? &tables.mapping : &tables.vectors;

    if (st != GPUSERVE_OK)
        return st;
    if (tables.vectors.rank != 2 || tables.vectors.shape[1] < 1 ||
        tables.vectors.shape[1] > GSV_MAX_WIDTH || rows->shape[0] < 1 ||
        rows->shape[0] > MAX_ROWS || tables.vectors.shape[0] > MAX_ROWS)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%s' is not a table of 1 to %d rows and 1 to %d columns",
                        gsv_weight_file_name(tables.vectors.file), tables.vectors.name, MAX_ROWS,
                        GSV_MAX_WIDTH);
    config->family = &static_family;
    config->architecture = gsv_copy_text("StaticEmbedding", strlen("StaticEmbedding"));
    config->model_type = gsv_copy_text("static", strlen("static"));
    if (!config->architecture || !config->model_type)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    config->vocab_size = (int32_t)rows->shape[0];
    config->hidden_size = config->embedding_size = (int32_t)tables.vectors.shape[1];
    config->n_heads = config->n_kv_heads = config->head_size = 1; /* there is no attention */
    config->n_ffns = 1;
    config->max_positions = MAX_POSITIONS;
    config->pad_id = -1;
    config->norm_bias = GSV_ABSENT;
    return GPUSERVE_OK;
}

/* ----------------------------------------------------------------------------------------- items
 */

static gpuserve_status check_integers(const struct gsv_tensor *t, int32_t n, gpuserve_error *error)
{
    if (t->rank == 1 && t->shape[0] == (uint64_t)n && !t->is_strided &&
        (t->type == GSV_TENSOR_I64 || t->type == GSV_TENSOR_I32))
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_FORMAT,
                    "%s: tensor '%s' is not a list of %d integers (I64 or I32)",
                    gsv_weight_file_name(t->file), t->name, n);
}

/* Vectors of I8 are whole numbers, as in model2vec. */
static gpuserve_status check_vectors(const struct gsv_tensor *t, int32_t columns,
                                     gpuserve_error *error)
{
    struct gsv_tensor as_float = *t;

    if (t->type == GSV_TENSOR_I8)
        as_float.type = GSV_TENSOR_F32;
    return gsv_check_tensor(&as_float, t->shape[0], (uint64_t)columns, error);
}

gpuserve_status gsv_static_collect(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_config *config = &spec->config;
    struct tables tables;
    struct gsv_weight *item;
    gpuserve_status st = find_tables(spec, &tables, error);
    const bool is_mapped = st == GPUSERVE_OK && (tables.mapping.count || tables.weights.count);

    spec->convolution = spec->position = spec->type = spec->projection = spec->relative =
        spec->position_index = -1;
    spec->rotary[0] = spec->rotary[1] = -1;
    spec->embedding_norm = spec->final_norm = GSV_NO_NORM;
    spec->word = (int32_t)spec->n_items;
    if (st == GPUSERVE_OK)
        st = check_vectors(&tables.vectors, config->hidden_size, error);
    if (st == GPUSERVE_OK && tables.mapping.count)
        st = check_integers(&tables.mapping, config->vocab_size, error);
    if (st == GPUSERVE_OK && tables.weights.count)
        st = gsv_check_tensor(&tables.weights, 0, (uint64_t)config->vocab_size, error);
    if (st != GPUSERVE_OK)
        return st;
    item = gsv_add_item(spec, is_mapped ? GSV_ITEM_MAPPED_TABLE : GSV_ITEM_TABLE,
                        config->vocab_size + 1, config->hidden_size);
    item->zero_row = true;
    item->weight[0] = tables.vectors;
    item->weight[1] = tables.mapping;
    item->weight[2] = tables.weights;
    return GPUSERVE_OK;
}

/* --------------------------------------------------------------------------------------- loading
 */

/* Write row i from the vectors, the indices and the factors of one table. */
static gpuserve_status make_row(const struct gsv_weight *item, const float *vectors, size_t i,
                                float *row, gpuserve_error *error)
{
    const size_t k = (size_t)item->k, n = (size_t)item->n - 1;
    const float *mapping = vectors + item->weight[0].count;
    const float *factors = mapping + item->weight[1].count;
    const size_t rows = (size_t)item->weight[0].shape[0];
    size_t from = i;

    memset(row, 0, k * sizeof(*row));
    if (i == n)
        return GPUSERVE_OK;
    if (item->weight[1].count) {
        if (!(mapping[i] >= 0.0f && mapping[i] < (float)rows))
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: tensor 'mapping': element %zu is outside 0 to %zu",
                            gsv_weight_file_name(item->weight[1].file), i, rows - 1);
        from = (size_t)mapping[i];
    }
    for (size_t j = 0; j < k; j++)
        row[j] = vectors[from * k + j] * (item->weight[2].count ? factors[i] : 1.0f);
    return GPUSERVE_OK;
}

gpuserve_status gsv_load_mapped_table(const struct gsv_net *net, struct gsv_reader *reader,
                                      size_t item_index, gpuserve_error *error)
{
    const struct gsv_weight *item = &net->spec->items[item_index];
    const size_t k = (size_t)item->k, size = net->backend->table_size(net->dtype);
    const size_t rows = (size_t)item->n, max = GSV_CHUNK_ELEMENTS / k; /* k is at most 2^16 */
    float *at = reader->floats;
    float *made = gsv_alloc_array(max * k, sizeof(*made));
    gpuserve_status st = made ? GPUSERVE_OK : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");

    for (size_t part = 0; part < 3 && st == GPUSERVE_OK; part++) {
        st = gsv_read_tensor(reader, item, part, at, error);
        at += item->weight[part].count;
    }
    for (size_t first = 0; first < rows && st == GPUSERVE_OK; first += max) {
        const size_t n = rows - first < max ? rows - first : max;

        for (size_t i = 0; i < n && st == GPUSERVE_OK; i++)
            st = make_row(item, reader->floats, first + i, made + i * k, error);
        if (st == GPUSERVE_OK)
            st = net->backend->memory_write_table(net->device,
                                                  net->addresses[item_index] + first * k * size,
                                                  made, n * k, net->dtype, error);
    }
    free(made);
    return st;
}
