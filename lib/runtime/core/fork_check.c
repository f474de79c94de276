/*
 * fork_check.c - detects that the process is a fork() child of the one that created a handle.
 *
 * Uses a page with MADV_WIPEONFORK; falls back to the process id where madvise() rejects it, or
 * accepts anything and does nothing: QEMU's user mode does.
 */
#define _GNU_SOURCE
#include "lib/runtime/core/fork_check.h"

#include "lib/base/error.h"

#include <sys/mman.h>
#include <unistd.h>

#define NO_ADVICE (-1) /* no kernel accepts it */

gpuserve_status gsv_fork_check_init(struct gsv_fork_check *fork_check, gpuserve_error *error)
{
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    fork_check->word = NULL;
    fork_check->maker = getpid();
    if (page == MAP_FAILED)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a page");
    if (madvise(page, size, NO_ADVICE) == 0 || madvise(page, size, MADV_WIPEONFORK) != 0) {
        munmap(page, size);
        return GPUSERVE_OK;
    }
    fork_check->word = page;
    *fork_check->word = 1;
    return GPUSERVE_OK;
}

void gsv_fork_check_reset(struct gsv_fork_check *fork_check)
{
    if (fork_check->word)
        munmap((void *)fork_check->word, (size_t)sysconf(_SC_PAGESIZE));
    fork_check->word = NULL;
}

bool gsv_forked(const struct gsv_fork_check *fork_check)
{
    return fork_check->word ? *fork_check->word == 0 : fork_check->maker != getpid();
}

gpuserve_status gsv_fail_forked(gpuserve_error *error)
{
    gsv_fail(error, GPUSERVE_E_FORKED, "the parent process created this handle before fork()");
    return gsv_hint(error, GPUSERVE_E_FORKED, "create the context and open the model in the child");
}
