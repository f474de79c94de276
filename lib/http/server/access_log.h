/*
 * access_log.h - one JSON line for each answered request.
 *
 * Written with one write() a line by the thread that ends the request, never waited for: what the
 * disk or the reader of a pipe does not take at once is lost and counted, and requests go on.
 */
#ifndef GSV_HTTP_ACCESS_LOG_H
#define GSV_HTTP_ACCESS_LOG_H

#include "lib/http/protocol/exchange.h"

#include <pthread.h>

struct gsv_access_log {
    pthread_mutex_t lock;
    char *path; /* NULL: no log; "-": standard output */
    int fd;
    bool is_torn; /* a line was written in part: the next begins with a line end */
    _Atomic unsigned long long n_lost;
};

gpuserve_status gsv_access_log_open(struct gsv_access_log *log, const char *path,
                                    gpuserve_error *error);
/* Open the file of that name anew: the old one was moved away. */
gpuserve_status gsv_access_log_reopen(struct gsv_access_log *log, gpuserve_error *error);
void gsv_access_log_close(struct gsv_access_log *log);
void gsv_access_log_write(struct gsv_access_log *log, const struct gsv_exchange *exchange);

#endif
