/*
 * probe_loss.h - the loss of an INT8 net on the probe texts: 1 - the cosine to full precision.
 *
 *   gsv_probe_loss_open()    runs the probes in full precision, layer by layer
 *   gsv_measure_all()        runs all probes through the net in its current state
 *   gsv_measure_worst()      the worst ones of the last measurement of all
 *   gsv_probe_loss_close()
 */
#ifndef GSV_PROBE_LOSS_H
#define GSV_PROBE_LOSS_H

#include "lib/model/int8/int8.h"
#include "lib/model/int8/staged_run.h"

#include <stdbool.h>
#include <stdint.h>

struct gsv_reader;

struct gsv_probe_loss {
    struct gsv_net *net;
    struct gsv_reader *reader;
    const struct gpuserve_host_batch *host; /* the batch to run: all probes, or the worst */
    const struct gpuserve_host_batch *all;
    struct gsv_worst_probes worst;
    int32_t n_threads;
    uint32_t exact_dtype; /* of full precision, the reference */
    struct gsv_staged_run exact;
    char *exact_weights; /* device memory for the largest product */
    int32_t columns;     /* columns of a vector */
    size_t row_bytes;    /* bytes of a row of the hidden states */
    float *want, *got;   /* host memory: vectors in full precision, and of the last run */
    float *cosines;      /* [all] of the last measurement of all probes */
    float *repeated;     /* [all] the cosines of the probes that repeat one word */
    double variance;     /* of the losses without kept products */
    float expected;      /* estimated lowest cosine of other texts */
    bool is_near_enough; /* result of the last measurement, of all probes or the worst */
    bool has_turned;     /* in a measurement of all: see gsv_measure_all() */
};

/* The net has its INT8 products. The arguments are borrowed. Close it on failure too. */
gpuserve_status gsv_probe_loss_open(struct gsv_probe_loss *loss, struct gsv_net *net,
                                    struct gsv_reader *reader,
                                    const struct gpuserve_host_batch *probes, int32_t n_threads,
                                    gpuserve_error *error);
void gsv_probe_loss_close(struct gsv_probe_loss *loss);

/* Also sets the least cosine in the facts of the net. `has_turned` is set where attention of texts
 * that repeat one word turned to another token. Whether it turns differs between sets of kept
 * products by chance: the more sets a search tries, the more likely it finds one where no probe
 * shows it. */
gpuserve_status gsv_measure_all(struct gsv_probe_loss *loss, gpuserve_error *error);

/* If these fail, all fail; there must be a measurement of all before. */
gpuserve_status gsv_measure_worst(struct gsv_probe_loss *loss, gpuserve_error *error);

/* Device memory of a product of the net in this dtype. */
size_t gsv_kept_product_bytes(const struct gsv_net *net, int32_t product, uint32_t dtype);

/* A linear of the model's weights in this dtype, packed into `memory`. */
gpuserve_status gsv_make_linear(struct gsv_probe_loss *loss, int32_t index, uint32_t dtype,
                                char *memory, struct gpuserve_linear **linear,
                                gpuserve_error *error);

#endif
