/*
 * tensor_reader.c - reads tensors as float32, with NaN checks and hashing in the same pass.
 *
 * For each chunk: pread() -> XXH3-128 of the file's bytes -> conversion to float32 -> check for NaN
 * and infinity -> progress. The chunk hashes, tensor names and settings give the weights' digest.
 */
#include "lib/model/weights/tensor_reader.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/formats/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define TENSORS_PER_ITEM 6

size_t gsv_chunk_count(const struct gsv_tensor *tensor)
{
    return ((size_t)tensor->count + GSV_CHUNK_ELEMENTS - 1) / GSV_CHUNK_ELEMENTS;
}

/* --------------------------------------------------------------------------------------- hashes */

/* Tensor 0 to 5 of an item: weights, then biases. An absent tensor has count 0. */
static const struct gsv_tensor *tensor_at(const struct gsv_weight *item, size_t i)
{
    return i < 3 ? &item->weight[i] : &item->bias[i - 3];
}

gpuserve_status gsv_hashes_init(struct gsv_hashes *hashes, const struct gsv_spec *spec,
                                gpuserve_error *error)
{
    hashes->n_chunks = 0;
    hashes->chunks = NULL;
    hashes->first = gsv_alloc_array(spec->n_items * TENSORS_PER_ITEM, sizeof(*hashes->first));
    if (!hashes->first)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    for (size_t i = 0; i < spec->n_items * TENSORS_PER_ITEM; i++) {
        hashes->first[i] = hashes->n_chunks;
        hashes->n_chunks +=
            gsv_chunk_count(tensor_at(&spec->items[i / TENSORS_PER_ITEM], i % TENSORS_PER_ITEM));
    }
    hashes->chunks = gsv_alloc_array(hashes->n_chunks, sizeof(*hashes->chunks));
    if (!hashes->chunks) {
        gsv_hashes_reset(hashes);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    }
    return GPUSERVE_OK;
}

void gsv_hashes_reset(struct gsv_hashes *hashes)
{
    free(hashes->chunks);
    free(hashes->first);
    memset(hashes, 0, sizeof(*hashes));
}

static void digest_number(XXH3_state_t *state, int64_t number)
{
    XXH64_canonical_t canonical; /* the same byte order on every machine */

    XXH64_canonicalFromHash(&canonical, (XXH64_hash_t)number);
    XXH3_128bits_update(state, &canonical, sizeof(canonical));
}

static void digest_tensor(XXH3_state_t *state, const struct gsv_hashes *hashes, size_t first,
                          const struct gsv_tensor *tensor)
{
    if (tensor->count == 0)
        return;
    XXH3_128bits_update(state, tensor->name, strlen(tensor->name) + 1);
    XXH3_128bits_update(state, tensor->type_name, strlen(tensor->type_name) + 1);
    digest_number(state, (int64_t)tensor->rank);
    for (uint64_t i = 0; i < tensor->rank; i++) /* rank 1 or 2 for all tensors in use */
        digest_number(state, (int64_t)tensor->shape[i]);
    for (size_t i = 0; i < gsv_chunk_count(tensor); i++) {
        digest_number(state, (int64_t)hashes->chunks[first + i].high);
        digest_number(state, (int64_t)hashes->chunks[first + i].low);
    }
}

static void digest_float(XXH3_state_t *state, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    digest_number(state, bits);
}

/* The cell is part of a GRU's digest only, so that those of LSTM models stay equal. Without biases
 * the weights of both kinds of GRU have the same names and shapes. */
static void digest_recurrent(XXH3_state_t *state, const struct gsv_config *config)
{
    digest_number(state, config->recurrent.directions);
    digest_number(state, config->recurrent.is_keras);
    digest_number(state, config->classifier_pooling);
    for (int32_t i = 0; i < 4; i++)
        digest_number(state, config->recurrent.order[i]);
    if (config->recurrent.cell != GPUSERVE_CELL_LSTM)
        digest_number(state, config->recurrent.cell);
}

