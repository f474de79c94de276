/*
 * client_net.c - the bytes of one client's socket: the only places that read and write it.
 */
#include "lib/http/client.h"

#include <sys/socket.h>

ssize_t gsv_client_read(struct gsv_client *client, char *to, size_t size)
{
    return recv(client->net.fd, to, size, 0);
}

ssize_t gsv_client_write(struct gsv_client *client, const char *bytes, size_t size)
{
    return send(client->net.fd, bytes, size, MSG_NOSIGNAL);
}
