/*
 * bpe_json.c - reads the "model" object of tokenizer.json if its type is BPE.
 *
 * Reads the affixes, the flags, the unknown token and the merges into struct gsv_bpe. The
 * vocabulary must have been read. The rank of a merge is its position in "merges".
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/text/models/bpe.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_AFFIX_BYTES = 64,
};

/* State while the merges are read. */
struct bpe_json_reading {
    struct gsv_bpe *model;
    const struct gsv_vocab *vocab;
    const char *name;
    char *text; /* the two tokens of one merge, concatenated; then the joined token */
    size_t capacity;
    uint32_t rank; /* cannot overflow: a merge takes at least 6 bytes of the file */
    bool pairs;    /* merges are ["a", "b"], else "a b" */
};

static bool is_null(struct gsv_json_slice value)
{
    return !value.at || (value.size == 4 && memcmp(value.at, "null", 4) == 0);
}

/* ------------------------------------------------------------------ merges */

static gpuserve_status no_memory(const struct bpe_json_reading *r, gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory at %u merges", r->name, r->rank);
}

/* Add the merge of text[0, left) and text[left, left + right) to the model. */
static gpuserve_status take_merge(struct bpe_json_reading *r, size_t left, size_t right,
                                  gpuserve_error *error)
{
    const size_t prefix = strlen(r->model->prefix);
    const int32_t a = gsv_vocab_id(r->vocab, r->text, left);
    const int32_t b = gsv_vocab_id(r->vocab, r->text + left, right);
    int32_t joined = -1;

    if (a >= 0 && b >= 0 && right > prefix) { /* drop the right token's inner prefix */
        memmove(r->text + left, r->text + left + prefix, right - prefix);
        joined = gsv_vocab_id(r->vocab, r->text, left + right - prefix);
    }
    if (joined < 0 || left == 0)
        return gsv_fail(
            error, GPUSERVE_E_FORMAT,
            "%s: model: merge %u: a token of the merge or its result is not in the vocabulary",
            r->name, r->rank);
    if (!gsv_bpe_add_merge(r->model, a, b, joined, r->rank))
        return no_memory(r, error);
    r->rank++;
    return GPUSERVE_OK;
}

/* Unescape a JSON string into r->text + at. */
static gpuserve_status read_string(struct bpe_json_reading *r, struct gsv_json_reader *reader,
                                   size_t at, size_t *size, gpuserve_error *error)
{
    struct gsv_json_slice value;
    gpuserve_status status = gsv_json_reader_value(reader, &value, error);

    if (status != GPUSERVE_OK)
        return status;
    if (value.at[0] != '"')
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: model: merge %u is not a %s", r->name,
                        r->rank, r->pairs ? "pair of strings" : "string");
    if (!gsv_grow((void **)&r->text, &r->capacity, at + value.size, 1, SIZE_MAX))
        return no_memory(r, error);
    value.at++;
    value.size -= 2; /* the quotes */
    return gsv_json_reader_text(reader, value, r->text + at, size, error);
}

/* Read a merge written as "a b". */
static gpuserve_status read_line(struct bpe_json_reading *r, struct gsv_json_reader *reader,
                                 gpuserve_error *error)
{
    size_t size = 0, left;
    const char *space;
    gpuserve_status status = read_string(r, reader, 0, &size, error);

    if (status != GPUSERVE_OK)
        return status;
    if (size >= 8 && memcmp(r->text, "#version", 8) == 0)
        return GPUSERVE_OK;
    space = size > 0 ? memchr(r->text, ' ', size) : NULL;
    if (!space || memchr(space + 1, ' ', size - (size_t)(space + 1 - r->text)))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: model: merge %u is not two tokens", r->name,
                        r->rank);
    left = (size_t)(space - r->text);
    memmove(r->text + left, space + 1, size - left - 1);
    return take_merge(r, left, size - left - 1, error);
}

/* Read a merge written as ["a", "b"]. */
static gpuserve_status read_pair(struct bpe_json_reading *r, struct gsv_json_reader *reader,
                                 gpuserve_error *error)
{
    size_t sizes[2] = { 0 }, n = 0;
    gpuserve_status status = gsv_json_reader_open(reader, '[', error);

    for (bool more = true; status == GPUSERVE_OK; n++) {
        status = gsv_json_reader_element(reader, n == 0, &more, error);
        if (status != GPUSERVE_OK || !more)
            break;
        if (n == 2) { /* a third element */
            n++;
            break;
        }
        status = read_string(r, reader, n ? sizes[0] : 0, &sizes[n], error);
    }
    if (status == GPUSERVE_OK && n != 2)
        status = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: model: merge %u is not a pair of strings",
                          r->name, r->rank);
    return status == GPUSERVE_OK ? take_merge(r, sizes[0], sizes[1], error) : status;
}

