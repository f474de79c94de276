/*
 * weight_map.c - finds each weight by name, checks its type and shape, and adds it to the items.
 *
 * Names differ between checkpoints: with or without the encoder's prefix, LayerNorm parameters as
 * weight/bias or, in the oldest, gamma/beta. Other tensors of a checkpoint (position buffers,
 * pretraining heads, an unused pooler) are ignored.
 */
#include "lib/model/weight_map.h"

#include "lib/base/error.h"
#include "lib/model/encoder/encoder.h"
#include "lib/model/encoder/rows.h"
#include "lib/model/weights/adapters.h"

#include <stdio.h>
#include <string.h>

struct gsv_weight *gsv_add_item(struct gsv_spec *spec, enum gsv_weight_kind kind, int32_t n,
                                int32_t k)
{
    struct gsv_weight *item = &spec->items[spec->n_items++]; /* alloc_items() reserved enough */

    item->kind = kind;
    item->n = n;
    item->k = k;
    item->n_parts = 1;
    item->rows[0] = n;
    item->layer = -1;
    return item;
}

gpuserve_status gsv_add_table(const struct gsv_collector *c, enum gsv_weight_kind kind,
                              const char *name, int32_t rows, int32_t cols, int32_t *index)
{
    *index = -1;
    if (!name || rows == 0)
        return GPUSERVE_OK;
    *index = (int32_t)c->spec->n_items;
    return gsv_find_tensor(c, &gsv_add_item(c->spec, kind, rows, cols)->weight[0], name, ".weight",
                           NULL, rows, cols, GSV_REQUIRED);
}

gpuserve_status gsv_add_vector(const struct gsv_collector *c, const char *name, const char *suffix,
                               const char *other, int32_t cols, enum gsv_presence presence,
                               int32_t *index)
{
    struct gsv_tensor tensor = { 0 };
    const gpuserve_status st = gsv_find_tensor(c, &tensor, name, suffix, other, 0, cols, presence);

    *index = -1;
    if (st != GPUSERVE_OK || tensor.count == 0)
        return st;
    *index = (int32_t)c->spec->n_items;
    gsv_add_item(c->spec, GSV_ITEM_FLOATS, 1, cols)->weight[0] = tensor;
    return GPUSERVE_OK;
}

/* Add gamma, then beta. A name NULL: no norm. */
gpuserve_status gsv_add_norm(const struct gsv_collector *c, const char *name, int32_t cols,
                             struct gsv_norm_items *norm)
{
    const struct gsv_config *config = &c->spec->config;
    gpuserve_status st;

    *norm = GSV_NO_NORM;
    norm->kind = config->norm;
    norm->eps = config->eps;
    if (!name)
        return GPUSERVE_OK;
    st = gsv_add_vector(c, name, ".weight", ".gamma", cols, GSV_REQUIRED, &norm->gamma);
    if (st != GPUSERVE_OK)
        return st;
    c->spec->items[norm->gamma].plus_one = config->family->gamma_plus_one && !config->includes_one;
    return gsv_add_vector(c, name, ".bias", ".beta", cols, config->norm_bias, &norm->beta);
}

gpuserve_status gsv_add_parts(const struct gsv_collector *c, enum gsv_weight_kind kind,
                              const struct gsv_linear_parts *parts, int32_t cols,
                              int32_t activation)
{
    struct gsv_weight *item = gsv_add_item(c->spec, kind, 0, cols);
    gpuserve_status st = GPUSERVE_OK;

    item->n_parts = parts->n;
    item->activation = activation;
    for (int32_t i = 0; i < parts->n && st == GPUSERVE_OK; i++) {
        item->rows[i] = parts->rows[i];
        item->n += parts->rows[i];
        st = gsv_find_tensor(c, &item->weight[i], parts->names[i], ".weight", NULL, parts->rows[i],
                             cols, GSV_REQUIRED);
        if (st == GPUSERVE_OK)
            st = gsv_find_tensor(c, &item->bias[i], parts->names[i], ".bias", NULL, 0,
                                 parts->rows[i], parts->bias);
    }
    return st;
}

