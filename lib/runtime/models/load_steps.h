/*
 * load_steps.h - the steps of a load other than reading weights: calibration, float16 probe,
 * warmup, fingerprint.
 */
#ifndef GSV_RUNTIME_LOAD_STEPS_H
#define GSV_RUNTIME_LOAD_STEPS_H

#include "lib/runtime/model.h"
#include "lib/runtime/plan/load_plan.h"

/*
 * Built-in texts for int8: calibration of activation ranges, and probes that
 * measure the error against full precision.
 */

/* A packed batch and the block that holds its arrays; owned, gsv_calibration_reset(). */
struct gsv_calibration {
    struct gpuserve_host_batch batch;
    int32_t *memory;
    int32_t n_distinct; /* different ids, without special tokens; counted up to a limit */
};

/* Ordinary texts. If the tokenizer knows too few of their words, sequences of ids drawn from its
 * vocabulary take their place, here and in the probes (drawn_ids.h). */
gpuserve_status gsv_calibration_make(struct gsv_calibration *calibration,
                                     const struct gsv_plan *plan, gpuserve_error *error);
/* Ordinary, unusual and repeated texts on which the error of an int8 model is measured; results are
 * in struct gsv_int8_facts. */
gpuserve_status gsv_calibration_make_probes(struct gsv_calibration *calibration,
                                            const struct gsv_plan *plan, gpuserve_error *error);
/* Both, for loading in int8. GPUSERVE_E_UNSUPPORTED if the vocabulary is too small for a
 * measurement. On failure, too, both need gsv_calibration_reset(). */
gpuserve_status gsv_calibration_make_int8(struct gsv_calibration *calibration,
                                          struct gsv_calibration *probes,
                                          const struct gsv_plan *plan, gpuserve_error *error);
void gsv_calibration_reset(struct gsv_calibration *calibration);

/* Detects activations that overflow the range of float16. */

/* Runs the first calibration texts through `net`, which computes in float16. *overflows is true if
 * an output is NaN or infinite. Needs the device memory of one worker, so call it before the
 * workers start. */
gpuserve_status gsv_probe_overflow(bool *overflows, const struct gsv_plan *plan,
                                   const struct gsv_net *net, gpuserve_error *error);

/* Runs a model's first batches before it serves requests. */

/*
 * Runs batches through the queue of a loaded model, as requests do: one short text, one of maximum
 * length, then batches that fill every worker. options->warmup sets the rounds, or `otherwise` if
 * it is 0. A model with non-finite results fails here with GPUSERVE_E_NUMERIC.
 */
gpuserve_status gsv_model_warm(struct gsv_model *model, const gpuserve_model_options *options,
                               uint32_t otherwise, gpuserve_error *error);

/*
 * The entity head of a loaded model. It has one execution context, on a replica that works, which
 * callers take in turns.
 */

/* Create the context, if the model has such a head; before its first request. */
gpuserve_status gsv_entity_start(struct gsv_model *model, gpuserve_error *error);
void gsv_entity_stop(struct gsv_model *model);
/* Take the context, waiting for other threads; gsv_entity_release() must follow, also on failure.
 */
gpuserve_status gsv_entity_acquire(struct gsv_model *model, struct gsv_entity_exec **exec,
                                   gpuserve_error *error);
void gsv_entity_release(struct gsv_model *model);

/* Identifies a model's vector space by a hash. */

/* Both results are 32 hexadecimal digits and a NUL.
 *
 * `files` is XXH3-128 over everything that determines a text's vector in exact arithmetic; device
 * and dtype are excluded. `out` is the same, except for int8: there it also covers the backend and
 * the instruction set, which the vectors' bits depend on.
 *
 * The hash has no version number for code fixes. A fix that moves few texts towards what the files
 * define (the positions of literal pad tokens) would invalidate all stored vectors. A fix that
 * moves all vectors beyond rounding needs such a number. */
gpuserve_status gsv_fingerprint(char out[33], char files[33], const struct gsv_plan *plan,
                                const struct gsv_net *net, gpuserve_error *error);

#endif
