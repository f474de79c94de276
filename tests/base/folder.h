/*
 * folder.h - a temporary folder for the files of a test.
 *
 * Include after _GNU_SOURCE is defined. All functions assert.
 */
#ifndef GSV_TESTS_BASE_FOLDER_H
#define GSV_TESTS_BASE_FOLDER_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[64];

static void make_folder(void)
{
    strcpy(folder, "/tmp/gsv-test-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

static const char *in_folder(const char *name)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

#endif
