/*
 * wordpiece_json.c - reads the "model" object of tokenizer.json if its type is WordPiece or
 * WordLevel.
 *
 * Reads the continuation prefix, the maximum word length in characters and the unknown token, which
 * must be in the vocabulary. The vocabulary must have been read.
 */
#include "lib/base/error.h"
#include "lib/text/models/wordpiece.h"

#include <stdlib.h>
#include <string.h>

static gpuserve_status read_max_chars(struct gsv_wordpiece *model, struct gsv_json_slice value,
                                      const char *name, gpuserve_error *error)
{
    struct gsv_json_reader reader = gsv_json_reader_of(value, name);
    uint32_t number = 0;
    gpuserve_status status;

    if (!value.at)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: model: \"max_input_chars_per_word\" is missing", name);
    status = gsv_json_reader_id(&reader, INT32_MAX, &number, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_reader_end(&reader, error);
    model->max_chars = number;
    return status;
}

static gpuserve_status find_unknown(struct gsv_wordpiece *model, const struct gsv_vocab *vocab,
                                    const struct gsv_member *member, const char *name,
                                    gpuserve_error *error)
{
    char *unknown = NULL;
    gpuserve_status status = gsv_member_copy_text(member, name, &unknown, error);

    if (status != GPUSERVE_OK)
        return status;
    model->unknown = gsv_vocab_id(vocab, unknown, strlen(unknown));
    if (model->unknown < 0)
        status = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: token \"%s\" is not in the vocabulary",
                          name, unknown);
    free(unknown);
    return status;
}

gpuserve_status gsv_wordpiece_read(struct gsv_wordpiece *model, const struct gsv_member *fields,
                                   const struct gsv_vocab *vocab, const char *name,
                                   gpuserve_error *error)
{
    gpuserve_status status =
        gsv_member_copy_text(&fields[GSV_MODEL_PREFIX], name, &model->prefix, error);

    if (status == GPUSERVE_OK)
        status = read_max_chars(model, fields[GSV_MODEL_MAX_CHARS].value, name, error);
    if (status == GPUSERVE_OK)
        status = find_unknown(model, vocab, &fields[GSV_MODEL_UNK], name, error);
    return status;
}

gpuserve_status gsv_wordlevel_read(struct gsv_wordpiece *model, const struct gsv_member *fields,
                                   const struct gsv_vocab *vocab, const char *name,
                                   gpuserve_error *error)
{
    model->max_chars = SIZE_MAX - 1; /* max_chars + 1 must not overflow */
    return find_unknown(model, vocab, &fields[GSV_MODEL_UNK], name, error);
}
