/*
 * results.h - the output files of a batch: one appended line for each finished line of the input.
 *
 *   {"id":"batch_req_<batch><line>","custom_id":"...","response":{...},"error":null}
 *
 * <line> is the index of the input line, 8 hexadecimal digits. These files alone record which lines
 * are finished. Each line is written by one append. Recovery truncates the file after the last
 * complete line.
 */
#ifndef GSV_HTTP_BATCH_RESULTS_H
#define GSV_HTTP_BATCH_RESULTS_H

#include "lib/base/buffer.h"
#include "lib/http/batch/batch.h"

enum gsv_batch_stream { GSV_BATCH_OUTPUT, GSV_BATCH_ERRORS, GSV_BATCH_N_STREAMS };

struct gsv_batch_results {
    struct gsv_store *store;
    const struct gsv_batch_job *batch;
    int fds[GSV_BATCH_N_STREAMS];
    uint64_t sizes[GSV_BATCH_N_STREAMS];
    bool *is_done; /* [n_lines] */
    size_t n_lines, n_completed, n_failed;
    bool is_dirty; /* written and not flushed */
    uint64_t flushed_ns;
};

/* Opens or creates the files and reads which lines are finished. After a failure the files are
 * unchanged and `sizes` holds their sizes. */
gpuserve_status gsv_batch_results_open(struct gsv_batch_results *results, struct gsv_store *store,
                                       const struct gsv_batch_job *batch, size_t n_lines,
                                       gpuserve_error *error);
void gsv_batch_results_close(struct gsv_batch_results *results);

/* Begins the text of line i: id and custom_id. */
void gsv_batch_results_begin(const struct gsv_batch_results *results, struct gsv_buffer *to,
                             size_t i, const char *custom_id);
/* Appends the text, which ends in a line feed, and counts line i as finished. GPUSERVE_E_TOO_LARGE:
 * over --batch-disk. After a failure the file is unchanged. */
gpuserve_status gsv_batch_results_add(struct gsv_batch_results *results,
                                      enum gsv_batch_stream stream, size_t i,
                                      const struct gsv_buffer *text, gpuserve_error *error);
/* Flushes to the disk if the last flush is at least `after_ns` ago. */
gpuserve_status gsv_batch_results_flush(struct gsv_batch_results *results, uint64_t after_ns,
                                        gpuserve_error *error);

#endif
