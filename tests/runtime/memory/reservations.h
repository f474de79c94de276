/*
 * reservations.h - a context whose plugin has two devices of 12 GB, and models that only reserve
 * memory there (fake.h).
 */
#ifndef TEST_RUNTIME_RESERVATIONS_H
#define TEST_RUNTIME_RESERVATIONS_H

#include <gpuserve/gpuserve.h>

#define GB UINT64_C(1000000000)

extern const char *const reservations_text[1];

gpuserve_context *make_context(uint32_t policy, uint32_t wait_ms);
void end_context(gpuserve_context **context);

/* Options of a model on cuda:0. */
gpuserve_model_options named(const char *name);
gpuserve_status try_open(gpuserve_model **model, gpuserve_context *context, uint64_t weights,
                         const gpuserve_model_options *options, gpuserve_error *error);
gpuserve_model *open_named(gpuserve_context *context, const char *name, uint64_t weights);

/* Expects the right answer for reservations_text. */
void check_answer(gpuserve_model *model);

/* The JSON object of a model in gpuserve_context_models(). */
const char *told(gpuserve_context *context, const char *name);
void expect_state(gpuserve_context *context, const char *name, const char *state);

void expect_words(const char *message, const char *const *words, size_t n);

#endif
