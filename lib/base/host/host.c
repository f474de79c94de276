/*
 * host.c - CPU count, memory and CPU name available to the process.
 *
 * The limits of control groups (cgroup.c) apply to all of them. Every call reads the files again;
 * nothing is cached.
 */
#define _GNU_SOURCE
#include "lib/base/host/host.h"

#include "lib/base/host/cpu_allowance.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool gsv_host_text(const char *path, char *text, size_t capacity)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;

    if (fd < 0)
        return false;
    got = read(fd, text, capacity - 1);
    close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    return true;
}

/* Size of the affinity mask. The mask grows for machines with more CPUs than a cpu_set_t has
 * bits. */
static int32_t affinity_cpus(void)
{
    for (int bits = 1024; bits <= 1 << 18; bits *= 4) {
        const size_t size = CPU_ALLOC_SIZE(bits);
        cpu_set_t *set = CPU_ALLOC(bits);
        int count;

        if (!set)
            break;
        if (sched_getaffinity(0, size, set) == 0) {
            count = CPU_COUNT_S(size, set);
            CPU_FREE(set);
            return count;
        }
        CPU_FREE(set);
    }
    return 1;
}

int32_t gsv_host_cpus(void)
{
    const int32_t allowed = affinity_cpus();
    struct gsv_cgroup_limits limits;
    int64_t quota;

    gsv_cgroup_read(&limits, NULL);
    quota = limits.milli_cpus / 1000 + (limits.milli_cpus % 1000 != 0);
    if (quota > allowed)
        quota = allowed;
    return quota < 1 ? 1 : (int32_t)quota;
}

static uint64_t physical_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

/* MemAvailable of /proc/meminfo, in bytes. */
static uint64_t available_bytes(void)
{
    char text[4096];
    const char *line;
    unsigned long long kib;

    if (!gsv_host_text("/proc/meminfo", text, sizeof(text)))
        return physical_bytes();
    line = strstr(text, "MemAvailable:");
    if (!line || sscanf(line, "MemAvailable: %llu", &kib) != 1)
        return physical_bytes();
    return (uint64_t)kib * 1024;
}

uint64_t gsv_host_memory_bytes(void)
{
    const uint64_t physical = physical_bytes();
    struct gsv_cgroup_limits limits;

    gsv_cgroup_read(&limits, NULL);
    return limits.memory_bytes < physical ? limits.memory_bytes : physical;
}

uint64_t gsv_host_memory_free_bytes(void)
{
    const uint64_t available = available_bytes();
    struct gsv_cgroup_limits limits;

    gsv_cgroup_read(&limits, NULL);
    return limits.memory_free_bytes < available ? limits.memory_free_bytes : available;
}

void gsv_host_cpu_name(char *name, uint32_t capacity)
{
    char text[4096];
    const char *line;

    snprintf(name, capacity, "CPU");
    if (!gsv_host_text("/proc/cpuinfo", text, sizeof(text)))
        return;
    line = strstr(text, "model name");
    line = line ? strchr(line, ':') : NULL;
    if (!line)
        return;
    line += 1 + strspn(line + 1, " \t");
    snprintf(name, capacity, "%.*s", (int)strcspn(line, "\n"), line);
}
