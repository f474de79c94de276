/*
 * fingerprint.h - identifies a model's vector space by a hash.
 */
#ifndef GSV_RUNTIME_FINGERPRINT_H
#define GSV_RUNTIME_FINGERPRINT_H

#include "lib/runtime/plan/load_plan.h"

/* Both results are 32 hexadecimal digits and a NUL.
 *
 * `files` is XXH3-128 over everything that determines a text's vector in exact arithmetic; device
 * and dtype are excluded. `out` is the same, except for int8: there it also covers the backend and
 * the instruction set, which the vectors' bits depend on.
 *
 * The hash has no version number for code fixes. A fix that moves few texts towards what the files
 * define (the positions of literal pad tokens) would invalidate all stored vectors. A fix that
 * moves all vectors beyond rounding needs such a number. */
gpuserve_status gsv_fingerprint(char out[33], char files[33], const struct gsv_plan *plan,
                                const struct gsv_net *net, gpuserve_error *error);

#endif
