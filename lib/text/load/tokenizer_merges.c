/*
 * tokenizer_merges.c - reads vocab.json and merges.txt: byte-level BPE of RoBERTa, GPT-2 or
 * DeBERTa.
 *
 * For models without a tokenizer.json. The parts equal those of transformers' conversion.
 * RoBERTa: <s> A </s> </s> B </s>; spans exclude the white space of their tokens, unless
 * "trim_offsets" is false; <mask> includes the white space before it.
 * GPT-2: no special tokens around a text, unless "add_bos_token" or "add_eos_token" is true; the
 * other classes ignore these.
 * DeBERTa: [CLS] A [SEP] B [SEP].
 * All: a space is inserted before the first word if "add_prefix_space" is true.
 * special_tokens.h handles the special and added tokens.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/text/load/special_tokens.h"

#include <string.h>

/* In the order of transformers: it determines the ids of tokens missing from vocab.json. */
enum { BOS, EOS, UNK, SEP, PAD, CLS, MASK, N_KEYS };

static const struct gsv_special roberta_keys[N_KEYS] = {
    [BOS] = { .key = "bos_token", .usual = "<s>", .flagged = true, .normalized = true },
    [EOS] = { .key = "eos_token", .usual = "</s>", .flagged = true, .normalized = true },
    [UNK] = { .key = "unk_token", .usual = "<unk>", .flagged = true, .normalized = true },
    [SEP] = { .key = "sep_token",
              .usual = "</s>",
              .needed = true,
              .flagged = true,
              .normalized = true },
    [PAD] = { .key = "pad_token", .usual = "<pad>", .flagged = true, .normalized = true },
    [CLS] = { .key = "cls_token",
              .usual = "<s>",
              .needed = true,
              .flagged = true,
              .normalized = true },
    [MASK] = { .key = "mask_token", .usual = "<mask>", .flagged = true, .lstrip = true },
};

static const struct gsv_special deberta_keys[N_KEYS] = {
    [BOS] = { .key = "bos_token", .usual = "[CLS]", .flagged = true },
    [EOS] = { .key = "eos_token", .usual = "[SEP]", .flagged = true },
    [UNK] = { .key = "unk_token", .usual = "[UNK]", .flagged = true },
    [SEP] = { .key = "sep_token", .usual = "[SEP]", .needed = true, .flagged = true },
    [PAD] = { .key = "pad_token", .usual = "[PAD]", .flagged = true },
    [CLS] = { .key = "cls_token", .usual = "[CLS]", .needed = true, .flagged = true },
    [MASK] = { .key = "mask_token",
               .usual = "[MASK]",
               .flagged = true,
               .lstrip = true,
               .normalized = true },
};

static const struct gsv_special gpt2_keys[N_KEYS] = {
    [BOS] = { .key = "bos_token", .usual = "<|endoftext|>", .flagged = true, .normalized = true },
    [EOS] = { .key = "eos_token", .usual = "<|endoftext|>", .flagged = true, .normalized = true },
    [UNK] = { .key = "unk_token", .usual = "<|endoftext|>", .flagged = true, .normalized = true },
    [SEP] = { .key = "sep_token" },
    [PAD] = { .key = "pad_token", .flagged = true, .normalized = true },
    [CLS] = { .key = "cls_token" },
    [MASK] = { .key = "mask_token" },
};

/* ------------------------------------------------------------------ vocab.json */

/* Ids must be contiguous: the ids of added tokens start at the number of tokens. */
static gpuserve_status check_ids(const struct gsv_vocab *vocab, const char *name,
                                 gpuserve_error *error)
{
    for (size_t id = 0; id < vocab->n_ids; id++)
        if (!vocab->by_id[id])
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: token id %zu is missing, although ids go up to %zu", name, id,
                            vocab->n_ids - 1);
    return GPUSERVE_OK;
}

/* Refuse a byte order mark, which some editors write. JSON forbids it, and it would change the
 * first line of merges.txt. */
static gpuserve_status check_byte_order_mark(const struct gsv_text_file *file,
                                             gpuserve_error *error)
{
    if (file->size >= 3 && memcmp(file->text, "\xEF\xBB\xBF", 3) == 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s:1: the file begins with a byte order mark",
                        file->name);
    return GPUSERVE_OK;
}

