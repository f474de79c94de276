/*
 * pair_frame.h - the pair template of a reranker that is a language model.
 *
 *   before | <Instruct>: INSTRUCTION <Query>: TEXT <Document>: PAIR | after
 *
 * Only the middle is cut to the token limit. The tokens around it are made once, with the plan.
 */
#ifndef GSV_RUNTIME_PAIR_FRAME_H
#define GSV_RUNTIME_PAIR_FRAME_H

#include "lib/runtime/plan/load_plan.h"

/* Name the tokens of the answers to the model, and tokenize the fixed parts of its template; does
 * nothing for a model without one. The plan's tokenizer and max_tokens must be set. */
gpuserve_status gsv_pair_frame_make(struct gsv_plan *plan, gpuserve_error *error);

/* True if the pairs of a job are written into the template. A single text is not. */
static inline bool gsv_uses_template(const struct gsv_plan *plan, const gpuserve_job *job)
{
    return plan->facts->pair_template && job->pairs && job->task == GPUSERVE_TASK_CLASSIFY;
}

/* A text and its pair, as parts of the middle. */
struct gsv_pair_middle {
    const char *instruction; /* NULL or empty: the template's own */
    const char *text, *pair;
    size_t size, pair_size;
};

/* The bytes of the middle, which are written to `to` unless that is NULL. */
size_t gsv_pair_middle_write(const struct gsv_pair_template *template,
                             struct gsv_pair_middle middle, char *to);

#endif
