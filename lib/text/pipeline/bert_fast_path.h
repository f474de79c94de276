/*
 * bert_fast_path.h - BERT's normalizing and splitting in one pass.
 */
#ifndef GSV_TEXT_BERT_FAST_PATH_H
#define GSV_TEXT_BERT_FAST_PATH_H

#include "lib/text/pipeline/token_writer.h"

/* What the tokenizer does at each byte; to be called once it has its parts. */
void gsv_bert_scan_prepare(struct gsv_tokenizer *tokenizer);

/* The tokens of text[begin, end), which holds no added token. text is text_size bytes in all. */
void gsv_bert_scan(struct gsv_sink *sink, const char *text, size_t text_size, size_t begin,
                   size_t end);

#endif
