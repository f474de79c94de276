/*
 * fuzz_tokenizer_json.c - arbitrary bytes as tokenizer.json; a tokenizer that loads can encode and
 * decode.
 */
#include "fuzz/fuzz.h"

#include "lib/base/utf8.h"
#include "lib/text/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

static const char text[] = "Na\xC3\xAFve [MASK]  un\xE5\xAD\x97 \xE3\x80\xAE\xCC\x81 a.b\t\x01";

/* Spans are inside the text, ids inside the vocabulary, a second call gives the same result. */
static void encode(const struct gsv_tokenizer *t, uint32_t truncation)
{
    const struct gsv_encode_options options = { .max_tokens = 70, .truncation = truncation };
    struct gsv_encoding e = { 0 };
    const bool refuses = t->model.kind == GSV_UNIGRAM && t->model.unigram.unknown < 0;
    char decoded[4096];
    size_t n, size;
    gpuserve_status status;

    status = gsv_tokenizer_encode(t, &e, text, sizeof(text), text, 9, &options, NULL);
    if (status != GPUSERVE_OK && !(refuses && status == GPUSERVE_E_INVALID))
        abort();
    if (status != GPUSERVE_OK) {
        gsv_encoding_reset(&e);
        return;
    }
    n = e.n;
    if (n > options.max_tokens)
        abort();
    for (size_t i = 0; i < n; i++)
        if (e.ids[i] < 0 || e.spans[i].begin > e.spans[i].end || e.spans[i].end > sizeof(text))
            abort();
    (void)gsv_tokenizer_decode(t, e.ids, n, true, decoded, sizeof(decoded), &size, NULL);
    if (gsv_tokenizer_encode(t, &e, text, sizeof(text), text, 9, &options, NULL) != GPUSERVE_OK ||
        e.n != n)
        abort();
    gsv_encoding_reset(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gsv_tokenizer *t;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status status;

    if (gsv_utf8_valid_length((const char *)data, size) != size)
        return 0; /* gsv_tokenizer_load() rejects this earlier */
    t = calloc(1, sizeof(*t));
    if (!t)
        return 0;
    status = gsv_tokenizer_read_json(t, (const char *)data, size, "fuzz", &error);
    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_finish(t, "fuzz", &error);
    if (status == GPUSERVE_OK) {
        encode(t, GPUSERVE_TRUNCATE_RIGHT);
        encode(t, GPUSERVE_TRUNCATE_LEFT);
    }
    gsv_tokenizer_free(&t);
    return 0;
}
