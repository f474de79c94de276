/*
 * json_reader.h - pull parser: walks a large JSON text without building a tree.
 *
 * With jansson a vocabulary of a million tokens costs seconds and gigabytes. This reader returns
 * slices of the text for keys and values. Small values are then parsed by gsv_json_read(); large
 * ones are walked in place. The text must be UTF-8 and outlive every slice.
 */
#ifndef GSV_BASE_JSON_READER_H
#define GSV_BASE_JSON_READER_H

#include "lib/base/json_tree.h"

#include <gpuserve/types.h>

#include <stdbool.h>

struct gsv_json_slice {
    const char *at; /* NULL: absent. The slice of a string excludes its quotes. */
    size_t size;
};

struct gsv_json_reader {
    const char *begin, *at, *end;
    const char *name; /* file name, for messages */
};

static inline struct gsv_json_reader gsv_json_reader_of(struct gsv_json_slice slice,
                                                        const char *name)
{
    if (!slice.at) /* an absent slice reads as an empty text */
        slice = (struct gsv_json_slice){ "", 0 };
    return (struct gsv_json_reader){ slice.at, slice.at, slice.at + slice.size, name };
}

/* Reads the opening bracket of an object '{' or an array '['. */
gpuserve_status gsv_json_reader_open(struct gsv_json_reader *reader, char bracket,
                                     gpuserve_error *error);

/* In an object: reads the next key and its colon; the value follows. *more is false at the closing
 * brace. `first` is true on the first call. */
gpuserve_status gsv_json_reader_key(struct gsv_json_reader *reader, bool first, bool *more,
                                    struct gsv_json_slice *key, gpuserve_error *error);

/* In an array: *more is true if an element follows, false at the closing bracket. */
gpuserve_status gsv_json_reader_element(struct gsv_json_reader *reader, bool first, bool *more,
                                        gpuserve_error *error);

/* The next character after white space, not consumed; NUL at the end. */
char gsv_json_reader_peek(struct gsv_json_reader *reader);

/* Skips a value of any kind, nested at most 64 deep, and returns its slice. */
gpuserve_status gsv_json_reader_value(struct gsv_json_reader *reader, struct gsv_json_slice *value,
                                      gpuserve_error *error);

/* Reads an integer from 0 to `maximum`. */
gpuserve_status gsv_json_reader_id(struct gsv_json_reader *reader, uint32_t maximum,
                                   uint32_t *value, gpuserve_error *error);

/* Checks that only white space follows. */
gpuserve_status gsv_json_reader_end(struct gsv_json_reader *reader, gpuserve_error *error);

/* Decodes the escapes of a string's slice into `out`, which has a capacity of slice.size bytes. */
gpuserve_status gsv_json_reader_text(const struct gsv_json_reader *reader,
                                     struct gsv_json_slice slice, char *out, size_t *size,
                                     gpuserve_error *error);

/* Reads the slice of a value that is neither a string nor a container: sets the kind of *value, and
 * its number or boolean. */
gpuserve_status gsv_json_reader_scalar(const struct gsv_json_reader *reader,
                                       struct gsv_json_slice slice, struct gsv_json_value *value,
                                       gpuserve_error *error);

/*
 * Finds JSON fields by name in a large object without building a tree.
 *
 * Slices point into the reader's text, which must outlive them.
 */

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
