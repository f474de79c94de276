/*
 * late_heads.c - the heads of BGE-M3 in addition to its embedding: sparse_linear.pt and
 * colbert_linear.pt.
 *
 *   sparse_linear    token vector -> weight of the token; a text's sparse vector has for each token
 *                    id the largest of its weights
 *   colbert_linear   token vector -> vector of late interaction, of length 1
 *
 * Both read the encoder's output, as pooling does. FlagEmbedding leaves the first token out of late
 * interaction, and gives no weight to the tokens around a text, pad tokens and the unknown token.
 */
#include "lib/model/weight_map.h"

#include "lib/base/error.h"
#include "lib/model/formats/torch/torch_file.h"

#include <stdlib.h>

#define SPARSE_FILE "sparse_linear.pt"
#define COLBERT_FILE "colbert_linear.pt"

static gpuserve_status open_one(struct gsv_weight_file **file, const struct gsv_spec *spec,
                                const struct gsv_dir *dir, const char *name, gpuserve_error *error)
{
    const bool is_encoder = !spec->modules.is_static && spec->config.recurrent.n_layers == 0;

    return is_encoder && gsv_dir_has(dir, name) ? gsv_torch_file_open(file, dir, name, error)
                                                : GPUSERVE_OK;
}

gpuserve_status gsv_late_heads_open(struct gsv_spec *spec, const struct gsv_dir *dir,
                                    gpuserve_error *error)
{
    const gpuserve_status st = open_one(&spec->lexical_file, spec, dir, SPARSE_FILE, error);

    return st == GPUSERVE_OK ? open_one(&spec->late_file, spec, dir, COLBERT_FILE, error) : st;
}

/* The rows of a head's matrix: 1 to max_rows, else an error. */
static gpuserve_status count_rows(const struct gsv_spec *spec, struct gsv_weight_file *file,
                                  int32_t max_rows, int32_t *n, gpuserve_error *error)
{
    const uint64_t hidden = (uint64_t)spec->config.hidden_size;
    struct gsv_tensor weight;

    if (!gsv_weight_file_find(file, "weight", &weight))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor 'weight' is missing",
                        gsv_weight_file_name(file));
    if (weight.rank != 2 || weight.shape[0] < 1 || weight.shape[0] > (uint64_t)max_rows)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor 'weight' is not a matrix of 1 to %d rows of %llu columns",
                        gsv_weight_file_name(file), max_rows, (unsigned long long)hidden);
    *n = (int32_t)weight.shape[0];
    return GPUSERVE_OK;
}

gpuserve_status gsv_late_heads_facts(struct gsv_spec *spec, gpuserve_error *error)
{
    struct gsv_spec_facts *facts = &spec->facts;
    int32_t n = 1;
    gpuserve_status st = GPUSERVE_OK;

    if (spec->lexical_file) {
        st = count_rows(spec, spec->lexical_file, 1, &n, error);
        facts->is_sparse = facts->weighs_tokens = true;
    }
    if (st != GPUSERVE_OK || !spec->late_file)
        return st;
    st = count_rows(spec, spec->late_file, GSV_MAX_WIDTH, &facts->token_dim, error);
    facts->is_late = true;
    facts->first_vector = 1;
    return st;
}

/* One linear on the encoder's output, of the file's own names. */
static gpuserve_status add_one(struct gsv_spec *spec, struct gsv_weight_file *file, int32_t rows,
                               int32_t activation, int32_t *index, gpuserve_error *error)
{
    struct gsv_weight_file *files[] = { file };
    const struct gsv_checkpoint from = { files, 1 };
    const struct gsv_collector c = { spec, &from, "", error };
    struct gsv_weight *item;
    gpuserve_status st;

    *index = -1;
    if (!file)
        return GPUSERVE_OK;
    *index = (int32_t)spec->n_items;
    item = gsv_add_item(spec, GSV_ITEM_LINEAR_PLAIN, rows, spec->config.hidden_size);
    item->activation = activation;
    st = gsv_find_tensor(&c, &item->weight[0], "weight", "", NULL, rows, spec->config.hidden_size,
                         GSV_REQUIRED);
    return st == GPUSERVE_OK
               ? gsv_find_tensor(&c, &item->bias[0], "bias", "", NULL, 0, rows, GSV_IF_PRESENT)
               : st;
}

gpuserve_status gsv_collect_late_heads(struct gsv_spec *spec, gpuserve_error *error)
{
    const gpuserve_status st =
        add_one(spec, spec->lexical_file, 1, GPUSERVE_ACT_RELU, &spec->lexical, error);

    return st == GPUSERVE_OK ? add_one(spec, spec->late_file, spec->facts.token_dim,
                                       GPUSERVE_ACT_NONE, &spec->late, error)
                             : st;
}

void gsv_late_heads_close(struct gsv_spec *spec)
{
    gsv_weight_file_close(&spec->lexical_file);
    gsv_weight_file_close(&spec->late_file);
}

gpuserve_status gsv_spec_add_unweighted(struct gsv_spec *spec, const int32_t *ids, size_t n,
                                        gpuserve_error *error)
{
    for (size_t i = 0; i < n && spec->lexical_file; i++) {
        if (ids[i] < 0 || ids[i] >= spec->config.vocab_size || !gsv_is_weighted(spec, ids[i]))
            continue;
        if (spec->n_unweighted == GSV_MAX_UNWEIGHTED)
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            "the tokenizer puts more than %d different tokens around a text",
                            GSV_MAX_UNWEIGHTED);
        spec->unweighted[spec->n_unweighted++] = ids[i];
    }
    return GPUSERVE_OK;
}
