/*
 * test_gpu_inventory.c - the GPU count reported by a driver is limited to a max; an NVIDIA device
 * is found by the files of a root.
 */
#define _GNU_SOURCE
#include "lib/runtime/devices/gpu_inventory.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Test(gpus, more_than_there_is_room_for)
{
    static struct gsv_gpus gpus;
    const int32_t self = (int32_t)getpid();

    for (int32_t i = 0; i < GSV_MAX_GPUS; i++)
        cr_assert_eq(gsv_gpus_add(&gpus, i), &gpus.all[i]);
    cr_expect_null(gsv_gpus_add(&gpus, GSV_MAX_GPUS));
    cr_expect_eq(gpus.n, GSV_MAX_GPUS);
    gsv_gpus_add_process(&gpus, 0, 0, 1, "no process has this number");
    cr_expect_eq(gpus.n_processes, 0);
    for (int32_t i = 0; i < GSV_MAX_GPU_PROCESSES + 1; i++)
        gsv_gpus_add_process(&gpus, 0, self, 1, "this one");
    cr_expect_eq(gpus.n_processes, GSV_MAX_GPU_PROCESSES);
}

/* Writes a file below the root, with the folders above it. */
static void put(const char *root, const char *path, const char *text)
{
    char full[256];
    FILE *file;

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *at = strchr(full + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(full, 0700);
        *at = '/';
    }
    file = fopen(full, "w");
    cr_assert_not_null(file, "%s", full);
    fputs(text, file);
    fclose(file);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

Test(gpus, a_root_has_an_nvidia_device_or_none)
{
    static const struct {
        const char *files[2][2];
        bool has;
    } cases[] = {
        { { { "/etc/hostname", "plain" } }, false },
        { { { "/sys/bus/pci/devices/0000:01:00.0/vendor", "0x8086\n" },
            { "/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n" } },
          false },
        { { { "/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n" },
            { "/sys/bus/pci/devices/0000:01:00.0/class", "0x040300\n" } },
          false }, /* the sound device of a card */
        { { { "/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n" },
            { "/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n" } },
          true },
        { { { "/dev/nvidia0", "" } }, true },
        { { { "/dev/nvidiactl", "" } }, true },
        { { { "/dev/dxg", "" } }, true },
        { { { "/proc/driver/nvidia/version", "NVRM\n" } }, true },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char root[] = "/tmp/gpuserve-root-XXXXXX";

        cr_assert_not_null(mkdtemp(root));
        for (size_t k = 0; k < 2 && cases[i].files[k][0]; k++)
            put(root, cases[i].files[k][0], cases[i].files[k][1]);
        cr_expect_eq(gsv_has_nvidia_device(root), cases[i].has, "case %zu", i);
        nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
}