static gpuserve_status read_merges(struct gsv_bpe *model, struct gsv_json_slice json,
                                   const struct gsv_vocab *vocab, const char *name,
                                   gpuserve_error *error)
{
    struct bpe_json_reading r = { .model = model, .vocab = vocab, .name = name };
    struct gsv_json_reader reader = gsv_json_reader_of(json, name);
    gpuserve_status status = gsv_json_reader_open(&reader, '[', error);

    for (bool first = true, more = true; status == GPUSERVE_OK; first = false) {
        status = gsv_json_reader_element(&reader, first, &more, error);
        if (status != GPUSERVE_OK || !more)
            break;
        if (first)
            r.pairs = gsv_json_reader_peek(&reader) == '[';
        status = r.pairs ? read_pair(&r, &reader, error) : read_line(&r, &reader, error);
    }
    free(r.text);
    return status;
}

/* ------------------------------------------------------------------ options */

static gpuserve_status read_affix(const struct gsv_member *member, const char *name, char **affix,
                                  gpuserve_error *error)
{
    gpuserve_status status = GPUSERVE_OK;

    if (!is_null(member->value)) {
        status = gsv_member_copy_text(member, name, affix, error);
        if (status == GPUSERVE_OK && strlen(*affix) > MAX_AFFIX_BYTES)
            status = gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                              "%s: model: \"%s\" has %zu bytes, the limit is %d", name, member->key,
                              strlen(*affix), MAX_AFFIX_BYTES);
        return status;
    }
    *affix = gsv_copy_text("", 0);
    return *affix ? GPUSERVE_OK : gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", name);
}

static gpuserve_status read_flag(const struct gsv_member *member, const char *name, bool *flag,
                                 gpuserve_error *error)
{
    const struct gsv_json_slice value = member->value;

    *flag = value.size == 4 && memcmp(value.at, "true", 4) == 0;
    if (*flag || is_null(value) || (value.size == 5 && memcmp(value.at, "false", 5) == 0))
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: model: \"%s\" is neither true nor false", name,
                    member->key);
}

static gpuserve_status read_unknown(struct gsv_bpe *model, const struct gsv_member *member,
                                    const struct gsv_vocab *vocab, const char *name,
                                    gpuserve_error *error)
{
    char *unknown = NULL;
    gpuserve_status status;

    model->unknown = -1;
    model->has_unknown = !is_null(member->value);
    if (!model->has_unknown)
        return GPUSERVE_OK;
    status = gsv_member_copy_text(member, name, &unknown, error);
    if (status == GPUSERVE_OK)
        model->unknown = gsv_vocab_id(vocab, unknown, strlen(unknown));
    free(unknown);
    return status;
}

/* Refuse unsupported options: dropout, and byte fallback together with an affix. */
static gpuserve_status check_options(const struct gsv_bpe *model, const struct gsv_member *fields,
                                     const char *name, gpuserve_error *error)
{
    const struct gsv_json_slice dropout = fields[GSV_MODEL_DROPOUT].value;

    if (!is_null(dropout))
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: model: \"dropout\" %.*s is not supported", name,
                        (int)(dropout.size < 32 ? dropout.size : 32), dropout.at);
    if (model->falls_back && (model->prefix[0] || model->suffix[0]))
        return gsv_fail(
            error, GPUSERVE_E_UNSUPPORTED,
            "%s: model: \"byte_fallback\" together with a prefix or a suffix is not supported",
            name);
    if (!fields[GSV_MODEL_MERGES].value.at)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: model: \"merges\" is missing", name);
    return GPUSERVE_OK;
}

gpuserve_status gsv_bpe_read(struct gsv_bpe *model, const struct gsv_member *fields,
                             const struct gsv_vocab *vocab, const char *name, gpuserve_error *error)
{
    gpuserve_status status = read_affix(&fields[GSV_MODEL_PREFIX], name, &model->prefix, error);

    if (status == GPUSERVE_OK)
        status = read_affix(&fields[GSV_MODEL_SUFFIX], name, &model->suffix, error);
    if (status == GPUSERVE_OK)
        status = read_flag(&fields[GSV_MODEL_FUSE_UNK], name, &model->fuses_unknown, error);
    if (status == GPUSERVE_OK)
        status = read_flag(&fields[GSV_MODEL_BYTE_FALLBACK], name, &model->falls_back, error);
    if (status == GPUSERVE_OK)
        status = read_flag(&fields[GSV_MODEL_IGNORE_MERGES], name, &model->ignores_merges, error);
    if (status == GPUSERVE_OK)
        status = check_options(model, fields, name, error);
    if (status == GPUSERVE_OK)
        status = read_unknown(model, &fields[GSV_MODEL_UNK], vocab, name, error);
    if (status == GPUSERVE_OK)
        status = read_merges(model, fields[GSV_MODEL_MERGES].value, vocab, name, error);
    return status;
}
