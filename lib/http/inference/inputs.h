/*
 * inputs.h - the texts, pairs or token ids of a request, as a job takes them.
 *
 * Texts are lent by the exchange's JSON or body.
 */
#ifndef GSV_HTTP_INPUTS_H
#define GSV_HTTP_INPUTS_H

#include "lib/http/protocol/exchange.h"

struct gsv_inputs {
    size_t n;
    const char **texts; /* [n], or NULL: ids */
    size_t *sizes;      /* [n] bytes */
    const char **pairs; /* [n] second texts, or NULL */
    size_t *pair_sizes;
    int32_t *ids;    /* end to end */
    size_t *offsets; /* [n + 1] */
    size_t n_characters;
    size_t limit;    /* where gsv_inputs_tokenize() cuts, below the model's limit, or 0 */
    bool has_prompt; /* in the ids of those that were texts */
};

enum {
    GSV_INPUTS_EMPTY_TEXTS = 1, /* "" is a text like any other */
    GSV_INPUTS_NO_IDS = 2,      /* texts only */
    GSV_INPUTS_NO_TEXTS = 4     /* ids only */
};

/* A text, a list of texts, a list of ids, a list of lists of ids, or a list that mixes texts and
 * lists of ids, which is then made all ids, by the prompt and the truncation of `job` (NULL: flags
 * allow no mixture). `name` is the field, for messages. False after gsv_refuse. */
bool gsv_inputs_read(struct gsv_exchange *exchange, const json_t *value, const char *name,
                     unsigned flags, const gpuserve_job *job, struct gsv_inputs *inputs);

/* Memory for n texts, and for pairs of texts; then set them one by one. */
bool gsv_inputs_make(struct gsv_exchange *exchange, size_t n, bool pairs,
                     struct gsv_inputs *inputs);
void gsv_inputs_set(struct gsv_inputs *inputs, size_t i, const char *text, size_t size);
void gsv_inputs_set_pair(struct gsv_inputs *inputs, size_t i, const char *text, size_t size);

/* Put the text of one of the model's prompts before every text; NULL: the model's default. */
bool gsv_inputs_prompt(struct gsv_exchange *exchange, struct gsv_inputs *inputs, const char *name);

/* Turn texts into ids by the model's tokenizer, cut at its limit unless `truncation` is strict. */
bool gsv_inputs_tokenize(struct gsv_exchange *exchange, struct gsv_inputs *inputs,
                         uint32_t truncation);

/* Refuse more inputs than the server takes at once. */
bool gsv_inputs_count(struct gsv_exchange *exchange, size_t n, const char *name);

void gsv_inputs_into(const struct gsv_inputs *inputs, gpuserve_job *job);

#endif
