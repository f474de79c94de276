/*
 * calibration.h - built-in texts for int8: calibration of activation ranges, and probes that
 * measure the error against full precision.
 */
#ifndef GSV_RUNTIME_CALIBRATION_H
#define GSV_RUNTIME_CALIBRATION_H

#include "lib/runtime/plan/load_plan.h"

/* A packed batch and the block that holds its arrays; owned, gsv_calibration_reset(). */
struct gsv_calibration {
    struct gpuserve_host_batch batch;
    int32_t *memory;
};

gpuserve_status gsv_calibration_make(struct gsv_calibration *calibration,
                                     const struct gsv_plan *plan, gpuserve_error *error);
/* Ordinary, unusual and repeated texts on which the error of an int8 model is measured; results are
 * in struct gsv_int8_facts. */
gpuserve_status gsv_calibration_make_probes(struct gsv_calibration *calibration,
                                            const struct gsv_plan *plan, gpuserve_error *error);
void gsv_calibration_reset(struct gsv_calibration *calibration);

#endif
