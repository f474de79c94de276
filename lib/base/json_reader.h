/*
 * json_reader.h - walking a large JSON text without building a tree.
 *
 * A vocabulary of a million tokens costs jansson seconds and gigabytes. This reader gives the
 * places of members and values in the text; small values then go to gsv_json_read(), large ones
 * are read in place. The text must be UTF-8 and outlives every slice.
 */
#ifndef GSV_BASE_JSON_READER_H
#define GSV_BASE_JSON_READER_H

#include <gpuserve/types.h>

#include <stdbool.h>

struct gsv_json_slice {
    const char *at; /* NULL: absent. A string's slice is what stands between its quotes. */
    size_t size;
};

struct gsv_json_reader {
    const char *begin, *at, *end;
    const char *name; /* of the file, for messages */
};

static inline struct gsv_json_reader gsv_json_reader_of(struct gsv_json_slice slice,
                                                        const char *name)
{
    if (!slice.at) /* absent reads as empty */
        slice = (struct gsv_json_slice){ "", 0 };
    return (struct gsv_json_reader){ slice.at, slice.at, slice.at + slice.size, name };
}

/* The opening bracket of an object '{' or an array '['. */
gpuserve_status gsv_json_reader_open(struct gsv_json_reader *reader, char bracket,
                                     gpuserve_error *error);

/* Inside an object: the next member's key, its value comes next; *more is false at the closing
 * bracket. `first` is true on the first call. */
gpuserve_status gsv_json_reader_key(struct gsv_json_reader *reader, bool first, bool *more,
                                    struct gsv_json_slice *key, gpuserve_error *error);

/* Inside an array: whether an element comes next; *more is false at the closing bracket. */
gpuserve_status gsv_json_reader_element(struct gsv_json_reader *reader, bool first, bool *more,
                                        gpuserve_error *error);

/* The first character of what comes next, white space stepped over; NUL at the end. */
char gsv_json_reader_peek(struct gsv_json_reader *reader);

/* Step over a value of any kind, at most 64 deep. */
gpuserve_status gsv_json_reader_value(struct gsv_json_reader *reader, struct gsv_json_slice *value,
                                      gpuserve_error *error);

/* A whole number from 0 to `maximum`. */
gpuserve_status gsv_json_reader_id(struct gsv_json_reader *reader, uint32_t maximum,
                                   uint32_t *value, gpuserve_error *error);

/* Nothing but white space may follow. */
gpuserve_status gsv_json_reader_end(struct gsv_json_reader *reader, gpuserve_error *error);

/* The characters of a string's slice, escapes resolved, into room for slice.size bytes. */
gpuserve_status gsv_json_reader_text(const struct gsv_json_reader *reader,
                                     struct gsv_json_slice slice, char *out, size_t *size,
                                     gpuserve_error *error);

#endif