gpuserve_status gsv_add_linear(const struct gsv_collector *c, enum gsv_weight_kind kind,
                               const char *name, enum gsv_presence bias, int32_t rows, int32_t cols,
                               int32_t activation)
{
    const struct gsv_linear_parts parts = { { name }, { rows }, 1, bias };

    return gsv_add_parts(c, kind, &parts, cols, activation);
}

/* ----------------------------------------------------------------------------------- embeddings */

void gsv_name_numbered(char prefix[GSV_TENSOR_NAME_BYTES], const char *before, const char *format,
                       int32_t number)
{
    const int before_number = (int)(strchr(format, '%') - format);

    snprintf(prefix, GSV_TENSOR_NAME_BYTES, "%s%.*s%d%s", before, before_number, format, number,
             format + before_number + 2);
}

void gsv_name_layer(char prefix[GSV_TENSOR_NAME_BYTES], const struct gsv_tensor_names *names,
                    const char *encoder, int32_t number)
{
    gsv_name_numbered(prefix, encoder, names->layer, number);
}

static bool has_first_layer(const struct gsv_collector *c, const struct gsv_tensor_names *names,
                            const char *name)
{
    char full[GSV_TENSOR_NAME_BYTES], part[2 * GSV_TENSOR_NAME_BYTES];
    struct gsv_tensor tensor;

    gsv_name_layer(part, names, "", 0);
    snprintf(part + strlen(part), GSV_TENSOR_NAME_BYTES, "%s", name);
    return gsv_lookup_weight(c, &tensor, part, ".weight", full);
}

/* True if the layout's word embeddings and the first layer's output product are there, and the
 * second norm after attention, which tells Jina's layouts from each other. */
static bool has_layout(const struct gsv_spec *spec, const struct gsv_tensor_names *names,
                       const char *prefix)
{
    const struct gsv_collector c = { (struct gsv_spec *)spec, &spec->weights, prefix, NULL };
    char full[GSV_TENSOR_NAME_BYTES];
    struct gsv_tensor tensor;

    return gsv_lookup_weight(&c, &tensor, names->word, ".weight", full) &&
           has_first_layer(&c, names, names->out) &&
           (!names->norm_again || has_first_layer(&c, names, names->norm_again));
}

/* The words are missing, or the first layer is. */
static gpuserve_status fail_layout(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_family *family = spec->config.family;
    const struct gsv_tensor_names *names = family->names[0];
    const char *file = gsv_weight_file_name(spec->weights.files[0]);
    const char *const prefixes[] = { "", family->prefix };

    for (size_t i = 0; i < 2; i++) {
        const struct gsv_collector c = { spec, &spec->weights, prefixes[i] ? prefixes[i] : "",
                                         error };
        struct gsv_tensor tensor;
        char full[GSV_TENSOR_NAME_BYTES];

        if (!gsv_lookup_weight(&c, &tensor, names->word, ".weight", full))
            continue;
        gsv_name_layer(full, names, c.prefix, 0);
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s%s.weight' is missing", file, full,
                        names->out);
    }
    return gsv_fail(
        error, GPUSERVE_E_FORMAT, "%s: tensor '%.*s.weight' is missing, with or without '%s'", file,
        (int)strcspn(names->word, "|"), names->word, family->prefix ? family->prefix : "");
}

/* Find the layout and the prefix of the checkpoint's names. */
static gpuserve_status find_layout(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_family *family = spec->config.family;
    const char *const prefixes[] = { "",
                                     family->prefix ? family->prefix : "",
                                     family->other_prefix ? family->other_prefix : "",
                                     "model.",
                                     "auto_model.",
                                     "0.auto_model.",
                                     GSV_ENTITY_PREFIX };
    const size_t n = sizeof(prefixes) / sizeof(prefixes[0]);

    for (size_t i = 0; i < 3 * n; i++) {
        const struct gsv_tensor_names *names = family->names[i / n];

        if (names && has_layout(spec, names, prefixes[i % n])) {
            snprintf(spec->prefix, sizeof(spec->prefix), "%s", prefixes[i % n]);
            spec->names = names;
            return GPUSERVE_OK;
        }
    }
    return fail_layout(spec, error);
}

