/*
 * test_transfer.c - gpuserve_transfer() on the CPU and on the emulated GPU: direction, size and
 * kind of memory of the copies, rejected arguments, failing and hanging calls.
 */
#include "tests/compute/support.h"
#include "tests/cudaemu/emu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COPIES 3

static gpuserve_transfer_job make_job(uint32_t direction, uint32_t host_memory, size_t size,
                                      double *seconds)
{
    gpuserve_transfer_job job = GPUSERVE_TRANSFER_JOB_INIT;

    job.direction = direction;
    job.host_memory = host_memory;
    job.n_copies = COPIES;
    job.size_bytes = size;
    job.seconds = seconds;
    return job;
}

static void run_job(gpuserve_compute *compute, uint32_t direction, uint32_t host_memory,
                    size_t size)
{
    double seconds[COPIES + 1] = { -1, -1, -1, -1 };
    gpuserve_transfer_job job = make_job(direction, host_memory, size, seconds);
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(gpuserve_transfer(compute, &job, &error), GPUSERVE_OK, "%s", error.message);
    for (int i = 0; i < COPIES; i++)
        cr_expect(seconds[i] >= 0 && seconds[i] < 60, "%g s", seconds[i]);
    cr_expect_eq(seconds[COPIES], -1);
}

static const size_t sizes[] = { 1, 4095, 70001, (5u << 20) + 3 };
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* The counters see a warm-up copy, COPIES measured copies, and the write or read of the pattern,
 * which goes through a staging buffer of 4 MiB. */
Test(transfer, copies_have_the_direction_size_and_memory_that_were_asked_for)
{
    const size_t chunk = 4u << 20;
    gpuserve_compute *compute = open_compute("cuda:0");

    for (size_t i = 0; i < 4 * N_SIZES; i++) {
        const size_t size = sizes[i / 4], of_pattern = (size + chunk - 1) / chunk;
        const uint32_t direction = i / 2 % 2, host_memory = i % 2;
        const bool is_out = direction == GPUSERVE_TRANSFER_FROM_DEVICE;
        struct gsv_emu_counters before, after;

        gsv_emu_get_counters(&before);
        run_job(compute, direction, host_memory, size);
        gsv_emu_get_counters(&after);
        cr_expect_eq(after.bytes_in - before.bytes_in, (is_out ? 1 : COPIES + 1) * size);
        cr_expect_eq(after.bytes_out - before.bytes_out, (is_out ? COPIES + 1 : 1) * size);
        cr_expect_eq(after.copies_in - before.copies_in, is_out ? of_pattern : COPIES + 1);
        cr_expect_eq(after.copies_out - before.copies_out, is_out ? COPIES + 1 : of_pattern);
        cr_expect_eq(after.host_allocations - before.host_allocations,
                     host_memory == GPUSERVE_HOST_PINNED);
        cr_expect_eq(after.live_host_bytes, before.live_host_bytes);
    }
    gpuserve_compute_close(&compute);
}

Test(transfer, a_cpu_copies_within_its_memory)
{
    gpuserve_compute *compute = open_compute("cpu");
    double seconds[COPIES];
    gpuserve_transfer_job job =
        make_job(GPUSERVE_TRANSFER_TO_DEVICE, GPUSERVE_HOST_PINNED, 4096, seconds);
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    for (size_t i = 0; i < 2 * N_SIZES; i++)
        run_job(compute, i % 2, GPUSERVE_HOST_PAGEABLE, sizes[i / 2]);
    cr_expect_eq(gpuserve_transfer(compute, &job, &error), GPUSERVE_E_UNSUPPORTED);
    cr_expect(strstr(error.message, "a CPU has no pinned memory"), "%s", error.message);
    gpuserve_compute_close(&compute);
}

static void refuse(gpuserve_compute *compute, const gpuserve_transfer_job *job,
                   gpuserve_status status, const char *words)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_expect_eq(gpuserve_transfer(compute, job, &error), status, "%s", words);
    cr_expect(strstr(error.message, words), "%s", error.message);
}

