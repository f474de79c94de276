/*
 * port.c - finds the process that listens on a TCP port, for the message "port in use".
 *
 * /proc/net/tcp and tcp6 give the inode of the socket; a scan of /proc/PID/fd finds the process
 * that has it open. Runs before file access is limited. Processes of other users cannot be read, so
 * their names stay unknown.
 */
#include "cli/serve/serve.h"

#include "cli/cli.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LISTENING = 0x0A };

/* Inode of the socket that listens on the port; 0: not in this table. */
static unsigned long find_socket(const char *table, unsigned port)
{
    FILE *file = fopen(table, "re");
    unsigned long inode = 0;
    char line[512];

    while (file && inode == 0 && fgets(line, sizeof(line), file)) {
        unsigned local = 0, state = 0;
        unsigned long found = 0;

        if (sscanf(line, "%*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*u %lu",
                   &local, &state, &found) == 3 &&
            local == port && state == LISTENING)
            inode = found;
    }
    if (file)
        fclose(file);
    return inode;
}

static bool holds(const char *process, const char *socket)
{
    char *path = cli_format("/proc/%s/fd", process);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    bool found = false;

    while (folder && !found && (entry = readdir(folder))) {
        char target[64];
        const ssize_t n = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);

        target[n > 0 ? n : 0] = 0;
        found = strcmp(target, socket) == 0;
    }
    if (folder)
        closedir(folder);
    free(path);
    return found;
}

/* "nginx (process 123)", owned */
static char *name_of(const char *process)
{
    char *path = cli_format("/proc/%s/comm", process), name[64] = "";
    FILE *file = fopen(path, "re");

    if (file && fgets(name, sizeof(name), file))
        name[strcspn(name, "\n")] = 0;
    if (file)
        fclose(file);
    free(path);
    return cli_format("%s (process %s)", name[0] ? name : "an unknown program", process);
}

char *cli_port_holder(unsigned port)
{
    unsigned long inode = find_socket("/proc/net/tcp", port);
    const struct dirent *entry;
    char *holder = NULL, *socket;
    DIR *processes;

    if (inode == 0)
        inode = find_socket("/proc/net/tcp6", port);
    if (port == 0 || inode == 0)
        return NULL;
    socket = cli_format("socket:[%lu]", inode);
    processes = opendir("/proc");
    while (processes && !holder && (entry = readdir(processes))) {
        if (isdigit((unsigned char)entry->d_name[0]) && holds(entry->d_name, socket))
            holder = name_of(entry->d_name);
    }
    if (processes)
        closedir(processes);
    free(socket);
    return holder ? holder : cli_format("a program of another user");
}
