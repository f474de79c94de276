/*
 * access_log.h - the access log: one JSON line for each answered request.
 *
 * The thread that ends the request writes its line with one write() and never blocks. A line that
 * the disk or pipe does not accept at once is dropped and counted in n_lost.
 */
#ifndef GSV_HTTP_ACCESS_LOG_H
#define GSV_HTTP_ACCESS_LOG_H

#include "lib/http/protocol/exchange.h"

#include <pthread.h>

struct gsv_access_log {
    pthread_mutex_t lock;
    char *path; /* NULL: no log; "-": standard output */
    int fd;
    bool is_torn; /* the last line was written in part: the next one starts with a line feed */
    _Atomic unsigned long long n_lost;
};

gpuserve_status gsv_access_log_open(struct gsv_access_log *log, const char *path,
                                    gpuserve_error *error);
/* Reopens the path after log rotation. */
gpuserve_status gsv_access_log_reopen(struct gsv_access_log *log, gpuserve_error *error);
void gsv_access_log_close(struct gsv_access_log *log);
/* The client disconnected before a reply existed; a reply made after that reports only the
 * cancellation. */
bool gsv_exchange_has_left(const struct gsv_exchange *exchange);
/* The client's address, "unix", or "" if it is not known. */
void gsv_client_text(const struct gsv_client *client, char *text, size_t capacity);
/* Called for a log that has a path. */
void gsv_access_log_write(struct gsv_access_log *log, const struct gsv_exchange *exchange);

#endif
