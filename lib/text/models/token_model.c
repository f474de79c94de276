/*
 * token_model.c - detects the model type and dispatches to WordPiece, WordLevel, BPE, Unigram
 * or a dictionary, which tokenizer.json does not have.
 */
#include "lib/text/models/token_model.h"

#include "lib/base/error.h"
#include "lib/text/scratch.h"

#include <string.h>

static const char *const names[] = {
    [GSV_WORDPIECE] = "WordPiece",
    [GSV_BPE] = "BPE",
    [GSV_UNIGRAM] = "Unigram",
    [GSV_WORDLEVEL] = "WordLevel",
    [GSV_DICTIONARY] = "WhitespaceTokenizer",
};

static gpuserve_status check_type(struct gsv_token_model *model, const struct gsv_member *fields,
                                  const char *name, gpuserve_error *error)
{
    const struct gsv_json_slice type = fields[GSV_MODEL_TYPE].value;
    /* Older files have no "type"; the fields that are present decide. */
    const bool wordpiece = fields[GSV_MODEL_PREFIX].value.at &&
                           fields[GSV_MODEL_MAX_CHARS].value.at &&
                           !fields[GSV_MODEL_MERGES].value.at;

    for (size_t i = 0; i < GSV_DICTIONARY && type.at; i++) {
        const size_t size = strlen(names[i]);

        model->kind = (enum gsv_token_model_kind)i;
        if (type.size == size + 2 && memcmp(type.at + 1, names[i], size) == 0)
            return GPUSERVE_OK;
    }
    if (type.at)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: model type %.*s is not supported", name,
                        (int)(type.size < 100 ? type.size : 100), type.at);
    model->kind = fields[GSV_MODEL_MERGES].value.at ? GSV_BPE : GSV_WORDPIECE;
    return wordpiece || model->kind == GSV_BPE
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                          "%s: the model has no \"type\", and its fields are those of neither "
                          "WordPiece nor BPE",
                          name);
}

gpuserve_status gsv_token_model_read(struct gsv_token_model *model, struct gsv_vocab *vocab,
                                     struct gsv_json_slice json, const char *name,
                                     gpuserve_error *error)
{
    struct gsv_member fields[GSV_N_MODEL_FIELDS] = {
        [GSV_MODEL_TYPE] = { "type", { 0 } },
        [GSV_MODEL_UNK] = { "unk_token", { 0 } },
        [GSV_MODEL_PREFIX] = { "continuing_subword_prefix", { 0 } },
        [GSV_MODEL_MAX_CHARS] = { "max_input_chars_per_word", { 0 } },
        [GSV_MODEL_VOCAB] = { "vocab", { 0 } },
        [GSV_MODEL_MERGES] = { "merges", { 0 } },
        [GSV_MODEL_UNK_ID] = { "unk_id", { 0 } },
        [GSV_MODEL_DROPOUT] = { "dropout", { 0 } },
        [GSV_MODEL_SUFFIX] = { "end_of_word_suffix", { 0 } },
        [GSV_MODEL_FUSE_UNK] = { "fuse_unk", { 0 } },
        [GSV_MODEL_BYTE_FALLBACK] = { "byte_fallback", { 0 } },
        [GSV_MODEL_IGNORE_MERGES] = { "ignore_merges", { 0 } },
    };
    struct gsv_json_reader reader = gsv_json_reader_of(json, name);
    gpuserve_status status = gsv_json_fields_find(&reader, fields, GSV_N_MODEL_FIELDS, true, error);

    if (status == GPUSERVE_OK)
        status = check_type(model, fields, name, error);
    if (status == GPUSERVE_OK && !fields[GSV_MODEL_VOCAB].value.at)
        status = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: model: \"vocab\" is missing", name);
    if (status != GPUSERVE_OK)
        return status;
    switch (model->kind) {
    case GSV_WORDPIECE:
        status = gsv_vocab_read_json(vocab, fields[GSV_MODEL_VOCAB].value, name, error);
        if (status == GPUSERVE_OK)
            status = gsv_wordpiece_read(&model->wordpiece, fields, vocab, name, error);
        break;
    case GSV_WORDLEVEL:
        status = gsv_vocab_read_json(vocab, fields[GSV_MODEL_VOCAB].value, name, error);
        if (status == GPUSERVE_OK)
            status = gsv_wordlevel_read(&model->wordpiece, fields, vocab, name, error);
        break;
    case GSV_UNIGRAM:
        status = gsv_unigram_read(&model->unigram, fields, vocab, name, error);
        break;
    case GSV_BPE:
        status = gsv_vocab_read_json(vocab, fields[GSV_MODEL_VOCAB].value, name, error);
        if (status == GPUSERVE_OK)
            status = gsv_bpe_read(&model->bpe, fields, vocab, name, error);
        break;
    case GSV_DICTIONARY: /* check_type() does not find it */
        break;
    }
    return status;
}

