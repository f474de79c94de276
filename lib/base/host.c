/*
 * host.c - CPU count, memory and CPU name available to the process.
 *
 * Both versions of control groups are read. Version 2: the process's own group and every ancestor,
 * because the tightest limit on the path applies. Version 1: the controller's mount point, which
 * inside a container is the container's own group. Every call reads the files again; nothing is
 * cached.
 */
#define _GNU_SOURCE
#include "lib/base/host.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CGROUP_ROOT "/sys/fs/cgroup"
#define CGROUP_PATH_BYTES 1024

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

static bool read_number(const char *path, uint64_t *value)
{
    char text[64];
    char *end;
    unsigned long long number;

    if (!gsv_host_text(path, text, sizeof(text)))
        return false;
    number = strtoull(text, &end, 10);
    if (end == text)
        return false; /* "max": no limit */
    *value = number;
    return true;
}

/* The process's group in the unified hierarchy (cgroup v2), "/" or "/a/b". */
static void own_group(char *group, size_t capacity)
{
    char text[4096];
    char *line;

    snprintf(group, capacity, "/");
    if (!gsv_host_text("/proc/self/cgroup", text, sizeof(text)))
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

static int32_t whole_cpus(uint64_t quota, uint64_t period)
{
    const uint64_t cpus = period ? (quota + period - 1) / period : 0;

    return cpus < 1 ? 1 : cpus > INT32_MAX ? INT32_MAX : (int32_t)cpus;
}

/* Reads cpu.max, "150000 100000" or "max 100000" (microseconds); INT32_MAX for no quota. */
static int32_t quota_of(const char *path)
{
    char text[64];
    unsigned long long quota, period;

    if (!gsv_host_text(path, text, sizeof(text)) || sscanf(text, "%llu %llu", &quota, &period) != 2)
        return INT32_MAX;
    return whole_cpus(quota, period);
}

static int32_t cgroup_cpus(void)
{
    char group[CGROUP_PATH_BYTES], path[CGROUP_PATH_BYTES + 64];
    uint64_t quota, period;
    int32_t cpus = INT32_MAX;

    own_group(group, sizeof(group));
    do {
        int32_t here;

        snprintf(path, sizeof(path), CGROUP_ROOT "%s/cpu.max", group);
        here = quota_of(path);
        cpus = here < cpus ? here : cpus;
    } while (go_up(group));
    /* Version 1 writes -1 for no quota, which strtoull returns as a huge number. */
    if (read_number(CGROUP_ROOT "/cpu/cpu.cfs_quota_us", &quota) && quota < INT64_MAX &&
        read_number(CGROUP_ROOT "/cpu/cpu.cfs_period_us", &period)) {
        const int32_t here = whole_cpus(quota, period);

        cpus = here < cpus ? here : cpus;
    }
    return cpus;
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
    const int32_t allowed = affinity_cpus(), quota = cgroup_cpus();
    const int32_t cpus = allowed < quota ? allowed : quota;

    return cpus < 1 ? 1 : cpus;
}

/* Lowers *limit and *free_now to the minimum over the group and its ancestors. A group's free
 * memory is its limit minus its current usage. */
static void cgroup_memory(uint64_t *limit, uint64_t *free_now)
{
    char group[CGROUP_PATH_BYTES], path[CGROUP_PATH_BYTES + 64];
    uint64_t bound, used;

    own_group(group, sizeof(group));
    do {
        snprintf(path, sizeof(path), CGROUP_ROOT "%s/memory.max", group);
        if (!read_number(path, &bound))
            continue;
        snprintf(path, sizeof(path), CGROUP_ROOT "%s/memory.current", group);
        used = 0;
        read_number(path, &used);
        *limit = bound < *limit ? bound : *limit;
        bound = used < bound ? bound - used : 0;
        *free_now = bound < *free_now ? bound : *free_now;
    } while (go_up(group));
    if (read_number(CGROUP_ROOT "/memory/memory.limit_in_bytes", &bound)) {
        used = 0;
        read_number(CGROUP_ROOT "/memory/memory.usage_in_bytes", &used);
        *limit = bound < *limit ? bound : *limit;
        bound = used < bound ? bound - used : 0;
        *free_now = bound < *free_now ? bound : *free_now;
    }
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
    uint64_t limit = physical_bytes(), unused = UINT64_MAX;

    cgroup_memory(&limit, &unused);
    return limit;
}

uint64_t gsv_host_memory_free_bytes(void)
{
    uint64_t limit = UINT64_MAX, left = available_bytes();

    cgroup_memory(&limit, &left);
    return left;
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
