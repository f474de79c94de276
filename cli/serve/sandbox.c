/*
 * sandbox.c - seccomp filter for all threads, installed after the models are loaded.
 *
 * Denied: starting programs, reading or changing other processes, kernel modules, mounts and
 * namespaces, and new sockets except AF_UNIX (and IP sockets if `with_network`). So an attacker who
 * exploits a parser bug gets no shell and no new connection. io_uring is denied too, because a
 * filter does not see its operations. Denied calls fail with EPERM. All other calls, including
 * those of a reload, work as before.
 */
#include "cli/serve/serve.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#define OUR_ARCHITECTURE 0
#endif

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (value))
/* Executes the next instruction only if the value matches. */
#define IF(value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, 1)
#define REFUSED RETURN(SECCOMP_RET_ERRNO | EPERM)
#define REFUSE(name) IF(__NR_##name), REFUSED

enum { X32_BIT = 0x40000000 }; /* system call numbers of the x32 ABI */
/* Same numbers on all architectures; missing in older headers. */
enum { NR_IO_URING_SETUP = 425, NR_PIDFD_GETFD = 438 };

int cli_sandbox(bool with_network)
{
    /* libmicrohttpd uses socketpair(); systemd notification uses AF_UNIX. */
    const uint32_t network =
        with_network ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA);
    struct sock_filter filter[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCHITECTURE, 1, 0),
        REFUSED,
        LOAD(nr),
#if defined(__x86_64__)
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1),
        REFUSED,
#endif
        REFUSE(execve),
        REFUSE(execveat),
        REFUSE(ptrace),
        REFUSE(process_vm_readv),
        REFUSE(process_vm_writev),
        REFUSE(perf_event_open),
        REFUSE(open_by_handle_at),
        REFUSE(kexec_load),
        REFUSE(init_module),
        REFUSE(finit_module),
        REFUSE(delete_module),
        REFUSE(mount),
        REFUSE(umount2),
        REFUSE(pivot_root),
        REFUSE(chroot),
        REFUSE(unshare),
        REFUSE(setns),
        REFUSE(bpf),
        REFUSE(keyctl),
        REFUSE(add_key),
        REFUSE(request_key),
        REFUSE(userfaultfd),
        IF(NR_IO_URING_SETUP),
        REFUSED,
        IF(NR_PIDFD_GETFD),
        REFUSED,
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 1, 0),
        RETURN(SECCOMP_RET_ALLOW),
        LOAD(args[0]), /* low 32 bits: both architectures are little-endian */
        IF(AF_UNIX),
        RETURN(SECCOMP_RET_ALLOW),
        IF(AF_INET),
        RETURN(network),
        IF(AF_INET6),
        RETURN(network),
        REFUSED,
    };
    const struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

    if (OUR_ARCHITECTURE == 0) {
        errno = ENOSYS;
        return -1;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    /* With TSYNC, a positive result is the id of a thread that could not be synchronized. */
    return syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0
               ? 0
               : -1;
}