Test(transfer, arguments_have_limits)
{
    gpuserve_compute *cpu = open_compute("cpu");
    double seconds[COPIES];
    const gpuserve_transfer_job good = make_job(0, 0, 4096, seconds);
    gpuserve_transfer_job job = good;

    refuse(NULL, &job, GPUSERVE_E_INVALID, "NULL");
    refuse(cpu, NULL, GPUSERVE_E_INVALID, "`job` is NULL");
    job.struct_size = 8;
    refuse(cpu, &job, GPUSERVE_E_INVALID, "struct_size");
    job = good, job.direction = 2;
    refuse(cpu, &job, GPUSERVE_E_INVALID, "direction is 2, outside 0 to 1");
    job = good, job.host_memory = 2;
    refuse(cpu, &job, GPUSERVE_E_INVALID, "host_memory is 2, outside 0 to 1");
    job = good, job.n_copies = 0;
    refuse(cpu, &job, GPUSERVE_E_INVALID, "`n_copies` is 0");
    job = good, job.size_bytes = 0;
    refuse(cpu, &job, GPUSERVE_E_INVALID, "`size_bytes` is 0");
    job = good, job.seconds = NULL;
    refuse(cpu, &job, GPUSERVE_E_INVALID, "`seconds` is NULL");
    job = good, job.n_copies = GPUSERVE_TRANSFER_MAX_COPIES + 1;
    refuse(cpu, &job, GPUSERVE_E_TOO_LARGE, "n_copies is 10001, the limit is 10000");
    job = good, job.size_bytes = (size_t)GPUSERVE_TRANSFER_MAX_BYTES + 1;
    refuse(cpu, &job, GPUSERVE_E_TOO_LARGE, "the limit is 1073741824");
    gpuserve_compute_close(&cpu);
}

/* An error that passes: it is reported, nothing stays allocated, and the next run is right. */
Test(transfer, a_failure_of_each_call)
{
    gpuserve_compute *compute = open_compute("cuda:0");
    double seconds[COPIES];
    struct gsv_emu_counters counters;
    uint64_t n_failed = 0, live;

    run_job(compute, 0, 0, 4096);
    gsv_emu_get_counters(&counters);
    live = counters.live_allocations;
    for (uint32_t kind = 0; kind < 4; kind++)
        for (uint64_t n = 1;; n++) {
            gpuserve_transfer_job job = make_job(kind / 2, kind % 2, 4096, seconds);
            gpuserve_error error = GPUSERVE_ERROR_INIT;
            gpuserve_status status;

            gsv_emu_fail_call(n, 2 /* cudaErrorMemoryAllocation */);
            status = gpuserve_transfer(compute, &job, &error);
            if (!gsv_emu_failed_call())
                break;
            n_failed += status != GPUSERVE_OK;
            if (status != GPUSERVE_OK)
                cr_expect(error.message[0], "%s says nothing", gsv_emu_failed_call());
            else /* the release of the memory, which cannot fail */
                cr_expect(strcmp(gsv_emu_failed_call(), "cudaFreeHost") == 0 ||
                              strcmp(gsv_emu_failed_call(), "cudaSetDevice") == 0,
                          "%s", gsv_emu_failed_call());
            gsv_emu_fail_call(0, 0);
            run_job(compute, kind / 2, kind % 2, 4096);
            gsv_emu_get_counters(&counters);
            cr_expect_eq(counters.live_allocations, live, "call %d", (int)n);
        }
    gsv_emu_fail_call(0, 0);
    /* At least a call that copies and one that waits for each copy. */
    cr_expect_gt(n_failed, 4 * 2 * (COPIES + 1));
    gpuserve_compute_close(&compute);
}

/* The copy still holds the memory, which is abandoned with it. */
static int hang_once(uint32_t host_memory)
{
    gpuserve_compute *compute = open_compute("cuda:0");
    double seconds[COPIES];
    gpuserve_transfer_job job = make_job(GPUSERVE_TRANSFER_TO_DEVICE, host_memory, 4096, seconds);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    bool is_right;

    run_job(compute, GPUSERVE_TRANSFER_TO_DEVICE, host_memory, 4096);
    gsv_emu_hang(2);
    is_right = gpuserve_transfer(compute, &job, &error) == GPUSERVE_E_DEVICE &&
               strstr(error.message, "did not answer");
    gsv_emu_hang(0);
    usleep(50000); /* the call goes on, in memory that must be there */
    is_right = is_right && gpuserve_transfer(compute, &job, &error) == GPUSERVE_E_DEVICE;
    gpuserve_compute_close(&compute);
    return is_right ? 7 : 1;
}

Test(transfer, a_copy_that_hangs_is_abandoned_with_its_memory, .timeout = 120)
{
    for (uint32_t host_memory = 0; host_memory < 2; host_memory++) {
        int status;
        const pid_t child = fork();

        if (child == 0) {
            /* Longer than any slow but working call in a sanitized build on a busy machine. */
            setenv("GPUSERVE_CUDA_TIMEOUT_MS", "8000", 1);
            alarm(60);
            _exit(hang_once(host_memory));
        }
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 7, "memory %u: status %d",
                  host_memory, status);
    }
}