static gpuserve_status read_vocab(struct gsv_vocab *vocab, const struct gsv_text_file *file,
                                  gpuserve_error *error)
{
    struct gsv_json_slice object = { file->text, file->size };
    struct gsv_json_reader reader = gsv_json_reader_of(object, file->name);
    gpuserve_status status;

    if (gsv_json_reader_peek(&reader) != '{')
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: the file is not a JSON object", file->name);
    status = gsv_json_reader_value(&reader, &object, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_reader_end(&reader, error);
    if (status == GPUSERVE_OK)
        status = gsv_vocab_read_json(vocab, object, file->name, error);
    return status == GPUSERVE_OK ? check_ids(vocab, file->name, error) : status;
}

/* ------------------------------------------------------------------ other parts */

static gpuserve_status read_model(struct gsv_tokenizer *t, const struct gsv_text_file *vocab,
                                  const struct gsv_text_file *merges, gpuserve_error *error)
{
    struct gsv_bpe *const bpe = &t->model.bpe;
    gpuserve_status status = check_byte_order_mark(vocab, error);

    if (status == GPUSERVE_OK)
        status = check_byte_order_mark(merges, error);
    if (status == GPUSERVE_OK)
        status = read_vocab(&t->vocab, vocab, error);
    if (status != GPUSERVE_OK)
        return status;
    t->model.kind = GSV_BPE;
    bpe->unknown = -1;
    bpe->prefix = gsv_copy_text("", 0);
    bpe->suffix = gsv_copy_text("", 0);
    if (!bpe->prefix || !bpe->suffix)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", vocab->name);
    return gsv_bpe_read_merges(bpe, merges->text, merges->size, &t->vocab, merges->name, error);
}

static gpuserve_status take_roberta(struct gsv_tokenizer *t, const struct gsv_json_value *config,
                                    const int32_t *ids, bool prefix, const char *name,
                                    gpuserve_error *error)
{
    t->post.trim_offsets = true;
    t->post.add_prefix_space = prefix;
    gsv_post_processor_roberta(&t->post, ids[CLS], ids[SEP]);
    return gsv_json_bool(config, "trim_offsets", name, &t->post.trim_offsets, error);
}

/* *id is that of the token if `flag` is set in the configuration, else -1. */
static gpuserve_status read_added(int32_t *id, const struct gsv_json_value *config,
                                  const char *flag, const char *key, const char *name,
                                  gpuserve_error *error)
{
    bool adds = false;
    const gpuserve_status status = gsv_json_bool(config, flag, name, &adds, error);

    if (status == GPUSERVE_OK && adds && *id < 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\" is set, but \"%s\" is missing", name,
                        flag, key);
    if (!adds)
        *id = -1;
    return status;
}

static gpuserve_status take_gpt2(struct gsv_tokenizer *t, const struct gsv_json_value *config,
                                 const int32_t *ids, const char *name, gpuserve_error *error)
{
    int32_t bos = ids[BOS], eos = ids[EOS];
    gpuserve_status status = read_added(&bos, config, "add_bos_token", "bos_token", name, error);

    if (status == GPUSERVE_OK)
        status = read_added(&eos, config, "add_eos_token", "eos_token", name, error);
    if (status == GPUSERVE_OK)
        gsv_post_processor_gpt2(&t->post, bos, eos);
    return status;
}

gpuserve_status gsv_tokenizer_read_merges(struct gsv_tokenizer *t, enum gsv_tokenizer_class class,
                                          const struct gsv_text_file *vocab,
                                          const struct gsv_text_file *merges,
                                          const struct gsv_vocab_files *files,
                                          gpuserve_error *error)
{
    static const char name[] = "tokenizer_config.json";
    const bool roberta = class == GSV_CLASS_ROBERTA, deberta = class == GSV_CLASS_DEBERTA;
    const struct gsv_special *keys = roberta ? roberta_keys : deberta ? deberta_keys : gpt2_keys;
    int32_t ids[N_KEYS];
    bool prefix = false;
    gpuserve_status status = read_model(t, vocab, merges, error);

    if (status == GPUSERVE_OK)
        status = gsv_specials_read(t, files, keys, N_KEYS, ids, vocab->name, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(files->config, "add_prefix_space", name, &prefix, error);
    if (status == GPUSERVE_OK && deberta)
        gsv_post_processor_bert(&t->post, ids[CLS], ids[SEP]);
    else if (status == GPUSERVE_OK)
        status = roberta ? take_roberta(t, files->config, ids, prefix, name, error)
                         : take_gpt2(t, files->config, ids, name, error);
    if (status == GPUSERVE_OK)
        status = gsv_normalizer_parse(&t->normalizer, NULL, vocab->name, error);
    if (status == GPUSERVE_OK)
        status = gsv_decoder_byte_level(&t->decoder, vocab->name, error);
    if (status == GPUSERVE_OK)
        gsv_pretokenizer_gpt2(&t->pretokenizer, prefix);
    return status;
}
