/*
 * exchange.h - one request and its reply, from the first byte to the last.
 *
 *   MHD -> mhd_callbacks.c -> dispatch.c -> a dialect's handler -> inference_call.c -> the library
 *                                            |                             |
 *   MHD <- dispatch.c <- reply <--------------+------ finish <--- resume <--+
 *
 * A handler runs once the whole body is there, on the guard's thread or one of the crew. It either
 * writes the reply (gsv_reply_*, gsv_refuse) or starts work (gsv_call_start) and returns: the
 * connection is suspended, no thread waits, and `finish` is called when the library has done the
 * work. All memory a handler asks for with gsv_keep lives as long as the exchange.
 */
#ifndef GSV_HTTP_EXCHANGE_H
#define GSV_HTTP_EXCHANGE_H

#include "lib/http/core/buffer.h"
#include "lib/http/core/errors.h"

#include <gpuserve/http.h>

#include <jansson.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>

struct gsv_client;
struct gsv_exchange;
struct gsv_rerank;
struct gsv_route;
struct gsv_served;

typedef void (*gsv_handler)(struct gsv_exchange *exchange);

enum { GSV_MAX_HEADERS = 32 };

/* What the handler and the completion callback tell each other; see inference_call.c. */
enum gsv_handshake { GSV_SUBMITTING, GSV_SUSPENDED, GSV_DONE };

/* One job of the library. */
struct gsv_call {
    gpuserve_job job;
    gpuserve_request *request;         /* NULL: none was submitted */
    bool is_load;                      /* a load, an unload or a check: no job of the library */
    struct gsv_load_queue *load_queue; /* of it; under the server's lock */
    struct gsv_load_task *load;        /* that it waits for; under the lock of its queue, as is: */
    struct gsv_exchange *next_waiter;
    gpuserve_error error; /* of a load, or of what was led */
    bool is_inline;       /* computed by the guard's thread: there is no request */
    gpuserve_status status;
    gpuserve_item *items; /* [job.n_items] */
    gpuserve_result result;
    size_t columns;     /* floats in a row of the output */
    gsv_handler finish; /* runs when the job has succeeded */
    _Atomic int handshake;
    bool waiting; /* started and not finished yet */
};

/* What the work so far has cost, for the reply's headers. */
struct gsv_request_usage {
    size_t n_tokens, n_truncated, n_characters;
    uint64_t tokenize_us, queue_us, compute_us;
};

struct gsv_exchange {
    struct gpuserve_http *server;
    struct MHD_Connection *connection;
    struct gsv_client *client;
    struct gsv_exchange *before, *after; /* in the server's list, under its lock */
    struct gsv_exchange *queued;         /* the next one for the crew, or to be resumed */
    void *memory;                        /* blocks of gsv_keep */
    void *kept;                          /* the newest of them that the end needs */

    /* The request. */
    const char *method; /* lent by MHD */
    char *target;       /* as sent */
    char *path;         /* decoded, without the query */
    char *query;        /* as sent, or NULL */
    const struct gsv_route *route;
    const char *model_name, *version; /* from the path, or NULL */
    struct gsv_buffer body;
    json_t *json; /* the body, once parsed */
    uint64_t begun_ns, received_ns;
    const char *id;   /* the request's name: the client's own, or made here */
    char key_name[9]; /* of the API key shown, "" without one */

    /* The work. */
    struct gsv_served *served; /* the model, held */
    struct gsv_call work;
    struct gsv_request_usage usage;
    void *state;               /* the handler's own, for its finish */
    struct gsv_rerank *rerank; /* of a handler that ranks */
    uint64_t deadline_ns;      /* when the client stops waiting; 0: it does not say */
    const char *cut_by;        /* what the client sends to have long texts cut, or NULL */

    /* The reply. */
    unsigned status; /* 0: none yet */
    const char *content_type;
    size_t n_reply_bytes; /* of its body, once it is on its way */
    size_t n_made_bytes;  /* as the crew counts it until then */
    struct gsv_buffer reply;
    const void
        *borrowed; /* [n_borrowed] the body instead of `reply`: bytes that outlive the server */
    size_t n_borrowed;
    struct {
        const char *name, *value;
    } headers[GSV_MAX_HEADERS];
    size_t n_headers;
    enum gsv_dialect dialect; /* whose errors to speak */
    bool close;               /* end the connection after the reply */
    bool begun, listed;
    bool is_offloaded; /* was given to the crew */
};

struct gsv_exchange *gsv_exchange_create(struct gpuserve_http *server,
                                         struct MHD_Connection *connection, const char *target);
void gsv_exchange_destroy(struct gsv_exchange *exchange);

/* The reply is on its way: what it was made from takes no memory while the client reads. */
void gsv_exchange_shrink(struct gsv_exchange *exchange);

/* Zeroed memory that lives as long as the exchange or, once the header was read, until its reply is
 * made; NULL after gsv_refuse. */
void *gsv_keep(struct gsv_exchange *exchange, size_t n, size_t size);
char *gsv_keep_text(struct gsv_exchange *exchange, const char *text, size_t size);
char *gsv_keep_format(struct gsv_exchange *exchange, const char *format, ...) GPUSERVE_PRINTF(2, 3);

/* A header of the request, or NULL. */
const char *gsv_header(const struct gsv_exchange *exchange, const char *name);
/* A header of the reply; `value` lives as long as the exchange. */
void gsv_add_header(struct gsv_exchange *exchange, const char *name, const char *value);

/* The reply is what was written to exchange->reply. */
void gsv_reply(struct gsv_exchange *exchange, unsigned status, const char *content_type);
void gsv_reply_json(struct gsv_exchange *exchange);
void gsv_reply_text(struct gsv_exchange *exchange, unsigned status, const char *text);

/* The reply is an error in the words of the exchange's dialect; takes the place of any other.
 * `param` names the field that is wrong, or is NULL. Returns false. */
bool gsv_refuse(struct gsv_exchange *exchange, enum gsv_problem kind, const char *param,
                const char *format, ...) GPUSERVE_PRINTF(4, 5);
/* When to come back, in the two headers for it. */
void gsv_add_retry_after(struct gsv_exchange *exchange, uint32_t after_ms);
/* The library's error about a text, or a list of ids, that the model is too short for: with the
 * model's limit, in the words that clients look for, and with what the client can do. */
bool gsv_refuse_length(struct gsv_exchange *exchange, const char *message, bool is_ids);
/* The library's error; of its tokenizer alone, where only text or ids can be wrong. */
bool gsv_refuse_error(struct gsv_exchange *exchange, gpuserve_status status,
                      const gpuserve_error *error);
bool gsv_refuse_tokens(struct gsv_exchange *exchange, gpuserve_status status,
                       const gpuserve_error *error);

#endif
