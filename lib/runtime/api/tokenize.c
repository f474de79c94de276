/*
 * tokenize.c - public calls between text and token ids.
 *
 * Each call pins the model and takes an encoder from its pool, so calls of several threads run in
 * parallel. Weights are not needed: an offloaded model tokenizes without being reloaded.
 */
#include "lib/base/error.h"
#include "lib/runtime/models/handle.h"

#include <string.h>

static gpuserve_status check(const char *text, size_t size, const int32_t *ids,
                             const gpuserve_span *spans, size_t capacity, const size_t *n_tokens,
                             const gpuserve_tokenize_options *options, gpuserve_error *error)
{
    if (!text && size > 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`text` is NULL");
    if (size > UINT32_MAX / 2)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the text has %zu bytes, the limit is %u",
                        size, UINT32_MAX / 2);
    if (!n_tokens)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`n_tokens` is NULL");
    if (!ids && capacity > 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`ids` is NULL but the capacity is %zu",
                        capacity);
    if (spans && !ids)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`spans` is set, but `ids` is NULL");
    if (options->no_special > 1)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "tokenize options: no_special is %u, neither 0 nor 1", options->no_special);
    if (options->truncation > GPUSERVE_TRUNCATE_STRICT)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "tokenize options: truncation is %u, outside 0 to %d", options->truncation,
                        GPUSERVE_TRUNCATE_STRICT);
    return GPUSERVE_OK;
}

/* Copies the encoding to the caller's buffers. */
static gpuserve_status hand_over(const struct gsv_encoding *encoding, int32_t *ids,
                                 gpuserve_span *spans, size_t capacity, size_t *n_tokens,
                                 gpuserve_error *error)
{
    *n_tokens = encoding->n;
    if (ids && encoding->n > capacity)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "`ids` has capacity for %zu tokens, the text has %zu", capacity,
                        encoding->n);
    if (!ids || encoding->n == 0)
        return GPUSERVE_OK;
    memcpy(ids, encoding->ids, encoding->n * sizeof(*ids));
    if (spans)
        memcpy(spans, encoding->spans, encoding->n * sizeof(*spans));
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_tokenize(gpuserve_model *handle, const char *text,
                                               size_t size, int32_t *ids, gpuserve_span *spans,
                                               size_t capacity, size_t *n_tokens,
                                               const gpuserve_tokenize_options *given,
                                               gpuserve_error *error)
{
    gpuserve_tokenize_options options;
    struct gsv_encode_options how;
    struct gsv_encoder *encoder;
    struct gsv_model *model = NULL;
    gpuserve_status st = gsv_handle_check(handle, error);

    if (st == GPUSERVE_OK)
        st = gsv_read_struct(&options, sizeof(options), given, "gpuserve_tokenize_options", error);
    if (st == GPUSERVE_OK)
        st = check(text, size, ids, spans, capacity, n_tokens, &options, error);
    if (st == GPUSERVE_OK)
        st = gsv_handle_pin(handle, &model, error);
    if (st != GPUSERVE_OK)
        return st;
    how = (struct gsv_encode_options){ .max_tokens = options.max_tokens,
                                       .truncation = options.truncation,
                                       .no_special = options.no_special != 0 };
    encoder = gsv_encoder_take(&model->encoders);
    if (encoder) {
        st = gsv_tokenizer_encode(model->plan.tokenizer, &encoder->encoding, text ? text : "", size,
                                  NULL, 0, &how, error);
        if (st == GPUSERVE_OK)
            st = hand_over(&encoder->encoding, ids, spans, capacity, n_tokens, error);
        gsv_encoder_give(&model->encoders, encoder);
    } else {
        st = gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for tokenization");
    }
    gsv_handle_unpin(handle, &model);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_detokenize(gpuserve_model *handle, const int32_t *ids,
                                                 size_t n_ids, int32_t skip_special, char *text,
                                                 size_t capacity, size_t *size,
                                                 gpuserve_error *error)
{
    struct gsv_model *model;
    gpuserve_status st = gsv_handle_check(handle, error);

    if (st != GPUSERVE_OK)
        return st;
    if (!ids && n_ids > 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`ids` is NULL");
    if (skip_special != 0 && skip_special != 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "skip_special is %d, neither 0 nor 1",
                        skip_special);
    st = gsv_handle_pin(handle, &model, error);
    if (st != GPUSERVE_OK)
        return st;
    st = gsv_tokenizer_decode(model->plan.tokenizer, ids, n_ids, skip_special == 1, text, capacity,
                              size, error);
    gsv_handle_unpin(handle, &model);
    return st;
}
