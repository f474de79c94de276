/*
 * post_processor.h - the "post_processor" of tokenizer.json: special tokens and type ids.
 *
 * Every processor is reduced to two templates, one for a single text and one for a pair: special
 * tokens, the first text, special tokens, the second text, special tokens.
 */
#ifndef GSV_TEXT_POST_PROCESSOR_H
#define GSV_TEXT_POST_PROCESSOR_H

#include "lib/base/json_tree.h"

#include <gpuserve/types.h>

#include <stdbool.h>

enum {
    GSV_TEMPLATE_MAX = 64 /* maximum number of special tokens in a template */
};

struct gsv_template {
    int32_t ids[GSV_TEMPLATE_MAX];
    uint8_t types[GSV_TEMPLATE_MAX];
    size_t n;                   /* number of special tokens */
    size_t n_before, n_between; /* of these, before and between; n_between is 0 for a single text */
    uint8_t type_a, type_b;
};

struct gsv_post_processor {
    struct gsv_template single, pair;
    /* RobertaProcessing or ByteLevel with trim_offsets: spans exclude the white space at both ends
     * of a token. */
    bool trim_offsets, add_prefix_space;
};

/* Parse the processor; `json` may be NULL or a JSON null: no special tokens, types 0 and 1. */
gpuserve_status gsv_post_processor_parse(struct gsv_post_processor *processor,
                                         const struct gsv_json_value *json, const char *name,
                                         gpuserve_error *error);
/* Templates [CLS] A [SEP] and [CLS] A [SEP] B [SEP], with type 1 from B on. */
void gsv_post_processor_bert(struct gsv_post_processor *processor, int32_t cls, int32_t sep);
/* Templates <s> A </s> and <s> A </s> </s> B </s>, all of type 0. */
void gsv_post_processor_roberta(struct gsv_post_processor *processor, int32_t cls, int32_t sep);
/* A </s>, and A </s> B </s>. */
void gsv_post_processor_t5(struct gsv_post_processor *processor, int32_t eos);
/* Templates A and A B, B with type 1, each text between `bos` and `eos`; negative: none. */
void gsv_post_processor_gpt2(struct gsv_post_processor *processor, int32_t bos, int32_t eos);

#endif
