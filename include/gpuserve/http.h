/*
 * gpuserve/http.h - an HTTP server for models, in process.
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
 * One port serves the dialects of OpenAI, text-embeddings-inference, KServe v2, Cohere, Jina,
 * Ollama, Hugging Face and TensorFlow Serving; docs/http.md lists them. The library is
 * libgpuserve-http.so; libgpuserve.so itself opens no socket.
 *
 * Ownership and errors follow <gpuserve/gpuserve.h>.
 */
#ifndef GPUSERVE_HTTP_H
#define GPUSERVE_HTTP_H

#include <gpuserve/gpuserve.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpuserve_http gpuserve_http;

/** One model and its names for clients. Set exactly one of `path` and `model`. */
typedef struct gpuserve_http_model {
    uint32_t                      struct_size;
    uint32_t                      reserved;
    const char                   *name;    /**< default: the name of `path`; "default" for
                                                `model` */
    const char                   *path;    /**< as for gpuserve_model_open(); the server opens it,
                                                and may unload and reload it at a client's
                                                request */
    const gpuserve_model_options *options; /**< with `path`; may be NULL. Strings are copied */
    gpuserve_model               *model;   /**< borrowed until gpuserve_http_stop() */
    const char *const            *aliases; /**< [n_aliases] additional names; may be NULL with 0 */
    size_t                        n_aliases;
    const float                  *ranges;  /**< [2, ranges_dim] of int8 and uint8 vectors, as for
                                                gpuserve_quantize(); copied. Default: those of the
                                                built-in texts, computed when needed. A request of
                                                other dimensions is then refused */
    size_t                        ranges_dim; /**< at most the dimensions of the model */
} gpuserve_http_model;

/* clang-format off */
#define GPUSERVE_HTTP_MODEL_INIT { (uint32_t)sizeof(gpuserve_http_model), 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** Which replies are compressed, if the client accepts gzip, or names zstd and libzstd is installed.
 *  Replies below 1024 bytes and those that do not shrink by a quarter (base64) never are. */
typedef enum gpuserve_compression {
    GPUSERVE_COMPRESSION_REMOTE = 0, /**< those of clients of other machines */
    GPUSERVE_COMPRESSION_ALWAYS = 1,
    GPUSERVE_COMPRESSION_NEVER = 2
} gpuserve_compression;

