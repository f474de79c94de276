/*
 * landlock.h - which files the process may open from now on, by the kernel's Landlock.
 */
#ifndef CLI_LANDLOCK_H
#define CLI_LANDLOCK_H

#include <stdbool.h>
#include <stdint.h>

enum cli_file_right {
    CLI_READ = 1,
    CLI_WRITE = 2,  /* neither reading nor, where the kernel knows to tell, truncating */
    CLI_CREATE = 4, /* of regular files, below a directory */
    CLI_SOCKET = 8, /* making sockets and removing files, below a directory */
};

struct cli_landlock {
    int ruleset;      /* a descriptor; -1: nothing is limited */
    int version;      /* of the kernel's interface */
    uint64_t handled; /* rights that are refused where no rule gives them */
};

/* -1 with errno when the kernel has none, or has it switched off. */
int cli_landlock_begin(struct cli_landlock *landlock);
/* What lies below a directory, or one file. What does not exist needs no rule. -1 with errno. */
int cli_landlock_allow(struct cli_landlock *landlock, const char *path, int rights);
/* For this thread and those it starts, for good; -1 with errno. */
int cli_landlock_enforce(struct cli_landlock *landlock);
/* Whether truncating is refused as well: kernels before 6.2 cannot. */
bool cli_landlock_is_whole(const struct cli_landlock *landlock);
void cli_landlock_reset(struct cli_landlock *landlock);

#endif
