/*
 * lost_place.h - a context with the emulated CUDA devices and a model on them, for device loss
 * tests.
 *
 * EMULATED_PLUGIN is the plugin's folder. A lost device stays lost for the life of the process.
 * Each test is a process; a test that loses several devices uses another one each time.
 */
#ifndef TEST_RUNTIME_LOST_PLACE_H
#define TEST_RUNTIME_LOST_PLACE_H

#include <gpuserve/gpuserve.h>

#include <pthread.h>

enum { MAX_CALLS = 8 };

extern const char lost_text[];

/* Arguments of the model's callback. */
struct told {
    pthread_mutex_t lock;
    int n;
    gpuserve_status status[MAX_CALLS];
    char device[MAX_CALLS][64];
    char cause[GPUSERVE_ERROR_TEXT_BYTES];
};

struct place {
    gpuserve_context *context;
    gpuserve_model *model;
    struct told told;
    gpuserve_error error;
};

void make_place(struct place *place);
gpuserve_status open_on(struct place *place, const char *device, uint32_t policy);
gpuserve_status open_folder_on(struct place *place, const char *path, const char *device,
                               uint32_t policy);
void close_place(struct place *place);

/* Embeds lost_text. */
gpuserve_status embed(struct place *place, float *vector);

/* The CPU's vector; borrowed. */
const float *right_vector(void);

/* Expects the CPU's answer within float16's bounds. */
void expect_right(struct place *place, const float *right);

void wait_while_moving(struct place *place);
void expect_in_info(struct place *place, const char *part);
/* Polls: some counters change a moment after a request has failed. */
void expect_in_metrics(struct place *place, const char *part);

#endif
