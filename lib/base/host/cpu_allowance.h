/*
 * cpu_allowance.h - the processors that a process may use, and its default number of threads.
 */
#ifndef GSV_BASE_CPU_ALLOWANCE_H
#define GSV_BASE_CPU_ALLOWANCE_H

#include "lib/base/host/rootfs.h"

#include <stdint.h>

struct gsv_cpu_allowance {
    int32_t cpus;       /* hardware threads of the affinity mask, which the cpuset bounds; 0: a root
                           without these files */
    int32_t cores;      /* physical cores of `cpus`; equal to `cpus` if the siblings are unknown */
    int64_t milli_cpus; /* CPU quota of the control group in 1/1000 CPU; INT64_MAX: no quota */
    int32_t threads;    /* default number of compute threads, at least 1 */
};

/*
 * One thread for each physical core: the hardware threads of a core share its multipliers, so that
 * a second one adds waiting, not products.
 *
 * A quota of n and a half CPUs or more gets n + 1 threads, a smaller fraction n: the kernel stops
 * all threads for the rest of a period (100 ms) once they have used the quota together. With 1.5
 * CPUs two threads add half to the throughput and stand still for a quarter of the time; with 1.1
 * they would add a tenth and stand still for almost half.
 *
 * `rootfs` NULL: the calling thread; else the first process of that root (/proc/1), from the files
 * of the root.
 */
void gsv_cpu_allowance_read(struct gsv_cpu_allowance *allowance, const struct gsv_rootfs *rootfs);

/*
 * The limits of CPU and memory that control groups put on a process.
 */

struct gsv_cgroup_limits {
    int64_t milli_cpus;         /* CPU quota, rounded up: 1500 is one and a half; INT64_MAX: none */
    uint64_t memory_bytes;      /* UINT64_MAX: no limit */
    uint64_t memory_free_bytes; /* the smallest limit minus usage; UINT64_MAX: no limit */
};

/* Reads both versions of control groups. `rootfs` NULL: this process; else the limits of the first
 * process of that root (/proc/1), as far as its files tell. */
void gsv_cgroup_read(struct gsv_cgroup_limits *limits, const struct gsv_rootfs *rootfs);

#endif
