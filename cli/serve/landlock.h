/*
 * landlock.h - limits which files the process may open, by Landlock of the Linux kernel.
 *
 * Use: begin, allow for each path, enforce, reset. The limit cannot be removed later.
 */
#ifndef CLI_LANDLOCK_H
#define CLI_LANDLOCK_H

#include <stdbool.h>
#include <stdint.h>

enum cli_file_right {
    CLI_READ = 1,
    CLI_WRITE = 2,  /* no reading; no truncating either, if the kernel can control it */
    CLI_CREATE = 4, /* create regular files below a directory */
    CLI_SOCKET = 8, /* create sockets and remove files below a directory */
};

struct cli_landlock {
    int ruleset;      /* file descriptor; -1: no limit */
    int version;      /* ABI version of the kernel's Landlock */
    uint64_t handled; /* rights that are denied unless a rule allows them */
};

/* Creates the ruleset. -1 with errno if the kernel has no Landlock or it is disabled. */
int cli_landlock_begin(struct cli_landlock *landlock);
/* Allows a file or everything below a directory. A missing path needs no rule. -1 with errno. */
int cli_landlock_allow(struct cli_landlock *landlock, const char *path, int rights);
/* Applies to this thread and the threads it starts, permanently; -1 with errno. */
int cli_landlock_enforce(struct cli_landlock *landlock);
/* True if truncating is denied too: kernels before 6.2 cannot deny it. */
bool cli_landlock_is_whole(const struct cli_landlock *landlock);
void cli_landlock_reset(struct cli_landlock *landlock);

#endif
