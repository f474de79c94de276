/*
 * cgroup.h - the limits of CPU and memory that control groups put on a process.
 */
#ifndef GSV_BASE_CGROUP_H
#define GSV_BASE_CGROUP_H

#include "lib/base/host/rootfs.h"

#include <stdint.h>

struct gsv_cgroup_limits {
    int64_t milli_cpus;         /* CPU quota, rounded up: 1500 is one and a half; INT64_MAX: none */
    uint64_t memory_bytes;      /* UINT64_MAX: no limit */
    uint64_t memory_free_bytes; /* the smallest limit minus usage; UINT64_MAX: no limit */
};

/* Reads both versions of control groups. `rootfs` NULL: this process; else the limits of the first
 * process of that root (/proc/1), as far as its files tell. */
void gsv_cgroup_read(struct gsv_cgroup_limits *limits, const struct gsv_rootfs *rootfs);

#endif
