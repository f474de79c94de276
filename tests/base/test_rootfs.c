/*
 * test_rootfs.c - files below another root: no path leaves it; search paths of the loader and of
 * the CUDA toolkit; the check of shared objects.
 *
 * Each test has a folder with `outside`, which no path may reach, and `root`.
 */
#define _GNU_SOURCE
#include "lib/base/host/rootfs.h"
#include "tests/base/root_folder.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void begin(void)
{
    make_root("echo secret >outside && mkdir -p root/a/b && echo inside >root/a/b/file", "root");
}

static const char *content(const char *path)
{
    static char text[64];

    return gsv_rootfs_read(&rootfs, path, text, sizeof(text)) > 0 ? text : "nothing";
}

static void expect_real(const char *path, const char *real)
{
    char found[GSV_ROOTFS_PATH_BYTES] = "nothing";

    gsv_rootfs_find(&rootfs, path, found, NULL);
    cr_expect_str_eq(found, real, "%s: %s", path, found);
}

Test(rootfs, paths_with_dots_and_slashes, .init = begin, .fini = end)
{
    cr_expect_str_eq(content("/a/b/file"), "inside\n");
    cr_expect_str_eq(content("a//./b/../b/file"), "inside\n");
    cr_expect_str_eq(content("/../../../a/b/file"), "inside\n", "the root's parent is the root");
    cr_expect_str_eq(content("/a/b/file/"), "inside\n");
    cr_expect_str_eq(content("/a/b/file/x"), "nothing");
    cr_expect_str_eq(content("/a/b"), "nothing");
    cr_expect_str_eq(content(""), "nothing");
    cr_expect_str_eq(content("/a/x"), "nothing");
    cr_expect_str_eq(content("/../outside"), "nothing");
    expect_real("/", "/");
    expect_real("/a/b/..", "/a");
    expect_real("/a/../..", "/");
}

Test(rootfs, links_are_resolved_within_the_root, .init = begin, .fini = end)
{
    shell("ln -s /a root/absolute; ln -s a/b root/relative; ln -s ../../../../a root/a/up;"
          "ln -s \"$PWD/outside\" root/direct; ln -s ../outside root/parent;"
          "ln -s /a/b/file root/a/last; ln -s / root/top; ln -s ../outside root/a/b/twice");
    cr_expect_str_eq(content("/absolute/b/file"), "inside\n");
    cr_expect_str_eq(content("/relative/file"), "inside\n");
    cr_expect_str_eq(content("/relative/../b/file"), "inside\n", "the parent of the link's target");
    cr_expect_str_eq(content("/a/up/b/file"), "inside\n");
    cr_expect_str_eq(content("/a/last"), "inside\n");
    cr_expect_str_eq(content("/top/top/a/b/file"), "inside\n");
    cr_expect_str_eq(content("/top/../outside"), "nothing");
    cr_expect_str_eq(content("/direct"), "nothing");
    cr_expect_str_eq(content("/parent"), "nothing");
    cr_expect_str_eq(content("/a/b/twice"), "nothing");
    expect_real("/a/last", "/a/b/file");
    expect_real("/top/relative", "/a/b");
}

Test(rootfs, a_root_that_is_renamed_or_left_by_a_folder_stays_the_root, .init = begin, .fini = end)
{
    shell("mv root moved");
    cr_expect_str_eq(content("/a/b/../../../outside"), "nothing");
    cr_expect_str_eq(content("/a/b/file"), "inside\n");
}

Test(rootfs, loops_depth_and_length_end, .init = begin, .fini = end)
{
    char path[2 * GSV_ROOTFS_PATH_BYTES];

    shell("ln -s loop root/loop; ln -s b2 root/b1; ln -s b1/x root/b2; ln -s . root/here");
    cr_expect_str_eq(content("/loop"), "nothing");
    cr_expect_eq(errno, ELOOP);
    cr_expect_str_eq(content("/b1"), "nothing");
    cr_expect_str_eq(content("/here/here/here/a/b/file"), "inside\n");
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    cr_expect_str_eq(content(path), "nothing");
    for (size_t i = 0; i + 2 < sizeof(path); i += 2)
        memcpy(path + i, "a/", 2);
    cr_expect_str_eq(content(path + sizeof(path) / 2 + 2), "nothing");
    shell("cd root; for i in $(seq 70); do mkdir d; cd d; done; echo deep >file");
    snprintf(path, sizeof(path), "/%0140d/file", 0);
    for (size_t i = 0; i < 70; i++)
        memcpy(path + 1 + 2 * i, "d/", 2);
    cr_expect_str_eq(content(path), "nothing", "over %d folders", GSV_ROOTFS_DEPTH);
}

Test(rootfs, only_regular_files_are_opened, .init = begin, .fini = end)
{
    shell("mkfifo root/pipe; ln -s pipe root/link; : >root/empty");
    cr_expect_str_eq(content("/pipe"), "nothing", "and does not wait for a writer");
    cr_expect_str_eq(content("/link"), "nothing");
    cr_expect_str_eq(content("/empty"), "nothing");
    cr_expect(gsv_rootfs_find(&rootfs, "/pipe", NULL, NULL));
}

