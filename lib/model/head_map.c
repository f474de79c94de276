/*
 * head_map.c - finds the weights of classifiers, head files, and the masked-LM head.
 */
#include "lib/model/weight_map.h"

#include "lib/base/error.h"

#include <stdio.h>
#include <string.h>

/* ----------------------------------------------------------------------------------- classifiers
 */

/* The number of labels is the number of rows of the last layer; config.json does not contain it. */
static gpuserve_status count_labels(const struct gsv_spec *spec, const char *layer, int32_t *n,
                                    gpuserve_error *error)
{
    struct gsv_tensor last;
    char name[GSV_TENSOR_NAME_BYTES];

    snprintf(name, sizeof(name), "%s.weight", layer);
    if (!gsv_checkpoint_find(&spec->weights, name, &last))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is missing",
                        gsv_weight_file_name(spec->weights.files[0]), name);
    if (last.rank != 2 || last.shape[0] < 1 || last.shape[0] > 100000)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%s' is not a label matrix: rank other than 2, or %llu rows "
                        "outside 1 to 100000",
                        gsv_weight_file_name(last.file), name, (unsigned long long)last.shape[0]);
    *n = (int32_t)last.shape[0];
    return GPUSERVE_OK;
}

/* The layers of a sequence classifier run on pooled rows; those of a token classifier, and of
 * logits that are pooled, on tokens. */
static gpuserve_status add_classifier(struct gsv_spec *spec, bool by_token, gpuserve_error *error)
{
    const struct gsv_classifier_names *names = spec->config.family->classifier;
    const bool has_dense = names && names->dense && !spec->config.has_no_dense &&
                           (!spec->config.labels_tokens || spec->config.family->token_transform);
    const enum gsv_weight_kind kind = by_token ? GSV_ITEM_LINEAR_PLAIN : GSV_ITEM_LINEAR_EXACT;
    const int32_t hidden = spec->config.hidden_size;
    const struct gsv_collector inside = { spec, &spec->weights, spec->prefix, error };
    const struct gsv_collector outside = { spec, &spec->weights, "", error };
    const char *output = names ? names->output : "classifier";
    enum gsv_presence bias = names ? names->output_bias : GSV_REQUIRED;
    int32_t n = 0;
    gpuserve_status st;

    if (spec->config.labels_tokens) {
        const char *own = spec->config.family->token_classifier;

        output = own ? own : "classifier";
        bias = GSV_IF_PRESENT;
    }
    st = count_labels(spec, output, &n, error);
    if (st == GPUSERVE_OK && has_dense) {
        st = gsv_add_linear(names->in_encoder ? &inside : &outside, kind, names->dense,
                            names->dense_bias, hidden, hidden, spec->config.classifier_activation);
        spec->n_classifier++;
    }
    if (st == GPUSERVE_OK)
        st = gsv_add_linear(&outside, kind, output, bias, n, hidden, GPUSERVE_ACT_NONE);
    spec->n_classifier++;
    if (st == GPUSERVE_OK && has_dense)
        st = gsv_add_norm(&outside, names->norm, hidden, &spec->classifier_norm);
    return st;
}

static gpuserve_status add_head_layer(struct gsv_spec *spec, const struct gsv_head_layer *layer,
                                      int32_t k, bool is_last, gpuserve_error *error)
{
    const struct gsv_tensor *w = &layer->weight;
    const int32_t n = w->rank == 2 && w->shape[0] <= 100000 ? (int32_t)w->shape[0] : 0;
    struct gsv_weight *item;
    gpuserve_status st;

    if (n == 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%s' is not a matrix of 1 to 100000 rows",
                        gsv_weight_file_name(w->file), w->name);
    st = gsv_check_tensor(w, (uint64_t)n, (uint64_t)k, error);
    if (st == GPUSERVE_OK && layer->bias.count)
        st = gsv_check_tensor(&layer->bias, 0, (uint64_t)n, error);
    if (st != GPUSERVE_OK)
        return st;
    item = gsv_add_item(spec, GSV_ITEM_LINEAR_EXACT, n, k);
    item->weight[0] = layer->weight;
    item->bias[0] = layer->bias;
    item->activation = is_last ? GPUSERVE_ACT_NONE : GPUSERVE_ACT_RELU;
    return GPUSERVE_OK;
}

static gpuserve_status add_head(struct gsv_spec *spec, struct gsv_head *head, gpuserve_error *error)
{
    int32_t k = spec->facts.dim;

    head->first_item = (int32_t)spec->n_items;
    for (int32_t i = 0; i < head->n_layers; i++) {
        const gpuserve_status st =
            add_head_layer(spec, &head->layers[i], k, i == head->n_layers - 1, error);

        if (st != GPUSERVE_OK)
            return st;
        k = (int32_t)head->layers[i].weight.shape[0];
    }
    return GPUSERVE_OK;
}

static gpuserve_status add_heads(struct gsv_spec *spec, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < spec->heads.n && st == GPUSERVE_OK; i++)
        st = add_head(spec, &spec->heads.at[i], error);
    return st;
}

/* ------------------------------------------------------------------------ masked language model */

/* Find the decoder's bias under its name or its other name. */
static gpuserve_status find_bias(const struct gsv_spec *spec, struct gsv_tensor *bias,
                                 gpuserve_error *error)
{
    const struct gsv_masked_names *names = spec->config.family->masked;

    if (names->decoder_bias == GSV_ABSENT)
        return GPUSERVE_OK;
    if (gsv_checkpoint_find(&spec->weights, names->bias, bias) ||
        (names->other_bias && gsv_checkpoint_find(&spec->weights, names->other_bias, bias)))
        return gsv_check_tensor(bias, 0, (uint64_t)spec->config.vocab_size, error);
    if (names->decoder_bias == GSV_IF_PRESENT)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is missing",
                    gsv_weight_file_name(spec->weights.files[0]), names->bias);
}

