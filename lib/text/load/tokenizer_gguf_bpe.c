/*
 * tokenizer_gguf_bpe.c - reads the BPE tokenizers of GGUF files.
 *
 * "gpt2": byte-level BPE. The merges are in the file. The pre-tokenizer is a name; each stands for
 * a regular expression and a normalizer. "llama": SentencePiece's BPE. The file has no merges: any
 * two tokens whose joined text is a token may merge, the highest score of the result first.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/text/load/gguf_tokens.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ both models */

static gpuserve_status set_empty_affixes(struct gguf_tokens *from, gpuserve_error *error)
{
    struct gsv_bpe *const bpe = &from->t->model.bpe;

    from->t->model.kind = GSV_BPE;
    bpe->unknown = -1;
    bpe->prefix = gsv_copy_text("", 0);
    bpe->suffix = gsv_copy_text("", 0);
    return bpe->prefix && bpe->suffix
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", from->gguf->shown);
}

/* Parse a part of tokenizer.json that is a constant of this file. */
static gpuserve_status parse_constant(struct gguf_tokens *from, const char *normalizer,
                                      const char *decoder, gpuserve_error *error)
{
    static const struct gsv_json_limits limits = { 64, 8 };
    const char *const texts[2] = { normalizer, decoder };
    gpuserve_status status = GPUSERVE_OK;

    for (size_t i = 0; i < 2 && status == GPUSERVE_OK; i++) {
        struct gsv_json_value *json = NULL;

        if (!texts[i])
            continue;
        status = gsv_json_read(&json, texts[i], strlen(texts[i]), from->gguf->shown, limits, error);
        if (status == GPUSERVE_OK && i == 0)
            status = gsv_normalizer_parse(&from->t->normalizer, json, from->gguf->shown, error);
        else if (status == GPUSERVE_OK)
            status = gsv_decoder_parse(&from->t->decoder, json, from->gguf->shown, error);
        gsv_json_free(&json);
    }
    return status;
}

static gpuserve_status check_id(const struct gguf_tokens *from, int64_t id, const char *key,
                                gpuserve_error *error)
{
    if (id >= 0 && id < (int64_t)from->n)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: key 'tokenizer.ggml.%s' is missing",
                    from->gguf->shown, key);
}

/* ------------------------------------------------------------------ byte-level BPE */

/* What a name in "tokenizer.ggml.pre" stands for. */
static const struct gguf_pre {
    const char *name;
    enum gsv_split_pattern pattern;
    bool composes;       /* the normalizer is NFC */
    bool ignores_merges; /* a word that is a token stays whole */
    bool is_roberta;     /* <s> A </s> </s> B </s>, spans without white space */
    bool adds;           /* first and last token are added if the file does not say */
} pres[] = {
    { "roberta-bpe", GSV_SPLIT_GPT2, false, false, true, true },
    { "jina-v1-en", GSV_SPLIT_GPT2, false, false, true, true },
    { "jina-v2-code", GSV_SPLIT_GPT2, false, false, true, true },
    { "jina-v2-es", GSV_SPLIT_GPT2, false, false, true, true },
    { "jina-v2-de", GSV_SPLIT_GPT2, false, false, true, true },
    { "modern-bert", GSV_SPLIT_GPT2, true, false, false, true },
    { "gpt-2", GSV_SPLIT_GPT2, false, false, false, false },
    { "qwen2", GSV_SPLIT_QWEN2, true, false, false, false },
    { "llama-bpe", GSV_SPLIT_CL100K, false, true, false, false },
};