Test(rootfs, names_of_a_folder_and_of_links, .init = begin, .fini = end)
{
    struct gsv_names names;
    char name[64];

    shell("cd root/a; touch python3.9 python3.11 other .python3.1; ln -s ../../drivers/nvidia drv");
    cr_assert(gsv_rootfs_list(&rootfs, "/a", "python3", 10, &names));
    cr_assert_eq(names.n, 2);
    cr_expect_str_eq(names.names[0], "python3.11");
    gsv_names_free(&names);
    cr_assert(gsv_rootfs_list(&rootfs, "/a", "", 3, &names));
    cr_expect_eq(names.n, 3);
    gsv_names_free(&names);
    cr_assert(gsv_rootfs_list(&rootfs, "/nothing", "", 3, &names));
    cr_expect_eq(names.n, 0);
    cr_assert(gsv_rootfs_link_name(&rootfs, "/a/drv", name, sizeof(name)));
    cr_expect_str_eq(name, "nvidia");
    cr_expect_not(gsv_rootfs_link_name(&rootfs, "/a/other", name, sizeof(name)));
}

Test(rootfs, descriptors_are_not_leaked, .init = begin, .fini = end)
{
    int first, last;

    shell("ln -s loop root/loop; ln -s ../outside root/out");
    first = dup(0); /* the lowest free descriptor */
    close(first);
    for (int i = 0; i < 100; i++) {
        content("/a/b/file");
        content("/loop");
        content("/out");
        content("/a/b/file/x");
        expect_real("/a/b", "/a/b");
    }
    last = dup(0);
    cr_expect_eq(last, first);
    close(last);
}

/* --------------------------------------------------------------------------------- search paths */

static bool lists(const struct gsv_folder_list *list, const char *name)
{
    for (int32_t i = 0; i < list->n; i++) {
        if (strcmp(list->folders[i], name) == 0)
            return true;
    }
    return false;
}

Test(rootfs, folders_of_the_loader, .init = begin, .fini = end)
{
    static struct gsv_folder_list list;

    shell("mkdir -p root/etc/ld.so.conf.d && cd root/etc &&"
          "printf '# comment\\ninclude /etc/ld.so.conf.d/*.conf\\n/one # why\\n relative\\n"
          "include /etc/ld.so.conf\\ninclude ../*\\n' >ld.so.conf &&"
          "echo /two >ld.so.conf.d/b.conf; echo ' /three' >ld.so.conf.d/a.conf;"
          "echo /four >ld.so.conf.d/c.txt");
    gsv_loader_list_folders(&list, &rootfs, "/first::relative:/second");
    cr_expect_str_eq(list.folders[0], "/first");
    cr_expect_str_eq(list.folders[1], "/second");
    cr_expect_str_eq(list.folders[2], "/three");
    cr_expect_str_eq(list.folders[3], "/two");
    cr_expect(lists(&list, "/one"));
    cr_expect(lists(&list, "/usr/lib"));
    cr_expect_not(lists(&list, "/four"));
    cr_expect_not(lists(&list, "relative"));
}

Test(rootfs, files_of_the_loader_that_include_each_other_end, .init = begin, .fini = end)
{
    static struct gsv_folder_list list;

    shell("mkdir root/etc && cd root/etc &&"
          "for i in $(seq 300); do echo 'include /etc/ld.so.conf'; done >ld.so.conf");
    alarm(20);
    gsv_loader_list_folders(&list, &rootfs, NULL);
    alarm(0);
    cr_expect(lists(&list, "/usr/lib"));
}

struct one_variable {
    const char *name, *value;
};

static const char *variable_of(const void *environment, const char *name)
{
    const struct one_variable *const one = environment;

    return strcmp(one->name, name) == 0 ? one->value : NULL;
}

static const struct gsv_folder_list *toolkit(const char *library, int32_t major, const char *plugin,
                                             const char *variable, const char *value)
{
    static struct gsv_folder_list list;
    const struct one_variable one = { variable, value };
    const struct gsv_toolkit_search search = { &rootfs, variable_of, &one, "", plugin, major };

    gsv_toolkit_list_folders(&list, &search, library);
    return &list;
}

