/*
 * cpu_allowance.c - counts allowed hardware threads and cores, and chooses a number of threads.
 *
 *   affinity mask (or Cpus_allowed_list of /proc/1/status) -> siblings of each CPU -> cores
 *   control groups (cgroup.c) -> quota
 *
 * Every call reads the files again; nothing is cached.
 */
#define _GNU_SOURCE
#include "lib/base/host/cpu_allowance.h"

#include "lib/base/host/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_BYTES 4096
#define STATUS_BYTES 16384

static bool read_text(const struct gsv_rootfs *rootfs, const char *path, char *text,
                      size_t capacity)
{
    return rootfs ? gsv_rootfs_read(rootfs, path, text, capacity) > 0
                  : gsv_host_text(path, text, capacity);
}

/* The CPUs that the first process of a root may use. */
static bool read_allowed(const struct gsv_rootfs *rootfs, struct gsv_core_set *allowed)
{
    static const char field[] = "\nCpus_allowed_list:";
    char text[STATUS_BYTES];
    char *at;

    if (!rootfs)
        return gsv_core_set_allowed(allowed);
    if (!read_text(rootfs, "/proc/1/status", text, sizeof(text)))
        return read_text(rootfs, "/sys/devices/system/cpu/online", text, sizeof(text)) &&
               gsv_core_set_parse(text, allowed);
    at = strstr(text, field);
    if (!at)
        return false;
    at += strlen(field);
    return gsv_core_set_parse(at + strspn(at, " \t"), allowed);
}

/* The hardware threads of a CPU's core. False if unknown, or if the list lacks the CPU. */
static bool read_siblings(const struct gsv_rootfs *rootfs, int32_t cpu,
                          struct gsv_core_set *siblings)
{
    char path[128], text[LIST_BYTES];

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             (int)cpu);
    return read_text(rootfs, path, text, sizeof(text)) && gsv_core_set_parse(text, siblings) &&
           gsv_core_set_has(siblings, cpu);
}

/* Counts the cores of a set; a CPU of unknown siblings is a core. */
static int32_t count_cores(const struct gsv_rootfs *rootfs, const struct gsv_core_set *allowed)
{
    struct gsv_core_set left = *allowed, siblings;
    int32_t n = 0;

    for (int32_t cpu = 0; cpu < GSV_MAX_CORES; cpu++) {
        if (!gsv_core_set_has(&left, cpu))
            continue;
        n++;
        if (!read_siblings(rootfs, cpu, &siblings))
            continue;
        for (size_t i = 0; i < GSV_MAX_CORES / 64; i++)
            left.bits[i] &= ~siblings.bits[i];
    }
    return n;
}

void gsv_cpu_allowance_read(struct gsv_cpu_allowance *allowance, const struct gsv_rootfs *rootfs)
{
    struct gsv_cgroup_limits limits;
    struct gsv_core_set allowed;
    int64_t whole;
    int32_t max;

    gsv_cgroup_read(&limits, rootfs);
    *allowance = (struct gsv_cpu_allowance){ .milli_cpus = limits.milli_cpus };
    if (read_allowed(rootfs, &allowed)) {
        allowance->cpus = gsv_core_set_count(&allowed);
        allowance->cores = count_cores(rootfs, &allowed);
    } else if (!rootfs) { /* more CPUs than a set has */
        allowance->cpus = allowance->cores = gsv_host_cpus();
    }
    whole = limits.milli_cpus / 1000 + (limits.milli_cpus % 1000 >= 500);
    max = allowance->cores > 0 || whole > GSV_MAX_CORES ? allowance->cores : (int32_t)whole;
    allowance->threads = whole < max ? (int32_t)whole : max;
    allowance->threads = allowance->threads < 1 ? 1 : allowance->threads;
}
