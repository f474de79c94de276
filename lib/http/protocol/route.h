/*
 * route.h - the route tables: which handler answers which path and method.
 *
 * A pattern is literal text with at most one {model} and one {version} or {id}. {model} matches as
 * much of the path as possible, slashes included, because clients do not escape them. {version} and
 * {id} match up to the next '/' or ':'. The first pattern that matches decides; its rows list the
 * allowed methods.
 *
 * A row exists in a server if one of the dialects that its protocols name is selected. Protocols
 * that are no dialect ("gpuserve", "Prometheus") are in every server.
 *
 * Paths that the server's options name for Vertex AI stand for /vertex and /health, unless a
 * pattern matches them.
 */
#ifndef GSV_HTTP_ROUTE_H
#define GSV_HTTP_ROUTE_H

#include "lib/http/protocol/exchange.h"

enum {
    GSV_WITHOUT_BODY = 0, /* a body is read and ignored */
    GSV_JSON_BODY = 1,    /* parsed before the handler: exchange->json is an object */
    GSV_RAW_BODY = 2,     /* the handler parses the body */
    GSV_OPEN = 4,         /* answered without a key and while draining */
    GSV_LONG_REPLY = 8, /* a reply much larger than the request: on a worker thread, unless tiny */
    GSV_BLOCKING = 16,  /* the handler reads or writes files: always on a worker thread */
    GSV_ALWAYS = 32     /* in every server, whatever its dialects; so is GSV_OPEN */
};

struct gsv_route {
    const char *method;
    const char *pattern;
    enum gsv_dialect dialect;
    unsigned flags;
    gsv_handler handler;
    const char *protocol; /* whose clients send it, "A, B"; NULL: that of the table in route.c */
};

/* True if `path` can be the path of a request: "/predict", "/v1/endpoints/1:predict". */
bool gsv_route_is_path(const char *path);

/* Reads names such as "openai,tei" into a set of dialects; NULL: all. GPUSERVE_E_INVALID: unknown
 * name, or none. */
gpuserve_status gsv_route_dialects(uint32_t *dialects, const char *names, gpuserve_error *error);

/* True if `names`, as above, has this one. */
bool gsv_route_has_dialect(const char *names, const char *name);

/* True if a server with these dialects has this method and pattern. */
bool gsv_route_is_served(uint32_t dialects, const char *method, const char *pattern);

/* Sets route, model_name, version and dialect of the exchange. False after gsv_refuse: unknown
 * path, path of a dialect that is left out, or wrong method. */
bool gsv_route_find(struct gsv_exchange *exchange);

/* The dialect of a possibly truncated target, for errors without an exchange. */
enum gsv_dialect gsv_route_dialect(const char *target);

/* The rows of each dialect, ended by a NULL method. */
extern const struct gsv_route gsv_health_routes[];
extern const struct gsv_route gsv_page_routes[];
extern const struct gsv_route gsv_openai_routes[];
extern const struct gsv_route gsv_tei_routes[];
extern const struct gsv_route gsv_text_routes[];
extern const struct gsv_route gsv_rerank_routes[];
extern const struct gsv_route gsv_cohere_routes[];
extern const struct gsv_route gsv_ollama_routes[];
extern const struct gsv_route gsv_hf_routes[];
extern const struct gsv_route gsv_kserve_routes[];
extern const struct gsv_route gsv_metrics_routes[];
extern const struct gsv_route gsv_tfserving_routes[];
extern const struct gsv_route gsv_vertex_routes[];
extern const struct gsv_route gsv_vllm_routes[];
extern const struct gsv_route gsv_files_routes[];
extern const struct gsv_route gsv_batch_jobs_routes[];

#endif
