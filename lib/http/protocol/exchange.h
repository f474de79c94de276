/*
 * exchange.h - one request and its reply, from the first byte to the last.
 *
 *   MHD -> mhd.c -> dispatch.c -> a dialect's handler -> inference_call.c -> the library
 *                                  |                             |
 *   MHD <- dispatch.c <- reply <---+------ finish <--- resume <--+
 *
 * A handler runs after the whole body has arrived, on the event loop thread or a worker thread. It
 * either writes the reply (gsv_reply_*, gsv_refuse) or starts work (gsv_call_start) and returns.
 * The connection is then suspended and no thread waits; `finish` runs when the library is done.
 * Memory from gsv_exchange_alloc lives as long as the exchange, or until gsv_exchange_shrink().
 */
#ifndef GSV_HTTP_EXCHANGE_H
#define GSV_HTTP_EXCHANGE_H

#include "lib/http/core/errors.h"
#include "lib/http/core/json_write.h"

#include <gpuserve/gpuserve.h>
#include <gpuserve/http.h>

#include <jansson.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>

struct gsv_client;
struct gsv_reply_encoder;
struct gsv_exchange;
struct gsv_compact;
struct gsv_long;
struct gsv_request_trace;
struct gsv_rerank;
struct gsv_route;
struct gsv_served;

typedef void (*gsv_handler)(struct gsv_exchange *exchange);

enum { GSV_MAX_HEADERS = 32, GSV_CALL_OUTPUTS = GPUSERVE_TASK_MAX_SIM };

/* State shared by the handler's thread and the completion callback; see inference_call.c. */
enum gsv_handshake { GSV_SUBMITTING, GSV_SUSPENDED, GSV_DONE };

/* One job of the library. */
struct gsv_call {
    gpuserve_job job;
    gpuserve_request *request;         /* NULL: not submitted */
    bool is_load;                      /* a load, unload or check: not a job of the library */
    struct gsv_load_queue *load_queue; /* queue of the load; protected by the server's lock */
    struct gsv_load_task *load; /* the task it waits for; the queue's lock protects this and */
    struct gsv_exchange *next_waiter;
    gpuserve_error error; /* of a load or an inline job */
    bool is_inline;       /* computed by the event loop thread: `request` is NULL */
    gpuserve_status status;
    gpuserve_item *items; /* [job.n_items] */
    gpuserve_result result;
    size_t columns;                         /* floats per output row */
    gpuserve_output more[GSV_CALL_OUTPUTS]; /* further outputs of the job */
    size_t more_columns[GSV_CALL_OUTPUTS];
    gsv_handler finish; /* runs when the job has succeeded */
    _Atomic int handshake;
    bool waiting; /* started and not finished */
};

/*
 * A reply that is made and sent in blocks. The first block is the reply of the handler or of a
 * `finish`; its status and headers are sent with it. When the client has taken a block, `next` runs
 * on the event loop thread and starts the job of the next one, whose `finish` appends to
 * exchange->reply. A refusal after the first block becomes the last line, or what `fail` makes of
 * it.
 */
struct gsv_stream {
    gsv_handler next;
    gsv_handler fail; /* replaces a refusal in exchange->reply, and sets is_cut; or NULL */
    size_t taken;     /* bytes of exchange->reply */
    size_t n_before;  /* texts of the blocks before, for errors, which count from a block's first */
    bool has_begun;   /* the first block's status and headers are sent */
    bool is_last;     /* no block follows */
    bool is_cut; /* the reply is incomplete: the connection is closed without the end of the body */
    size_t n_request_bytes; /* of the body, whose parsed form lives as long as the stream */
};

enum { GSV_STREAM_INPUTS = 10000 }; /* texts of a streamed reply, or max_client_batch if more */

/* Accumulated cost of the work, for the reply's headers. */
struct gsv_request_usage {
    size_t n_tokens, n_truncated, n_characters;
    uint64_t tokenize_us, queue_us, compute_us;
};

struct gsv_exchange {
    struct gpuserve_http *server;
    struct MHD_Connection *connection;   /* NULL: detached */
    struct gsv_client *client;           /* or NULL */
    struct gsv_exchange *before, *after; /* in the server's list, protected by its lock */
    struct gsv_exchange *queued;         /* in the worker threads' queue, or for resumption */
    void *memory;                        /* blocks of gsv_exchange_alloc */
    void *kept;                          /* the newest block that gsv_exchange_shrink() keeps */

