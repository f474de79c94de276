/*
 * attention.cuh - the keys that queries attend to, for all attention kernels.
 */
#ifndef GSV_CUDA_ATTENTION_CUH
#define GSV_CUDA_ATTENTION_CUH

#include "kernels/cuda/runtime/launch.cuh"

#include <stdint.h>

/* The keys [begin, end) of a sequence of n keys that at least one of the queries [first, last]
 * attends to; a single query attends to all of them. Rows are counted from the sequence's first. */
struct gsv_key_bounds {
    int begin;
    int end;

    __device__ __forceinline__ gsv_key_bounds(int causal, int window, int first, int last, int n)
        : begin(0), end(causal ? min(n, last + 1) : n)
    {
        if (window <= 0)
            return;
        begin = max(0, first - window);
        /* n - 1 - last is the keys behind the last query: no overflow with a large window. */
        end = window < n - 1 - last ? min(end, last + window + 1) : end;
    }
};

#endif
