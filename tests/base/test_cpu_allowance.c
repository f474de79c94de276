/*
 * test_cpu_allowance.c - allowed hardware threads, cores, quotas and the threads that suit them, on
 * roots made of files.
 */
#define _GNU_SOURCE
#include "lib/base/host/cpu_allowance.h"
#include "lib/base/host/host.h"
#include "tests/base/root_folder.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void begin(void)
{
    make_root("mkdir -p proc/1 sys/fs/cgroup sys/devices/system/cpu", ".");
}

static void put(const char *path, const char *text)
{
    char command[512];
    FILE *file;

    snprintf(command, sizeof(command), "mkdir -p \"$(dirname %s)\"", path);
    shell(command);
    file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

static void allow(const char *list)
{
    char text[512];

    snprintf(text, sizeof(text), "Name:\tserver\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\nend\n",
             list);
    put("proc/1/status", text);
}

/* CPU i has the sibling i + distance; the lists of 2 * distance CPUs. */
static void put_siblings(int distance)
{
    char path[128], text[32];

    for (int i = 0; i < 2 * distance; i++) {
        snprintf(path, sizeof(path), "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 i);
        snprintf(text, sizeof(text), "%d,%d\n", i % distance, i % distance + distance);
        put(path, text);
    }
}

static void expect(const char *what, int cpus, int cores, int threads)
{
    struct gsv_cpu_allowance allowance;

    gsv_cpu_allowance_read(&allowance, &rootfs);
    cr_expect_eq(allowance.cpus, cpus, "%s: %d cpus", what, allowance.cpus);
    cr_expect_eq(allowance.cores, cores, "%s: %d cores", what, allowance.cores);
    cr_expect_eq(allowance.threads, threads, "%s: %d threads", what, allowance.threads);
}

Test(cpu_allowance, one_thread_for_each_core, .init = begin, .fini = end)
{
    allow("0-7");
    expect("siblings are unknown", 8, 8, 8);
    put_siblings(4);
    expect("two hardware threads each", 8, 4, 4);
    allow("0-3");
    expect("a cpuset of one thread of each core", 4, 4, 4);
    allow("0,4");
    expect("both threads of one core", 2, 1, 1);
    allow("0-1,4,7");
    expect("a cpuset of three cores", 4, 3, 3);
    put("sys/devices/system/cpu/cpu7/topology/thread_siblings_list", "0-3\n");
    expect("a list without its CPU", 4, 3, 3);
    put("sys/devices/system/cpu/cpu7/topology/thread_siblings_list", "7-x\n");
    expect("a senseless list", 4, 3, 3);
}

Test(cpu_allowance, fractional_quotas_round_to_the_nearest, .init = begin, .fini = end)
{
    static const struct {
        const char *max;
        int threads;
    } cases[] = {
        { "150000 100000\n", 2 }, { "149000 100000\n", 1 }, { "100000 100000\n", 1 },
        { "50000 100000\n", 1 },  { "1000 100000\n", 1 },   { "250000 100000\n", 3 },
        { "220000 100000\n", 2 }, { "15000 10000\n", 2 },   { "max 100000\n", 4 },
        { "900000 100000\n", 4 }, { "150000 0\n", 4 },      { "", 4 },
    };

    allow("0-7");
    put_siblings(4);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        put("sys/fs/cgroup/cpu.max", cases[i].max);
        expect(cases[i].max, 8, 4, cases[i].threads);
    }
    put("proc/1/cgroup", "0::/pod/container\n");
    put("sys/fs/cgroup/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/pod/container/cpu.max", "300000 100000\n");
    expect("the container's own group", 8, 4, 3);
    put("sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
    expect("the group around it", 8, 4, 2);
}

Test(cpu_allowance, quotas_of_version_1, .init = begin, .fini = end)
{
    allow("0-3");
    put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
    expect("1.5", 4, 4, 2);
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    expect("none", 4, 4, 4);
}

Test(cpu_allowance, a_root_without_files_is_unknown, .init = begin, .fini = end)
{
    static const char *const senseless[] = { "", "x", "3-1", "0-", "0-99999", "0;1", "-1" };

    expect("nothing", 0, 0, 1);
    put("sys/fs/cgroup/cpu.max", "150000 100000\n");
    expect("a quota alone", 0, 0, 2);
    put("sys/devices/system/cpu/online", "0-3\n");
    expect("no process", 4, 4, 2);
    for (size_t i = 0; i < sizeof(senseless) / sizeof(senseless[0]); i++) {
        allow(senseless[i]);
        expect(senseless[i], 0, 0, 2);
    }
}

Test(cpu_allowance, this_process_obeys_its_mask)
{
    struct gsv_cpu_allowance allowance;
    cpu_set_t one;

    gsv_cpu_allowance_read(&allowance, NULL);
    cr_expect(allowance.threads >= 1 && allowance.threads <= allowance.cores);
    cr_expect(allowance.cores <= allowance.cpus);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
    gsv_cpu_allowance_read(&allowance, NULL);
    cr_expect(allowance.cpus == 1 && allowance.cores == 1 && allowance.threads == 1);
}
