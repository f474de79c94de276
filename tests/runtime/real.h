/*
 * real.h - helpers of tests with real models: texts, models, comparison.
 */
#ifndef TEST_RUNTIME_REAL_H
#define TEST_RUNTIME_REAL_H

#include <gpuserve/gpuserve.h>

#include <stddef.h>

/* The lines of tests/data/oracle/texts.jsonl, read once and kept. */
const char *const *oracle_texts(size_t *n);

/* tests/data/NAME as JSON, owned: json_decref(); asserts. */
struct json_t *read_json(const char *name);

/* Opens a real model (real_model()) on the CPU; asserts. n_threads 0: the context's default. */
gpuserve_model *open_real(const char *name, uint32_t dtype, uint32_t n_threads);

/* Pseudo-random numbers, reproducible. */
uint32_t next_random(uint32_t *state);

/* Number of threads and of file descriptors of this process. */
int count_threads(void);
int count_descriptors(void);
/* Number of threads once it is constant: a thread that was joined may be listed for a moment
 * longer, under QEMU above all. */
int settled_threads(void);
/* Resident bytes of this process. */
size_t resident_bytes(void);

#endif
