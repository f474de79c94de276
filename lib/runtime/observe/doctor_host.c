/*
 * doctor_host.c - the layers processor and memory: features, limits of control groups, huge pages.
 */
#define _GNU_SOURCE
#include "lib/runtime/observe/doctor_layers.h"

#include "lib/base/host/cpu_allowance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define SMALL_MEMORY_BYTES (512 * MIB)

static bool reads(const struct gsv_machine *machine, const char *path, char *text, size_t capacity)
{
    return gsv_rootfs_read(&machine->rootfs, path, text, capacity) > 0;
}

/* ------------------------------------------------------------------------------------- processor
 */

static bool has_flag(const char *flags, const char *flag)
{
    const size_t length = strlen(flag);
    const char *at = flags;

    while ((at = strstr(at, flag))) {
        if (at > flags && at[-1] == ' ' &&
            (at[length] == ' ' || at[length] == '\0' || at[length] == '\n'))
            return true;
        at += length;
    }
    return false;
}

/* The features that choose the CPU backend's kernels, fastest first. */
static void list_features(const char *flags, char *text, size_t capacity)
{
    static const char *const known[] = { "amx_bf16", "avx512_bf16", "avx512_vnni",
                                         "avx512f",  "avx_vnni",    "avx2" };
    size_t at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && at < capacity; i++) {
        if (has_flag(flags, known[i]))
            at += (size_t)snprintf(text + at, capacity - at, "%s%s", at > 0 ? " " : "", known[i]);
    }
}

static void judge_features(struct gsv_machine *machine)
{
    char text[8192], features[64];
    char *flags;

    if (!reads(machine, "/proc/cpuinfo", text, sizeof(text)))
        return;
    flags = strstr(text, "\nflags");
    if (!flags) { /* not x86: the portable kernels */
        gsv_layer_found(machine, GSV_LAYER_PROCESSOR, "/proc/cpuinfo", "");
        return;
    }
    flags[1 + strcspn(flags + 1, "\n")] = '\0';
    list_features(flags, features, sizeof(features));
    gsv_layer_found(machine, GSV_LAYER_PROCESSOR, "/proc/cpuinfo", features);
    if (!has_flag(flags, "avx2") || !has_flag(flags, "fma"))
        gsv_layer_find(machine, GSV_LAYER_PROCESSOR, GSV_VERDICT_WARNING,
                       "use a processor of 2013 or newer; a virtual machine must pass the host's "
                       "features (QEMU: -cpu host)",
                       "the processor has no AVX2 with FMA: portable kernels are used, several "
                       "times slower");
}

static void judge_quota(struct gsv_machine *machine, const struct gsv_cgroup_limits *limits)
{
    struct gsv_cpu_allowance allowance;

    gsv_cpu_allowance_read(&allowance, machine->is_live ? NULL : &machine->rootfs);
    if (limits->milli_cpus < 1000)
        gsv_layer_find(machine, GSV_LAYER_PROCESSOR, GSV_VERDICT_WARNING,
                       "raise the CPU limit of the container to 1 or more",
                       "the control group allows %lld.%03lld CPUs: requests wait while the process "
                       "is throttled",
                       (long long)(limits->milli_cpus / 1000),
                       (long long)(limits->milli_cpus % 1000));
    else if (limits->milli_cpus < INT64_MAX && limits->milli_cpus % 1000 != 0 &&
             (allowance.cores == 0 || limits->milli_cpus / 1000 < allowance.cores))
        gsv_layer_find(
            machine, GSV_LAYER_PROCESSOR, GSV_VERDICT_WARNING,
            "set the CPU limit to a whole number",
            allowance.milli_cpus % 1000 < 500
                ? "the control group allows %lld.%03lld CPUs: the fraction is unused "
                  "(compute threads by default: %d)"
                : "the control group allows %lld.%03lld CPUs: the kernel stops all "
                  "compute threads once they have used a period's quota (by default: %d)",
            (long long)(limits->milli_cpus / 1000), (long long)(limits->milli_cpus % 1000),
            (int)allowance.threads);
}

/* ---------------------------------------------------------------------------------------- memory
 */

/* A line "Name:  123 kB" of /proc/meminfo in bytes, or a plain number; 0 if it is missing. */
static uint64_t field(const char *text, const char *name, uint64_t unit)
{
    const char *const at = strstr(text, name);
    uint64_t bytes;

    if (!at || __builtin_mul_overflow(strtoull(at + strlen(name), NULL, 10), unit, &bytes))
        return 0;
    return bytes;
}

static void judge_huge_pages(struct gsv_machine *machine, const char *meminfo)
{
    const uint64_t total = field(meminfo, "MemTotal:", 1024);
    const uint64_t page = field(meminfo, "Hugepagesize:", 1024);
    uint64_t reserved;
    char text[128];

    if (reads(machine, "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text)) &&
        strstr(text, "[never]"))
        gsv_layer_find(machine, GSV_LAYER_MEMORY, GSV_VERDICT_WARNING,
                       "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                       "transparent huge pages are off: weights are read with more TLB misses");
    if (!__builtin_mul_overflow(field(meminfo, "HugePages_Free:", 1), page, &reserved) &&
        total > 0 && reserved > total / 4)
        gsv_layer_find(machine, GSV_LAYER_MEMORY, GSV_VERDICT_WARNING,
                       "lower vm.nr_hugepages: gpuserve uses transparent huge pages only",
                       "%llu MiB of %llu MiB are reserved as huge pages, which gpuserve cannot use",
                       (unsigned long long)(reserved / MIB), (unsigned long long)(total / MIB));
}

static void judge_memory(struct gsv_machine *machine, const struct gsv_cgroup_limits *limits)
{
    char meminfo[8192], version[64];
    uint64_t total;

    if (!reads(machine, "/proc/meminfo", meminfo, sizeof(meminfo)))
        return;
    total = field(meminfo, "MemTotal:", 1024);
    if (limits->memory_bytes < total)
        snprintf(version, sizeof(version), "%llu MiB of %llu MiB",
                 (unsigned long long)(limits->memory_bytes / MIB),
                 (unsigned long long)(total / MIB));
    else
        snprintf(version, sizeof(version), "%llu MiB", (unsigned long long)(total / MIB));
    gsv_layer_found(machine, GSV_LAYER_MEMORY, "/proc/meminfo", version);
    if (limits->memory_bytes < SMALL_MEMORY_BYTES && limits->memory_bytes < total)
        gsv_layer_find(machine, GSV_LAYER_MEMORY, GSV_VERDICT_WARNING,
                       "raise the container's memory limit; gpuserve inspect MODEL prints what a "
                       "model needs",
                       "the control group allows %llu MiB: larger models are refused",
                       (unsigned long long)(limits->memory_bytes / MIB));
    judge_huge_pages(machine, meminfo);
}

void gsv_machine_judge_host(struct gsv_machine *machine)
{
    struct gsv_cgroup_limits limits;

    gsv_cgroup_read(&limits, machine->is_live ? NULL : &machine->rootfs);
    judge_features(machine);
    judge_quota(machine, &limits);
    judge_memory(machine, &limits);
}
