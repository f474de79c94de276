/*
 * fuzz_vocab_txt.c - arbitrary bytes as vocab.txt, preceded by tokenizer_config.json and a NUL.
 */
#include "fuzz/fuzz.h"

#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"
#include "lib/text/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

static void load(const char *vocab, size_t size, const struct gsv_json_value *config)
{
    static const char text[] = "Na\xC3\xAFve [MASK] words";
    struct gsv_tokenizer *t = calloc(1, sizeof(*t));
    struct gsv_encoding e = { 0 };
    /* One object serves as all three files. */
    const struct gsv_vocab_files files = { config, gsv_json_member(config, "specials"),
                                           gsv_json_member(config, "added") };

    if (!t)
        return;
    if (gsv_tokenizer_read_vocab(t, vocab, size, &files, "fuzz", NULL) == GPUSERVE_OK &&
        gsv_tokenizer_finish(t, "fuzz", NULL) == GPUSERVE_OK) {
        if (gsv_tokenizer_encode(t, &e, text, strlen(text), NULL, 0, NULL, NULL) != GPUSERVE_OK)
            abort();
        for (size_t i = 0; i < e.n; i++)
            if (e.ids[i] < 0 || e.ids[i] >= gsv_tokenizer_vocab_size(t))
                abort();
    }
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct gsv_json_limits limits = { .max_values = 1000, .max_depth = 16 };
    const char *text = (const char *)data, *nul = memchr(text, '\0', size);
    const size_t config_size = nul ? (size_t)(nul - text) : 0, skipped = nul ? config_size + 1 : 0;
    struct gsv_json_value *config = NULL;

    if (gsv_utf8_valid_length(text, size) != size)
        return 0; /* gsv_tokenizer_load() rejects invalid UTF-8 earlier */
    if (gsv_json_read(&config, text, config_size, "fuzz", limits, NULL) != GPUSERVE_OK)
        config = NULL;
    load(text + skipped, size - skipped, config);
    gsv_json_free(&config);
    return 0;
}