static gpuserve_status find_pre(const struct gguf_tokens *from, const struct gguf_pre **pre,
                                gpuserve_error *error)
{
    struct gsv_gguf_text name = { "", 0 };
    gpuserve_status status = gsv_gguf_string(from->gguf, "tokenizer.ggml.pre", &name, error);

    if (status != GPUSERVE_OK)
        return status;
    for (size_t i = 0; i < sizeof(pres) / sizeof(pres[0]); i++) {
        if (gsv_gguf_text_is(name, pres[i].name)) {
            *pre = &pres[i];
            return GPUSERVE_OK;
        }
    }
    status = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      "%s: pre-tokenizer '%.*s' (key 'tokenizer.ggml.pre') is not supported",
                      from->gguf->shown, (int)(name.size < 64 ? name.size : 64), name.at);
    return gsv_hint(error, status,
                    "supported: roberta-bpe, jina-v1-en, jina-v2-code, jina-v2-es, jina-v2-de, "
                    "modern-bert, gpt-2, qwen2, llama-bpe; otherwise use the original model "
                    "directory");
}

static gpuserve_status fail_merge(const struct gguf_tokens *from, uint64_t i, const char *problem,
                                  gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: merge %llu %s", from->gguf->shown,
                    (unsigned long long)i, problem);
}

/* Add merge i, "LEFT RIGHT". Of duplicates the first counts. `joined` has the text's capacity. */
static gpuserve_status add_merge(struct gguf_tokens *from, uint64_t i, struct gsv_gguf_text text,
                                 char *joined, gpuserve_error *error)
{
    const struct gsv_vocab *const vocab = &from->t->vocab;
    /* The left token has at least one byte. */
    const char *space = text.size > 2 ? memchr(text.at + 1, ' ', text.size - 1) : NULL;
    const size_t left = space ? (size_t)(space - text.at) : 0;
    const size_t right = space ? text.size - left - 1 : 0;
    int32_t a, b, id;

    if (right == 0)
        return fail_merge(from, i, "is not two tokens separated by a space", error);
    a = gsv_vocab_id(vocab, text.at, left);
    b = gsv_vocab_id(vocab, space + 1, right);
    memcpy(joined, text.at, left);
    memcpy(joined + left, space + 1, right);
    id = gsv_vocab_id(vocab, joined, left + right);
    if (a < 0 || b < 0 || id < 0)
        return fail_merge(from, i,
                          a < 0   ? "begins with text that is no token"
                          : b < 0 ? "ends with text that is no token"
                                  : "gives text that is no token",
                          error);
    if (gsv_bpe_has_merge(&from->t->model.bpe, a, b) ||
        gsv_bpe_add_merge(&from->t->model.bpe, a, b, id, (uint32_t)i))
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory at merge %llu", from->gguf->shown,
                    (unsigned long long)i);
}

static gpuserve_status read_merges(struct gguf_tokens *from, gpuserve_error *error)
{
    const struct gsv_gguf_value *merges = NULL;
    gpuserve_status status =
        gsv_gguf_array(from->gguf, "tokenizer.ggml.merges", GSV_GGUF_STRING, &merges, error);
    char *joined;
    size_t at = 0;

    if (status == GPUSERVE_OK && !merges)
        status = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: key 'tokenizer.ggml.merges' is missing",
                          from->gguf->shown);
    if (status != GPUSERVE_OK)
        return status;
    joined = malloc(merges->size + 1);
    if (!joined)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", from->gguf->shown);
    for (uint64_t i = 0; i < merges->n && status == GPUSERVE_OK; i++)
        status = add_merge(from, i, gsv_gguf_next_string(merges, &at), joined, error);
    free(joined);
    return status;
}

/* Split by the pattern, then make the words' bytes characters. */
static void set_pretokenizer(struct gsv_pretokenizer *p, enum gsv_split_pattern pattern)
{
    gsv_pretokenizer_gpt2(p, false);
    if (pattern == GSV_SPLIT_GPT2)
        return;
    p->n = 2;
    p->steps[1] = p->steps[0];
    p->steps[1].pattern = GSV_N_SPLIT_PATTERNS;
    p->steps[0] = (struct gsv_pretoken_step){ .kind = GSV_PRETOKEN_SPLIT,
                                              .behavior = GSV_PRETOKEN_ISOLATED,
                                              .pattern = pattern };
}

