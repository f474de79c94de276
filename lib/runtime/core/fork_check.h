/*
 * fork_check.h - telling whether this process is a child of the one that made a handle.
 *
 * A page that the kernel wipes in children of fork() holds one word, so the question costs one
 * load. Kernels before 4.14 cannot wipe: there the process id is compared, which is a system call.
 */
#ifndef GSV_RUNTIME_FORK_CHECK_H
#define GSV_RUNTIME_FORK_CHECK_H

#include <gpuserve/types.h>

#include <stdbool.h>
#include <sys/types.h>

struct gsv_fork_check {
    volatile int *word; /* 1 here, 0 in a child; NULL where the kernel cannot wipe */
    pid_t maker;
};

gpuserve_status gsv_fork_check_init(struct gsv_fork_check *fork_check, gpuserve_error *error);
void gsv_fork_check_reset(struct gsv_fork_check *fork_check);

bool gsv_forked(const struct gsv_fork_check *fork_check);

/* GPUSERVE_E_FORKED with its message. */
gpuserve_status gsv_fail_forked(gpuserve_error *error);

#endif
