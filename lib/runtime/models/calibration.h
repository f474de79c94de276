/*
 * calibration.h - ordinary texts from which int8 models take the ranges of their activations.
 */
#ifndef GSV_RUNTIME_CALIBRATION_H
#define GSV_RUNTIME_CALIBRATION_H

#include "lib/runtime/plan/load_plan.h"

/* A packed batch with its memory. */
struct gsv_calibration {
    struct gpuserve_host_batch batch;
    int32_t *memory;
};

gpuserve_status gsv_calibration_make(struct gsv_calibration *calibration,
                                     const struct gsv_plan *plan, gpuserve_error *error);
/* Ordinary, odd and repeated texts, on which an int8 model is measured: see struct gsv_int8_facts.
 */
gpuserve_status gsv_calibration_make_probes(struct gsv_calibration *calibration,
                                            const struct gsv_plan *plan, gpuserve_error *error);
void gsv_calibration_reset(struct gsv_calibration *calibration);

#endif