/* Tables of relative and rotary positions. */
static gpuserve_status add_distances(const struct gsv_collector *c)
{
    struct gsv_spec *spec = c->spec;
    const struct gsv_config *config = &spec->config;
    const struct gsv_relative *relative = &config->relative;

    spec->relative = spec->position_index = spec->rotary[0] = spec->rotary[1] = -1;
    for (int32_t i = 0; i < 2; i++) {
        if (config->rotary[i].dims == 0 || (i == 1 && config->window == 0))
            continue;
        spec->rotary[i] = (int32_t)spec->n_items;
        gsv_add_item(spec, GSV_ITEM_ROTARY, gsv_relative_span(spec) + config->rotary[i].long_from,
                     config->rotary[i].dims)
            ->which = i;
    }
    switch (relative->kind) {
    case GSV_RELATIVE_BUCKETS:
        return relative->by_layer
                   ? GPUSERVE_OK
                   : gsv_add_table(c, GSV_ITEM_RELATIVE, spec->names->relative, relative->n_buckets,
                                   config->n_heads, &spec->relative);
    case GSV_RELATIVE_ALIBI:
        spec->relative = (int32_t)spec->n_items;
        gsv_add_item(spec, GSV_ITEM_ALIBI, 1, config->n_heads);
        break;
    case GSV_RELATIVE_DISENTANGLED:
        spec->position_index = (int32_t)spec->n_items;
        gsv_add_item(spec, GSV_ITEM_POSITION_INDEX, 1, 1);
        break;
    default:
        break;
    }
    return GPUSERVE_OK;
}

static gpuserve_status add_projection(const struct gsv_collector *c)
{
    struct gsv_spec *spec = c->spec;
    const struct gsv_config *config = &spec->config;
    const bool after = config->family->norm_after_projection;

    spec->projection = -1;
    if (!spec->names->projection || (config->embedding_size == config->hidden_size &&
                                     !config->family->always_projects && !config->is_trigram))
        return GPUSERVE_OK;
    spec->projection = (int32_t)spec->n_items;
    return gsv_add_linear(c, GSV_ITEM_LINEAR_PLAIN, spec->names->projection,
                          after ? GSV_ABSENT : GSV_REQUIRED, config->hidden_size,
                          config->embedding_size * (config->is_trigram ? 3 : 1), GPUSERVE_ACT_NONE);
}

/* The words; with trigram input the last row is zeros, for the tokens outside of a text. */
static gpuserve_status add_words(const struct gsv_collector *c)
{
    struct gsv_spec *spec = c->spec;
    const gpuserve_status st =
        gsv_add_table(c, GSV_ITEM_TABLE, spec->names->word, spec->config.vocab_size,
                      spec->config.embedding_size, &spec->word);

    if (st == GPUSERVE_OK && spec->config.is_trigram) {
        spec->items[spec->word].n++;
        spec->items[spec->word].zero_row = true;
    }
    return st;
}

/* A table without the rows before that of position 0. */
static gpuserve_status add_position_table(const struct gsv_collector *c, const char *name,
                                          int32_t width, int32_t *index)
{
    const int32_t skipped = c->spec->config.family->skipped_positions;
    const int32_t rows = c->spec->config.max_positions;
    const gpuserve_status st = gsv_add_table(c, GSV_ITEM_TABLE, name, rows + skipped, width, index);

    if (st == GPUSERVE_OK && *index >= 0 && skipped > 0) {
        struct gsv_weight *item = &c->spec->items[*index];

        item->n = item->rows[0] = rows;
        item->weight[0] = gsv_tensor_rows(&item->weight[0], skipped, rows);
    }
    return st;
}

