/*
 * topology.c - groups the CPUs that share a last-level cache and a NUMA node.
 *
 * sysfs lists for each CPU those that share its L3 cache, in cpu/cpuN/cache/indexI/shared_cpu_list.
 * It lists the CPUs of each NUMA node in node/nodeN/cpulist. Both have the form "0-3,8,10-11".
 */
#define _GNU_SOURCE
#include "lib/base/host/host.h"

#include "lib/base/alloc.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CACHES 16 /* per CPU */
#define MAX_NODES 256
#define LIST_BYTES 4096
#define PATH_BYTES 512

_Static_assert(GSV_MAX_CORES == CPU_SETSIZE, "a core set is a cpu_set_t");

/* ---------------------------------------------------------------------------------------- sets */

bool gsv_core_set_has(const struct gsv_core_set *set, int32_t core)
{
    return set->bits[core / 64] >> (core % 64) & 1;
}

static void add(struct gsv_core_set *set, int32_t core)
{
    set->bits[core / 64] |= UINT64_C(1) << (core % 64);
}

/* Intersects `set` with `other`; false if the result is empty. */
static bool keep_common(struct gsv_core_set *set, const struct gsv_core_set *other)
{
    uint64_t any = 0;

    for (size_t i = 0; i < GSV_MAX_CORES / 64; i++)
        any |= set->bits[i] &= other->bits[i];
    return any != 0;
}

static void remove_all(struct gsv_core_set *set, const struct gsv_core_set *other)
{
    for (size_t i = 0; i < GSV_MAX_CORES / 64; i++)
        set->bits[i] &= ~other->bits[i];
}

int32_t gsv_core_set_count(const struct gsv_core_set *set)
{
    int32_t n = 0;

    for (size_t i = 0; i < GSV_MAX_CORES / 64; i++)
        n += __builtin_popcountll(set->bits[i]);
    return n;
}

static void from_mask(struct gsv_core_set *set, const cpu_set_t *mask)
{
    memset(set, 0, sizeof(*set));
    for (int32_t i = 0; i < GSV_MAX_CORES; i++) {
        if (CPU_ISSET(i, mask))
            add(set, i);
    }
}

bool gsv_core_set_allowed(struct gsv_core_set *set)
{
    cpu_set_t mask;

    if (sched_getaffinity(0, sizeof(mask), &mask) != 0)
        return false;
    from_mask(set, &mask);
    return true;
}

/* --------------------------------------------------------------------------------------- sysfs */

bool gsv_core_set_parse(const char *text, struct gsv_core_set *set)
{
    const char *at = text;

    memset(set, 0, sizeof(*set));
    do {
        char *end;
        unsigned long long first, last;

        if (*at < '0' || *at > '9')
            return false;
        first = last = strtoull(at, &end, 10);
        if (*end == '-') {
            at = end + 1;
            if (*at < '0' || *at > '9')
                return false;
            last = strtoull(at, &end, 10);
        }
        if (first > last || last >= GSV_MAX_CORES)
            return false;
        for (; first <= last; first++)
            add(set, (int32_t)first);
        at = end + 1;
        if (*end != ',')
            return *end == '\0' || *end == '\n';
    } while (true);
}

static bool read_list(const char *path, struct gsv_core_set *set)
{
    char text[LIST_BYTES];

    memset(set, 0, sizeof(*set));
    return gsv_host_text(path, text, sizeof(text)) && gsv_core_set_parse(text, set);
}

/* The CPUs that share the L3 cache of `core`. */
static bool read_cache(const char *system, int32_t core, struct gsv_core_set *set)
{
    char path[PATH_BYTES], level[8];

    for (int i = 0; i < MAX_CACHES; i++) {
        snprintf(path, sizeof(path), "%s/cpu/cpu%d/cache/index%d/level", system, core, i);
        if (!gsv_host_text(path, level, sizeof(level)))
            return false;
        if (atoi(level) != 3)
            continue;
        snprintf(path, sizeof(path), "%s/cpu/cpu%d/cache/index%d/shared_cpu_list", system, core, i);
        return read_list(path, set) && gsv_core_set_has(set, core);
    }
    return false;
}

/* The CPUs of the NUMA node of `core`. */
static bool read_node(const char *system, int32_t core, struct gsv_core_set *set)
{
    char path[PATH_BYTES];

    for (int i = 0; i < MAX_NODES; i++) {
        snprintf(path, sizeof(path), "%s/node/node%d/cpulist", system, i);
        if (read_list(path, set) && gsv_core_set_has(set, core))
            return true;
    }
    return false;
}

void gsv_topology_read(struct gsv_topology *topology, const char *system,
                       const struct gsv_core_set *allowed)
{
    struct gsv_core_set left = *allowed;

    *topology = (struct gsv_topology){ 0 };
    topology->groups =
        gsv_alloc_array((size_t)gsv_core_set_count(allowed) + 1, sizeof(*topology->groups));
    for (int32_t core = 0; topology->groups && core < GSV_MAX_CORES; core++) {
        struct gsv_core_set *group = &topology->groups[topology->n], other;

        if (!gsv_core_set_has(&left, core))
            continue;
        *group = left;
        if (read_cache(system, core, &other))
            keep_common(group, &other);
        if (read_node(system, core, &other))
            keep_common(group, &other);
        remove_all(&left, group);
        topology->n++;
    }
}

void gsv_topology_reset(struct gsv_topology *topology)
{
    free(topology->groups);
    *topology = (struct gsv_topology){ 0 };
}

/* -------------------------------------------------------------------------------------- workers */

int32_t gsv_topology_group(const struct gsv_topology *topology, int32_t i, int32_t n)
{
    int64_t all = 0, cpu_index;
    int32_t group = 0;

    for (int32_t j = 0; j < topology->n; j++)
        all += gsv_core_set_count(&topology->groups[j]);
    if (all == 0 || n < 1)
        return 0;
    cpu_index = (int64_t)(i % n) * all / n; /* index of the worker's CPU, counted over all groups */
    while (cpu_index >= gsv_core_set_count(&topology->groups[group]))
        cpu_index -= gsv_core_set_count(&topology->groups[group++]);
    return group;
}

void gsv_topology_stay(const struct gsv_topology *topology, int32_t group)
{
    struct gsv_core_set set;
    cpu_set_t mask;

    if (topology->n < 2 || !gsv_core_set_allowed(&set) ||
        !keep_common(&set, &topology->groups[group]))
        return;
    CPU_ZERO(&mask);
    for (int32_t i = 0; i < GSV_MAX_CORES; i++) {
        if (gsv_core_set_has(&set, i))
            CPU_SET(i, &mask);
    }
    (void)sched_setaffinity(0, sizeof(mask), &mask); /* on failure the affinity is unchanged */
}
