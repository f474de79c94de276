/*
 * spm_families.c - the parts of DeBERTa-v2, T5 and ALBERT tokenizers around a SentencePiece file.
 *
 * The parts equal those of the conversion in transformers 4. The normalizers are read from the JSON
 * that it writes; the charsmap of the file stands between two of them.
 */
#include "lib/text/load/spm_families.h"

#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"
#include "lib/text/load/special_tokens.h"
#include "lib/text/unicode/unicode.h"

#include <stdio.h>
#include <string.h>

#define CONFIG "tokenizer_config.json"
#define SEQUENCE(parts) "{\"type\":\"Sequence\",\"normalizers\":[" parts "]}"
#define REPLACE(from, to) \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from "\"},\"content\":\"" to "\"}"
#define LOWERCASE "{\"type\":\"Lowercase\"}"
#define STRIP "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}"
#define QUOTES REPLACE("``", "\\\"") "," REPLACE("''", "\\\"")
#define NO_ACCENTS "{\"type\":\"NFKD\"},{\"type\":\"StripAccents\"}"
#define SPACES "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}"

enum { MAX_EXTRA_IDS = 10000, EXTRA_ID_BYTES = 24 };

/* ------------------------------------------------------------------------------- common parts */

static gpuserve_status add_steps(struct gsv_tokenizer *t, const char *normalizer, const char *name,
                                 gpuserve_error *error)
{
    static const struct gsv_json_limits limits = { .max_values = 100, .max_depth = 8 };
    struct gsv_json_value *json = NULL;
    gpuserve_status status =
        gsv_json_read(&json, normalizer, strlen(normalizer), name, limits, error);

    if (status == GPUSERVE_OK)
        status = gsv_normalizer_parse(&t->normalizer, json, name, error);
    gsv_json_free(&json);
    return status;
}

/* `before`, the charsmap, and runs of spaces as one. */
static gpuserve_status add_normalizer(struct gsv_tokenizer *t, const char *before,
                                      struct gsv_proto_bytes charsmap, const char *name,
                                      gpuserve_error *error)
{
    gpuserve_status status = add_steps(t, before, name, error);

    if (status == GPUSERVE_OK)
        status = gsv_normalizer_charsmap(&t->normalizer, charsmap.at, charsmap.size, name, error);
    return status == GPUSERVE_OK ? add_steps(t, SPACES, name, error) : status;
}

/* U+2581 before words, which begin at spaces. */
static void add_metaspace(struct gsv_tokenizer *t, enum gsv_prefix_scheme scheme)
{
    t->pretokenizer.steps[t->pretokenizer.n++] = (struct gsv_pretoken_step){
        .kind = GSV_PRETOKEN_METASPACE, .scheme = scheme, .replacement = 0x2581, .splits = true
    };
}

static gpuserve_status add_bert_template(struct gsv_tokenizer *t, const char *name,
                                         gpuserve_error *error)
{
    const int32_t cls = gsv_vocab_id(&t->vocab, "[CLS]", 5);
    const int32_t sep = gsv_vocab_id(&t->vocab, "[SEP]", 5);

    if (cls < 0 || sep < 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: token \"%s\" is not in the vocabulary", name,
                        cls < 0 ? "[CLS]" : "[SEP]");
    gsv_post_processor_bert(&t->post, cls, sep);
    return gsv_decoder_metaspace(&t->decoder, name, error);
}

/* -------------------------------------------------------------------------------- DeBERTa-v2 */

static const struct gsv_special deberta_keys[] = {
    { .key = "bos_token", .usual = "[CLS]" },
    { .key = "eos_token", .usual = "[SEP]" },
    { .key = "unk_token", .usual = "[UNK]", .flagged = true, .normalized = true },
    { .key = "sep_token", .usual = "[SEP]" },
    { .key = "pad_token", .usual = "[PAD]" },
    { .key = "cls_token", .usual = "[CLS]" },
    { .key = "mask_token", .usual = "[MASK]" },
};

enum { N_DEBERTA_KEYS = sizeof(deberta_keys) / sizeof(deberta_keys[0]) };

