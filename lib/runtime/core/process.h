/*
 * process.h - facts of this process: its build, and whether it is a fork() child.
 */
#ifndef GSV_RUNTIME_PROCESS_H
#define GSV_RUNTIME_PROCESS_H

#include <gpuserve/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

/*
 * Identifies the build of this library, for caches on disk.
 */

/* The GNU build id that the linker wrote into the object which holds this library: two builds of
 * different code differ. Returns its number of bytes; 0 if the object has none. */
size_t gsv_build_id(unsigned char *bytes, size_t capacity);

/*
 * Fork check: detects that the process is a fork() child of the one that created a
 * handle.
 *
 * The kernel wipes one page in children of fork(), so the check costs one load. Kernels before 4.14
 * cannot wipe pages: there the check compares process ids, which is a system call.
 */

struct gsv_fork_check {
    volatile int *word; /* 1 here, 0 in a child; NULL if the kernel cannot wipe */
    pid_t maker;
};

gpuserve_status gsv_fork_check_init(struct gsv_fork_check *fork_check, gpuserve_error *error);
void gsv_fork_check_reset(struct gsv_fork_check *fork_check);

static inline bool gsv_forked(const struct gsv_fork_check *fork_check)
{
    return fork_check->word ? *fork_check->word == 0 : fork_check->maker != getpid();
}

/* Returns GPUSERVE_E_FORKED and sets its message. */
gpuserve_status gsv_fail_forked(gpuserve_error *error);

#endif
