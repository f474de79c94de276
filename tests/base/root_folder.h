/*
 * root_folder.h - a root of files in a temporary folder, which is the working directory of a test.
 *
 * Include after _GNU_SOURCE is defined. All functions assert.
 */
#ifndef GSV_TESTS_BASE_ROOT_FOLDER_H
#define GSV_TESTS_BASE_ROOT_FOLDER_H

#include "lib/base/host/rootfs.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/gpuserve-root-XXXXXX";
static struct gsv_rootfs rootfs;

static void shell(const char *command)
{
    cr_assert_eq(system(command), 0, "%s", command);
}

/* Makes the folder, runs a command in it and opens `root`. */
static void make_root(const char *command, const char *root)
{
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
    shell(command);
    cr_assert_eq(gsv_rootfs_open(&rootfs, root, NULL), GPUSERVE_OK);
}

static void end(void)
{
    gsv_rootfs_close(&rootfs);
    shell("rm -r \"$PWD\"");
}

#endif