/** Options of gpuserve_http_start(). Zero means the default in every field but the models. */
typedef struct gpuserve_http_options {
    uint32_t                   struct_size;
    uint32_t                   port;   /**< default 0: any free port; see gpuserve_http_address() */
    const char                *host;   /**< numeric address to listen on; default "127.0.0.1" */
    const gpuserve_http_model *models; /**< [n_models]; the first serves requests that name no
                                            model */
    size_t                     n_models;
    uint32_t                   insecure;  /**< 1: allow an address beyond the loopback without a
                                               key: every host that reaches it may send requests */
    uint32_t                   n_threads; /**< worker threads for long requests; default 2, at most
                                               256 */
    uint32_t                   max_connections;       /**< concurrent; default 4096, at most
                                                           1048576 */
    uint32_t                   max_address_connections; /**< per client address; default half of
                                                             max_connections, at most 1048576 */
    uint64_t                   max_body_bytes; /**< per request, after decompression; default
                                                    33554432, at most 1073741824 */
    uint32_t                   max_client_batch; /**< max texts per request; default 2048, at most
                                                      1048576 */
    uint32_t                   auto_truncate; /**< 1: cut texts over the token limit if the request
                                                   does not specify it; default: reject them */
    uint32_t                   header_timeout_ms; /**< from the first byte of a request to the end
                                                       of its header; default 10000 */
    uint32_t                   body_timeout_ms;   /**< from the end of the header to the end of the
                                                       body; default 60000 */
    uint32_t                   idle_timeout_ms;   /**< between two requests; default 75000 */
    uint32_t                   min_body_rate; /**< min bytes per second of a body that arrives or of
                                                   a reply that is read, after 5 seconds; default
                                                   1024 */
    gpuserve_log_fn            log;           /**< default: no logging */
    void                      *log_user;
    int32_t                    log_level; /**< default GPUSERVE_LOG_WARNING */
    uint32_t                   model_control; /**< 1: clients may load and unload the models that
                                                   the server opened */
    const char *const         *api_keys; /**< [n_api_keys], plain or as "sha256:HEX"; may be NULL
                                              with 0. With any key, here or in a file, every request
                                              except health checks must present one */
    size_t                     n_api_keys;
    const char                *api_key_file; /**< file with more keys, one per line, # for comments;
                                                  read again by gpuserve_http_reload() */
    uint32_t                   key_rate;  /**< rate limit: requests per minute and key; default: no
                                               limit */
    uint32_t                   key_burst; /**< burst size of the rate limit; default key_rate / 6 +
                                               1 */
    const char *const         *cors_origins; /**< [n_cors_origins] "https://example.com", or "*":
                                                  origins whose pages may send requests; default:
                                                  none. A server without keys rejects requests from
                                                  other origins with 403 */
    size_t                     n_cors_origins;
    uint32_t                   open_metrics; /**< 1: /metrics needs no key */
    const char                *access_log; /**< file to which one JSON line per request is appended;
                                                reopened by gpuserve_http_reload(); "-": standard
                                                output; default: none */
    const char                *unix_path; /**< listen on a unix socket at this path instead of
                                               `host` and `port`. Only this user may connect (mode
                                               0600), so no key is needed unless one is set. At most
                                               107 bytes. A stale socket is replaced; the socket is
                                               removed when the server stops listening */
    const char                *tls_certificate_file; /**< serve HTTPS only (TLS 1.2 and 1.3): a PEM
                                                          file with the server's certificate, then
                                                          the intermediate certificates. Reloaded
                                                          together with the key when the files
                                                          change and by gpuserve_http_reload();
                                                          default: plain HTTP */
    const char                *tls_key_file; /**< its private key, PEM, not encrypted; default: in
                                                  the certificate's file */
    uint64_t    max_unread_bytes; /**< limit on reply bytes that clients have not read yet, summed
                                       over connections; default 12582912. Above it, backpressure:
                                       clients that read slower than 16 kB per second are
                                       disconnected, and large replies are limited to ten per
                                       second */
    const char *tls_client_ca_file; /**< mutual TLS; needs a certificate: a PEM file of CAs. A
                                         client without a certificate issued by one of them is
                                         rejected in the handshake, for health checks too. Reloaded
                                         as the other files. An address beyond the loopback then
                                         needs no key; default: no client certificates */
    const char *tls_client_crl_file; /**< needs tls_client_ca_file: a PEM file of certificate
                                          revocation lists, one per CA; clients with a revoked
                                          certificate are rejected. Reloaded as the other files. An
                                          expired list is an error; if a list expires while in use,
                                          all clients of its CA are rejected; default: none */
    const char *const *allowed_hosts; /**< [n_allowed_hosts] additional host names, without port,
                                           that a server without keys accepts; "*": all. Requests
                                           with another Host are rejected with 403, against DNS
                                           rebinding. Default: on a loopback address localhost, the
                                           address and the name of this machine; elsewhere all */
    size_t             n_allowed_hosts;
    uint32_t           shutdown_delay_ms; /**< time for which gpuserve_http_drain() keeps serving
                                               while health reports "not ready"; default 0 */
    uint32_t           compression; /**< gpuserve_compression */
    const char        *batch_dir; /**< directory of the files and batches of OpenAI's Batch API, made
                                       if missing; one server at a time uses it. Default: these
                                       paths are refused */
    uint64_t           batch_disk_bytes; /**< limit of its files together; default 10 GiB */
    const char        *predict_route; /**< another path of /vertex, such as AIP_PREDICT_ROUTE of
                                           Google's Vertex AI; a path that the server has keeps its
                                           meaning; default: none */
    const char        *health_route; /**< another path of /health; default: none */
    uint32_t           json_log; /**< 1: lines of the access log have `level` and `message` too, as
                                      lines of a program's JSON log */
    uint32_t           reserved;
    const char        *dialects; /**< names of the dialects whose endpoints exist, separated by
                                      commas: "openai,tei"; docs/http.md lists them. Health, metrics,
                                      lists of models, and the pages are in every server. Default:
                                      all dialects */
    const char        *otlp_traces_endpoint; /**< URL to which traces of requests are sent by
                                                  OTLP/JSON, such as
                                                  "http://localhost:4318/v1/traces", or https://. An
                                                  export never delays a request. Default: no traces */
    const char        *otlp_service_name; /**< resource attribute service.name; default "gpuserve" */
    const char        *traces_sampler; /**< "parentbased_always_on" (default), "always_on",
                                            "always_off", "traceidratio" or another of
                                            OTEL_TRACES_SAMPLER that docs/http.md lists */
    const char        *traces_sampler_argument; /**< ratio of a sampler by ratio, "0.1"; default "1" */
    uint32_t           traces_delay_ms; /**< longest wait of a trace for others in one export; default
                                             5000, at most 3600000 */
    uint32_t           traces_queue; /**< traced requests that wait for an export; more are dropped and
                                          counted; default 2048, at most 1048576 */
    const char        *otlp_headers; /**< header fields of each export, such as an API key:
                                          "NAME=VALUE,NAME=VALUE", with values in percent-encoding, as
                                          OTEL_EXPORTER_OTLP_HEADERS; at most 8192 bytes. Default: none */
    const char        *otlp_certificate_file; /**< of an https:// endpoint: a PEM file of the CA
                                                   certificates that sign the collector's; read at the
                                                   start. Default: OpenSSL's default paths */
} gpuserve_http_options;

