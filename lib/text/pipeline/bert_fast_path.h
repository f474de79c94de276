/*
 * bert_fast_path.h - BERT's normalizer and pre-tokenizer in one pass over the bytes.
 *
 * Used for WordPiece tokenizers whose normalizer and pre-tokenizer are BERT's; the result equals
 * that of the general path in encode.c.
 */
#ifndef GSV_TEXT_BERT_FAST_PATH_H
#define GSV_TEXT_BERT_FAST_PATH_H

#include "lib/text/pipeline/token_writer.h"

/* Build the byte tables; call it once all parts are loaded. */
void gsv_bert_scan_prepare(struct gsv_tokenizer *tokenizer);

/* Emit the tokens of text[begin, end), which contains no added token. text_size is the size of the
 * whole text. */
void gsv_bert_scan(struct gsv_sink *sink, const char *text, size_t text_size, size_t begin,
                   size_t end);

#endif
