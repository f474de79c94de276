/*
 * whitespace_json.c - reads whitespacetokenizer_config.json, the tokenizer of
 * sentence-transformers' WordEmbeddings: the words, the stop words, and whether texts are
 * lowercased first.
 */
#include "lib/base/error.h"
#include "lib/text/tokenizer_parts.h"

#include <string.h>

enum { VOCAB, STOP_WORDS, LOWER_CASE, N_FIELDS };

static bool is_word(struct gsv_json_slice slice, const char *word)
{
    return slice.size == strlen(word) && memcmp(slice.at, word, slice.size) == 0;
}

static gpuserve_status read_case(struct gsv_tokenizer *t, struct gsv_json_slice value,
                                 const char *name, gpuserve_error *error)
{
    if (value.at && is_word(value, "true"))
        t->lowers = true;
    else if (value.at && !is_word(value, "false"))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"do_lower_case\" is neither true nor false",
                        name);
    return GPUSERVE_OK;
}

gpuserve_status gsv_tokenizer_read_whitespace(struct gsv_tokenizer *t, const char *text,
                                              size_t size, const char *name, gpuserve_error *error)
{
    struct gsv_member fields[N_FIELDS] = {
        [VOCAB] = { "vocab", { 0 } },
        [STOP_WORDS] = { "stop_words", { 0 } },
        [LOWER_CASE] = { "do_lower_case", { 0 } },
    };
    struct gsv_json_reader reader = { text, text, text + size, name };
    gpuserve_status status = gsv_json_fields_find(&reader, fields, N_FIELDS, true, error);

    if (status == GPUSERVE_OK)
        status = gsv_json_reader_end(&reader, error);
    if (status == GPUSERVE_OK)
        status = read_case(t, fields[LOWER_CASE].value, name, error);
    if (status == GPUSERVE_OK)
        status = gsv_dictionary_read(&t->model.dictionary, &t->vocab, fields[VOCAB].value,
                                     fields[STOP_WORDS].value, name, error);
    t->model.kind = GSV_DICTIONARY;
    gsv_pretokenizer_white_space(&t->pretokenizer);
    return status;
}
