/*
 * max_sim.c - late interaction with the best instruction set of the processor, chosen at the first
 * call.
 */
#include "kernels/cpu/runtime/isa.h"

#include <stdatomic.h>

void gsv_cpu_max_sim(const struct gsv_max_sim *op, float *best)
{
    static _Atomic(const struct gsv_cpu_isa *) chosen;
    const struct gsv_cpu_isa *isa = atomic_load(&chosen);

    if (!isa) {
        isa = gsv_cpu_choose_isa();
        atomic_store(&chosen, isa);
    }
    isa->max_sim(op, best);
}
