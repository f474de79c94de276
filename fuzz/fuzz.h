/*
 * fuzz.h - the entry point of a fuzz target, as libFuzzer defines it.
 */
#ifndef GSV_FUZZ_H
#define GSV_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Runs the code under test on untrusted input. Returns 0; a bug is reported by a crash (abort). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