/* Options of the encoder that are not those of BERT; nothing for BERT, whose digests stay equal. */
static void digest_options(XXH3_state_t *state, const struct gsv_config *config)
{
    const struct gsv_relative *relative = &config->relative;

    if (relative->kind != GSV_RELATIVE_NONE &&
        (relative->kind != GSV_RELATIVE_BUCKETS || relative->max_distance != 128)) {
        digest_number(state, relative->kind);
        digest_number(state, relative->max_distance);
        digest_number(state, relative->log_buckets);
        digest_number(state, relative->log_distance);
        digest_number(state, relative->norm);
    }
    for (int32_t i = 0; i < 2 && config->rotary[i].dims > 0; i++) {
        digest_number(state, config->rotary[i].interleaved);
        digest_float(state, config->rotary[i].scale);
        for (int32_t j = 0; j < config->rotary[i].dims / 2; j++)
            digest_float(state, config->rotary[i].frequency[j]);
        digest_number(state, config->rotary[i].long_from);
        for (int32_t j = 0; j < config->rotary[i].dims / 2; j++)
            digest_float(state, config->rotary[i].long_frequency[j]);
    }
    for (int32_t i = 0; i < config->n_layers && config->window > 0; i++)
        digest_number(state, gsv_is_local(config, i) ? config->window : 0);
    if (config->is_causal || config->is_gated || config->softcap != 0.0f ||
        config->family->norm_position != GSV_NORM_AFTER) {
        digest_number(state, config->is_causal);
        digest_number(state, config->is_gated);
        digest_number(state, config->n_kv_heads);
        digest_float(state, config->softcap);
        digest_float(state, config->attention_scale);
        digest_number(state, config->classifier_pooling);
        digest_number(state, config->pools_logits);
    }
    if (config->convolution.kernel > 0)
        digest_number(state, config->convolution.activation);
    if (config->norm != config->family->norm || config->bottleneck.width > 0 ||
        config->is_trigram || config->n_ffns > 1) {
        digest_number(state, config->norm);
        digest_number(state, config->bottleneck.source);
        digest_number(state, config->is_trigram);
        digest_number(state, config->n_ffns);
    }
    if (config->recurrent.n_layers > 0)
        digest_recurrent(state, config);
    if (config->n_decoder_layers > 0) {
        digest_number(state, config->start_id);
        digest_number(state, config->end_id);
    }
    if ((config->word_scale != 0.0f) != config->family->scale_words)
        digest_float(state, config->word_scale);
    if (config->experts.n > 0) {
        digest_number(state, config->experts.n);
        digest_number(state, config->experts.top_k);
        digest_number(state, config->experts.every);
        digest_number(state, config->experts.first);
    }
    if (config->adapters.n > 0) {
        digest_float(state, config->adapters.scale);
        for (size_t i = 0; i < config->adapters.n; i++)
            XXH3_128bits_update(state, config->adapters.names[i],
                                strlen(config->adapters.names[i]) + 1);
    }
    if (config->recurrent.over_words)
        digest_number(state, config->recurrent.n_layers);
    if (config->n_stored_layers != config->n_layers)
        digest_number(state, config->n_layers);
}

static void digest_steps(XXH3_state_t *state, const struct gsv_row_steps *steps)
{
    digest_number(state, steps->n);
    for (int32_t i = 0; i < steps->n; i++) {
        const struct gsv_row_step *step = &steps->at[i];

        digest_number(state, step->kind);
        digest_number(state, step->route);
        digest_number(state, step->adds_input);
        digest_number(state, step->residual >= 0);
    }
}

/* Modules other than Dense on pooled vectors; nothing for the others, whose digests stay equal. */
static void digest_modules(XXH3_state_t *state, const struct gsv_spec *spec)
{
    bool is_plain = spec->token_steps.n == 0 && spec->modules.n_routes == 0 && spec->mix < 0 &&
                    !spec->normalizes_tokens;

    for (int32_t i = 0; i < spec->pooled_steps.n; i++) {
        const struct gsv_row_step *step = &spec->pooled_steps.at[i];

        is_plain =
            is_plain && step->kind == GSV_STEP_DENSE && !step->adds_input && step->residual < 0;
    }
    if (is_plain)
        return;
    digest_steps(state, &spec->token_steps);
    for (int32_t i = 0; i < spec->token_steps.n; i++)
        digest_number(state, spec->items[spec->token_steps.at[i].linear].activation);
    digest_steps(state, &spec->pooled_steps);
    digest_number(state, spec->mix_first);
    digest_number(state, spec->normalizes_tokens);
    digest_number(state, spec->facts.default_route);
    for (int32_t i = 0; i < spec->facts.n_routes; i++)
        XXH3_128bits_update(state, spec->facts.routes[i], strlen(spec->facts.routes[i]) + 1);
}