gpuserve_status gsv_token_model_build(struct gsv_token_model *model, const struct gsv_vocab *vocab,
                                      bool bytes, const char *name, gpuserve_error *error)
{
    if (bytes && model->kind != GSV_BPE)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: pre-tokenizer \"ByteLevel\" with a %s model is not supported", name,
                        names[model->kind]);
    switch (model->kind) {
    case GSV_WORDPIECE:
    case GSV_WORDLEVEL:
        model->max_chars = model->wordpiece.max_chars;
        return gsv_wordpiece_build(&model->wordpiece, vocab, name, error);
    case GSV_UNIGRAM:
        model->max_chars = SIZE_MAX - 1; /* max_chars + 1 must not overflow */
        return gsv_unigram_build(&model->unigram, vocab, name, error);
    case GSV_BPE:
        model->max_chars = SIZE_MAX - 1;
        return gsv_bpe_build(&model->bpe, vocab, bytes, name, error);
    case GSV_DICTIONARY:
        model->max_chars = SIZE_MAX - 1;
        model->dictionary.vocab = vocab;
        break;
    }
    return GPUSERVE_OK;
}

void gsv_token_model_reset(struct gsv_token_model *model)
{
    gsv_wordpiece_reset(&model->wordpiece);
    gsv_unigram_reset(&model->unigram);
    gsv_bpe_reset(&model->bpe);
    gsv_dictionary_reset(&model->dictionary);
}

const char *gsv_token_model_name(const struct gsv_token_model *model)
{
    return names[model->kind];
}

int32_t gsv_token_model_unknown(const struct gsv_token_model *model)
{
    switch (model->kind) {
    case GSV_BPE:
        return model->bpe.unknown;
    case GSV_UNIGRAM:
        return model->unigram.unknown;
    case GSV_DICTIONARY: /* leaves unknown words out */
        return -1;
    default:
        return model->wordpiece.unknown;
    }
}

size_t gsv_token_model_bytes(const struct gsv_token_model *model)
{
    const struct gsv_wordpiece *wordpiece = &model->wordpiece;

    return wordpiece->trie.n * (sizeof(*wordpiece->trie.units) + sizeof(*wordpiece->failures)) +
           wordpiece->pops_capacity * sizeof(*wordpiece->pops) + gsv_bpe_bytes(&model->bpe) +
           gsv_unigram_bytes(&model->unigram) + gsv_vocab_bytes(&model->dictionary.stops);
}

size_t gsv_token_model_split(const struct gsv_token_model *model, const char *word, size_t size,
                             size_t n_chars, struct gsv_scratch *scratch)
{
    ptrdiff_t n;

    switch (model->kind) {
    case GSV_WORDPIECE:
    case GSV_WORDLEVEL:
        return gsv_wordpiece_split(&model->wordpiece, word, size, n_chars, scratch->pieces,
                                   &scratch->steps);
    case GSV_UNIGRAM:
        return gsv_unigram_split(&model->unigram, word, size, scratch);
    case GSV_DICTIONARY:
        return gsv_dictionary_split(&model->dictionary, word, size, scratch);
    case GSV_BPE:
        n = gsv_bpe_split(&model->bpe, word, size, &scratch->bpe, scratch->pieces, &scratch->steps);
        if (n == GSV_BPE_NO_MEMORY)
            scratch->failure = GSV_SPLIT_NO_MEMORY;
        return n == GSV_BPE_NO_MEMORY ? 0 : (size_t)n;
    }
    return 0;
}
