/*
 * neighbours.c - writes the indices of the tokens next to each token of a batch.
 */
#include "lib/model/encoder/encoder.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>

/* For each tap of the convolution but the middle one, the row of its token. */
static void list_taps(const struct gsv_spec *spec, int32_t max_tokens,
                      const struct gpuserve_host_batch *batch, int32_t *row)
{
    const int32_t kernel = spec->config.convolution.kernel, zeros = max_tokens;
    const size_t n = (size_t)(kernel - 1) * (size_t)max_tokens;

    for (size_t i = 0; i < n; i++)
        row[i] = zeros;
    for (int32_t i = 1; i < kernel; i++, row += max_tokens) {
        const int32_t offset = spec->items[spec->convolution + i].tap - kernel / 2;

        for (int32_t s = 0; s < batch->n_sequences; s++) {
            const int32_t begin = batch->cu_seqlens[s], end = batch->cu_seqlens[s + 1];

            for (int32_t t = begin; t < end; t++)
                if (t + offset >= begin && t + offset < end)
                    row[t] = t + offset;
        }
    }
}

/* For each token, the ids of the next one, of itself and of the previous one. */
static void list_trigrams(const struct gsv_spec *spec, int32_t max_tokens,
                          const struct gpuserve_host_batch *batch, int32_t *ids)
{
    const int32_t zeros = spec->config.vocab_size;

    for (size_t i = 0; i < 3 * (size_t)max_tokens; i++)
        ids[i] = zeros;
    for (int32_t s = 0; s < batch->n_sequences; s++) {
        const int32_t begin = batch->cu_seqlens[s], end = batch->cu_seqlens[s + 1];

        for (int32_t t = begin; t < end; t++) {
            int32_t *trigram = ids + 3 * (size_t)t;

            trigram[1] = batch->ids[t];
            if (t + 1 < end)
                trigram[0] = batch->ids[t + 1];
            if (t > begin)
                trigram[2] = batch->ids[t - 1];
        }
    }
}

/* The decoder's input: each text shifted by one token. Rows behind the texts have a valid id too.
 */
static void list_shifted(const struct gsv_spec *spec, int32_t max_tokens,
                         const struct gpuserve_host_batch *batch, int32_t *ids)
{
    for (int32_t i = 0; i < max_tokens; i++)
        ids[i] = spec->config.start_id;
    for (int32_t s = 0; s < batch->n_sequences; s++)
        for (int32_t t = batch->cu_seqlens[s] + 1; t < batch->cu_seqlens[s + 1]; t++)
            ids[t] = batch->ids[t - 1];
}

gpuserve_status gsv_write_neighbours(const struct gsv_net *net, int32_t max_tokens,
                                     const struct gpuserve_host_batch *batch, int32_t *host,
                                     void *to, gpuserve_error *error)
{
    const size_t n = (size_t)gsv_neighbours_per_token(&net->spec->config) * (size_t)max_tokens;

    if (net->spec->config.is_trigram)
        list_trigrams(net->spec, max_tokens, batch, host);
    else if (net->spec->config.n_decoder_layers > 0)
        list_shifted(net->spec, max_tokens, batch, host);
    else
        list_taps(net->spec, max_tokens, batch, host);
    return net->backend->memory_write(net->device, to, host, n * sizeof(*host), error);
}

gpuserve_status gsv_write_zero_row(const struct gsv_net *net, int32_t max_tokens, void *hidden,
                                   gpuserve_error *error)
{
    const size_t row =
        (size_t)net->spec->config.hidden_size * net->backend->activation_size(net->dtype);
    char *zeros;
    gpuserve_status st;

    if (net->spec->config.convolution.kernel == 0)
        return GPUSERVE_OK;
    zeros = gsv_alloc_array(row, 1);
    if (!zeros)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    st = net->backend->memory_write(net->device, (char *)hidden + (size_t)max_tokens * row, zeros,
                                    row, error);
    free(zeros);
    return st;
}

gpuserve_status gsv_fill_neighbours(const struct gsv_net *net, int32_t max_tokens,
                                    const struct gpuserve_host_batch *batch,
                                    const struct gsv_activations *at, void *to,
                                    gpuserve_error *error)
{
    const size_t n = (size_t)gsv_neighbours_per_token(&net->spec->config) * (size_t)max_tokens;
    int32_t *host;
    gpuserve_status st;

    if (n == 0)
        return GPUSERVE_OK;
    host = gsv_alloc_array(n, sizeof(*host));
    if (!host)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    st = gsv_write_neighbours(net, max_tokens, batch, host, to, error);
    free(host);
    return st == GPUSERVE_OK ? gsv_write_zero_row(net, max_tokens, at->hidden, error) : st;
}
