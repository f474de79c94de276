/*
 * host.h - CPU and memory the process may use: bounded by the affinity mask and the control group,
 * not by the hardware alone.
 */
#ifndef GSV_BASE_HOST_H
#define GSV_BASE_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Number of CPUs (hardware threads) of the affinity mask, bounded by the control group's CPU quota
 * (1.5 counts as 2). At least 1. */
int32_t gsv_host_cpus(void);

/* Physical memory, or the control group's limit if that is smaller. */
uint64_t gsv_host_memory_bytes(void);

/* Memory free now, including page cache that can be dropped. */
uint64_t gsv_host_memory_free_bytes(void);

/* The CPU's model name ("AMD EPYC 9555"), cut at `capacity` bytes; "CPU" if unknown. */
void gsv_host_cpu_name(char *name, uint32_t capacity);

/* Reads the start of a small file, such as a sysfs entry, NUL-terminated. False if it is missing or
 * empty. */
bool gsv_host_text(const char *path, char *text, size_t capacity);

/*
 * Groups the CPUs that share a last-level cache and a NUMA node.
 *
 * A thread that stays within its group finds its recent data in the cache and its first-touched
 * memory on the local node. A machine of one group needs no pinning.
 */

#define GSV_MAX_CORES 1024 /* larger machines: topology unknown */

/* A set of CPUs by number. */
struct gsv_core_set {
    uint64_t bits[GSV_MAX_CORES / 64];
};

struct gsv_topology {
    struct gsv_core_set *groups; /* [n], none empty, pairwise disjoint */
    int32_t n;                   /* 0: unknown */
};

/* The affinity mask of the calling thread, which the control group's cpuset bounds. False if
 * unknown. */
bool gsv_core_set_allowed(struct gsv_core_set *set);

/* Parses the list of a sysfs file, such as "0-3,8,10-11", up to the end of its line. False for any
 * other text, and for a CPU from GSV_MAX_CORES on. */
bool gsv_core_set_parse(const char *text, struct gsv_core_set *set);
bool gsv_core_set_has(const struct gsv_core_set *set, int32_t core);
int32_t gsv_core_set_count(const struct gsv_core_set *set);

/* Reads the groups of the CPUs in `allowed` from `system`, normally "/sys/devices/system". Without
 * cache information the CPUs of a NUMA node form a group; without nodes, all CPUs do. n stays 0 if
 * out of memory. */
void gsv_topology_read(struct gsv_topology *topology, const char *system,
                       const struct gsv_core_set *allowed);
void gsv_topology_reset(struct gsv_topology *topology);

/* The group of worker `i` of `n`. Workers are spread in proportion to the CPUs of each group. */
int32_t gsv_topology_group(const struct gsv_topology *topology, int32_t i, int32_t n);

/* Pins the calling thread to the CPUs of a group that its affinity mask already allows. */
void gsv_topology_stay(const struct gsv_topology *topology, int32_t group);

#endif
