/*
 * route.c - matches a path against the route tables by linear search, in the order of `tables`.
 *
 * {model} matches greedily with backtracking: the longest text that lets the rest of the pattern
 * match. The tables are constant, so any thread may use them.
 */
#include "lib/http/protocol/route.h"

#include "lib/http/net/framing.h"
#include "lib/http/net/server_state.h"

#include <stdio.h>
#include <string.h>

struct route_table {
    const struct gsv_route *rows;
    const char *protocol; /* of the rows without one of their own */
};

static const struct route_table tables[] = {
    { gsv_health_routes, "gpuserve" },
    { gsv_tfserving_routes, "TensorFlow Serving, KServe v1" },
    { gsv_openai_routes, "OpenAI" },
    { gsv_tei_routes, "text-embeddings-inference" },
    { gsv_text_routes, "text-embeddings-inference" },
    { gsv_rerank_routes, "text-embeddings-inference" },
    { gsv_cohere_routes, "Cohere" },
    { gsv_ollama_routes, "Ollama" },
    { gsv_kserve_routes, "KServe v2, Triton" },
    { gsv_hf_routes, "Hugging Face" },
    { gsv_metrics_routes, "Prometheus" },
    { gsv_page_routes, "gpuserve" },
    { gsv_vllm_routes, "vLLM" },
    { gsv_files_routes, "OpenAI" },
    { gsv_batch_jobs_routes, "OpenAI" },
    { gsv_vertex_routes, "Vertex AI, text-embeddings-inference" },
};
enum { N_TABLES = sizeof(tables) / sizeof(tables[0]) };

enum { ALLOWED_BYTES = 64 };

struct route_span {
    const char *begin, *end; /* NULL: not in the pattern */
};

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Recursive matcher from here on; sets the spans of {model} and of {version} or {id}. */
static bool matches(const char *pattern, const char *path, struct route_span *model,
                    struct route_span *version)
{
    for (; *pattern && *pattern != '{'; pattern++, path++) {
        if (*pattern != *path)
            return false;
    }
    if (!*pattern)
        return !*path;
    if (starts_with(pattern, "{version}") || starts_with(pattern, "{id}")) {
        version->begin = path;
        version->end = path + strcspn(path, "/:");
        return version->end > path &&
               matches(strchr(pattern, '}') + 1, version->end, model, version);
    }
    model->begin = path;
    for (model->end = path + strlen(path); model->end > path; model->end--) {
        const struct route_span kept = *model;

        if (matches(pattern + 7, model->end, model, version)) {
            *model = kept;
            return true;
        }
    }
    return false;
}

static const char *copy_span(struct gsv_exchange *exchange, struct route_span span)
{
    return span.begin
               ? gsv_exchange_copy_text(exchange, span.begin, (size_t)(span.end - span.begin))
               : NULL;
}

static enum gsv_dialect dialect_of(const char *path)
{
    if (starts_with(path, "/v1"))
        return GSV_OPENAI;
    return starts_with(path, "/v2") || starts_with(path, "/api/") ? GSV_KSERVE : GSV_TEI;
}

static bool take(struct gsv_exchange *exchange, const struct gsv_route *route,
                 struct route_span model, struct route_span version)
{
    exchange->route = route;
    exchange->dialect = route->dialect;
    exchange->model_name = copy_span(exchange, model);
    exchange->version = copy_span(exchange, version);
    return exchange->status == 0; /* otherwise out of memory */
}

static bool refuse(struct gsv_exchange *exchange, const char *allowed)
{
    if (!allowed[0])
        return gsv_refuse(exchange, GSV_P_NO_ROUTE, NULL, "unknown route %s %s", exchange->method,
                          exchange->path);
    gsv_add_header(exchange, "Allow", gsv_exchange_copy_text(exchange, allowed, strlen(allowed)));
    return gsv_refuse(exchange, GSV_P_METHOD, NULL, "%s %s: method not allowed, only %s",
                      exchange->method, exchange->path, allowed);
}

static bool method_matches(const char *given, const struct gsv_route *route)
{
    return strcmp(given, route->method) == 0 ||
           (strcmp(given, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

/* The first row whose pattern and method match. *model and *version are its spans. NULL: none;
 * `allowed` then names the methods of the first pattern that matches, "" if none does. */
static const struct gsv_route *find(const char *path, const char *method, struct route_span *model,
                                    struct route_span *version, char allowed[ALLOWED_BYTES])
{
    const char *pattern = NULL; /* the first one that matched */

    allowed[0] = 0;
    for (size_t t = 0; t < N_TABLES; t++) {
        for (const struct gsv_route *route = tables[t].rows; route->method; route++) {
            *model = *version = (struct route_span){ 0 };
            if ((pattern && strcmp(pattern, route->pattern) != 0) ||
                !matches(route->pattern, path, model, version))
                continue;
            pattern = route->pattern;
            if (method_matches(method, route))
                return route;
            if (!strstr(allowed, route->method) &&
                strlen(allowed) + strlen(route->method) + 3 < ALLOWED_BYTES) {
                strcat(allowed, allowed[0] ? ", " : "");
                strcat(allowed, route->method);
            }
        }
    }
    return NULL;
}

/* The path that another one of the options stands for; NULL: it is none of them. */
static const char *canonical(const struct gpuserve_http *server, const char *path)
{
    if (server->predict_route && strcmp(path, server->predict_route) == 0)
        return "/vertex";
    return server->health_route && strcmp(path, server->health_route) == 0 ? "/health" : NULL;
}

bool gsv_route_is_path(const char *path)
{
    const size_t size = strlen(path);

    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)path[i] <= ' ' || (unsigned char)path[i] >= 0x7F)
            return false;
    }
    return path[0] == '/' && size < GSV_TARGET_BYTES && !strpbrk(path, "?#%");
}

bool gsv_route_find(struct gsv_exchange *exchange)
{
    const char *other = canonical(exchange->server, exchange->path);
    const struct gsv_route *route;
    struct route_span model, version;
    char allowed[ALLOWED_BYTES];

    exchange->dialect = dialect_of(exchange->path);
    route = find(exchange->path, exchange->method, &model, &version, allowed);
    if (!route && !allowed[0] && other)
        route = find(other, exchange->method, &model, &version, allowed);
    return route ? take(exchange, route, model, version) : refuse(exchange, allowed);
}

enum gsv_dialect gsv_route_dialect(const char *target)
{
    char path[GSV_TARGET_BYTES];

    snprintf(path, sizeof(path), "%.*s", (int)strcspn(target, "?"), target);
    for (size_t t = 0; t < N_TABLES; t++) {
        for (const struct gsv_route *route = tables[t].rows; route->method; route++) {
            struct route_span model = { 0 }, version = { 0 };

            if (matches(route->pattern, path, &model, &version))
                return route->dialect;
        }
    }
    return dialect_of(path);
}

GPUSERVE_API size_t gpuserve_http_endpoints(gpuserve_http_endpoint *endpoints, size_t capacity)
{
    size_t n = 0;

    for (size_t t = 0; t < N_TABLES; t++) {
        for (const struct gsv_route *route = tables[t].rows; route->method; route++, n++) {
            if (endpoints && n < capacity)
                endpoints[n] = (gpuserve_http_endpoint){
                    .method = route->method,
                    .path = route->pattern,
                    .protocol = route->protocol ? route->protocol : tables[t].protocol,
                    .is_open = (route->flags & GSV_OPEN) != 0,
                };
        }
    }
    return n;
}
