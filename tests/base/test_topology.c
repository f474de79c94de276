/*
 * test_topology.c - core groups from canned sysfs trees, and threads pinned to their group.
 */
#define _GNU_SOURCE
#include "lib/base/host/host.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

/* Creates a file of the tree and its folders. */
static void put(const char *name, const char *text)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        mkdir(path, 0700);
    }
    file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

static void put_core(int core, const char *level2, const char *level3)
{
    char name[128];

    snprintf(name, sizeof(name), "cpu/cpu%d/cache/index0/level", core);
    put(name, "2\n");
    snprintf(name, sizeof(name), "cpu/cpu%d/cache/index0/shared_cpu_list", core);
    put(name, level2);
    if (!level3)
        return;
    snprintf(name, sizeof(name), "cpu/cpu%d/cache/index1/level", core);
    put(name, "3\n");
    snprintf(name, sizeof(name), "cpu/cpu%d/cache/index1/shared_cpu_list", core);
    put(name, level3);
}

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *walk)
{
    (void)facts;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void make_tree(void)
{
    strcpy(root, "/tmp/gpuserve-topology-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void remove_tree(void)
{
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The groups as "0 1 8|2 3", restricted to `allowed`, a mask of the first 64 cores. */
static const char *groups_of(uint64_t allowed)
{
    static char text[512];
    struct gsv_core_set set = { { allowed } };
    struct gsv_topology topology;
    size_t n = 0;

    gsv_topology_read(&topology, root, &set);
    text[0] = '\0';
    for (int32_t i = 0; i < topology.n; i++) {
        for (int core = 0; core < 64; core++) {
            if (topology.groups[i].bits[0] >> core & 1)
                n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%d",
                                      n == 0 || text[n - 1] == '|' ? "" : " ", core);
        }
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", i + 1 < topology.n ? "|" : "");
    }
    gsv_topology_reset(&topology);
    return text;
}

/* Two sockets, each with two core complexes of two cores with SMT siblings. */
static void put_server(void)
{
    for (int core = 0; core < 16; core++) {
        static const char *const level3[] = { "0-1,8-9\n", "2-3,10-11\n", "4-5,12-13\n",
                                              "6-7,14-15" };

        put_core(core, "0\n", level3[core % 8 / 2]);
    }
    put("node/node0/cpulist", "0-3,8-11\n");
    put("node/node1/cpulist", "4-7,12-15\n");
}

Test(topology, cores_that_share_a_cache_are_a_group, .init = make_tree, .fini = remove_tree)
{
    put_server();
    cr_expect_str_eq(groups_of(0xffff), "0 1 8 9|2 3 10 11|4 5 12 13|6 7 14 15");
    cr_expect_str_eq(groups_of(0x0ff1), "0 8 9|4 5|6 7|10 11", "what may not be used is left out");
    cr_expect_str_eq(groups_of(0x0002), "1");
    cr_expect_str_eq(groups_of(0), "");
    cr_expect_str_eq(groups_of(0x30003), "0 1|16 17", "of 16 and 17 nothing is told");
}

Test(topology, a_cache_of_two_memory_nodes_is_two_groups, .init = make_tree, .fini = remove_tree)
{
    for (int core = 0; core < 8; core++)
        put_core(core, "0", "0-7");
    cr_expect_str_eq(groups_of(0xff), "0 1 2 3 4 5 6 7");
    put("node/node0/cpulist", "0-3");
    put("node/node2/cpulist", "4-7");
    cr_expect_str_eq(groups_of(0xff), "0 1 2 3|4 5 6 7");
}

Test(topology, what_is_missing_or_senseless_joins_them, .init = make_tree, .fini = remove_tree)
{
    static const char *const senseless[] = { "", "x", "3-1", "0-", "0-99999", "1-2", "0;1", "-1" };

    cr_expect_str_eq(groups_of(0xf), "0 1 2 3");
    for (size_t i = 0; i < sizeof(senseless) / sizeof(senseless[0]); i++) {
        put_core(0, "0", senseless[i]);
        cr_expect_str_eq(groups_of(0xf), "0 1 2 3", "%s", senseless[i]);
    }
    put_core(0, "0", NULL);
    put("node/node0/cpulist", "0-1\n");
    put("node/node1/cpulist", "2-3\n");
    cr_expect_str_eq(groups_of(0xf), "0 1|2 3");
}

Test(topology, workers_are_spread_by_the_cores, .init = make_tree, .fini = remove_tree)
{
    const struct gsv_core_set set = { { 0x0ff1 } }; /* 3, 2, 2 and 2 cores */
    const int32_t all[] = { 0, 0, 0, 1, 1, 2, 2, 3, 3 }, few[] = { 0, 1, 2 };
    struct gsv_topology topology;

    put_server();
    gsv_topology_read(&topology, root, &set);
    for (int32_t i = 0; i < 9; i++)
        cr_expect_eq(gsv_topology_group(&topology, i, 9), all[i], "worker %d", i);
    for (int32_t i = 0; i < 3; i++)
        cr_expect_eq(gsv_topology_group(&topology, i, 3), few[i], "worker %d of 3", i);
    cr_expect_eq(gsv_topology_group(&topology, 30, 36), 3);
    gsv_topology_reset(&topology);
    cr_expect_eq(gsv_topology_group(&topology, 3, 4), 0);
}

/* With the real cores: each is its own group. */
Test(topology, a_thread_stays_within_its_group_and_its_mask)
{
    struct gsv_core_set allowed, now;
    struct gsv_topology topology = { .n = 0 };

    cr_assert(gsv_core_set_allowed(&allowed));
    topology.groups = calloc(GSV_MAX_CORES, sizeof(*topology.groups));
    cr_assert_not_null(topology.groups);
    for (int core = 0; core < GSV_MAX_CORES; core++) {
        if (allowed.bits[core / 64] >> (core % 64) & 1)
            topology.groups[topology.n++].bits[core / 64] = UINT64_C(1) << (core % 64);
    }
    gsv_topology_stay(&topology, topology.n - 1);
    cr_assert(gsv_core_set_allowed(&now));
    cr_expect_eq(memcmp(&now, &topology.groups[topology.n - 1], sizeof(now)), 0);
    gsv_topology_stay(&topology, 0); /* no core of the group is allowed any more */
    cr_assert(gsv_core_set_allowed(&now));
    cr_expect_eq(memcmp(&now, &topology.groups[topology.n - 1], sizeof(now)), 0);
    gsv_topology_reset(&topology);
}
