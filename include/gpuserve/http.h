/*
 * gpuserve/http.h - models answered over HTTP from inside your process.
 *
 *   gpuserve_http_model model = GPUSERVE_HTTP_MODEL_INIT;
 *   gpuserve_http_options options = GPUSERVE_HTTP_OPTIONS_INIT;
 *   gpuserve_http *server = NULL;
 *   model.path = "sentence-transformers/all-MiniLM-L6-v2";
 *   options.models = &model;
 *   options.n_models = 1;
 *   options.port = 8080;
 *   gpuserve_http_start(&server, NULL, &options, &error);
 *   ...
 *   gpuserve_http_drain(server, 10000);
 *   gpuserve_http_stop(&server);
 *
 * One port speaks the dialects of OpenAI, text-embeddings-inference, KServe v2, Cohere, Jina, Ollama,
 * Hugging Face and TensorFlow Serving; docs/http.md lists them. The library is libgpuserve-http.so;
 * libgpuserve.so itself opens no socket.
 *
 * Words for memory and errors are those of <gpuserve/gpuserve.h>.
 */
#ifndef GPUSERVE_HTTP_H
#define GPUSERVE_HTTP_H

#include <gpuserve/gpuserve.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpuserve_http gpuserve_http;

/** One model and what clients call it. Give exactly one of `path` and `model`. */
typedef struct gpuserve_http_model {
    uint32_t                      struct_size;
    uint32_t                      reserved;
    const char                   *name;    /**< default: what `path` names; "default" for `model` */
    const char                   *path;    /**< as for gpuserve_model_open(); the server opens it,
                                                and may unload and load it when a client asks */
    const gpuserve_model_options *options; /**< with `path`; may be NULL. Strings are copied */
    gpuserve_model               *model;   /**< borrowed until gpuserve_http_stop() */
    const char *const            *aliases; /**< [n_aliases] further names; may be NULL with 0 */
    size_t                        n_aliases;
} gpuserve_http_model;

/* clang-format off */
#define GPUSERVE_HTTP_MODEL_INIT { (uint32_t)sizeof(gpuserve_http_model), 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** How a server is started. Zero means the default in every field but the models. */
typedef struct gpuserve_http_options {
    uint32_t                   struct_size;
    uint32_t                   port;   /**< default 0: one that is free; see gpuserve_http_address() */
    const char                *host;   /**< numeric address to listen on; default "127.0.0.1" */
    const gpuserve_http_model *models; /**< [n_models]; the first answers for clients that name none */
    size_t                     n_models;
    uint32_t                   insecure;  /**< 1: other addresses than the loopback's are allowed
                                               without a key: anyone who reaches them may ask */
    uint32_t                   n_threads; /**< threads for requests that take long; default 2, at most 256 */
    uint32_t                   max_connections;       /**< at once; default 4096, at most 1048576 */
    uint32_t                   max_address_connections; /**< of one client address; default half of
                                                              max_connections, at most 1048576 */
    uint64_t                   max_body_bytes; /**< of one request, after decompression; default
                                                    33554432, at most 1073741824 */
    uint32_t                   max_client_batch; /**< texts in one request; default 2048, at most 1048576 */
    uint32_t                   auto_truncate; /**< 1: texts over the limit are cut where the client
                                                   does not say; default: they are refused */
    uint32_t                   header_timeout_ms; /**< from a request's first byte to the end of its
                                                       header; default 10000 */
    uint32_t                   body_timeout_ms;   /**< from there to the end of its body; default
                                                       60000 */
    uint32_t                   idle_timeout_ms;   /**< between two requests; default 75000 */
    uint32_t                   min_body_rate; /**< bytes a second that a body must come in with, once
                                                   5 seconds have passed; default 1024 */
    gpuserve_log_fn            log;           /**< default: no logging */
    void                      *log_user;
    int32_t                    log_level; /**< default GPUSERVE_LOG_WARNING */
    uint32_t                   model_control; /**< 1: clients may load and unload the models that the
                                                   server opened */
    const char *const         *api_keys; /**< [n_api_keys], plain or as "sha256:HEX"; may be NULL
                                              with 0. With a key, here or in a file, every request
                                              but those for health has to show one */
    size_t                     n_api_keys;
    const char                *api_key_file; /**< more of them, one a line, # for remarks; read again
                                                  by gpuserve_http_reload() */
    uint32_t                   key_rate;  /**< requests a minute for each key; default: no limit */
    uint32_t                   key_burst; /**< of them at once; default a sixth of them, plus one */
    const char *const         *cors_origins; /**< [n_cors_origins] "https://example.com", or "*":
                                                  whose pages may ask; default: none. A server
                                                  without keys refuses requests of pages of other
                                                  origins with 403 */
    size_t                     n_cors_origins;
    uint32_t                   open_metrics; /**< 1: /metrics is answered without a key */
    const char                *access_log; /**< a JSON line for each request is added to this file,
                                                opened anew by gpuserve_http_reload(); "-": to
                                                standard output; default: none */
    const char                *unix_path; /**< listen on a unix socket of this path, instead of `host`
                                               and `port`: for this user alone (mode 0600), so
                                               without a key unless one is given. At most 107 bytes.
                                               One that nobody listens on any more is replaced; it
                                               is removed when the server stops listening */
    const char                *tls_certificate_file; /**< speak TLS 1.2 and 1.3, and HTTP only inside
                                               it: a PEM file with the server's certificate, then
                                               those between it and the root. Read again, with the
                                               key, when the files change and by
                                               gpuserve_http_reload(); default: plain HTTP */
    const char                *tls_key_file; /**< its private key, PEM, not encrypted; default: in the
                                                  certificate's file */
    uint64_t    max_unread_bytes; /**< of replies that wait for their readers, all together; default
                                       12582912. Beyond it readers slower than 16 kB a second are
                                       ended, and large replies made at most ten a second */
    const char *tls_client_ca_file; /**< with a certificate: a PEM file of CAs; a client is refused in the
                                         handshake unless it shows a certificate by one of them, also
                                         for health. Read again as the other files. Other addresses
                                         than the loopback's are then allowed without a key; default:
                                         clients are not asked for certificates */
    const char *tls_client_crl_file; /**< with these CAs: a PEM file of the lists of certificates that
                                          they have revoked, one of each CA; a client with such a
                                          one is refused. Read again as the other files; one that
                                          has ended is an error, and when one ends while it is in
                                          use, all clients of its CA are refused; default: none */
    const char *const *allowed_hosts; /**< [n_allowed_hosts] further host names that a server without
                                           keys answers to, without port; "*": all. Requests whose
                                           Host is another are refused with 403, against DNS
                                           rebinding. Default: on a loopback address localhost, the
                                           address and the name of this machine; elsewhere all */
    size_t             n_allowed_hosts;
    uint32_t           shutdown_delay_ms; /**< gpuserve_http_drain() first serves on for this time,
                                               while health says "not ready"; default 0 */
    uint32_t           reserved;
} gpuserve_http_options;

