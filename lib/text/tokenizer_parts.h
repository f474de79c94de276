/*
 * tokenizer_parts.h - what a tokenizer is made of; for the files of lib/text only.
 */
#ifndef GSV_TEXT_TOKENIZER_PARTS_H
#define GSV_TEXT_TOKENIZER_PARTS_H

#include "lib/text/pipeline/added_tokens.h"
#include "lib/text/pipeline/decoder.h"
#include "lib/text/pipeline/normalizer.h"
#include "lib/text/pipeline/post_processor.h"
#include "lib/text/pipeline/pretokenizer.h"
#include "lib/text/tokenizer.h"
#include "lib/text/models/token_model.h"
#include "lib/text/pipeline/span_trim.h"
#include "lib/text/models/vocab.h"

/* What bert_fast_path.c does at a byte. */
enum gsv_byte_class {
    GSV_BYTE_SPACE,
    GSV_BYTE_ALNUM,
    GSV_BYTE_PUNCTUATION,
    GSV_BYTE_DROPPED,
    GSV_BYTE_LETTER, /* any other ASCII: part of a word */
    GSV_BYTE_WIDE,   /* not ASCII */
};

/* The code points of two bytes. */
enum { GSV_TWO_BYTE_BEGIN = 0x80, GSV_TWO_BYTE_END = 0x800 };

struct gsv_tokenizer {
    uint64_t serial; /* differs for each loaded one: to whom a cache of words belongs */
    struct gsv_vocab vocab;
    struct gsv_added_tokens added;
    struct gsv_normalizer normalizer;
    struct gsv_pretokenizer pretokenizer;
    struct gsv_token_model model;
    struct gsv_post_processor post;
    struct gsv_decoder decoder;
    struct gsv_trim *trims; /* [vocab.n_ids] with trim_offsets; NULL: no token is trimmed */
    bool truncate_left;
    bool lowers; /* see struct gsv_tokenizer_place */
    bool scans;  /* bert_fast_path.c does normalizing and pre-tokenizing */
    uint8_t byte_classes[256];
    int32_t ascii_ids[128]; /* of words of one ASCII character, normalized */
    /* What each becomes where that is one character of a word, else 0. */
    uint16_t two_byte_letters[GSV_TWO_BYTE_END - GSV_TWO_BYTE_BEGIN];
};

/* From the text of tokenizer.json. */
gpuserve_status gsv_tokenizer_read_json(struct gsv_tokenizer *tokenizer, const char *text,
                                        size_t size, const char *name, gpuserve_error *error);

/* A file's text, UTF-8, with a name for messages. */
struct gsv_text_file {
    const char *name, *text;
    size_t size;
};

/* The JSON objects beside a vocabulary; NULL: there is no such file. */
struct gsv_vocab_files {
    const struct gsv_json_value *config;   /* tokenizer_config.json */
    const struct gsv_json_value *specials; /* special_tokens_map.json */
    const struct gsv_json_value *added;    /* added_tokens.json */
};

/* From the text of vocab.txt and what is beside it. */
gpuserve_status gsv_tokenizer_read_vocab(struct gsv_tokenizer *tokenizer, const char *text,
                                         size_t size, const struct gsv_vocab_files *files,
                                         const char *name, gpuserve_error *error);

/* Tokenizers that have no vocab.txt, as transformers calls them. */
enum gsv_tokenizer_class {
    GSV_CLASS_ROBERTA,
    GSV_CLASS_GPT2,
    GSV_CLASS_XLM_ROBERTA,
    GSV_CLASS_CAMEMBERT
};

/* RoBERTa's or GPT-2's, from vocab.json, merges.txt and what is beside them. */
gpuserve_status
gsv_tokenizer_read_merges(struct gsv_tokenizer *tokenizer, enum gsv_tokenizer_class class,
                          const struct gsv_text_file *vocab, const struct gsv_text_file *merges,
                          const struct gsv_vocab_files *files, gpuserve_error *error);
/* XLM-RoBERTa's or CamemBERT's, from SentencePiece's file, which need not be UTF-8, and what is
 * beside it. */
gpuserve_status gsv_tokenizer_read_spm(struct gsv_tokenizer *tokenizer,
                                       enum gsv_tokenizer_class class,
                                       const struct gsv_text_file *model,
                                       const struct gsv_vocab_files *files, gpuserve_error *error);
/* Whatever a directory has of it, finished; `folder` is that of struct gsv_tokenizer_place. */
gpuserve_status gsv_tokenizer_read_files(struct gsv_tokenizer *tokenizer, const struct gsv_dir *dir,
                                         const char *folder, gpuserve_error *error);
/* Once all parts are read: what is derived from them. */
gpuserve_status gsv_tokenizer_finish(struct gsv_tokenizer *tokenizer, const char *name,
                                     gpuserve_error *error);

#endif
