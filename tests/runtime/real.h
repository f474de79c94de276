/*
 * real.h - what the tests with real models share: texts, models, comparison.
 */
#ifndef TEST_RUNTIME_REAL_H
#define TEST_RUNTIME_REAL_H

#include <gpuserve/gpuserve.h>

#include <stddef.h>

/* The lines of tests/data/oracle/texts.jsonl, read once and kept. */
const char *const *oracle_texts(size_t *n);

/* A real model (see real_model()) on the CPU; asserts. n_threads 0: the context's default. */
gpuserve_model *open_real(const char *name, uint32_t dtype, uint32_t n_threads);

/* Pseudo-random numbers, the same in every run. */
uint32_t next_random(uint32_t *state);

/* Threads and file descriptors of this process. */
int count_threads(void);
int count_descriptors(void);
/* Bytes of this process that are in memory. */
size_t resident_bytes(void);

#endif
