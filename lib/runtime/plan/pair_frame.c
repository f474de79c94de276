/*
 * pair_frame.c - the tokens around a pair, and the text between them.
 *
 * The fixed parts begin and end at special tokens or newlines, so that they have the same tokens
 * alone as in the whole text. No special tokens are added: the template has its own.
 */
#include "lib/runtime/plan/load_plan.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <string.h>

static gpuserve_status find_answers(struct gsv_plan *plan, gpuserve_error *error)
{
    const int32_t yes = gsv_tokenizer_id(plan->tokenizer, "yes");
    const int32_t no = gsv_tokenizer_id(plan->tokenizer, "no");
    gpuserve_status st;

    if (yes >= 0 && no >= 0)
        return gsv_spec_set_answers(plan->spec, yes, no, error);
    st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                  "%s: %s without modules.json is a reranker that answers yes or no, but the "
                  "tokenizer has no token \"%s\"",
                  gsv_dir_path(plan->dir), plan->facts->architecture, yes < 0 ? "yes" : "no");
    return gsv_hint(error, st, "to embed texts with the model, set a pooling");
}

/* Append the tokens of a fixed part to the frame. */
static gpuserve_status add_part(struct gsv_plan *plan, struct gsv_encoding *encoding,
                                const char *part, size_t *n, size_t *capacity,
                                gpuserve_error *error)
{
    const struct gsv_encode_options options = { .no_special = true };
    struct gsv_pair_frame *frame = &plan->frame;
    const size_t first = frame->n_before + frame->n_after;
    const gpuserve_status st = gsv_tokenizer_encode(plan->tokenizer, encoding, part, strlen(part),
                                                    NULL, 0, &options, error);

    if (st != GPUSERVE_OK)
        return gsv_fail_in(error, st, "%s: the pair template", gsv_dir_path(plan->dir));
    if (!gsv_grow((void **)&frame->ids, capacity, first + encoding->n, sizeof(*frame->ids),
                  SIZE_MAX))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the pair template");
    memcpy(frame->ids + first, encoding->ids, encoding->n * sizeof(*frame->ids));
    *n = encoding->n;
    return GPUSERVE_OK;
}

static gpuserve_status encode_frame(struct gsv_plan *plan, gpuserve_error *error)
{
    const struct gsv_pair_template *template = plan->facts->pair_template;
    struct gsv_pair_frame *frame = &plan->frame;
    struct gsv_encoding encoding = { 0 };
    size_t capacity = 0;
    gpuserve_status st =
        add_part(plan, &encoding, template->before, &frame->n_before, &capacity, error);

    if (st == GPUSERVE_OK)
        st = add_part(plan, &encoding, template->after, &frame->n_after, &capacity, error);
    gsv_encoding_reset(&encoding);
    if (st == GPUSERVE_OK && frame->n_before + frame->n_after >= (size_t)plan->max_tokens)
        st = gsv_fail(error, GPUSERVE_E_INVALID,
                      "max_tokens is %d, but the template of a pair has %zu tokens",
                      plan->max_tokens, frame->n_before + frame->n_after);
    return st;
}

gpuserve_status gsv_pair_frame_make(struct gsv_plan *plan, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    if (plan->facts->needs_answers)
        st = find_answers(plan, error);
    return st == GPUSERVE_OK && plan->facts->pair_template ? encode_frame(plan, error) : st;
}

size_t gsv_pair_middle_write(const struct gsv_pair_template *template,
                             struct gsv_pair_middle middle, char *to)
{
    const bool own = !middle.instruction || !*middle.instruction;
    const char *instruction = own ? template->instruction : middle.instruction;
    const struct {
        const char *at;
        size_t size;
    } parts[] = {
        { template->instruction_key, strlen(template->instruction_key) },
        { instruction, strlen(instruction) },
        { template->text_key, strlen(template->text_key) },
        { middle.text, middle.size },
        { template->pair_key, strlen(template->pair_key) },
        { middle.pair, middle.pair_size },
    };
    size_t size = 0;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (to && parts[i].size > 0)
            memcpy(to + size, parts[i].at, parts[i].size);
        size += parts[i].size; /* cannot overflow: texts have at most 2^32 bytes */
    }
    return size;
}
