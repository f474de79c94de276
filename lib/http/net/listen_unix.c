/*
 * listen_unix.c - a listening unix socket, for the programs of one user on this machine.
 *
 * The socket file outlives a killed server. A stale file is one where connect() fails with
 * ECONNREFUSED; only such a file is replaced. Files that are not sockets are never removed.
 */
#include "lib/base/error.h"
#include "lib/http/net/server_state.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static gpuserve_status fail_in_use(const char *path, gpuserve_error *error)
{
    gsv_fail(error, GPUSERVE_E_IO, "%s: another program listens on this socket", path);
    return gsv_hint(error, GPUSERVE_E_IO,
                    "choose another path, or end that program: `ss -xlp` shows it");
}

/* GPUSERVE_OK if the path is free: no file, or a stale socket that is now removed. */
static gpuserve_status make_free(const struct sockaddr_un *address, gpuserve_error *error)
{
    const char *path = address->sun_path;
    struct stat before, now;
    int fd, reason;

    if (lstat(path, &before) != 0)
        return errno == ENOENT ? GPUSERVE_OK
                               : gsv_fail(error, GPUSERVE_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISSOCK(before.st_mode))
        return gsv_fail(error, GPUSERVE_E_IO, "%s exists and is not a socket", path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return gsv_fail(error, GPUSERVE_E_IO, "socket: %s", strerror(errno));
    reason = connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ? 0 : errno;
    close(fd);
    if (reason == 0 || reason == EAGAIN || reason == EPROTOTYPE)
        return fail_in_use(path, error);
    if (reason == ENOENT)
        return GPUSERVE_OK;
    if (reason != ECONNREFUSED)
        return gsv_fail(error, GPUSERVE_E_IO, "%s: %s", path, strerror(reason));
    if (lstat(path, &now) != 0)
        return GPUSERVE_OK;
    if (now.st_dev != before.st_dev || now.st_ino != before.st_ino)
        return fail_in_use(path, error);
    return unlink(path) == 0 || errno == ENOENT
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_IO,
                          "%s is a stale socket that the server cannot remove: %s", path,
                          strerror(errno));
}

gpuserve_status gsv_http_listen_unix(struct gpuserve_http *server, const char *path,
                                     gpuserve_error *error)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const size_t size = strlen(path);
    struct stat st;
    gpuserve_status status;

    if (size == 0 || size >= sizeof(address.sun_path))
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "the path of the unix socket has %zu bytes, expected 1 to %zu", size,
                        sizeof(address.sun_path) - 1);
    memcpy(address.sun_path, path, size);
    status = make_free(&address, error);
    if (status != GPUSERVE_OK)
        return status;
    server->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (server->listener < 0)
        return gsv_fail(error, GPUSERVE_E_IO, "socket: %s", strerror(errno));
    /* bind() creates the file with the socket's mode, so no other user can connect in between. */
    if (fchmod(server->listener, 0600) != 0 ||
        bind(server->listener, (const struct sockaddr *)&address, sizeof(address)) != 0)
        return gsv_fail(error, GPUSERVE_E_IO, "%s: %s", path, strerror(errno));
    server->unix_address = address;
    if (lstat(path, &st) == 0) {
        server->unix_device = st.st_dev;
        server->unix_inode = st.st_ino;
    }
    if (listen(server->listener, BACKLOG) != 0)
        return gsv_fail(error, GPUSERVE_E_IO, "%s: %s", path, strerror(errno));
    memcpy(server->address, "unix:", 5);
    memcpy(server->address + 5, path, size + 1);
    return GPUSERVE_OK;
}

void gsv_http_remove_socket(const struct gpuserve_http *server)
{
    const char *path = server->unix_address.sun_path;
    struct stat st;

    /* Leaves the file of a server that started after this one. */
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_dev == server->unix_device &&
        st.st_ino == server->unix_inode)
        unlink(path);
}
