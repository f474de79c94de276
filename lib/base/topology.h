/*
 * topology.h - which processors of this machine belong together: those that share the last level of
 * cache and a memory node.
 *
 * A thread that stays within its group finds what it used last in the cache, and the memory it
 * touched first near by. On a machine of one group there is nothing to choose.
 */
#ifndef GSV_BASE_TOPOLOGY_H
#define GSV_BASE_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#define GSV_MAX_CORES 1024 /* of larger machines nothing is known */

/* A set of processors, by number. */
struct gsv_core_set {
    uint64_t bits[GSV_MAX_CORES / 64];
};

struct gsv_topology {
    struct gsv_core_set *groups; /* [n], none empty, no processor in two */
    int32_t n;                   /* 0: not known */
};

/* What the process may run on now: the affinity mask, which the control group's cpuset bounds.
 * False when it is not known. */
bool gsv_core_set_allowed(struct gsv_core_set *set);

/* Read the groups of the processors in `allowed` from `system`, on a machine
 * "/sys/devices/system". What is missing there joins processors: with no word of caches those of a
 * memory node are a group, and without that all of them. NULL memory leaves n at 0. */
void gsv_topology_read(struct gsv_topology *topology, const char *system,
                       const struct gsv_core_set *allowed);
void gsv_topology_reset(struct gsv_topology *topology);

/* The group of worker `i` of `n`: as many for each processor in all groups. */
int32_t gsv_topology_group(const struct gsv_topology *topology, int32_t i, int32_t n);

/* Keep the calling thread within a group, as far as it may run there at all. */
void gsv_topology_stay(const struct gsv_topology *topology, int32_t group);

#endif
