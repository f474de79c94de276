/*
 * sandboxed.c - tries the calls that the sandbox denies, on two threads; prints one line per call.
 *
 * test_sandbox.py reads the lines. With an argument: the sandbox that allows IP sockets.
 */
#include "cli/serve/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static sem_t begun, ready;

static void tell(const char *thread, const char *call, long result)
{
    printf("%s %s %s\n", thread, call, result < 0 ? strerror(errno) : "works");
}

static void try_all(const char *thread)
{
    char *const arguments[] = { "true", NULL };
    char bytes[4] = "abc", copy[4];
    int pair[2];
    const struct iovec from = { bytes, 4 }, to = { copy, 4 };

    tell(thread, "execve", execve("/bin/true", arguments, NULL));
    tell(thread, "execveat", syscall(__NR_execveat, AT_FDCWD, "/bin/true", arguments, NULL, 0));
    tell(thread, "ptrace", ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    tell(thread, "process_vm_readv", process_vm_readv(getpid(), &to, 1, &from, 1, 0));
    tell(thread, "perf_event_open", syscall(__NR_perf_event_open, NULL, 0, 0, 0, 0));
    tell(thread, "io_uring_setup", syscall(425, 1, NULL));
    tell(thread, "pidfd_getfd", syscall(438, 0, 0, 0));
    tell(thread, "AF_INET", socket(AF_INET, SOCK_STREAM, 0));
    tell(thread, "AF_INET6", socket(AF_INET6, SOCK_DGRAM, 0));
    tell(thread, "AF_NETLINK", socket(AF_NETLINK, SOCK_RAW, 0));
    tell(thread, "AF_UNIX", socket(AF_UNIX, SOCK_STREAM, 0));
    tell(thread, "socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    tell(thread, "open", open("/proc/self/status", O_RDONLY));
    fflush(stdout);
}

static void *run(void *user)
{
    sem_post(&begun);
    sem_wait(&ready);
    try_all(user);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t older;

    sem_init(&begun, 0, 0);
    sem_init(&ready, 0, 0);
    if (pthread_create(&older, NULL, run, "older") != 0)
        return 1;
    sem_wait(&begun);
    (void)argv;
    if (cli_sandbox(argc > 1) != 0) {
        perror("sandbox");
        return 1;
    }
    sem_post(&ready);
    pthread_join(older, NULL);
    try_all("own");
    return 0;
}
