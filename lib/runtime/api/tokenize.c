/*
 * tokenize.c - public calls between text and token ids of a model, and the code that they share
 * with those of a tokenizer.
 *
 * Each call takes an encoder from a pool, so calls of several threads run in parallel. Weights are
 * not needed: an offloaded model tokenizes without being reloaded.
 */
#include "lib/runtime/api/tokenize.h"

#include "lib/base/error.h"
#include "lib/runtime/models/handle.h"

#include <string.h>

static gpuserve_status check_text(const char *name, const char *text, size_t size,
                                  gpuserve_error *error)
{
    if (!text && size > 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`%s` is NULL", name);
    if (size > UINT32_MAX / 2)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the %s has %zu bytes, the limit is %u", name,
                        size, UINT32_MAX / 2);
    return GPUSERVE_OK;
}

gpuserve_status gsv_tokenize_check(const struct gsv_tokenize_call *call,
                                   const gpuserve_tokenize_options *given,
                                   struct gsv_encode_options *how, gpuserve_error *error)
{
    gpuserve_tokenize_options options;
    gpuserve_status st =
        gsv_read_struct(&options, sizeof(options), given, "gpuserve_tokenize_options", error);

    if (st == GPUSERVE_OK)
        st = check_text("text", call->text, call->size, error);
    if (st == GPUSERVE_OK)
        st = check_text("pair", call->pair, call->pair_size, error);
    if (st != GPUSERVE_OK)
        return st;
    if (!call->n_tokens)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`n_tokens` is NULL");
    if (options.no_special > 1)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "tokenize options: no_special is %u, neither 0 nor 1", options.no_special);
    if (options.truncation > GPUSERVE_TRUNCATE_STRICT)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "tokenize options: truncation is %u, outside 0 to %d", options.truncation,
                        GPUSERVE_TRUNCATE_STRICT);
    *how = (struct gsv_encode_options){ .max_tokens = options.max_tokens,
                                        .truncation = options.truncation,
                                        .no_special = options.no_special != 0 };
    return GPUSERVE_OK;
}

/* Copies the encoding to the caller's buffers. */
static gpuserve_status hand_over(const struct gsv_encoding *encoding,
                                 const struct gsv_tokenize_call *call, gpuserve_error *error)
{
    *call->n_tokens = encoding->n;
    if (!call->ids && !call->type_ids && !call->spans)
        return GPUSERVE_OK;
    if (encoding->n > call->capacity)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "`ids` has capacity for %zu tokens, the text has %zu", call->capacity,
                        encoding->n);
    if (encoding->n == 0)
        return GPUSERVE_OK;
    if (call->ids)
        memcpy(call->ids, encoding->ids, encoding->n * sizeof(*call->ids));
    if (call->spans)
        memcpy(call->spans, encoding->spans, encoding->n * sizeof(*call->spans));
    for (size_t i = 0; call->type_ids && i < encoding->n; i++)
        call->type_ids[i] = encoding->type_ids[i];
    return GPUSERVE_OK;
}

gpuserve_status gsv_tokenize(const struct gsv_tokenizer *tokenizer, struct gsv_encoders *encoders,
                             const struct gsv_tokenize_call *call,
                             const struct gsv_encode_options *how, gpuserve_error *error)
{
    struct gsv_encoder *encoder = gsv_encoder_acquire(encoders);
    gpuserve_status st;

    if (!encoder)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for tokenization");
    st = gsv_tokenizer_encode(tokenizer, &encoder->encoding, call->text ? call->text : "",
                              call->size, call->pair, call->pair_size, how, error);
    if (st == GPUSERVE_OK)
        st = hand_over(&encoder->encoding, call, error);
    gsv_encoder_release(encoders, encoder);
    return st;
}

gpuserve_status gsv_detokenize_check(const int32_t *ids, size_t n_ids, int32_t skip_special,
                                     gpuserve_error *error)
{
    if (!ids && n_ids > 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`ids` is NULL");
    if (skip_special != 0 && skip_special != 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "skip_special is %d, neither 0 nor 1",
                        skip_special);
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------ public calls */

GPUSERVE_API gpuserve_status gpuserve_tokenize(gpuserve_model *handle, const char *text,
                                               size_t size, int32_t *ids, gpuserve_span *spans,
                                               size_t capacity, size_t *n_tokens,
                                               const gpuserve_tokenize_options *options,
                                               gpuserve_error *error)
{
    const struct gsv_tokenize_call call = { .text = text,
                                            .size = size,
                                            .ids = ids,
                                            .spans = spans,
                                            .capacity = capacity,
                                            .n_tokens = n_tokens };
    struct gsv_encode_options how;
    struct gsv_model *model = NULL;
    gpuserve_status st = gsv_handle_check(handle, error);

    if (st == GPUSERVE_OK)
        st = gsv_tokenize_check(&call, options, &how, error);
    if (st == GPUSERVE_OK && !ids && capacity > 0)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`ids` is NULL but the capacity is %zu", capacity);
    if (st == GPUSERVE_OK && spans && !ids)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`spans` is set, but `ids` is NULL");
    if (st == GPUSERVE_OK)
        st = gsv_handle_pin(handle, &model, error);
    if (st != GPUSERVE_OK)
        return st;
    st = gsv_tokenize(model->plan.tokenizer, &model->encoders, &call, &how, error);
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

    if (st == GPUSERVE_OK)
        st = gsv_detokenize_check(ids, n_ids, skip_special, error);
    if (st == GPUSERVE_OK)
        st = gsv_handle_pin(handle, &model, error);
    if (st != GPUSERVE_OK)
        return st;
    st = gsv_tokenizer_decode(model->plan.tokenizer, ids, n_ids, skip_special == 1, text, capacity,
                              size, error);
    gsv_handle_unpin(handle, &model);
    return st;
}
