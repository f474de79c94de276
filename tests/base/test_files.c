/*
 * test_files.c - lib/base: paths that are not regular files, names too long or empty, files that
 * end early; array growth limits.
 */
#define _GNU_SOURCE
#include "lib/base/alloc.h"
#include "lib/base/dir.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder with the file "file" of 5 bytes, the folder "folder" and the pipe "pipe". */
struct fixture {
    char path[64];
    struct gsv_dir *dir;
    gpuserve_error error;
};

static const char *in(const struct fixture *f, const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s", f->path, name);
    return path;
}

static struct fixture make(void)
{
    struct fixture f = { .path = "/tmp/gsv-files-XXXXXX", .error = GPUSERVE_ERROR_INIT };
    FILE *file;

    cr_assert(mkdtemp(f.path));
    file = fopen(in(&f, "file"), "w");
    cr_assert(file);
    fputs("hello", file);
    fclose(file);
    cr_assert_eq(mkdir(in(&f, "folder"), 0700), 0);
    cr_assert_eq(mkfifo(in(&f, "pipe"), 0600), 0);
    cr_assert_eq(gsv_dir_open(&f.dir, f.path, &f.error), GPUSERVE_OK, "%s", f.error.message);
    return f;
}

static void remove_all(struct fixture *f)
{
    gsv_dir_close(&f->dir);
    unlink(in(f, "file"));
    unlink(in(f, "pipe"));
    rmdir(in(f, "folder"));
    rmdir(f->path);
}

Test(files, what_is_no_file_is_refused_and_named)
{
    struct fixture f = make();
    static const struct {
        const char *name;
        gpuserve_status status;
        const char *says;
    } cases[] = {
        { "folder", GPUSERVE_E_INVALID, "not a regular file" },
        { "pipe", GPUSERVE_E_INVALID, "not a regular file" },
        { "absent", GPUSERVE_E_NOT_FOUND, "no such file" },
        { "", GPUSERVE_E_INVALID, "the name '' leaves" },
        { "/etc/passwd", GPUSERVE_E_INVALID, "the name '/etc/passwd' leaves" },
        { "folder/../../x", GPUSERVE_E_INVALID, "the name 'folder/../../x' leaves" },
    };
    char *bytes;
    size_t size;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_expect_eq(gsv_dir_read(f.dir, cases[i].name, 100, &bytes, &size, &f.error),
                     cases[i].status, "%s", cases[i].name);
        cr_expect(strstr(f.error.message, cases[i].says), "%s: %s", cases[i].name, f.error.message);
    }
    remove_all(&f);
}

Test(files, a_file_that_a_user_names_is_checked_alike)
{
    struct fixture f = make();
    char *bytes;
    size_t size;

    cr_expect_eq(gsv_file_read(in(&f, "absent"), 100, &bytes, &size, &f.error),
                 GPUSERVE_E_NOT_FOUND);
    cr_expect_eq(gsv_file_read(in(&f, "folder"), 100, &bytes, &size, &f.error), GPUSERVE_E_INVALID);
    cr_expect_eq(gsv_file_read(in(&f, "pipe"), 100, &bytes, &size, &f.error), GPUSERVE_E_INVALID);
    cr_expect_eq(gsv_file_read(in(&f, "file"), 4, &bytes, &size, &f.error), GPUSERVE_E_TOO_LARGE);
    cr_assert_eq(gsv_file_read(in(&f, "file"), 5, &bytes, &size, &f.error), GPUSERVE_OK);
    cr_expect_str_eq(bytes, "hello");
    free(bytes);
    remove_all(&f);
}

Test(files, a_file_is_no_directory_and_an_absent_one_is_none)
{
    struct fixture f = make();
    struct gsv_dir *dir;

    cr_expect_eq(gsv_dir_open(&dir, in(&f, "file"), &f.error), GPUSERVE_E_INVALID);
    cr_expect_null(dir);
    cr_expect_eq(gsv_dir_open(&dir, in(&f, "absent"), &f.error), GPUSERVE_E_NOT_FOUND);
    cr_expect_null(dir);
    remove_all(&f);
}

Test(files, one_that_ends_early_is_told_with_both_numbers)
{
    struct fixture f = make();
    const int fd = open(in(&f, "file"), O_RDONLY);
    char bytes[8];

    cr_expect_eq(gsv_fd_read(fd, bytes, 3, 2, "name", &f.error), GPUSERVE_OK);
    cr_expect_eq(memcmp(bytes, "llo", 3), 0);
    cr_expect_eq(gsv_fd_read(fd, bytes, 4, 2, "name", &f.error), GPUSERVE_E_FORMAT);
    cr_expect_str_eq(f.error.message, "name: the file ends at byte 5, expected 6 bytes");
    close(fd);
    remove_all(&f);
}

Test(files, names_that_are_too_long_or_empty_are_none)
{
    struct fixture f = make();
    char joined[GSV_FILE_NAME_BYTES], name[GSV_FILE_NAME_BYTES + 8];
    size_t length = 0;

    cr_expect(gsv_join_name(joined, "folder", "name"));
    cr_expect_str_eq(joined, "folder/name");
    cr_expect_not(gsv_join_name(joined, "", ""));
    /* "././.../file" up to the max length is found; one byte more is not. */
    while (length + 2 + 4 < GSV_FILE_NAME_BYTES - 1) {
        memcpy(name + length, "./", 2);
        length += 2;
    }
    strcpy(name + length, "file");
    if (strlen(name) < GSV_FILE_NAME_BYTES - 1) {
        memmove(name + 2, name + 1, strlen(name)); /* "./" and "/": one byte more */
        name[1] = '/';
    }
    cr_assert_eq(strlen(name), GSV_FILE_NAME_BYTES - 1);
    cr_expect(gsv_join_name(joined, "", name));
    cr_expect(gsv_dir_has_in(f.dir, "", name));
    strcat(name, "x");
    cr_expect_not(gsv_join_name(joined, "", name));
    cr_expect_not(gsv_dir_has_in(f.dir, "", name));
    cr_expect_not(gsv_dir_has_in(f.dir, "", "folder"));
    remove_all(&f);
}

Test(alloc, an_array_grows_up_to_its_maximum_and_no_further)
{
    int *array = NULL;
    size_t capacity = 0;

    cr_assert(gsv_grow((void **)&array, &capacity, 1, sizeof(*array), 20));
    cr_expect_eq(capacity, 16);
    cr_assert(gsv_grow((void **)&array, &capacity, 17, sizeof(*array), 20));
    cr_expect_eq(capacity, 20, "%zu elements, 20 are the most", capacity);
    cr_expect_not(gsv_grow((void **)&array, &capacity, 21, sizeof(*array), 20));
    cr_expect_eq(capacity, 20);
    free(array);
}
