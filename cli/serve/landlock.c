/*
 * landlock.c - wrapper of the Landlock system calls.
 *
 * Uses syscall(): glibc has no wrappers, and the system's header may be older than the kernel. Only
 * the rights named in this file are handled, so a newer kernel denies no more than this one.
 */
#include "cli/serve/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Access rights by the ABI version that introduced them. */
#define ALL_OF_1 ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1)
#define REFER (UINT64_C(1) << 13) /* 2: rename and link between directories */
#define TRUNCATE (UINT64_C(1) << 14)
#define IOCTL_DEV (UINT64_C(1) << 15)

int cli_landlock_begin(struct cli_landlock *landlock)
{
    struct landlock_ruleset_attr attributes = { 0 };
    const long version =
        syscall(__NR_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

    *landlock = (struct cli_landlock){ .ruleset = -1 };
    if (version < 1)
        return -1;
    landlock->version = (int)version;
    landlock->handled = ALL_OF_1;
    if (version >= 2)
        landlock->handled |= REFER;
    if (version >= 3)
        landlock->handled |= TRUNCATE;
    if (version >= 5)
        landlock->handled |= IOCTL_DEV;
    attributes.handled_access_fs = landlock->handled;
    landlock->ruleset =
        (int)syscall(__NR_landlock_create_ruleset, &attributes, sizeof(attributes), 0);
    return landlock->ruleset < 0 ? -1 : 0;
}

int cli_landlock_allow(struct cli_landlock *landlock, const char *path, int rights)
{
    struct landlock_path_beneath_attr rule = { .parent_fd = open(path, O_PATH | O_CLOEXEC) };
    struct stat st;
    int result = -1, reason;

    if (rule.parent_fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == EACCES ? 0 : -1;
    if (fstat(rule.parent_fd, &st) == 0) {
        const bool is_directory = S_ISDIR(st.st_mode);

        if (rights & CLI_READ)
            rule.allowed_access |=
                LANDLOCK_ACCESS_FS_READ_FILE | (is_directory ? LANDLOCK_ACCESS_FS_READ_DIR : 0);
        if (rights & CLI_WRITE)
            rule.allowed_access |= LANDLOCK_ACCESS_FS_WRITE_FILE;
        if (rights & CLI_CREATE && is_directory)
            rule.allowed_access |= LANDLOCK_ACCESS_FS_MAKE_REG;
        if (rights & CLI_REPLACE && is_directory)
            rule.allowed_access |= LANDLOCK_ACCESS_FS_REMOVE_FILE;
        if (rights & CLI_SOCKET && is_directory)
            rule.allowed_access |= LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE;
        if (rights & CLI_STORE && is_directory)
            rule.allowed_access |= (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
                                    LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
                                    LANDLOCK_ACCESS_FS_REMOVE_FILE | TRUNCATE) &
                                   landlock->handled;
        result = (int)syscall(__NR_landlock_add_rule, landlock->ruleset, LANDLOCK_RULE_PATH_BENEATH,
                              &rule, 0);
        /* Pipes and sockets are not in the file tree and take no rule: open ones stay usable. */
        if (result != 0 && errno == EBADFD)
            result = 0;
    }
    reason = errno;
    close(rule.parent_fd);
    errno = reason;
    return result;
}

int cli_landlock_enforce(struct cli_landlock *landlock)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return syscall(__NR_landlock_restrict_self, landlock->ruleset, 0) == 0 ? 0 : -1;
}

bool cli_landlock_is_whole(const struct cli_landlock *landlock)
{
    return landlock->handled & TRUNCATE;
}

void cli_landlock_reset(struct cli_landlock *landlock)
{
    if (landlock->ruleset >= 0)
        close(landlock->ruleset);
    landlock->ruleset = -1;
}