    /* The request. */
    const char *method; /* borrowed from libmicrohttpd */
    char *target;       /* as sent */
    char *path;         /* decoded, without query */
    char *query;        /* as sent, or NULL */
    const struct gsv_route *route;
    const char *model_name, *version; /* from the path, or NULL; {id} is in `version` */
    struct gsv_buffer body;
    json_t *json; /* the parsed body */
    uint64_t begun_ns, received_ns;
    const char *id;   /* request id: the client's own, or generated */
    char key_name[9]; /* name of the API key sent, "" if none */

    /* The work. */
    struct gsv_served *served; /* the model, a held reference */
    struct gsv_call work;
    struct gsv_request_usage usage;
    void *state;                     /* the handler's data for `finish` */
    gpuserve_entity_query *entities; /* of a handler that finds entities; owned */
    struct gsv_rerank *rerank;       /* of a handler that ranks */
    struct gsv_compact *compact;     /* of a handler that calibrates */
    struct gsv_long *long_wanted;    /* of a handler of long texts, and */
    gpuserve_long_texts *long_texts; /* their windows; owned */
    uint64_t deadline_ns;            /* the client's timeout on CLOCK_MONOTONIC; 0: not given */
    const char *cut_by; /* the request field that enables truncation, for messages; or NULL */

    /* The reply. */
    unsigned status; /* 0: none yet */
    const char *content_type;
    size_t n_reply_bytes; /* body size, set when the reply is queued */
    size_t n_made_bytes;  /* the part that worker threads count as made but not yet queued */
    struct gsv_buffer reply;
    struct gsv_stream *stream;         /* NULL: one reply */
    struct gsv_reply_encoder *encoder; /* of a stream that is compressed, or NULL; owned */
    bool holds_model;                  /* `served` is not idle between the blocks of a stream */
    int reply_fd;                      /* -1, or a file whose n_borrowed bytes are the reply */
    const void *borrowed; /* [n_borrowed] used instead of `reply`: bytes that outlive the server */
    size_t n_borrowed;
    struct {
        const char *name, *value;
    } headers[GSV_MAX_HEADERS];
    size_t n_headers;
    enum gsv_dialect dialect; /* error format */
    bool close;               /* close the connection after the reply */
    bool is_compressed;       /* or was tried: the reply, or the block of a stream in `reply` */
    bool begun, listed;
    bool is_offloaded;               /* was given to a worker thread */
    struct gsv_request_trace *trace; /* NULL: not traced */

    /* A request without a connection (gsv_detached_begin()). */
    gsv_handler resume; /* NULL: the event loop resumes the connection */
    void *resume_user;
    uint32_t priority; /* gpuserve_priority of its jobs */
};

struct gsv_exchange *gsv_exchange_create(struct gpuserve_http *server,
                                         struct MHD_Connection *connection, const char *target);
void gsv_exchange_destroy(struct gsv_exchange *exchange);

/* Called when the reply is queued: frees what it was made from, so that a slow reader holds no
 * more. */
void gsv_exchange_shrink(struct gsv_exchange *exchange);

/* Zeroed memory. Blocks allocated before the handler live as long as the exchange, later ones until
 * the reply is queued. NULL after gsv_refuse. */
void *gsv_exchange_alloc(struct gsv_exchange *exchange, size_t n, size_t size);
char *gsv_exchange_copy_text(struct gsv_exchange *exchange, const char *text, size_t size);
char *gsv_exchange_format(struct gsv_exchange *exchange, const char *format, ...)
    GPUSERVE_PRINTF(2, 3);

/* A request header, or NULL. */
const char *gsv_header(const struct gsv_exchange *exchange, const char *name);
/* Adds a reply header, once if it is equal; `name` and `value` are borrowed until the reply is
 * queued. */
void gsv_add_header(struct gsv_exchange *exchange, const char *name, const char *value);

/* Completes the reply with the contents of exchange->reply. */
void gsv_reply(struct gsv_exchange *exchange, unsigned status, const char *content_type);
void gsv_reply_json(struct gsv_exchange *exchange);
void gsv_reply_text(struct gsv_exchange *exchange, unsigned status, const char *text);

/* Replaces any reply by an error in the exchange's dialect. `param` names the invalid field, or is
 * NULL. Returns false. */
bool gsv_refuse(struct gsv_exchange *exchange, enum gsv_problem kind, const char *param,
                const char *format, ...) GPUSERVE_PRINTF(4, 5);
