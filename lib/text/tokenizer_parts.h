/*
 * tokenizer_parts.h - the parts of a tokenizer and the functions that load them.
 *
 * Private to lib/text. Each reader (lib/text/load) fills the parts from one file format, then
 * gsv_tokenizer_finish() builds the derived tables. The struct is immutable afterwards.
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
#include "lib/text/pipeline/spans.h"
#include "lib/text/models/vocab.h"

/* The action of bert_fast_path.c for a byte. */
enum gsv_byte_class {
    GSV_BYTE_SPACE,
    GSV_BYTE_ALNUM,
    GSV_BYTE_PUNCTUATION,
    GSV_BYTE_DROPPED,
    GSV_BYTE_LETTER, /* any other ASCII: a character of a word */
    GSV_BYTE_WIDE,   /* not ASCII */
};

/* The range of code points with a UTF-8 encoding of two bytes. */
enum { GSV_TWO_BYTE_BEGIN = 0x80, GSV_TWO_BYTE_END = 0x800 };

struct gsv_tokenizer {
    uint64_t serial; /* unique for each loaded tokenizer; identifies the owner of a word cache */
    struct gsv_vocab vocab;
    struct gsv_added_tokens added;
    struct gsv_normalizer normalizer;
    struct gsv_pretokenizer pretokenizer;
    struct gsv_token_model model;
    struct gsv_post_processor post;
    struct gsv_decoder decoder;
    struct gsv_trim *trims; /* [vocab.n_ids] if trim_offsets is set; NULL: no token is trimmed */
    bool truncate_left;
    bool lowers; /* Unicode-lowercase the text first; from gsv_tokenizer_settings.do_lower_case */
    bool skips_unknown; /* from gsv_tokenizer_settings */
    /* Median characters of a token, if gsv_tokenizer_settings.cuts_characters is set; else 0. */
    size_t median_characters;
    bool scans; /* bert_fast_path.c replaces the normalizer and the pre-tokenizer */
    uint8_t byte_classes[256];
    int32_t ascii_ids[128]; /* of one-character ASCII words, by character */
    /* The normalized character if it is exactly one character of a word, else 0. */
    uint16_t two_byte_letters[GSV_TWO_BYTE_END - GSV_TWO_BYTE_BEGIN];
};

/* Read all parts from the text of tokenizer.json. */
gpuserve_status gsv_tokenizer_read_json(struct gsv_tokenizer *tokenizer, const char *text,
                                        size_t size, const char *name, gpuserve_error *error);

/* Read all parts from the text of whitespacetokenizer_config.json. */
gpuserve_status gsv_tokenizer_read_whitespace(struct gsv_tokenizer *tokenizer, const char *text,
                                              size_t size, const char *name, gpuserve_error *error);

/* The text of a file; `name` is used in messages. */
struct gsv_text_file {
    const char *name, *text;
    size_t size;
};

/* The JSON objects of the files next to a vocabulary; NULL: the file does not exist. */
struct gsv_vocab_files {
    const struct gsv_json_value *config;   /* tokenizer_config.json */
    const struct gsv_json_value *specials; /* special_tokens_map.json */
    const struct gsv_json_value *added;    /* added_tokens.json */
};

/* Read the parts of a BERT tokenizer from the text of vocab.txt and the files next to it. */
gpuserve_status gsv_tokenizer_read_vocab(struct gsv_tokenizer *tokenizer, const char *text,
                                         size_t size, const struct gsv_vocab_files *files,
                                         const char *name, gpuserve_error *error);

/* Tokenizers without a vocab.txt, by their transformers class. */
enum gsv_tokenizer_class {
    GSV_CLASS_ROBERTA,
    GSV_CLASS_GPT2,
    GSV_CLASS_XLM_ROBERTA,
    GSV_CLASS_CAMEMBERT,
    GSV_CLASS_DEBERTA,
    GSV_CLASS_DEBERTA_V2,
    GSV_CLASS_T5,
    GSV_CLASS_ALBERT
};

/* Read a RoBERTa, GPT-2 or DeBERTa tokenizer from vocab.json, merges.txt and the files next to
 * them.
 */
gpuserve_status
gsv_tokenizer_read_merges(struct gsv_tokenizer *tokenizer, enum gsv_tokenizer_class class,
                          const struct gsv_text_file *vocab, const struct gsv_text_file *merges,
                          const struct gsv_vocab_files *files, gpuserve_error *error);
/* Read a tokenizer of one of the other classes from its SentencePiece file, which need not be
 * UTF-8, and the files next to it. */
gpuserve_status gsv_tokenizer_read_spm(struct gsv_tokenizer *tokenizer,
                                       enum gsv_tokenizer_class class,
                                       const struct gsv_text_file *model,
                                       const struct gsv_vocab_files *files, gpuserve_error *error);
/* Read and finish a tokenizer from whichever files the directory has; `folder` as in struct
 * gsv_tokenizer_settings. */
gpuserve_status gsv_tokenizer_read_files(struct gsv_tokenizer *tokenizer, const struct gsv_dir *dir,
                                         const char *folder, gpuserve_error *error);
/* Build the derived tables after all parts are read. */
gpuserve_status gsv_tokenizer_finish(struct gsv_tokenizer *tokenizer, const char *name,
                                     gpuserve_error *error);

#endif
