/*
 * cgroup.c - reads the limits of control groups.
 *
 * Version 2: the process's own group and every ancestor, because the tightest limit on the path
 * applies. Version 1: the controller's mount point, which inside a container is the container's own
 * group. Every call reads the files again; nothing is cached.
 */
#define _GNU_SOURCE
#include "lib/base/host/cpu_allowance.h"

#include "lib/base/host/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CGROUP_ROOT "/sys/fs/cgroup"
#define CGROUP_PATH_BYTES 1024

static bool read_text(const struct gsv_rootfs *rootfs, const char *path, char *text,
                      size_t capacity)
{
    return rootfs ? gsv_rootfs_read(rootfs, path, text, capacity) > 0
                  : gsv_host_text(path, text, capacity);
}

static bool read_number(const struct gsv_rootfs *rootfs, const char *path, uint64_t *value)
{
    char text[64];
    char *end;
    unsigned long long number;

    if (!read_text(rootfs, path, text, sizeof(text)))
        return false;
    number = strtoull(text, &end, 10);
    if (end == text)
        return false; /* "max": no limit */
    *value = number;
    return true;
}

/* The process's group in the unified hierarchy (cgroup v2), "/" or "/a/b". */
static void own_group(const struct gsv_rootfs *rootfs, char *group, size_t capacity)
{
    char text[4096];
    char *line;

    snprintf(group, capacity, "/");
    if (!read_text(rootfs, rootfs ? "/proc/1/cgroup" : "/proc/self/cgroup", text, sizeof(text)))
        return;
    line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!line)
        return;
    line += *line == '\n' ? 4 : 3;
    line[strcspn(line, "\n")] = '\0';
    if (strlen(line) < capacity)
        snprintf(group, capacity, "%s", line);
}

/* Replaces "/a/b" by "/a"; false at the root. */
static bool go_up(char *group)
{
    char *slash = strrchr(group, '/');

    if (!slash || group[1] == '\0')
        return false;
    slash[slash == group ? 1 : 0] = '\0';
    return true;
}

static void lower_cpus(struct gsv_cgroup_limits *limits, uint64_t quota, uint64_t period)
{
    uint64_t milli;

    if (period == 0 || __builtin_mul_overflow(quota, UINT64_C(1000), &milli) ||
        __builtin_add_overflow(milli, period - 1, &milli))
        return;
    milli /= period;
    if (milli < (uint64_t)limits->milli_cpus)
        limits->milli_cpus = (int64_t)milli;
}

static void lower_memory(struct gsv_cgroup_limits *limits, uint64_t bound, uint64_t used)
{
    const uint64_t left = used < bound ? bound - used : 0;

    limits->memory_bytes = bound < limits->memory_bytes ? bound : limits->memory_bytes;
    limits->memory_free_bytes = left < limits->memory_free_bytes ? left : limits->memory_free_bytes;
}

/* Reads cpu.max, "150000 100000" or "max 100000" (microseconds), and memory.max of one group. */
static void read_group(struct gsv_cgroup_limits *limits, const struct gsv_rootfs *rootfs,
                       const char *group)
{
    char path[CGROUP_PATH_BYTES + 64], text[64];
    unsigned long long quota, period;
    uint64_t bound, used = 0;

    snprintf(path, sizeof(path), CGROUP_ROOT "%s/cpu.max", group);
    if (read_text(rootfs, path, text, sizeof(text)) &&
        sscanf(text, "%llu %llu", &quota, &period) == 2)
        lower_cpus(limits, quota, period);
    snprintf(path, sizeof(path), CGROUP_ROOT "%s/memory.max", group);
    if (!read_number(rootfs, path, &bound))
        return;
    snprintf(path, sizeof(path), CGROUP_ROOT "%s/memory.current", group);
    read_number(rootfs, path, &used);
    lower_memory(limits, bound, used);
}

void gsv_cgroup_read(struct gsv_cgroup_limits *limits, const struct gsv_rootfs *rootfs)
{
    char group[CGROUP_PATH_BYTES];
    uint64_t quota, period, bound, used = 0;

    *limits = (struct gsv_cgroup_limits){ INT64_MAX, UINT64_MAX, UINT64_MAX };
    own_group(rootfs, group, sizeof(group));
    do
        read_group(limits, rootfs, group);
    while (go_up(group));
    /* Version 1 writes -1 for no quota, which strtoull returns as a huge number. */
    if (read_number(rootfs, CGROUP_ROOT "/cpu/cpu.cfs_quota_us", &quota) && quota < INT64_MAX &&
        read_number(rootfs, CGROUP_ROOT "/cpu/cpu.cfs_period_us", &period))
        lower_cpus(limits, quota, period);
    if (read_number(rootfs, CGROUP_ROOT "/memory/memory.limit_in_bytes", &bound)) {
        read_number(rootfs, CGROUP_ROOT "/memory/memory.usage_in_bytes", &used);
        lower_memory(limits, bound, used);
    }
}