gpuserve_status gsv_gguf_read_gpt2(struct gguf_tokens *from, gpuserve_error *error)
{
    struct gsv_tokenizer *const t = from->t;
    const struct gguf_pre *pre = NULL;
    gpuserve_status status = find_pre(from, &pre, error);
    int64_t first = from->cls >= 0 ? from->cls : from->bos;
    int64_t last = from->separator >= 0 && pre && pre->adds ? from->separator : from->eos;

    if (status != GPUSERVE_OK)
        return status;
    from->adds_bos = from->adds_eos = pre->adds;
    status = gsv_gguf_bool(from->gguf, "tokenizer.ggml.add_bos_token", &from->adds_bos, error);
    if (status == GPUSERVE_OK)
        status = gsv_gguf_bool(from->gguf, "tokenizer.ggml.add_eos_token", &from->adds_eos, error);
    if (status == GPUSERVE_OK && from->adds_bos)
        status = check_id(from, first, "bos_token_id", error);
    if (status == GPUSERVE_OK && from->adds_eos)
        status = check_id(from, last, "eos_token_id", error);
    if (status == GPUSERVE_OK)
        status = set_empty_affixes(from, error);
    if (status == GPUSERVE_OK)
        status = read_merges(from, error);
    if (status == GPUSERVE_OK && pre->composes)
        status = parse_constant(from, "{\"type\":\"NFC\"}", NULL, error);
    if (status == GPUSERVE_OK)
        status = gsv_decoder_byte_level(&t->decoder, from->gguf->shown, error);
    if (status != GPUSERVE_OK)
        return status;
    t->model.bpe.ignores_merges = pre->ignores_merges;
    t->post.trim_offsets = pre->is_roberta;
    set_pretokenizer(&t->pretokenizer, pre->pattern);
    gsv_gguf_set_templates(t, from->adds_bos ? first : -1, from->adds_eos ? last : -1,
                           pre->is_roberta ? 2 : 1, 0);
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------ SentencePiece's BPE */

/* Work of finding the merges: each token is cut at each of its characters, and each part hashed. */
#define MAX_CUT_BYTES ((uint64_t)1 << 31)

struct gguf_scored {
    float score;
    int32_t id;
};

static int compare_scores(const void *a, const void *b)
{
    const struct gguf_scored *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool may_merge(const struct gguf_tokens *from, int32_t id)
{
    const int32_t type = id < 0 ? GSV_GGUF_TOKEN_UNUSED : gsv_gguf_token_type(from, (uint64_t)id);

    return type == GSV_GGUF_TOKEN_NORMAL || type == GSV_GGUF_TOKEN_USER_DEFINED;
}

/* Add the merges that give a token. */
static bool add_cuts(struct gguf_tokens *from, int32_t id, uint32_t rank)
{
    const struct gsv_vocab *const vocab = &from->t->vocab;
    size_t size = 0;
    const char *text = gsv_vocab_text(vocab, id, &size);

    for (size_t cut = 1; cut < size; cut++) {
        int32_t left, right;

        if (((unsigned char)text[cut] & 0xC0) == 0x80)
            continue;
        left = gsv_vocab_id(vocab, text, cut);
        right = may_merge(from, left) ? gsv_vocab_id(vocab, text + cut, size - cut) : -1;
        if (may_merge(from, right) &&
            !gsv_bpe_add_merge(&from->t->model.bpe, left, right, id, rank))
            return false;
    }
    return true;
}

/* List the tokens that may result from a merge, by falling score. */
static gpuserve_status list_scored(const struct gguf_tokens *from, struct gguf_scored *scored,
                                   size_t *n, gpuserve_error *error)
{
    uint64_t work = 0;

    *n = 0;
    for (uint64_t id = 0; id < from->n; id++) {
        size_t size = 0;

        (void)gsv_vocab_text(&from->t->vocab, (int32_t)id, &size);
        if (!may_merge(from, (int32_t)id))
            continue;
        work += (uint64_t)size * size; /* tokens have at most 64 KiB, and the sum is checked */
        if (work > MAX_CUT_BYTES)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                            "%s: the tokens are too long: the sum of their squared sizes exceeds "
                            "%llu bytes at token %llu",
                            from->gguf->shown, (unsigned long long)MAX_CUT_BYTES,
                            (unsigned long long)id);
        scored[(*n)++] = (struct gguf_scored){ gsv_gguf_float_at(from->scores, id), (int32_t)id };
    }
    qsort(scored, *n, sizeof(*scored), compare_scores);
    return GPUSERVE_OK;
}

static gpuserve_status make_merges(struct gguf_tokens *from, gpuserve_error *error)
{
    struct gguf_scored *scored;
    gpuserve_status status;
    uint32_t rank = 0;
    size_t n = 0;

    if (!from->scores)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: key 'tokenizer.ggml.scores' is missing",
                        from->gguf->shown);
    scored = gsv_alloc_array((size_t)from->n, sizeof(*scored));
    if (!scored)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", from->gguf->shown);
    status = list_scored(from, scored, &n, error);
    for (size_t i = 0; i < n && status == GPUSERVE_OK; i++) {
        rank += i > 0 && scored[i].score != scored[i - 1].score; /* of equal scores the leftmost */
        if (!add_cuts(from, scored[i].id, rank))
            status = gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory at token %d",
                              from->gguf->shown, scored[i].id);
    }
    free(scored);
    return status;
}