/* clang-format off */
#define GPUSERVE_HTTP_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_http_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Open the models and serve requests, on the server's own threads.
 *
 * @param server   Receives the server, owned; NULL on failure.
 * @param context  The context of models opened by `path`; NULL gives them a private one.
 * @param options  Strings are copied.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID  an invalid option; an address beyond the loopback without a key,
 *                             client certificates or `insecure`; a certificate and key that do not
 *                             match or are not PEM
 *         GPUSERVE_E_IO       listening on the port or unix socket failed, or reading a file of
 *                             keys or TLS; the message says which and why
 *         or the status of gpuserve_model_open() for a model
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_http_start(gpuserve_http **server, gpuserve_context *context,
                    const gpuserve_http_options *options, gpuserve_error *error);

/**
 * Validate options without opening a port or models: reads keys and certificate, checks origins and
 * limits.
 *
 * @return GPUSERVE_OK, or the status that gpuserve_http_start() would return
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_http_check(const gpuserve_http_options *options, gpuserve_error *error);

/** The server's address, "http://127.0.0.1:8080", "https://..." or "unix:PATH". Borrowed from the
 *  server; NULL for NULL. Since: 0.2 */
GPUSERVE_API const char *gpuserve_http_address(const gpuserve_http *server);

/**
 * Liveness check for a watchdog: sends a request for /livez through the server's own socket. With
 * `tls_client_ca_file` this one connection needs no certificate.
 *
 * @param timeout_ms  Timeout of each step of the check, at least 1.
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID; GPUSERVE_E_IO without a reply, also while the server
 *         drains and has stopped listening
 *
 * Thread-safety: safe; concurrent checks are serialised. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_http_alive(gpuserve_http  *server,
                                                                   uint32_t        timeout_ms,
                                                                   gpuserve_error *error);

/**
 * Reload changed files while requests continue: the key file, the certificate, the access log, and
 * the models that the server opened. Each part is read, opened and validated, then replaces the old
 * one atomically. A request uses either the old or the new part. During the reload of a model,
 * both versions need memory until the last request of the old one completes.
 *
 * @return GPUSERVE_OK; else the first failure: that part is unchanged, the others are new (the
 *         log reports each)
 *
 * Thread-safety: safe; concurrent reloads are serialised. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_http_reload(gpuserve_http  *server,
                                                                   gpuserve_error *error);

/**
 * Graceful shutdown: report "not ready" at once, keep serving for `shutdown_delay_ms`, then stop
 * accepting connections and wait until every accepted request has its reply.
 *
 * @param timeout_ms  Max wait after the delay.
 * @return GPUSERVE_OK; GPUSERVE_E_TIMEOUT if requests are still in flight (gpuserve_http_stop()
 *         cancels them); GPUSERVE_E_INVALID for NULL
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_http_drain(gpuserve_http *server,
                                                                  uint32_t       timeout_ms);

/**
 * Stop the server: cancels requests in flight, closes connections, and closes the models that the
 * server opened. Accepts NULL and a pointer to NULL; leaves NULL.
 * Thread-safety: the last call on this server. Since: 0.2
 */
GPUSERVE_API void gpuserve_http_stop(gpuserve_http **server);

/** One endpoint of a server. Strings are static. An array element of a fixed layout. */
typedef struct gpuserve_http_endpoint {
    const char *method;   /**< "POST" */
    const char *path;     /**< "/v1/models/{model}"; {model} matches slashes too */
    const char *protocol; /**< whose clients send it: "OpenAI", or several, "KServe v2, Triton" */
    uint32_t    is_open;  /**< 1: answered without a key */
    uint32_t    reserved; /**< zero */
} gpuserve_http_endpoint;

/**
 * List the endpoints, from the table that the server finds them in.
 *
 * @param dialects   As `dialects` of the options; NULL: all.
 * @param endpoints  Receives at most `capacity` endpoints; may be NULL with capacity 0, to count.
 * @return the number of endpoints; 0 for `dialects` that gpuserve_http_check() refuses
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API size_t gpuserve_http_endpoints(const char             *dialects,
                                            gpuserve_http_endpoint *endpoints, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_HTTP_H */
