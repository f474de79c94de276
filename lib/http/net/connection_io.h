/*
 * connection_io.h - what the files client*.c do for each other; event_loop.h has what the guard
 * asks of them.
 */
#ifndef GSV_HTTP_CONNECTION_IO_H
#define GSV_HTTP_CONNECTION_IO_H

#include "lib/http/net/event_loop.h"

#include <sys/types.h>

/* connection_io.c */
/* The result of a read or write says: nothing now, again when epoll says so. */
bool gsv_must_wait(ssize_t result);
void gsv_client_watch(struct gsv_client *client, struct gsv_end *end, uint32_t events);
void gsv_end_close(struct gsv_end *end);
/* The client has closed its side or the connection is broken: nobody will read the answer. */
void gsv_client_give_up(struct gsv_client *client);
/* No more requests for libmicrohttpd: it ends its side after what it has written. Not while one is
 * unanswered, unless its body will never be whole: it might take the end for a broken connection.
 */
void gsv_client_end_input(struct gsv_client *client);

/* connection_socket.c */
/* Whether HTTP can be spoken: TLS, if the server speaks it, is shaken hands on first. False: that
 * goes on, or the client is refused or closed. */
bool gsv_client_make_ready(struct gsv_client *client);
/* As recv() and send(). */
ssize_t gsv_client_read(struct gsv_client *client, char *to, size_t size);
ssize_t gsv_client_write(struct gsv_client *client, const char *bytes, size_t size);
/* Bytes are there that epoll does not tell of. */
bool gsv_client_has_more(const struct gsv_client *client);
/* The client hears that nothing more comes. */
void gsv_client_end_output(struct gsv_client *client);

/* early_reject.c */
/* The answer of client->framing, in the words of the dialect that was spoken, then the end. */
void gsv_client_send_refusal(struct gsv_client *client);
/* Nothing more is written. What the client still sends is read and dropped for a moment: closing at
 * once would reset the connection under the last answer. */
void gsv_client_linger(struct gsv_client *client);

/* connection_in.c */
void gsv_client_pump_in(struct gsv_client *client);
/* libmicrohttpd takes more again. */
void gsv_client_resume_in(struct gsv_client *client);
/* The client has ended its side. */
void gsv_client_on_end(struct gsv_client *client);

/* connection_out.c */
void gsv_client_pump_out(struct gsv_client *client);
/* What was kept. False: the client takes no more now, or is closed. */
bool gsv_client_write_out(struct gsv_client *client);

#endif
