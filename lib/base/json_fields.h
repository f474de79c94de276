/*
 * json_fields.h - finds JSON fields by name in a large object without building a tree.
 *
 * Slices point into the reader's text, which must outlive them.
 */
#ifndef GSV_TEXT_JSON_FIELDS_H
#define GSV_TEXT_JSON_FIELDS_H

#include "lib/base/json_reader.h"
#include "lib/base/json_tree.h"

struct gsv_member {
    const char *key;
    struct gsv_json_slice value; /* absent (at == NULL) until found */
};

/* Fills the value of every field named in `fields`. With `others`, unnamed fields are checked to be
 * valid JSON and skipped; without it they are GPUSERVE_E_UNSUPPORTED. */
gpuserve_status gsv_json_fields_find(struct gsv_json_reader *reader, struct gsv_member *fields,
                                     size_t n, bool others, gpuserve_error *error);

/* Parses a small value into a tree; owned: gsv_json_free(). NULL for an absent value. */
gpuserve_status gsv_member_parse(struct gsv_json_value **json, struct gsv_json_slice value,
                                 const char *name, gpuserve_error *error);

/* An owned copy of a string value: free(). A string that contains a NUL is refused. */
gpuserve_status gsv_member_copy_text(const struct gsv_member *member, const char *name, char **copy,
                                     gpuserve_error *error);

/* Fields of the "model" object of tokenizer.json, for every model type (see token_model.c). */
enum gsv_model_member {
    GSV_MODEL_TYPE,
    GSV_MODEL_UNK,
    GSV_MODEL_PREFIX,
    GSV_MODEL_MAX_CHARS,
    GSV_MODEL_VOCAB,
    GSV_MODEL_MERGES,
    GSV_MODEL_UNK_ID,
    GSV_MODEL_DROPOUT,
    GSV_MODEL_SUFFIX,
    GSV_MODEL_FUSE_UNK,
    GSV_MODEL_BYTE_FALLBACK,
    GSV_MODEL_IGNORE_MERGES,
    GSV_N_MODEL_FIELDS
};

#endif
