/*
 * late_plan.c - resolves the words of a late interaction model with its tokenizer.
 */
#include "lib/runtime/plan/load_plan.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- prefixes
 */

/* Make `text` a special token if the vocabulary has it. *known tells whether it does. */
static gpuserve_status add_prefix_token(struct gsv_plan *plan, const char *text, bool *known,
                                        gpuserve_error *error)
{
    *known = gsv_tokenizer_id(plan->tokenizer, text) >= 0;
    return *known ? gsv_tokenizer_add_special(plan->tokenizer, text, error) : GPUSERVE_OK;
}

/* A prefix is one token, or its first word is. Text that is neither stays text. */
static gpuserve_status add_prefix_tokens(struct gsv_plan *plan, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    for (int role = GSV_ROLE_QUERY; role < GSV_ROLES && st == GPUSERVE_OK; role++) {
        const char *prefix = plan->facts->late->prefixes[role];
        const char *word = prefix ? prefix + strspn(prefix, " \t\n") : "";
        bool known = false;
        char *first;

        if (!*word)
            continue;
        first = gsv_copy_text(word, strcspn(word, " \t\n"));
        if (!first)
            return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the prefix of a text");
        st = add_prefix_token(plan, prefix, &known, error);
        if (st == GPUSERVE_OK && !known)
            st = add_prefix_token(plan, first, &known, error);
        free(first);
    }
    return st;
}

/* ------------------------------------------------------------------------------- expansion token
 */

static gpuserve_status find_expansion(struct gsv_plan *plan, gpuserve_error *error)
{
    const struct gsv_late_facts *facts = plan->facts->late;

    if (facts->length == 0)
        return GPUSERVE_OK;
    if (facts->length > plan->max_tokens)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "%s: queries are expanded to %d tokens, but max_tokens is %d",
                        gsv_dir_path(plan->dir), facts->length, plan->max_tokens);
    plan->late.fill_id = gsv_tokenizer_id(plan->tokenizer, facts->token);
    if (plan->late.fill_id < 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: the token '%.64s' of query_expansion is not in the vocabulary",
                        gsv_dir_path(plan->dir), facts->token);
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------------- skip list
 */

static int compare_ids(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* Words that are not one token are left out: they would skip each unknown token. */
static gpuserve_status find_skipped(struct gsv_plan *plan, gpuserve_error *error)
{
    const struct gsv_late_facts *facts = plan->facts->late;
    struct gsv_late_plan *late = &plan->late;

    if (facts->n_skipped == 0)
        return GPUSERVE_OK;
    late->skipped = gsv_alloc_array(facts->n_skipped, sizeof(*late->skipped));
    if (!late->skipped)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a list of words");
    for (size_t i = 0; i < facts->n_skipped; i++) {
        const int32_t id = gsv_tokenizer_id(plan->tokenizer, facts->skipped[i]);

        if (id >= 0)
            late->skipped[late->n_skipped++] = id;
    }
    if (late->n_skipped > 0)
        qsort(late->skipped, late->n_skipped, sizeof(*late->skipped), compare_ids);
    return GPUSERVE_OK;
}

bool gsv_is_skipped(const struct gsv_late_plan *late, int32_t id)
{
    return late->n_skipped > 0 &&
           bsearch(&id, late->skipped, late->n_skipped, sizeof(id), compare_ids);
}

gpuserve_status gsv_late_plan_make(struct gsv_plan *plan, gpuserve_error *error)
{
    gpuserve_status st = add_prefix_tokens(plan, error);

    if (st == GPUSERVE_OK)
        st = find_expansion(plan, error);
    return st == GPUSERVE_OK ? find_skipped(plan, error) : st;
}

void gsv_late_plan_reset(struct gsv_late_plan *late)
{
    free(late->skipped);
    *late = (struct gsv_late_plan){ 0 };
}
