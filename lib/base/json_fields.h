/*
 * members.h - the members of a large JSON object by their names, without a tree of it all.
 */
#ifndef GSV_TEXT_JSON_FIELDS_H
#define GSV_TEXT_JSON_FIELDS_H

#include "lib/base/json_reader.h"
#include "lib/base/json_tree.h"

struct gsv_member {
    const char *key;
    struct gsv_json_slice value; /* absent until it is found */
};

/* The values of the members named in `members`; others are refused, or, with `others`, checked to
 * be JSON and stepped over. */
gpuserve_status gsv_json_fields_find(struct gsv_json_reader *reader, struct gsv_member *fields,
                                     size_t n, bool others, gpuserve_error *error);

/* The tree of a small value, owned; NULL for an absent one. */
gpuserve_status gsv_member_parse(struct gsv_json_value **json, struct gsv_json_slice value,
                                 const char *name, gpuserve_error *error);

/* A string without a NUL as an owned copy. */
gpuserve_status gsv_member_copy_text(const struct gsv_member *member, const char *name, char **copy,
                                     gpuserve_error *error);

/* Of the object "model", whatever its type; see token_model.c. */
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
