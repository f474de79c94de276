/*
 * post_processor.h - the "post_processor" of tokenizer.json: special tokens and type ids.
 *
 * Every kind there is comes down to a template: special tokens before, the first text, special
 * tokens between, the second text, special tokens after.
 */
#ifndef GSV_TEXT_POST_PROCESSOR_H
#define GSV_TEXT_POST_PROCESSOR_H

#include "lib/base/json_tree.h"

#include <gpuserve/types.h>

#include <stdbool.h>

enum {
    GSV_TEMPLATE_MAX = 64 /* special tokens of a template */
};

struct gsv_template {
    int32_t ids[GSV_TEMPLATE_MAX];
    uint8_t types[GSV_TEMPLATE_MAX];
    size_t n;                   /* special tokens */
    size_t n_before, n_between; /* the first ones; `between` is empty for a single text */
    uint8_t type_a, type_b;
};

struct gsv_post_processor {
    struct gsv_template single, pair;
    /* RobertaProcessing or ByteLevel with trim_offsets: white space at the ends of a token is not
     * in its span. */
    bool trim_offsets, add_prefix_space;
};

/* `json` may be null: no special tokens, types 0 and 1. */
gpuserve_status gsv_post_processor_parse(struct gsv_post_processor *processor,
                                         const struct gsv_json_value *json, const char *name,
                                         gpuserve_error *error);
/* [CLS] A [SEP], and [CLS] A [SEP] B [SEP] with type 1 from B on. */
void gsv_post_processor_bert(struct gsv_post_processor *processor, int32_t cls, int32_t sep);
/* <s> A </s>, and <s> A </s> </s> B </s>, all of type 0. */
void gsv_post_processor_roberta(struct gsv_post_processor *processor, int32_t cls, int32_t sep);
/* A and A B, B of type 1, with a token before if `bos` is one. */
void gsv_post_processor_gpt2(struct gsv_post_processor *processor, int32_t bos);

#endif
