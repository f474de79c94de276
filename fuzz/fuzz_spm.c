/*
 * fuzz_spm.c - arbitrary bytes as sentencepiece.bpe.model, for both tokenizer classes that read it.
 */
#include "fuzz/fuzz.h"

#include "lib/text/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

static void load(enum gsv_tokenizer_class class, const uint8_t *data, size_t size)
{
    static const char text[] = " Na\xC3\xAFve  <mask> \xEF\xAC\x81ne\xE3\x80\x80words ";
    const struct gsv_text_file file = { "fuzz", (const char *)data, size };
    const struct gsv_vocab_files none = { 0 };
    struct gsv_tokenizer *t = calloc(1, sizeof(*t));
    struct gsv_encoding e = { 0 };

    if (!t)
        return;
    if (gsv_tokenizer_read_spm(t, class, &file, &none, NULL) == GPUSERVE_OK &&
        gsv_tokenizer_finish(t, "fuzz", NULL) == GPUSERVE_OK) {
        if (gsv_tokenizer_encode(t, &e, text, strlen(text), NULL, 0, NULL, NULL) != GPUSERVE_OK)
            abort();
        for (size_t i = 0; i < e.n; i++)
            if (e.ids[i] < 0 || e.ids[i] >= gsv_tokenizer_vocab_size(t) ||
                e.spans[i].begin > e.spans[i].end || e.spans[i].end > strlen(text))
                abort();
    }
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    load(GSV_CLASS_XLM_ROBERTA, data, size);
    load(GSV_CLASS_CAMEMBERT, data, size);
    load(GSV_CLASS_DEBERTA_V2, data, size);
    load(GSV_CLASS_T5, data, size);
    load(GSV_CLASS_ALBERT, data, size);
    return 0;
}