/* clang-format off */
#define GPUSERVE_HTTP_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_http_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Open the models and answer requests, on threads of the server's own.
 *
 * @param server   Receives the server, owned; NULL on failure.
 * @param context  What the models named by `path` are opened in; NULL gives them a private one.
 * @param options  Strings are copied.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID  bad option; an address beyond the loopback with neither a
 *                             key, certificates of clients nor `insecure`; a certificate and a key that do not belong
 *                             together, or are no PEM
 *         GPUSERVE_E_IO       the port or unix socket cannot be listened on, or a file of keys or of
 *                             TLS not be read; the message says which and why
 *         or what gpuserve_model_open() returned for a model
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_http_start(gpuserve_http **server, gpuserve_context *context,
                    const gpuserve_http_options *options, gpuserve_error *error);

/**
 * Whether a server could be started with these options, as far as it can be told without a port and
 * without opening models: keys and certificate are read, origins and limits looked at.
 *
 * @return GPUSERVE_OK, or what gpuserve_http_start() would return
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_http_check(const gpuserve_http_options *options, gpuserve_error *error);

/** Where the server listens, "http://127.0.0.1:8080", "https://..." or "unix:PATH", lent. NULL for NULL. Since: 0.1 */
GPUSERVE_API const char *gpuserve_http_address(const gpuserve_http *server);

/**
 * Whether the server answers: a request of our own for /livez, over the way that its clients take.
 * What a watchdog asks. With `tls_client_ca_file` this one connection needs no certificate.
 *
 * @param timeout_ms  How long each of its steps may take, at least 1.
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID; GPUSERVE_E_IO when there was no answer, also because the
 *         server drains and listens no more
 *
 * Thread-safety: safe; one asks at a time. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_http_alive(gpuserve_http  *server,
                                                                   uint32_t        timeout_ms,
                                                                   gpuserve_error *error);

/**
 * Take up what has changed on disk while requests go on: the key file, the certificate, and the
 * models that the server opened. Each is read, opened and tried first, then takes the old one's place; a request
 * is answered by the old or by the new one, never by both. A model needs memory for both until the
 * last request of the old one is answered.
 *
 * @return GPUSERVE_OK; else the first failure: that part stays as it was, the others are new (the
 *         log tells of each)
 *
 * Thread-safety: safe; a second reload waits for the first. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_http_reload(gpuserve_http  *server,
                                                                   gpuserve_error *error);

/**
 * Say "not ready" at once, serve on for `shutdown_delay_ms`, then stop taking connections, and wait
 * until every request that was accepted has been answered.
 *
 * @param timeout_ms  Longest wait after the delay.
 * @return GPUSERVE_OK; GPUSERVE_E_TIMEOUT when some are still unanswered (gpuserve_http_stop() will
 *         cancel them); GPUSERVE_E_INVALID for NULL
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_http_drain(gpuserve_http *server,
                                                                  uint32_t       timeout_ms);

/**
 * End the server: what is still being computed is cancelled, connections are closed, models that
 * the server opened are closed. Accepts NULL and a pointer to NULL; leaves NULL.
 * Thread-safety: the last call on this server. Since: 0.1
 */
GPUSERVE_API void gpuserve_http_stop(gpuserve_http **server);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_HTTP_H */
