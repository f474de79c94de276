/*
 * fingerprint.h - the name of a vector space.
 */
#ifndef GSV_RUNTIME_FINGERPRINT_H
#define GSV_RUNTIME_FINGERPRINT_H

#include "lib/runtime/plan/load_plan.h"

/* 32 hexadecimal digits and a NUL each. `files`: XXH3-128 over everything that decides what a
 * text's vector is in exact arithmetic; device and dtype have no part in it. `out`: the same; but
 * of an int8 model also the backend and the instruction set, on which its bits depend. No number
 * here counts corrections of the code: one that moves few texts towards what the files define (the
 * positions of literal pad tokens) would make every stored vector useless for their sake. One that
 * moves all vectors beyond rounding needs such a number. */
gpuserve_status gsv_fingerprint(char out[33], char files[33], const struct gsv_plan *plan,
                                const struct gsv_net *net, gpuserve_error *error);

#endif