static gpuserve_status finish_deberta(struct gsv_tokenizer *t, const struct gsv_vocab_files *files,
                                      struct gsv_proto_bytes charsmap, const char *name,
                                      gpuserve_error *error)
{
    bool lower = false, splits = false;
    int32_t ids[N_DEBERTA_KEYS];
    gpuserve_status status =
        gsv_specials_read(t, files, deberta_keys, N_DEBERTA_KEYS, ids, name, error);

    if (status == GPUSERVE_OK)
        status = gsv_json_bool(files->config, "do_lower_case", CONFIG, &lower, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(files->config, "split_by_punct", CONFIG, &splits, error);
    if (status == GPUSERVE_OK)
        status = add_normalizer(t, lower ? SEQUENCE(LOWERCASE "," STRIP) : SEQUENCE(STRIP),
                                charsmap, name, error);
    if (status != GPUSERVE_OK)
        return status;
    if (splits)
        t->pretokenizer.steps[t->pretokenizer.n++] =
            (struct gsv_pretoken_step){ .kind = GSV_PRETOKEN_PUNCTUATION,
                                        .behavior = GSV_PRETOKEN_ISOLATED };
    add_metaspace(t, GSV_PREFIX_ALWAYS);
    return add_bert_template(t, name, error);
}

/* ---------------------------------------------------------------------------------------- T5 */

static const struct gsv_special t5_keys[] = {
    { .key = "bos_token" },
    { .key = "eos_token", .usual = "</s>" },
    { .key = "unk_token", .usual = "<unk>" },
    { .key = "sep_token" },
    { .key = "pad_token", .usual = "<pad>" },
    { .key = "cls_token" },
    { .key = "mask_token" },
};

enum { N_T5_KEYS = sizeof(t5_keys) / sizeof(t5_keys[0]) };

static gpuserve_status count_extra_ids(const struct gsv_vocab_files *files, int64_t *n,
                                       gpuserve_error *error)
{
    *n = 100;
    return gsv_json_int(files->config, "extra_ids", CONFIG, 0, MAX_EXTRA_IDS, n, error);
}

/* <extra_id_99> to <extra_id_0> */
static gpuserve_status add_extra_ids(struct gsv_tokenizer *t, const struct gsv_vocab_files *files,
                                     const char *name, gpuserve_error *error)
{
    int64_t n;
    gpuserve_status status = count_extra_ids(files, &n, error);

    if (status == GPUSERVE_OK)
        status = gsv_vocab_reserve(&t->vocab, (size_t)n * EXTRA_ID_BYTES, name, error);
    while (status == GPUSERVE_OK && n-- > 0) {
        char text[EXTRA_ID_BYTES];
        const int size = snprintf(text, sizeof(text), "<extra_id_%d>", (int)n);

        status = gsv_vocab_add_text(&t->vocab, text, (size_t)size, name, error);
        if (status == GPUSERVE_OK)
            status = gsv_unigram_add_score(&t->model.unigram, 0, name, error);
    }
    return status;
}

/* Without "additional_special_tokens" in a file, the extra ids are the special tokens. */
static gpuserve_status add_special_extra_ids(struct gsv_tokenizer *t,
                                             const struct gsv_vocab_files *files, const char *name,
                                             gpuserve_error *error)
{
    static const char key[] = "additional_special_tokens";
    int64_t n;
    gpuserve_status status = count_extra_ids(files, &n, error);

    if (gsv_json_member(files->config, key) || gsv_json_member(files->specials, key))
        return status;
    for (int64_t i = 0; i < n && status == GPUSERVE_OK; i++) {
        char text[EXTRA_ID_BYTES];
        const int size = snprintf(text, sizeof(text), "<extra_id_%d>", (int)i);

        status = gsv_added_add(
            &t->added,
            (struct gsv_added_token){ .content = text, .size = (size_t)size, .special = true },
            &t->vocab, name, error);
    }
    return status;
}

static gpuserve_status finish_t5(struct gsv_tokenizer *t, const struct gsv_vocab_files *files,
                                 struct gsv_proto_bytes charsmap, const char *name,
                                 gpuserve_error *error)
{
    bool legacy = true;
    int32_t ids[N_T5_KEYS];
    const int32_t eos = gsv_vocab_id(&t->vocab, "</s>", 4);
    gpuserve_status status = gsv_specials_read(t, files, t5_keys, N_T5_KEYS, ids, name, error);

    if (status == GPUSERVE_OK)
        status = add_special_extra_ids(t, files, name, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(files->config, "legacy", CONFIG, &legacy, error);
    if (status == GPUSERVE_OK && eos < 0)
        status =
            gsv_fail(error, GPUSERVE_E_FORMAT, "%s: token \"</s>\" is not in the vocabulary", name);
    if (status == GPUSERVE_OK)
        status = gsv_normalizer_spm(&t->normalizer, charsmap.at, charsmap.size, name, error);
    if (status != GPUSERVE_OK)
        return status;
    add_metaspace(t, legacy ? GSV_PREFIX_ALWAYS : GSV_PREFIX_FIRST);
    gsv_post_processor_t5(&t->post, eos);
    return gsv_decoder_metaspace(&t->decoder, name, error);
}

/* ------------------------------------------------------------------------------------ ALBERT */

static const struct gsv_special albert_keys[] = {
    { .key = "bos_token", .usual = "[CLS]" },
    { .key = "eos_token", .usual = "[SEP]" },
    { .key = "unk_token", .usual = "<unk>" },
    { .key = "sep_token", .usual = "[SEP]" },
    { .key = "pad_token", .usual = "<pad>" },
    { .key = "cls_token", .usual = "[CLS]" },
    { .key = "mask_token", .usual = "[MASK]", .flagged = true, .lstrip = true },
};

enum { N_ALBERT_KEYS = sizeof(albert_keys) / sizeof(albert_keys[0]) };

/* A digit and a comma at the end make a piece unlikely. */
static double albert_score(const char *piece, size_t size, double score)
{
    uint32_t before = 0;
    size_t n = 0;

    for (size_t i = 0, length; i + 1 < size; i += length, n++)
        before = gsv_utf8_decode(piece + i, &length);
    return size > 1 && piece[size - 1] == ',' && n > 0 &&
                   gsv_unicode_get_regex(before) & GSV_REGEX_NUMERIC
               ? score - 100
               : score;
}

/* transformers 4 ignores these keys, and 5 replaces [CLS] A [SEP] by what they say. */
static gpuserve_status refuse_added(const struct gsv_json_value *config, gpuserve_error *error)
{
    static const char *const keys[] = { "add_bos_token", "add_eos_token" };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (gsv_json_member(config, keys[i]))
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            "%s: \"%s\" of an ALBERT tokenizer needs tokenizer.json", CONFIG,
                            keys[i]);
    return GPUSERVE_OK;
}

static gpuserve_status finish_albert(struct gsv_tokenizer *t, const struct gsv_vocab_files *files,
                                     struct gsv_proto_bytes charsmap, const char *name,
                                     gpuserve_error *error)
{
    static const char *const before[2][2] = {
        { SEQUENCE(QUOTES "," NO_ACCENTS), SEQUENCE(QUOTES "," NO_ACCENTS "," LOWERCASE) },
        { SEQUENCE(QUOTES), SEQUENCE(QUOTES "," LOWERCASE) },
    };
    bool lower = true, keeps = false;
    int32_t ids[N_ALBERT_KEYS];
    gpuserve_status status =
        gsv_specials_read(t, files, albert_keys, N_ALBERT_KEYS, ids, name, error);

    if (status == GPUSERVE_OK)
        status = refuse_added(files->config, error);

    if (status == GPUSERVE_OK)
        status = gsv_json_bool(files->config, "do_lower_case", CONFIG, &lower, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_bool(files->config, "keep_accents", CONFIG, &keeps, error);
    if (status == GPUSERVE_OK)
        status = add_normalizer(t, before[keeps][lower], charsmap, name, error);
    if (status != GPUSERVE_OK)
        return status;
    add_metaspace(t, GSV_PREFIX_ALWAYS);
    return add_bert_template(t, name, error);
}

/* ---------------------------------------------------------------------------------- families */

const struct gsv_spm_family *gsv_spm_family_of(enum gsv_tokenizer_class class)
{
    static const struct gsv_spm_family deberta = { .finish = finish_deberta };
    static const struct gsv_spm_family t5 = { .add_pieces = add_extra_ids, .finish = finish_t5 };
    static const struct gsv_spm_family albert = { .score = albert_score, .finish = finish_albert };

    return class == GSV_CLASS_DEBERTA_V2 ? &deberta
           : class == GSV_CLASS_T5       ? &t5
           : class == GSV_CLASS_ALBERT   ? &albert
                                         : NULL;
}
