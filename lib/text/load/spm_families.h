/*
 * spm_families.h - SentencePiece tokenizers whose ids are those of the file: DeBERTa-v2, T5,
 * ALBERT.
 */
#ifndef GSV_TEXT_SPM_FAMILIES_H
#define GSV_TEXT_SPM_FAMILIES_H

#include "lib/text/load/protobuf.h"
#include "lib/text/tokenizer_parts.h"

struct gsv_spm_family {
    /* The score of a piece; NULL: the file's. */
    double (*score)(const char *piece, size_t size, double score);
    /* Add pieces after those of the file; NULL: none. */
    gpuserve_status (*add_pieces)(struct gsv_tokenizer *tokenizer,
                                  const struct gsv_vocab_files *files, const char *name,
                                  gpuserve_error *error);
    /* Read the special tokens and set all parts but the model. */
    gpuserve_status (*finish)(struct gsv_tokenizer *tokenizer, const struct gsv_vocab_files *files,
                              struct gsv_proto_bytes charsmap, const char *name,
                              gpuserve_error *error);
};

/* NULL for XLM-RoBERTa and CamemBERT. */
const struct gsv_spm_family *gsv_spm_family_of(enum gsv_tokenizer_class class);

#endif
