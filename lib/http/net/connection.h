/*
 * connection.h - functions that connection.c, connection_socket.c, timeouts.c and early_reject.c
 * share.
 *
 * The event loop thread calls all of them. event_loop.h declares what event_loop.c itself calls.
 */
#ifndef GSV_HTTP_CONNECTION_H
#define GSV_HTTP_CONNECTION_H

#include "lib/http/net/event_loop.h"

#include <sys/types.h>

/* connection.c */
/* True if the result of a read or write means: not possible now, retry when epoll reports the
 * socket. */
bool gsv_must_wait(ssize_t result);
void gsv_client_watch(struct gsv_client *client, struct gsv_end *end, uint32_t events);
void gsv_end_close(struct gsv_end *end);
/* The client closed its side or the connection is broken. Cancels the work: the reply has no
 * reader. Implemented in a higher layer, inference_call.c. */
void gsv_client_abandon(struct gsv_client *client);
/* Half-closes the socket to libmicrohttpd, which then closes after its last reply. Does nothing
 * while a request is unanswered, unless its body can no longer complete: libmicrohttpd might take
 * the end of input for a broken connection. */
void gsv_client_end_input(struct gsv_client *client);
/* Called when libmicrohttpd accepts input again. */
void gsv_client_resume_in(struct gsv_client *client);

/* connection_socket.c */
/* True if the connection can carry HTTP. With TLS on, runs the handshake first. False: the
 * handshake is still in progress, or the client is refused or closed. */
bool gsv_client_make_ready(struct gsv_client *client);
/* Same results and errno as recv() and send(). */
ssize_t gsv_client_read(struct gsv_client *client, char *to, size_t size);
ssize_t gsv_client_write(struct gsv_client *client, const char *bytes, size_t size);
/* True if received bytes are buffered where epoll does not report them. */
bool gsv_client_has_more(const struct gsv_client *client);
/* Ends the output: TLS close_notify, then shutdown() of the write side. */
void gsv_client_end_output(struct gsv_client *client);

/* early_reject.c */
/* Sends the error of client->framing in the request's dialect, then ends the connection. */
void gsv_client_send_refusal(struct gsv_client *client);
/* Lingering close: writes no more, reads and drops input for a short time. An immediate close would
 * send a reset, which can destroy the last reply. */
void gsv_client_linger(struct gsv_client *client);

#endif
