/*
 * output_set.h - the field `outputs` of a request: several outputs of each text from one pass.
 *
 *   {"outputs": ["dense", "sparse", "colbert", "labels"]}
 *
 * A request without the field has the dense output alone, in the form that its dialect always had.
 */
#ifndef GSV_HTTP_OUTPUT_SET_H
#define GSV_HTTP_OUTPUT_SET_H

#include "lib/http/inference/inputs.h"
#include "lib/http/protocol/exchange.h"

struct gsv_output_set {
    bool is_given;
    bool has_dense;
    gpuserve_output more[GSV_CALL_OUTPUTS]; /* tasks only; gsv_call_start() makes the rows */
    size_t first_vector;                    /* of a text's token vectors in late interaction */
    uint32_t *indices;                      /* [sparse_dim] scratch of a sparse row, or NULL */
    float *values;
};

/* Reads `outputs` into job->task and job->more, which points to `set`: it lives as long as the
 * exchange. Refuses a name that is unknown or that the held model does not have. Without the field
 * the job embeds, and the model must make embeddings. */
bool gsv_output_set_read(struct gsv_exchange *exchange, struct gsv_output_set *set,
                         gpuserve_job *job);

/* Refuses the fields of the dense output in a request without it; call it when they are read. */
bool gsv_output_set_form(struct gsv_exchange *exchange, const struct gsv_output_set *set,
                         gpuserve_job *job);

/* Counts the tokens of the inputs if an output has a row for each of them: sets inputs->offsets.
 * The job still tokenizes texts itself. */
bool gsv_output_set_count(struct gsv_exchange *exchange, const struct gsv_output_set *set,
                          const gpuserve_job *job, struct gsv_inputs *inputs);

/* Writes the outputs of input i other than the dense one, as members after the first one of an
 * object: ,"sparse":{"indices":[..],"values":[..]},"colbert":[[..]],"labels":[..]. base64: each row
 * of `colbert` is a string of its float32 bytes. */
void gsv_put_output_set(struct gsv_exchange *exchange, const struct gsv_output_set *set, size_t i,
                        bool base64);

#endif
