/*
 * test_code_cache.c - the on-disk cache of generated kernels: reused by the next process if intact,
 * else compiled again; limited in size; consistent under concurrent writers.
 *
 * Each use is a separate process. A process without a compiler in its PATH can only get the kernel
 * from the cache.
 */
#include "tests/compute/support.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRONG, GENERATED, INTERPRETED };

static char folder[64];

static void begin(void)
{
    strcpy(folder, "/tmp/gpuserve-code-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    setenv("GPUSERVE_KERNEL_CACHE", folder, 1);
    setenv("GPUSERVE_NVRTC", "1", 1);
}

static void end(void)
{
    char command[96];

    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(code_cache, .init = begin, .fini = end);

/* Runs x + 1, then times 3, on the emulated device. */
static int use(void)
{
    const gpuserve_chain_step steps[] = { { GPUSERVE_CHAIN_ADD, 1, 0 },
                                          { GPUSERVE_CHAIN_MULTIPLY, 3, 0 } };
    gpuserve_compute *compute = open_compute("cuda:0");
    float x = 4;
    const uint32_t variant = run_chain(compute, steps, 2, &x, &x, 1);

    gpuserve_compute_close(&compute);
    if (x != 15)
        return WRONG;
    return variant == GPUSERVE_CHAIN_GENERATED ? GENERATED : INTERPRETED;
}

static pid_t start(bool with_compiler)
{
    const pid_t child = fork();

    if (child == 0) {
        if (!with_compiler)
            setenv("PATH", "/nowhere", 1);
        _exit(use());
    }
    cr_assert_gt(child, 0);
    return child;
}

static int result_of(pid_t child)
{
    int status = 0;

    cr_assert_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : WRONG;
}

static int run_with(bool with_compiler)
{
    return result_of(start(with_compiler));
}

/* Number of cached kernels; `path` receives the path of one. */
static int n_kept(char *path, size_t size)
{
    DIR *const open_folder = opendir(folder);
    struct dirent *entry;
    int n = 0;

    cr_assert_not_null(open_folder);
    while ((entry = readdir(open_folder))) {
        cr_expect_neq(strncmp(entry->d_name, ".new", 4), 0, "%s was left behind", entry->d_name);
        if (!strstr(entry->d_name, ".code"))
            continue;
        snprintf(path, size, "%s/%s", folder, entry->d_name);
        n++;
    }
    closedir(open_folder);
    return n;
}

static void expect_kept(int n)
{
    char path[512];

    cr_expect_eq(n_kept(path, sizeof(path)), n);
}

Test(code_cache, the_next_process_needs_no_compiler)
{
    cr_expect_eq(run_with(false), INTERPRETED);
    cr_expect_eq(run_with(true), GENERATED);
    expect_kept(1);
    cr_expect_eq(run_with(false), GENERATED);
    expect_kept(1);
}

Test(code_cache, none_where_it_is_switched_off)
{
    setenv("GPUSERVE_KERNEL_CACHE", "0", 1);
    cr_expect_eq(run_with(true), GENERATED);
    cr_expect_eq(run_with(false), INTERPRETED);
    expect_kept(0);
}

/* Any changed byte, a truncated file, or a file writable by others is not used. */
Test(code_cache, a_file_that_is_not_as_it_was_written_is_compiled_anew)
{
    char path[512];
    struct stat whole;

    cr_assert_eq(run_with(true), GENERATED);
    cr_assert_eq(n_kept(path, sizeof(path)), 1);
    cr_assert_eq(stat(path, &whole), 0);
    for (int place = 0; place < 4; place++) {
        const off_t at = place * (whole.st_size - 1) / 3;
        const int file = open(path, O_RDWR);
        char byte;

        cr_assert_eq(pread(file, &byte, 1, at), 1);
        byte ^= 1;
        cr_assert_eq(pwrite(file, &byte, 1, at), 1);
        close(file);
        cr_expect_eq(run_with(false), INTERPRETED, "byte %lld", (long long)at);
        cr_expect_eq(run_with(true), GENERATED);
        cr_expect_eq(run_with(false), GENERATED, "it was written anew");
    }
    cr_assert_eq(truncate(path, whole.st_size / 2), 0);
    cr_expect_eq(run_with(false), INTERPRETED);
    cr_expect_eq(run_with(true), GENERATED);
    cr_assert_eq(chmod(path, 0666), 0);
    cr_expect_eq(run_with(false), INTERPRETED);
}

/* The recorded NVRTC version is invalid, so the library is asked again. */
Test(code_cache, a_version_that_is_not_known_for_sure_is_asked_again)
{
    char path[512];

    cr_assert_eq(run_with(true), GENERATED);
    snprintf(path, sizeof(path), "%s/nvrtc-version", folder);
    cr_assert_eq(truncate(path, 3), 0);
    cr_expect_eq(run_with(false), GENERATED, "asked of the library, which is there");
    cr_expect_eq(run_with(false), GENERATED);
}

Test(code_cache, processes_that_write_at_once)
{
    enum { MANY = 4 };
    pid_t children[MANY];

    for (int i = 0; i < MANY; i++)
        children[i] = start(true);
    for (int i = 0; i < MANY; i++)
        cr_expect_eq(result_of(children[i]), GENERATED);
    expect_kept(1);
    cr_expect_eq(run_with(false), GENERATED);
}

/* Least recently used kernels are evicted. */
Test(code_cache, it_is_bounded)
{
    const struct timespec long_ago[2] = { { 1, 0 }, { 1, 0 } };
    char path[512];

    for (int i = 0; i < 300; i++) {
        snprintf(path, sizeof(path), "%s/%016x.code", folder, i);
        const int file = open(path, O_CREAT | O_WRONLY, 0600);
        cr_assert_geq(file, 0);
        cr_assert_eq(futimens(file, long_ago), 0);
        close(file);
    }
    cr_expect_eq(run_with(true), GENERATED);
    expect_kept(256);
    cr_expect_eq(run_with(false), GENERATED, "the newest is not among those that went");
}

/* Without a usable cache folder, kernels are compiled each time. */
Test(code_cache, a_folder_that_cannot_be_made)
{
    setenv("GPUSERVE_KERNEL_CACHE", "/proc/nowhere", 1);
    cr_expect_eq(run_with(true), GENERATED);
    expect_kept(0);
}