static void digest_labels(XXH3_state_t *state, const char *const *labels, size_t n)
{
    for (size_t i = 0; i < n; i++)
        XXH3_128bits_update(state, labels[i], strlen(labels[i]) + 1);
}

/* Add the settings other than weights that determine the results. */
static void digest_settings(XXH3_state_t *state, const struct gsv_spec *spec)
{
    const struct gsv_spec_facts *facts = &spec->facts;
    uint32_t eps;

    memcpy(&eps, &spec->config.eps, sizeof(eps));
    digest_number(state, facts->n_heads);
    digest_number(state, facts->first_position);
    digest_number(state, spec->config.activation);
    digest_number(state, eps);
    digest_number(state, facts->n_poolings);
    for (int32_t i = 0; i < facts->n_poolings; i++)
        digest_number(state, facts->poolings[i]);
    digest_number(state, facts->normalize);
    for (size_t i = (size_t)spec->first_dense; i < spec->n_items; i++)
        digest_number(state, spec->items[i].activation);
    digest_number(state, facts->score);
    digest_number(state, gsv_has_heads(spec) && spec->heads.at[0].normalizes);
    digest_number(state, facts->is_sparse + spec->modules.log_twice);
    digest_number(state, facts->skips_prompt);
    digest_options(state, &spec->config);
    digest_modules(state, spec);
    if (facts->entity.width > 0) {
        digest_number(state, facts->entity.max_span);
        digest_number(state, facts->entity.by_token);
        digest_number(state, facts->entity.after_class_token);
        digest_number(state, facts->entity.subtokens);
        digest_number(state, facts->entity.class_token_id);
    }
    if (facts->pair_template)
        XXH3_128bits_update(state, facts->pair_template->name,
                            strlen(facts->pair_template->name) + 1);
    digest_labels(state, facts->labels, facts->n_labels);
    for (size_t i = 1; i < spec->heads.n; i++) { /* the first one is above */
        digest_number(state, spec->heads.at[i].score);
        digest_number(state, spec->heads.at[i].normalizes);
        digest_labels(state, facts->label_heads[i].labels, facts->label_heads[i].n_labels);
    }
}

void gsv_hashes_digest(const struct gsv_hashes *hashes, const struct gsv_spec *spec,
                       uint64_t digest[2])
{
    XXH3_state_t state;
    XXH128_hash_t hash;

    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < spec->n_items * TENSORS_PER_ITEM; i++)
        digest_tensor(&state, hashes, hashes->first[i],
                      tensor_at(&spec->items[i / TENSORS_PER_ITEM], i % TENSORS_PER_ITEM));
    digest_settings(&state, spec);
    hash = XXH3_128bits_digest(&state);
    digest[0] = hash.high64;
    digest[1] = hash.low64;
}

/* --------------------------------------------------------------------------------------- reader */