/* A space becomes U+2581; a text may get one more before it. */
static gpuserve_status set_space_rules(struct gguf_tokens *from, gpuserve_error *error)
{
    static const char replace[] =
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}";
    static const char prepend[] =
        "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
        "\"\xE2\x96\x81\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}]}";
    static const char decoder[] =
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
        "\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}";
    static const char stripping[] =
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
        "\"\xE2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
        "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}";
    bool has_prefix = true;
    const gpuserve_status status =
        gsv_gguf_bool(from->gguf, "tokenizer.ggml.add_space_prefix", &has_prefix, error);

    return status == GPUSERVE_OK ? parse_constant(from, has_prefix ? prepend : replace,
                                                  has_prefix ? stripping : decoder, error)
                                 : status;
}

gpuserve_status gsv_gguf_read_llama(struct gguf_tokens *from, gpuserve_error *error)
{
    struct gsv_bpe *const bpe = &from->t->model.bpe;
    gpuserve_status status;

    from->adds_bos = true;
    status = gsv_gguf_bool(from->gguf, "tokenizer.ggml.add_bos_token", &from->adds_bos, error);
    if (status == GPUSERVE_OK)
        status = gsv_gguf_bool(from->gguf, "tokenizer.ggml.add_eos_token", &from->adds_eos, error);
    if (status == GPUSERVE_OK && from->adds_bos)
        status = check_id(from, from->bos, "bos_token_id", error);
    if (status == GPUSERVE_OK && from->adds_eos)
        status = check_id(from, from->eos, "eos_token_id", error);
    if (status == GPUSERVE_OK)
        status = set_empty_affixes(from, error);
    if (status == GPUSERVE_OK)
        status = make_merges(from, error);
    if (status == GPUSERVE_OK)
        status = set_space_rules(from, error);
    if (status != GPUSERVE_OK)
        return status;
    bpe->unknown = from->unknown < (int64_t)from->n ? (int32_t)from->unknown : -1;
    bpe->has_unknown = bpe->unknown >= 0;
    bpe->fuses_unknown = true;
    bpe->falls_back = true;
    gsv_gguf_set_templates(from->t, from->adds_bos ? from->bos : -1,
                           from->adds_eos ? from->eos : -1, 1, 0);
    return GPUSERVE_OK;
}
