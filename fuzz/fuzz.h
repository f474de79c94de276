/*
 * fuzz.h - the one function of a fuzz target.
 */
#ifndef GSV_FUZZ_H
#define GSV_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Does with `data` what the code does with a stranger's bytes. Returns 0; a finding is a crash. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
