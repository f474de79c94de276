/*
 * tokenizer_vocab.c - reads vocab.txt and the files next to it: a BERT tokenizer.
 *
 * For models without a tokenizer.json. The parts equal those of transformers' conversion:
 * BertNormalizer with do_lower_case, tokenize_chinese_chars and strip_accents, BertPreTokenizer,
 * WordPiece, [CLS] A [SEP] B [SEP]. special_tokens.h handles the special and added tokens.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/text/load/special_tokens.h"

static const struct gsv_special keys[] = {
    { .key = "unk_token", .usual = "[UNK]", .needed = true, .known = true },
    { .key = "cls_token", .usual = "[CLS]", .needed = true, .known = true },
    { .key = "sep_token", .usual = "[SEP]", .needed = true, .known = true },
    { .key = "pad_token", .usual = "[PAD]", .known = true },
    { .key = "mask_token", .usual = "[MASK]", .known = true },
    { .key = "bos_token" },
    { .key = "eos_token" },
};

enum { UNK, CLS, SEP, N_KEYS = sizeof(keys) / sizeof(keys[0]) };

static gpuserve_status read_specials(struct gsv_tokenizer *t, const struct gsv_vocab_files *files,
                                     const char *name, gpuserve_error *error)
{
    int32_t ids[N_KEYS];
    const gpuserve_status status = gsv_specials_read(t, files, keys, N_KEYS, ids, name, error);

    if (status != GPUSERVE_OK)
        return status;
    t->model.wordpiece.unknown = ids[UNK];
    t->post.pair.type_b = 1;
    gsv_post_processor_bert(&t->post, ids[CLS], ids[SEP]);
    return GPUSERVE_OK;
}

static gpuserve_status read_normalizer(struct gsv_tokenizer *t, const struct gsv_json_value *config,
                                       gpuserve_error *error)
{
    const char *const name = "tokenizer_config.json";
    bool lowercase = true, chinese = true, strip_accents;
    gpuserve_status status = gsv_json_bool(config, "do_lower_case", name, &lowercase, error);

    strip_accents = lowercase;
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(config, "strip_accents", name, &strip_accents, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(config, "tokenize_chinese_chars", name, &chinese, error);
    if (status == GPUSERVE_OK)
        status =
            gsv_normalizer_bert(&t->normalizer, true, chinese, strip_accents, lowercase, error);
    return status;
}

gpuserve_status gsv_tokenizer_read_vocab(struct gsv_tokenizer *t, const char *text, size_t size,
                                         const struct gsv_vocab_files *files, const char *name,
                                         gpuserve_error *error)
{
    gpuserve_status status = gsv_vocab_read_lines(&t->vocab, text, size, name, error);

    if (status == GPUSERVE_OK)
        status = read_specials(t, files, name, error);
    if (status == GPUSERVE_OK)
        status = read_normalizer(t, files->config, error);
    if (status == GPUSERVE_OK)
        status = gsv_decoder_wordpiece(&t->decoder, "##", true, name, error);
    if (status != GPUSERVE_OK)
        return status;
    gsv_pretokenizer_bert(&t->pretokenizer);
    t->model.wordpiece.max_chars = 100;
    t->model.wordpiece.prefix = gsv_copy_text("##", 2);
    return t->model.wordpiece.prefix ? GPUSERVE_OK
                                     : gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", name);
}