gpuserve_status gsv_reader_init(struct gsv_reader *reader, const struct gsv_spec *spec,
                                struct gsv_hashes *hashes, gpuserve_error *error)
{
    memset(reader, 0, sizeof(*reader));
    reader->spec = spec;
    reader->hashes = hashes;
    reader->capacity = GSV_CHUNK_ELEMENTS;
    for (size_t i = 0; i < spec->n_items; i++) {
        const struct gsv_weight *item = &spec->items[i];
        size_t elements = (size_t)item->n * (size_t)item->k + (size_t)item->n;

        if (item->kind == GSV_ITEM_POSITIONS) /* vectors, projection, its bias, gamma, beta */
            elements += ((size_t)gsv_context_columns(&spec->config) + 2) * (size_t)item->k +
                        (size_t)gsv_context_columns(&spec->config);
        if (item->n_file_columns > 0) /* all columns */
            elements += (size_t)item->weight[0].count;
        if (item->n_taps > 0) /* those of all taps */
            elements += (size_t)item->weight[0].count;
        if (item->kind == GSV_ITEM_MAPPED_TABLE) /* vectors, indices, factors */
            elements = (size_t)item->weight[0].count + 2 * (size_t)item->n;
        if (item->subtracts)
            elements += (size_t)item->n * (size_t)item->k;
        if (item->n_columns > 0) /* both tensors and the result */
            elements += (size_t)item->weight[0].count + (size_t)item->weight[1].count;
        if (item->kind != GSV_ITEM_TABLE && elements > reader->capacity)
            reader->capacity = elements;
    }
    reader->raw = gsv_alloc_mapped(GSV_CHUNK_ELEMENTS * GSV_MAX_RAW_BYTES);
    reader->floats = gsv_alloc_mapped(reader->capacity * sizeof(float));
    if (reader->raw && reader->floats)
        return GPUSERVE_OK;
    gsv_reader_reset(reader);
    return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for reading the weights");
}

void gsv_reader_reset(struct gsv_reader *reader)
{
    gsv_free_mapped(reader->raw);
    gsv_free_mapped(reader->floats);
    memset(reader, 0, sizeof(*reader));
}

static gpuserve_status count(const struct gsv_reader *reader, size_t size, gpuserve_error *error)
{
    struct gsv_reading *reading = reader->reading;
    uint64_t bytes;

    if (!reading)
        return GPUSERVE_OK;
    bytes = atomic_fetch_add(&reading->bytes, size) + size;
    if (!reader->tells || !reading->progress ||
        reading->progress(reading->progress_user, bytes) == 0)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_CANCELLED, "the progress callback cancelled the load");
}

static gpuserve_status read_tensor_chunk(struct gsv_reader *reader, const struct gsv_tensor *tensor,
                                         size_t first_hash, size_t chunk, float *to, size_t *n,
                                         gpuserve_error *error)
{
    const size_t begin = chunk * GSV_CHUNK_ELEMENTS;
    void *bytes = tensor->type == GSV_TENSOR_F32 ? (void *)to : (void *)reader->raw;
    XXH128_hash_t hash;
    size_t good, size;
    gpuserve_status st;

    *n = (size_t)tensor->count - begin;
    if (*n > GSV_CHUNK_ELEMENTS)
        *n = GSV_CHUNK_ELEMENTS;
    size = gsv_tensor_raw_bytes(tensor, begin, *n);
    st = gsv_tensor_fetch(tensor, begin, *n, bytes, error);
    if (st != GPUSERVE_OK)
        return st;
    hash = XXH3_128bits(bytes, size);
    reader->hashes->chunks[first_hash + chunk] = (struct gsv_hash){ hash.high64, hash.low64 };
    gsv_tensor_floats(tensor, begin, *n, bytes, to);
    good = gsv_floats_finite(to, *n);
    if (good == *n)
        return count(reader, size, error);
    st = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s': element %zu is %s",
                  gsv_weight_file_name(tensor->file), tensor->name, begin + good,
                  to[good] != to[good] ? "not a number (NaN)" : "infinite");
    return gsv_hint(error, st, "the weights are damaged: download them again");
}

static size_t hash_index(const struct gsv_reader *reader, const struct gsv_weight *item, size_t i)
{
    return reader->hashes->first[(size_t)(item - reader->spec->items) * TENSORS_PER_ITEM + i];
}

gpuserve_status gsv_read_chunk(struct gsv_reader *reader, const struct gsv_weight *item,
                               size_t chunk, float *to, size_t *n, gpuserve_error *error)
{
    return read_tensor_chunk(reader, &item->weight[0], hash_index(reader, item, 0), chunk, to, n,
                             error);
}

