/*
 * fingerprint.c - hashes everything that determines a model's vectors (XXH3-128).
 *
 * Every part is preceded by its length or has a fixed size, so that bytes moved between adjacent
 * parts change the hash. Numbers are hashed in little-endian order.
 */
#include "lib/runtime/models/load_steps.h"

#include "lib/base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL /* header-only: no run-time dependency on libxxhash */
#include <xxhash.h>

/* Raised when int8 gives other vectors: 2 since inputs take several columns, 3 since embedding
 * tables are in float16. */
#define INT8_METHOD 3

static void feed(void *state, const void *bytes, size_t size)
{
    XXH3_128bits_update(state, bytes, size);
}

static void feed_number(void *state, uint64_t number)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(number >> (8 * i));
    feed(state, bytes, sizeof(bytes));
}

static void feed_text(void *state, const char *text)
{
    const size_t size = text ? strlen(text) : 0;

    feed_number(state, text ? size : UINT64_MAX);
    if (size > 0)
        feed(state, text, size);
}

static void write_digest(char out[33], XXH3_state_t *state)
{
    const XXH128_hash_t hash = XXH3_128bits_digest(state);

    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64, (uint64_t)hash.low64);
}

gpuserve_status gsv_fingerprint(char out[33], char files[33], const struct gsv_plan *plan,
                                const struct gsv_net *net, gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = plan->facts;
    XXH3_state_t *state = XXH3_createState();
    uint64_t weights[2];

    if (!state)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the fingerprint");
    XXH3_128bits_reset(state);
    gsv_net_digest(net, weights);
    feed_number(state, weights[0]);
    feed_number(state, weights[1]);
    gsv_tokenizer_digest(plan->tokenizer, feed, state);
    feed_number(state, (uint64_t)facts->n_poolings);
    for (int32_t i = 0; i < facts->n_poolings; i++)
        feed_number(state, (uint64_t)facts->poolings[i]);
    feed_number(state, facts->normalize);
    feed_number(state, (uint64_t)plan->max_tokens);
    feed_number(state, facts->n_prompts);
    for (size_t i = 0; i < facts->n_prompts; i++) {
        feed_text(state, facts->prompts[i].name);
        feed_text(state, facts->prompts[i].text);
    }
    feed_text(state, plan->default_prompt_name);
    if (plan->prompt_text) /* a prompt text that is not in the model's list */
        feed_text(state, plan->prompt_text);
    write_digest(files, state);
    if (plan->dtype == GPUSERVE_DTYPE_INT8) { /* results differ between instruction sets */
        feed_text(state, "int8");
        feed_number(state, INT8_METHOD);
        feed_text(state, plan->device.backend->name);
        feed_text(state, plan->portable_bits ? "portable" : plan->device.facts.isa);
    }
    if (plan->deterministic && !plan->device.is_cpu) /* other bits than without it */
        feed_text(state, "deterministic");
    write_digest(out, state);
    XXH3_freeState(state);
    return GPUSERVE_OK;
}