/* The decoder's positions and norm. */
static gpuserve_status add_decoder_embeddings(const struct gsv_collector *c)
{
    struct gsv_spec *spec = c->spec;
    const int32_t hidden = spec->config.hidden_size;
    gpuserve_status st;

    spec->decoder_position = -1;
    if (spec->config.n_decoder_layers == 0)
        return GPUSERVE_OK;
    st = add_position_table(c, spec->names->decoder_position, hidden, &spec->decoder_position);
    return st == GPUSERVE_OK
               ? gsv_add_norm(c, spec->names->decoder_norm, hidden, &spec->decoder_norm)
               : st;
}

static gpuserve_status add_embeddings(const struct gsv_collector *c)
{
    struct gsv_spec *spec = c->spec;
    const struct gsv_config *config = &spec->config;
    const struct gsv_tensor_names *names = spec->names;
    const int32_t width =
        config->family->adds_after_projection ? config->hidden_size : config->embedding_size;
    gpuserve_status st = add_words(c);

    if (st == GPUSERVE_OK)
        st = gsv_add_word_adapters(c);
    if (st == GPUSERVE_OK)
        st = add_position_table(c, config->no_position_table ? NULL : names->position, width,
                                &spec->position);
    if (st == GPUSERVE_OK)
        st = gsv_add_table(c, GSV_ITEM_TABLE, names->type, config->type_vocab_size, width,
                           &spec->type);
    if (st == GPUSERVE_OK)
        st = gsv_add_type_adapters(c);
    if (st == GPUSERVE_OK && config->has_task && names->task && spec->type >= 0) {
        struct gsv_tensor *task = &spec->items[spec->type].weight[1];
        char full[GSV_TENSOR_NAME_BYTES];

        if (!gsv_lookup_weight(c, task, names->task, ".weight", full) || task->rank != 2)
            return gsv_fail(c->error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is missing",
                            gsv_weight_file_name(c->from->files[0]), full);
        st = gsv_check_tensor(task, task->shape[0], (uint64_t)width, c->error);
        *task = gsv_tensor_rows(task, 0, 1);
    }
    if (st == GPUSERVE_OK)
        st = add_distances(c);
    if (st == GPUSERVE_OK)
        st = gsv_add_norm(c, names->embedding_norm,
                          config->family->norm_after_projection ? config->hidden_size : width,
                          &spec->embedding_norm);
    if (config->fixed_eps > 0.0f)
        spec->embedding_norm.eps = config->fixed_eps;
    return st == GPUSERVE_OK ? add_projection(c) : st;
}

gpuserve_status gsv_spec_collect(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_collector c = { spec, &spec->weights, spec->prefix, error };
    gpuserve_status st;

    spec->classifier_norm = spec->masked_norm = GSV_NO_NORM;
    spec->mix = -1;
    if (spec->modules.is_static) {
        st = gsv_static_collect(spec, error);
        if (st == GPUSERVE_OK)
            st = gsv_collect_heads(spec, error);
        return st == GPUSERVE_OK ? gsv_check_surplus(spec, error) : st;
    }
    if (gsv_is_recurrent(&spec->config)) {
        st = gsv_recurrent_collect(spec, error);
        return st == GPUSERVE_OK ? gsv_check_surplus(spec, error) : st;
    }
    st = find_layout(spec, error);
    if (st == GPUSERVE_OK)
        st = gsv_check_adapters(spec, error);
    if (st == GPUSERVE_OK)
        st = add_embeddings(&c);
    spec->convolution = -1;
    if (st == GPUSERVE_OK && spec->config.convolution.kernel > 0)
        st = gsv_add_convolution(&c);
    if (st == GPUSERVE_OK)
        st = add_decoder_embeddings(&c);
    if (st == GPUSERVE_OK)
        st = gsv_add_layers(&c);
    if (st == GPUSERVE_OK)
        st = gsv_collect_heads(spec, error);
    return st == GPUSERVE_OK ? gsv_check_surplus(spec, error) : st;
}
