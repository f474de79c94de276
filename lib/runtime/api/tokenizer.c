/*
 * tokenizer.c - the public handle of a tokenizer without a model.
 *
 *   path -> directory -> modules.json, if present: folder and lowercasing -> tokenizer files
 *
 * Immutable once open; the encoders of the pool are the only state of a call.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/formats/formats.h"
#include "lib/model/modules/modules.h"
#include "lib/runtime/api/tokenize.h"
#include "lib/runtime/core/context.h"
#include "lib/runtime/plan/model_path.h"

#include <stdlib.h>
#include <string.h>

struct gpuserve_tokenizer {
    struct gsv_tokenizer *tokenizer;
    struct gsv_encoders encoders;
    struct gsv_fork_check fork_check;
};

/* -------------------------------------------------------------------------------------- opening */

static gpuserve_status open_in(const struct gsv_hub *hub, const char *name, struct gsv_dir **dir,
                               gpuserve_error *error)
{
    char *path = NULL;
    gpuserve_status st = gsv_hub_find(hub, name, &path, error);

    if (st == GPUSERVE_OK)
        st = gsv_hub_open(hub, dir, path, error);
    free(path);
    return st;
}

/* Open the directory, found in the context's cache directories or in those of the environment. */
static gpuserve_status open_dir(gpuserve_context *context, const char *name, struct gsv_dir **dir,
                                gpuserve_error *error)
{
    struct gsv_hub hub = { 0 };
    gpuserve_status st;

    if (context) {
        st = gsv_context_check(context, error);
        return st == GPUSERVE_OK ? open_in(context->hub, name, dir, error) : st;
    }
    st = gsv_hub_init(&hub, NULL, error);
    if (st == GPUSERVE_OK)
        st = open_in(&hub, name, dir, error);
    gsv_hub_reset(&hub);
    return st;
}

/* The transformer's folder and the lowercasing of a sentence-transformers directory are settings of
 * its tokenizer. */
static gpuserve_status load(struct gsv_tokenizer **tokenizer, const struct gsv_dir *dir,
                            gpuserve_error *error)
{
    struct gsv_modules modules = { 0 };
    gpuserve_status st = gsv_modules_read(&modules, dir, error);
    if (st == GPUSERVE_OK)
        st = gsv_tokenizer_load(
            tokenizer, dir,
            &(struct gsv_tokenizer_settings){ modules.transformer, modules.do_lower_case }, error);
    gsv_modules_reset(&modules);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_tokenizer_open(gpuserve_tokenizer **out,
                                                     gpuserve_context *context, const char *name,
                                                     gpuserve_error *error)
{
    gpuserve_tokenizer *handle;
    struct gsv_dir *dir = NULL;
    gpuserve_status st;

    if (!out)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`tokenizer` is NULL");
    *out = NULL;
    st = open_dir(context, name, &dir, error);
    if (st != GPUSERVE_OK)
        return st;
    handle = gsv_alloc_array(1, sizeof(*handle));
    if (!handle) {
        gsv_dir_close(&dir);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a tokenizer");
    }
    gsv_encoders_init(&handle->encoders);
    st = gsv_fork_check_init(&handle->fork_check, error);
    if (st == GPUSERVE_OK)
        st = load(&handle->tokenizer, dir, error);
    gsv_dir_close(&dir);
    if (st == GPUSERVE_OK)
        *out = handle;
    else
        gpuserve_tokenizer_close(&handle);
    return st;
}

GPUSERVE_API void gpuserve_tokenizer_close(gpuserve_tokenizer **handle)
{
    if (!handle || !*handle)
        return;
    gsv_tokenizer_free(&(*handle)->tokenizer);
    gsv_encoders_reset(&(*handle)->encoders);
    gsv_fork_check_reset(&(*handle)->fork_check);
    free(*handle);
    *handle = NULL;
}

/* ---------------------------------------------------------------------------------------- calls */

static gpuserve_status check(const gpuserve_tokenizer *handle, gpuserve_error *error)
{
    if (!handle)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`tokenizer` is NULL");
    return gsv_forked(&handle->fork_check) ? gsv_fail_forked(error) : GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status
gpuserve_tokenizer_encode(gpuserve_tokenizer *handle, const gpuserve_tokenizer_input *given_input,
                          const gpuserve_tokenizer_output *given_output, size_t *n_tokens,
                          const gpuserve_tokenize_options *options, gpuserve_error *error)
{
    gpuserve_tokenizer_input input;
    gpuserve_tokenizer_output output;
    struct gsv_tokenize_call call;
    struct gsv_encode_options how;
    gpuserve_status st = check(handle, error);

    if (st == GPUSERVE_OK && !given_input)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`input` is NULL");
    if (st == GPUSERVE_OK)
        st = gsv_read_struct(&input, sizeof(input), given_input, "gpuserve_tokenizer_input", error);
    if (st == GPUSERVE_OK)
        st = gsv_read_struct(&output, sizeof(output), given_output, "gpuserve_tokenizer_output",
                             error);
    if (st != GPUSERVE_OK)
        return st;
    call = (struct gsv_tokenize_call){ .text = input.text,
                                       .pair = input.pair,
                                       .size = input.size,
                                       .pair_size = input.pair_size,
                                       .ids = output.ids,
                                       .type_ids = output.type_ids,
                                       .spans = output.spans,
                                       .capacity = output.capacity,
                                       .n_tokens = n_tokens };
    st = gsv_tokenize_check(&call, options, &how, error);
    return st == GPUSERVE_OK
               ? gsv_tokenize(handle->tokenizer, &handle->encoders, &call, &how, error)
               : st;
}

GPUSERVE_API gpuserve_status gpuserve_tokenizer_decode(gpuserve_tokenizer *handle,
                                                       const int32_t *ids, size_t n_ids,
                                                       int32_t skip_special, char *text,
                                                       size_t capacity, size_t *size,
                                                       gpuserve_error *error)
{
    gpuserve_status st = check(handle, error);

    if (st == GPUSERVE_OK)
        st = gsv_detokenize_check(ids, n_ids, skip_special, error);
    return st == GPUSERVE_OK ? gsv_tokenizer_decode(handle->tokenizer, ids, n_ids,
                                                    skip_special == 1, text, capacity, size, error)
                             : st;
}

GPUSERVE_API gpuserve_status gpuserve_tokenizer_token_text(gpuserve_tokenizer *handle, int32_t id,
                                                           char *text, size_t capacity,
                                                           size_t *size, gpuserve_error *error)
{
    const gpuserve_status st = check(handle, error);

    return st == GPUSERVE_OK
               ? gsv_put_token_text(handle->tokenizer, id, text, capacity, size, error)
               : st;
}

GPUSERVE_API size_t gpuserve_tokenizer_vocab_size(const gpuserve_tokenizer *handle)
{
    return handle ? (size_t)gsv_tokenizer_vocab_size(handle->tokenizer) : 0;
}
