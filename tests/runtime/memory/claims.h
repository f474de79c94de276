/*
 * claims.h - a context whose plugin has two devices of 12 GB, and models that only claim memory
 * there (fake.h).
 */
#ifndef TEST_RUNTIME_CLAIMS_H
#define TEST_RUNTIME_CLAIMS_H

#include <gpuserve/gpuserve.h>

#define GB UINT64_C(1000000000)

extern const char *const claims_text[1];

gpuserve_context *make_context(uint32_t policy, uint32_t wait_ms);
void end_context(gpuserve_context **context);

/* Of a model on cuda:0. */
gpuserve_model_options named(const char *name);
gpuserve_status try_open(gpuserve_model **model, gpuserve_context *context, uint64_t weights,
                         const gpuserve_model_options *options, gpuserve_error *error);
gpuserve_model *open_named(gpuserve_context *context, const char *name, uint64_t weights);

/* It answers claims_text. */
void check_answer(gpuserve_model *model);

/* What gpuserve_context_models() says of a model: its whole object. */
const char *told(gpuserve_context *context, const char *name);
void expect_state(gpuserve_context *context, const char *name, const char *state);

void expect_words(const char *message, const char *const *words, size_t n);

#endif