/* The decoder's width is that of the transform: the embeddings' width, or another one. */
static gpuserve_status find_decoder(struct gsv_spec *spec, struct gsv_tensor *decoder,
                                    gpuserve_error *error)
{
    char name[GSV_TENSOR_NAME_BYTES];

    snprintf(name, sizeof(name), "%s.weight", spec->config.family->masked->decoder);
    spec->is_decoder_tied = !gsv_checkpoint_find(&spec->weights, name, decoder);
    if (spec->is_decoder_tied)
        *decoder = spec->items[spec->word].weight[0];
    return gsv_check_tensor(decoder, (uint64_t)spec->config.vocab_size,
                            decoder->rank == 2 && decoder->shape[1] <= 1 << 16
                                ? decoder->shape[1]
                                : (uint64_t)spec->config.embedding_size,
                            error);
}

/* Columns of a decoder that is narrower than the transform, in a tensor [columns, words]. */
static gpuserve_status find_decoder_columns(const struct gsv_spec *spec,
                                            const struct gsv_tensor *decoder,
                                            struct gsv_tensor *columns, gpuserve_error *error)
{
    const char *own = spec->config.family->masked->decoder_columns;
    const int32_t n = spec->config.hidden_size - (int32_t)decoder->shape[1];
    const struct gsv_collector c = { (struct gsv_spec *)spec, &spec->weights, "", error };

    if (!own || n <= 0)
        return GPUSERVE_OK;
    return gsv_find_tensor(&c, columns, own, ".weight", NULL, n, spec->config.vocab_size,
                           GSV_REQUIRED);
}

static void add_decoder(struct gsv_spec *spec, const struct gsv_tensor *decoder,
                        const struct gsv_tensor *columns, const struct gsv_tensor *bias)
{
    const int32_t vocab = spec->config.vocab_size, width = (int32_t)decoder->shape[1];
    const int32_t more = columns->count ? (int32_t)columns->shape[0] : 0;

    spec->first_decoder = (int32_t)spec->n_items;
    for (int32_t first = 0; first < vocab; first += GSV_DECODER_ROWS) {
        const int32_t n = vocab - first < GSV_DECODER_ROWS ? vocab - first : GSV_DECODER_ROWS;
        struct gsv_weight *item = gsv_add_item(spec, GSV_ITEM_LINEAR_PLAIN, n, width + more);

        item->weight[0] = gsv_tensor_rows(decoder, first, n);
        if (more > 0) {
            item->weight[1] = *columns;
            item->n_columns = width;
            item->first = first;
        }
        if (bias->count)
            item->bias[0] = gsv_tensor_rows(bias, first, n);
        item->activation = GPUSERVE_ACT_NONE;
        spec->n_decoder++;
    }
}

static gpuserve_status add_transform(struct gsv_spec *spec, int32_t width, gpuserve_error *error)
{
    const struct gsv_masked_names *names = spec->config.family->masked;
    const struct gsv_collector c = { spec, &spec->weights, "", error };
    const int32_t activation = names->activation == -1   ? spec->config.activation
                               : names->activation == -2 ? spec->config.classifier_activation
                                                         : names->activation;
    gpuserve_status st;

    spec->transform = -1;
    if (!names->transform)
        return width == spec->config.hidden_size
                   ? GPUSERVE_OK
                   : gsv_fail(error, GPUSERVE_E_FORMAT,
                              "%s: tensor '%s.weight' has %d columns, expected %d",
                              gsv_weight_file_name(spec->weights.files[0]), names->decoder, width,
                              spec->config.hidden_size);
    spec->transform = (int32_t)spec->n_items;
    st = gsv_add_linear(&c, GSV_ITEM_LINEAR_PLAIN, names->transform, names->transform_bias, width,
                        spec->config.hidden_size, activation);
    if (st == GPUSERVE_OK)
        st = gsv_add_norm(&c, names->norm, width, &spec->masked_norm);
    spec->masked_norm.kind = spec->config.family->norm;
    return st;
}

static gpuserve_status add_masked(struct gsv_spec *spec, gpuserve_error *error)
{
    struct gsv_tensor decoder, columns = { 0 }, bias = { 0 };
    gpuserve_status st = find_decoder(spec, &decoder, error);

    if (st == GPUSERVE_OK)
        st = find_decoder_columns(spec, &decoder, &columns, error);
    if (st == GPUSERVE_OK)
        st = add_transform(
            spec, (int32_t)decoder.shape[1] + (columns.count ? (int32_t)columns.shape[0] : 0),
            error);
    if (st == GPUSERVE_OK)
        st = find_bias(spec, &bias, error);
    if (st == GPUSERVE_OK)
        add_decoder(spec, &decoder, &columns, &bias);
    return st;
}

gpuserve_status gsv_collect_heads(struct gsv_spec *spec, gpuserve_error *error)
{
    gpuserve_status st;

    st = gsv_collect_steps(spec, error);
    spec->first_classifier = (int32_t)spec->n_items;
    if (st == GPUSERVE_OK && gsv_has_heads(spec))
        st = add_heads(spec, error);
    else if (st == GPUSERVE_OK && spec->facts.scores_answers)
        st = gsv_collect_answers(spec, error);
    else if (st == GPUSERVE_OK && (spec->config.classifies || spec->config.labels_tokens))
        st = add_classifier(spec, spec->config.labels_tokens || spec->config.pools_logits, error);
    if (st == GPUSERVE_OK && gsv_has_decoder(spec))
        st = add_masked(spec, error);
    return st == GPUSERVE_OK ? gsv_collect_entity_head(spec, error) : st;
}