Test(rootfs, wheels_of_cuda_13_and_12, .init = begin, .fini = end)
{
    const char *const plugin =
        "/v/lib/python3.11/site-packages/gpuserve/_native/libgpuserve-cuda.so";

    cr_expect(lists(toolkit("libcublasLt.so.13", 13, plugin, "", ""),
                    "/v/lib/python3.11/site-packages/nvidia/cu13/lib"));
    cr_expect(lists(toolkit("libcublasLt.so.12", 12, plugin, "", ""),
                    "/v/lib/python3.11/site-packages/nvidia/cublas/lib"));
    cr_expect(lists(toolkit("libnvrtc.so.12", 12, plugin, "", ""),
                    "/v/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib"));
    cr_expect(lists(toolkit("libcudnn.so.9", 13, plugin, "", ""),
                    "/v/lib/python3.11/site-packages/nvidia/cudnn/lib"));
    cr_expect(lists(toolkit("libcurand.so.10", 12, plugin, "", ""),
                    "/v/lib/python3.11/site-packages/nvidia/curand/lib"));
    cr_expect_not(lists(toolkit("libnvrtc.so.12", 12, plugin, "", ""),
                        "/v/lib/python3.11/site-packages/nvidia/cublas/lib"));
    toolkit("libnvrtc.so.13", 13, "/libgpuserve-cuda.so", "", "");
    toolkit("libnvrtc.so.13", 13, "relative", "", "");
}

Test(rootfs, environments_and_toolkits, .init = begin, .fini = end)
{
    const char *const name = "libcublasLt.so.13";

    shell("mkdir -p root/e/lib/python3.9 root/e/lib/python3.12 root/usr/local/cuda-13.2"
          " root/usr/local/cuda-130 root/usr/local/cuda-12.8");
    cr_expect(lists(toolkit(name, 13, NULL, "VIRTUAL_ENV", "/e"),
                    "/e/lib/python3.9/site-packages/nvidia/cu13/lib"));
    cr_expect(lists(toolkit(name, 13, NULL, "CONDA_PREFIX", "/e"),
                    "/e/lib/python3.12/site-packages/nvidia/cu13/lib"));
    cr_expect(lists(toolkit(name, 13, NULL, "CONDA_PREFIX", "/e"), "/e/lib"));
    cr_expect(lists(toolkit(name, 13, NULL, "CUDA_HOME", "/t"), "/t/lib64"));
    cr_expect(lists(toolkit(name, 13, NULL, "", ""), "/usr/local/cuda-13.2/lib64"));
    cr_expect_not(lists(toolkit(name, 13, NULL, "", ""), "/usr/local/cuda-130/lib64"));
    cr_expect_not(lists(toolkit(name, 13, NULL, "", ""), "/usr/local/cuda-12.8/lib64"));
    cr_expect_not(lists(toolkit(name, 13, NULL, "CUDA_HOME", "t"), "t/lib64"));
    cr_expect(lists(toolkit(name, 13, NULL, "", ""), "/usr/local/nvidia/lib64"));
}

/* ------------------------------------------------------------------------------- shared objects */

Test(elf_file, a_real_library_and_its_damaged_copies)
{
    char soname[GSV_SONAME_BYTES], path[] = "/tmp/gpuserve-elf-XXXXXX";
    static char bytes[4096];
    Dl_info info;
    ssize_t size;
    int fd;

    cr_assert_neq(dladdr((void *)(uintptr_t)&gnu_get_libc_version, &info), 0);
    fd = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    cr_expect_null(gsv_elf_check(fd, soname));
    cr_expect_str_eq(soname, "libc.so.6");
    cr_assert_gt(size = read(fd, bytes, sizeof(bytes)), 1000);
    close(fd);
    fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    unlink(path);
    cr_expect_str_eq(gsv_elf_check(fd, soname), "the file is empty");
    for (ssize_t i = 1; i < size; i += 37) { /* cut, then overwritten */
        cr_assert_eq(ftruncate(fd, 0), 0);
        cr_assert_eq(pwrite(fd, bytes, (size_t)i, 0), i);
        cr_expect_not_null(gsv_elf_check(fd, soname));
        cr_assert_eq(pwrite(fd, bytes, (size_t)size, 0), size);
        cr_assert_eq(pwrite(fd, "\377\377\377\377\377\377\377\377", 8, i), 8);
        (void)gsv_elf_check(fd, soname);
        cr_expect_lt(strlen(soname), sizeof(soname));
    }
    close(fd);
}

Test(elf_file, a_text_is_found_wherever_it_lies)
{
    char path[] = "/tmp/gpuserve-elf-XXXXXX", text[8];
    const int fd = mkstemp(path);

    cr_assert_geq(fd, 0);
    unlink(path);
    for (off_t at = 16300; at < 16400; at++) { /* across the blocks of the search */
        cr_assert_eq(ftruncate(fd, 0), 0);
        cr_assert_eq(ftruncate(fd, 40000), 0);
        cr_assert_eq(pwrite(fd, "the-key=13000", 14, at), 14);
        cr_assert(gsv_elf_find_text(fd, "the-key=", text, sizeof(text)), "at %ld", (long)at);
        cr_expect_str_eq(text, "13000");
    }
    cr_assert_eq(ftruncate(fd, 16399 + 9), 0);
    cr_assert(gsv_elf_find_text(fd, "the-key=", text, sizeof(text)), "at the end");
    cr_expect_str_eq(text, "1");
    cr_assert(gsv_elf_find_text(fd, "the", text, sizeof(text)));
    cr_expect_str_eq(text, "-key=1");
    cr_expect_not(gsv_elf_find_text(fd, "another-key", text, sizeof(text)));
    close(fd);
}
