/*
 * input.h - the JSON lines of a batch: {"custom_id","method":"POST","url","body"}.
 */
#ifndef GSV_HTTP_BATCH_INPUT_H
#define GSV_HTTP_BATCH_INPUT_H

#include "lib/http/batch/batch.h"

enum { GSV_BATCH_WEIGHT_BYTES = 8192 };

struct gsv_batch_line {
    uint64_t offset;
    size_t size; /* without the line feed */
};

struct gsv_batch_input {
    int fd;
    struct gsv_batch_line *lines; /* [n] lines that are not blank */
    size_t n, capacity;
};

/* Reads the file and checks every line. Invalid lines are added to the batch's errors and counted
 * in *n_faults. Returns an error only for memory and I/O. */
gpuserve_status gsv_batch_input_open(struct gsv_batch_input *input, struct gsv_batch_jobs *batches,
                                     struct gsv_batch_job *batch, size_t *n_faults,
                                     gpuserve_error *error);
void gsv_batch_input_close(struct gsv_batch_input *input);

/* Reads one line into `text`, which has its size and a NUL more; owned: free(). */
gpuserve_status gsv_batch_input_read(const struct gsv_batch_input *input, size_t i, char **text,
                                     gpuserve_error *error);
/* Estimated cost of a line: 1, plus its commas (an upper bound of its inputs), plus 1 for each
 * GSV_BATCH_WEIGHT_BYTES. */
size_t gsv_batch_line_weight(const char *text, size_t size);
/* The `custom_id` of a checked line; owned: free(). */
gpuserve_status gsv_batch_custom_id(const char *text, size_t size, char **id,
                                    gpuserve_error *error);

#endif