gpuserve_status gsv_read_tensor(struct gsv_reader *reader, const struct gsv_weight *item, size_t i,
                                float *to, gpuserve_error *error)
{
    const struct gsv_tensor *tensor = tensor_at(item, i);

    for (size_t chunk = 0; chunk < gsv_chunk_count(tensor); chunk++) {
        size_t n;
        const gpuserve_status st =
            read_tensor_chunk(reader, tensor, hash_index(reader, item, i), chunk,
                              to + chunk * GSV_CHUNK_ELEMENTS, &n, error);

        if (st != GPUSERVE_OK)
            return st;
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_read_whole(struct gsv_reader *reader, const struct gsv_weight *item,
                               gpuserve_error *error)
{
    return gsv_read_tensor(reader, item, 0, reader->floats, error);
}

/* Sort rows that alternate by head, [heads, 3, head_size], into [3, heads, head_size]. */
static gpuserve_status sort_heads(const struct gsv_reader *reader, const struct gsv_weight *item,
                                  gpuserve_error *error)
{
    const size_t heads = (size_t)reader->spec->config.n_heads;
    const size_t block = (size_t)reader->spec->config.head_size * (size_t)item->k;
    float *copy = gsv_alloc_array(3 * heads * block, sizeof(*copy));

    if (!copy)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a weight of %d rows", item->n);
    memcpy(copy, reader->floats, 3 * heads * block * sizeof(*copy));
    for (size_t i = 0; i < 3 * heads; i++)
        memcpy(reader->floats + (i % 3 * heads + i / 3) * block, copy + i * block,
               block * sizeof(*copy));
    free(copy);
    return GPUSERVE_OK;
}

/* Turn the tensor [k, n] into [n, k]. */
static gpuserve_status transpose(const struct gsv_reader *reader, const struct gsv_weight *item,
                                 gpuserve_error *error)
{
    const size_t n = (size_t)item->n, k = (size_t)item->k;
    float *copy = gsv_alloc_array(n * k, sizeof(*copy));

    if (!copy)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a weight of %d rows", item->n);
    memcpy(copy, reader->floats, n * k * sizeof(*copy));
    for (size_t i = 0; i < n * k; i++)
        reader->floats[i] = copy[i % k * n + i / k];
    free(copy);
    return GPUSERVE_OK;
}

/* Keep k of the columns of a tensor. Row i moves towards the front, so that none is overwritten
 * before it is read. The bias behind the rows is still unread: zeros. */
static void take_columns(const struct gsv_reader *reader, const struct gsv_weight *item)
{
    const size_t n = (size_t)item->n, k = (size_t)item->k, all = (size_t)item->n_file_columns;

    for (size_t i = 0; i < n; i++)
        memmove(reader->floats + i * k, reader->floats + i * all + (size_t)item->first,
                k * sizeof(*reader->floats));
    memset(reader->floats + n * k, 0, n * sizeof(*reader->floats));
}

/* Keep one tap of a convolution [n, k / groups, n_taps], and write zeros for the inputs of other
 * groups. The bias behind it becomes zeros. */
static gpuserve_status take_tap(const struct gsv_reader *reader, const struct gsv_weight *item,
                                gpuserve_error *error)
{
    const size_t n = (size_t)item->rows[0], k = (size_t)item->k, taps = (size_t)item->n_taps;
    const size_t inputs = (size_t)item->weight[0].count / n / taps;
    float *copy = gsv_alloc_array(n * inputs * taps, sizeof(*copy));

    if (!copy)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a weight of %d rows", item->n);
    memcpy(copy, reader->floats, n * inputs * taps * sizeof(*copy));
    memset(reader->floats, 0, (size_t)item->n * (k + 1) * sizeof(*copy));
    for (size_t i = 0; i < n; i++) {
        const size_t first = i / inputs * inputs; /* as many outputs as inputs in a group */

        for (size_t j = 0; j < inputs; j++)
            reader->floats[i * k + first + j] = copy[(i * inputs + j) * taps + (size_t)item->tap];
    }
    free(copy);
    return GPUSERVE_OK;
}

/* The factor and the additional rows of an adapter's linear; the order. */
static gpuserve_status finish_linear(const struct gsv_reader *reader, const struct gsv_weight *item,
                                     float *bias, gpuserve_error *error)
{
    const size_t k = (size_t)item->k, ones = (size_t)item->n_ones, n = (size_t)item->n - ones;

    for (size_t i = 0; i < n * k && item->scale != 0.0f; i++)
        reader->floats[i] *= item->scale;
    memset(reader->floats + n * k, 0, ones * k * sizeof(*reader->floats));
    for (size_t i = n; i < n + ones; i++)
        bias[i] = 1.0f;
    return item->transposed ? transpose(reader, item, error) : GPUSERVE_OK;
}

/* Subtract the second tensor, read to `scratch`, from the first. */
static gpuserve_status subtract(struct gsv_reader *reader, const struct gsv_weight *item,
                                float *scratch, gpuserve_error *error)
{
    const gpuserve_status st = gsv_read_tensor(reader, item, 1, scratch, error);

    for (size_t i = 0; st == GPUSERVE_OK && i < (size_t)item->n * (size_t)item->k; i++)
        reader->floats[i] -= scratch[i];
    return st;
}

/* Join the rows of weight 0 with columns of weight 1; `scratch` is as large as both. */
static gpuserve_status join_columns(struct gsv_reader *reader, const struct gsv_weight *item,
                                    float *scratch, gpuserve_error *error)
{
    const size_t n = (size_t)item->n, k = (size_t)item->k, columns = (size_t)item->n_columns;
    const size_t words = (size_t)item->weight[1].shape[1];
    const float *more = scratch + n * columns;
    gpuserve_status st;

    memcpy(scratch, reader->floats, n * columns * sizeof(*scratch));
    st = gsv_read_tensor(reader, item, 1, scratch + n * columns, error);
    for (size_t i = 0; st == GPUSERVE_OK && i < n; i++) {
        memcpy(reader->floats + i * k, scratch + i * columns, columns * sizeof(*scratch));
        for (size_t j = columns; j < k; j++)
            reader->floats[i * k + j] = more[(j - columns) * words + (size_t)item->first + i];
    }
    return st;
}

gpuserve_status gsv_read_linear(struct gsv_reader *reader, const struct gsv_weight *item,
                                struct gpuserve_linear_source *source, gpuserve_error *error)
{
    float *bias = reader->floats + (size_t)item->n * (size_t)item->k;
    const size_t n_parts = item->interleaved ? 3 : (size_t)item->n_parts;
    bool has_bias = false;
    size_t row = 0;
    gpuserve_status st = GPUSERVE_OK;

    memset(bias, 0, (size_t)item->n * sizeof(*bias)); /* absent biases are zeros */
    if (item->weight[0].count == 0)
        memset(reader->floats, 0, (size_t)item->n * (size_t)item->k * sizeof(*reader->floats));
    for (size_t part = 0; part < n_parts && st == GPUSERVE_OK; part++) {
        st = gsv_read_tensor(reader, item, part, reader->floats + row * (size_t)item->k, error);
        if (st == GPUSERVE_OK && item->n_taps > 0)
            st = take_tap(reader, item, error);
        if (st == GPUSERVE_OK && item->n_file_columns > 0)
            take_columns(reader, item);
        if (st == GPUSERVE_OK)
            st = gsv_read_tensor(reader, item, 3 + part, bias + row, error);
        has_bias = has_bias || item->bias[part].count > 0;
        row += item->interleaved ? (size_t)item->n / 3 : (size_t)item->rows[part];
    }
    if (st == GPUSERVE_OK)
        st = finish_linear(reader, item, bias, error);
    if (st == GPUSERVE_OK && item->interleaved)
        st = sort_heads(reader, item, error);
    if (st == GPUSERVE_OK && item->subtracts)
        st = subtract(reader, item, bias + item->n, error);
    if (st == GPUSERVE_OK && item->n_columns > 0)
        st = join_columns(reader, item, bias + item->n, error);
    *source = (struct gpuserve_linear_source){
        .struct_size = sizeof(*source),
        .n = item->n,
        .k = item->k,
        .weight = reader->floats,
        .bias = has_bias || item->n_ones > 0 ? bias : NULL,
    };
    return st;
}