/* Adds `Retry-After` (seconds) and `retry-after-ms`. */
void gsv_add_retry_after(struct gsv_exchange *exchange, uint32_t after_ms);
/* The library's error about an input over the model's token limit. Adds the limit, the phrase that
 * clients search for ("maximum context length"), and what the client can do. */
bool gsv_refuse_length(struct gsv_exchange *exchange, const char *message, bool is_ids);
/* Maps an error of the library. The second form is for tokenizer errors, which only the input
 * causes. */
bool gsv_refuse_error(struct gsv_exchange *exchange, gpuserve_status status,
                      const gpuserve_error *error);
bool gsv_refuse_tokens(struct gsv_exchange *exchange, gpuserve_status status,
                       const gpuserve_error *error);

/*
 * Operations on the pending call of an exchange, for the protocol layer.
 *
 * Declared here and implemented one layer above (inference_call.c, model_registry.c), so that
 * includes never go up.
 */

/* For dispatch.c. suspend: suspends the connection; false if the work is already done. leave:
 * leaves a suspended connection to the thread that completes the work; false if it is done. finish:
 * takes the result. */
bool gsv_call_suspend(struct gsv_exchange *exchange);
bool gsv_call_leave(struct gsv_exchange *exchange);
void gsv_call_finish(struct gsv_exchange *exchange);
/* For mhd.c: computes the job inline. */
void gsv_call_compute(struct gsv_exchange *exchange);
/* The connection ended before its result was taken: removes it from n_working. */
void gsv_call_abandon(struct gsv_exchange *exchange);

/* Adds or removes one suspended connection (n_working). The server stops only at 0. False: it is
 * stopping and accepts no more. */
bool gsv_call_count_in(struct gsv_exchange *exchange);
void gsv_call_count_out(struct gsv_exchange *exchange);

/*
 * Compression of replies, where the client accepts it and it is worth its cost.
 */

/* Loads libzstd if it is installed, once in a process; before a sandbox that denies its folder. */
void gsv_compress_load(void);

/* The quality of `coding` in an Accept-Encoding field, in thousandths; 0: not accepted. NULL
 * accepts none. */
unsigned gsv_accepted(const char *field, const char *coding);
/* The same of a field such as Accept, without its `*`: 0 unless the field has the name itself. */
unsigned gsv_accepted_by_name(const char *field, const char *name);

/* Replaces the complete reply by its compressed form and adds the headers, once. A reply of more
 * than `max_bytes` stays as it is. Of a streamed reply: each block, of any size, on the thread that
 * made it. */
void gsv_compress_reply(struct gsv_exchange *exchange, size_t max_bytes);
void gsv_reply_encoder_free(struct gsv_reply_encoder *encoder);

/*
 * A request without a connection: a line of a batch.
 *
 * One thread owns the request and runs its steps. No thread waits while the library computes. The
 * library then calls `resume` once, from any thread, and the owner calls gsv_detached_continue().
 */

struct gsv_detached_options {
    const char *path;     /* "/v1/embeddings" */
    const char *id;       /* of the request; borrowed as long as the exchange lives */
    const char *key_name; /* of the API key, for fair queueing */
    uint32_t priority;    /* gpuserve_priority */
    gsv_handler resume;
    void *user; /* exchange->resume_user */
};

/* Runs a request with this JSON text, of which the field `body` is the request's body. *exchange is
 * owned: gsv_detached_end(); NULL if out of memory. Returns true if `resume` will be called, false
 * if the reply is complete. */
bool gsv_detached_begin(struct gsv_exchange **exchange, struct gpuserve_http *server,
                        const struct gsv_detached_options *options, const char *text, size_t size);
bool gsv_detached_continue(struct gsv_exchange *exchange);
/* Cancels the computation. `resume` is still called. */
void gsv_detached_cancel(struct gsv_exchange *exchange);
void gsv_detached_end(struct gsv_exchange **exchange);

/* mhd.c: libmicrohttpd's callbacks; `user` is the server. */
void *gsv_on_request_line(void *user, const char *target, struct MHD_Connection *connection);
enum MHD_Result gsv_on_request(void *user, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_size, void **context);
void gsv_on_connection(void *user, struct MHD_Connection *connection, void **context,
                       enum MHD_ConnectionNotificationCode what);
void gsv_on_completed(void *user, struct MHD_Connection *connection, void **context,
                      enum MHD_RequestTerminationCode why);

#endif
