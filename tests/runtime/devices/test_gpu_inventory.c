/*
 * test_gpu_inventory.c - the GPU count reported by a driver is limited to a max.
 */
#include "lib/runtime/devices/gpu_inventory.h"

#include <criterion/criterion.h>
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
