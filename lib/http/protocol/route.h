/*
 * route.h - which handler answers which path.
 *
 * A pattern holds literal text and at most one {model}, which takes as much of the path as it can,
 * slashes included (clients do not escape them), and {version}, which takes one part. The first
 * pattern in the tables that matches decides: its rows say which methods there are.
 */
#ifndef GSV_HTTP_ROUTE_H
#define GSV_HTTP_ROUTE_H

#include "lib/http/protocol/exchange.h"

enum {
    GSV_WITHOUT_BODY = 0, /* a body is read and ignored */
    GSV_JSON_BODY = 1,    /* parsed before the handler: exchange->json is an object */
    GSV_RAW_BODY = 2,     /* the handler reads it */
    GSV_OPEN = 4,         /* answered without a key, and while draining */
    GSV_LONG_REPLY = 8    /* many times what was asked: not on the guard's thread, unless tiny */
};

struct gsv_route {
    const char *method;
    const char *pattern;
    enum gsv_dialect dialect;
    unsigned flags;
    gsv_handler handler;
};

/* Sets route, model_name, version and dialect of the exchange. False after gsv_refuse: no such
 * path, or not with this method. */
bool gsv_route_find(struct gsv_exchange *exchange);

/* Whose words a target is answered in, as far as its beginning says: where there is no exchange. */
enum gsv_dialect gsv_route_dialect(const char *target);

/* Each dialect's rows, ended by a NULL method. */
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

#endif
