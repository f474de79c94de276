/*
 * route.c - matches a path against the route tables by linear search, in the order of `tables`.
 *
 * {model} matches greedily with backtracking: the longest text that lets the rest of the pattern
 * match. The tables are constant, so any thread may use them.
 */
#include "lib/http/protocol/route.h"

#include "lib/base/error.h"
#include "lib/http/net/framing.h"
#include "lib/http/net/server_state.h"

#include <stdio.h>
#include <string.h>

struct route_table {
    const struct gsv_route *rows;
    const char *protocol; /* of the rows without one of their own */
};

/* GSV_HAS_*: dialects of this build, the option `dialects` of Meson. */
static const struct route_table tables[] = {
    { gsv_health_routes, "gpuserve" },
#if GSV_HAS_TFSERVING
    { gsv_tfserving_routes, "TensorFlow Serving, KServe v1" },
#endif
    { gsv_openai_routes, "OpenAI" },
    { gsv_tei_routes, "text-embeddings-inference" },
    { gsv_text_routes, "text-embeddings-inference" },
    { gsv_rerank_routes, "text-embeddings-inference" },
#if GSV_HAS_COHERE
    { gsv_cohere_routes, "Cohere" },
#endif
#if GSV_HAS_OLLAMA
    { gsv_ollama_routes, "Ollama" },
#endif
#if GSV_HAS_KSERVE
    { gsv_kserve_routes, "KServe v2, Triton" },
#endif
#if GSV_HAS_HUGGINGFACE
    { gsv_hf_routes, "Hugging Face" },
#endif
    { gsv_metrics_routes, "Prometheus" },
    { gsv_page_routes, "gpuserve" },
#if GSV_HAS_VLLM
    { gsv_vllm_routes, "vLLM" },
#endif
    { gsv_files_routes, "OpenAI" },
    { gsv_batch_jobs_routes, "OpenAI" },
#if GSV_HAS_VERTEX
    { gsv_vertex_routes, "Vertex AI, text-embeddings-inference" },
#endif
};
enum { N_TABLES = sizeof(tables) / sizeof(tables[0]) };

/* The names of protocols in the option `dialects`. Bit N of a set of dialects is row N; adjacent
 * rows may have the same name. */
static const struct {
    const char *name, *protocol;
    bool is_built;
} dialects[] = {
    { "openai", "OpenAI", true },
    { "azure", "Azure OpenAI", true },
    { "tei", "text-embeddings-inference", true },
    { "huggingface", "Hugging Face", GSV_HAS_HUGGINGFACE },
    { "sagemaker", "SageMaker", true },
    { "vertex", "Vertex AI", GSV_HAS_VERTEX },
    { "kserve", "KServe v2", GSV_HAS_KSERVE },
    { "kserve", "KServe v1", GSV_HAS_KSERVE &&GSV_HAS_TFSERVING },
    { "triton", "Triton", GSV_HAS_KSERVE },
    { "tfserving", "TensorFlow Serving", GSV_HAS_TFSERVING },
    { "cohere", "Cohere", GSV_HAS_COHERE },
    { "jina", "Jina", true },
    { "ollama", "Ollama", GSV_HAS_OLLAMA },
    { "vllm", "vLLM", GSV_HAS_VLLM },
    { "llama.cpp", "llama.cpp", true },
};
enum { N_DIALECTS = sizeof(dialects) / sizeof(dialects[0]) };

enum { ALLOWED_BYTES = 64 };

struct route_span {
    const char *begin, *end; /* NULL: not in the pattern */
};

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Splits `list` at commas: the first item, and `*rest` behind it. NULL: the end. */
static const char *next_item(const char *list, size_t *size, const char **rest)
{
    list += strspn(list, ", ");
    *size = strcspn(list, ",");
    *rest = list + *size;
    while (*size > 0 && list[*size - 1] == ' ')
        --*size;
    return *size > 0 ? list : NULL;
}

static bool has_item(const char *list, const char *wanted)
{
    const char *item;
    size_t size;

    while ((item = next_item(list, &size, &list))) {
        if (strlen(wanted) == size && memcmp(item, wanted, size) == 0)
            return true;
    }
    return false;
}

static const char *protocol_of(const struct gsv_route *route, const struct route_table *table)
{
    return route->protocol ? route->protocol : table->protocol;
}

/* True if a server with these dialects has the row. */
static bool is_served(uint32_t selected, const struct gsv_route *route, const char *protocols)
{
    bool is_of_dialect = false;

    if (route->flags & (GSV_OPEN | GSV_ALWAYS))
        return true;
    for (size_t i = 0; i < N_DIALECTS; i++) {
        if (!has_item(protocols, dialects[i].protocol))
            continue;
        if (selected >> i & 1)
            return true;
        is_of_dialect = true;
    }
    return !is_of_dialect;
}

bool gsv_route_is_served(uint32_t selected, const char *method, const char *pattern)
{
    for (size_t t = 0; t < N_TABLES; t++) {
        for (const struct gsv_route *route = tables[t].rows; route->method; route++) {
            if (strcmp(route->method, method) == 0 && strcmp(route->pattern, pattern) == 0 &&
                is_served(selected, route, protocol_of(route, &tables[t])))
                return true;
        }
    }
    return false;
}

static uint32_t built_dialects(void)
{
    uint32_t built = UINT32_MAX;

    for (size_t i = 0; i < N_DIALECTS; i++) {
        if (!dialects[i].is_built)
            built &= ~(UINT32_C(1) << i);
    }
    return built;
}

static gpuserve_status unknown_dialect(const char *name, size_t size, gpuserve_error *error)
{
    char known[256] = "";

    for (size_t i = 0; i < N_DIALECTS; i++) {
        if (!dialects[i].is_built || (i > 0 && strcmp(dialects[i].name, dialects[i - 1].name) == 0))
            continue;
        strncat(known, known[0] ? ", " : "", sizeof(known) - strlen(known) - 1);
        strncat(known, dialects[i].name, sizeof(known) - strlen(known) - 1);
    }
    return gsv_fail(error, GPUSERVE_E_INVALID, "`dialects`: \"%.*s\" is not one of %s",
                    (int)(size < 64 ? size : 64), name, known);
}

bool gsv_route_has_dialect(const char *names, const char *name)
{
    return !names || has_item(names, name);
}

gpuserve_status gsv_route_dialects(uint32_t *selected, const char *names, gpuserve_error *error)
{
    const char *item;
    size_t size;

    *selected = names ? 0 : built_dialects();
    while (names && (item = next_item(names, &size, &names))) {
        bool is_known = false;

        for (size_t i = 0; i < N_DIALECTS; i++) {
            if (!dialects[i].is_built || strlen(dialects[i].name) != size ||
                memcmp(dialects[i].name, item, size) != 0)
                continue;
            *selected |= UINT32_C(1) << i;
            is_known = true;
        }
        if (!is_known)
            return unknown_dialect(item, size, error);
    }
    return *selected ? GPUSERVE_OK : unknown_dialect("", 0, error);
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

/* One search of the tables. */
struct route_search {
    uint32_t dialects;
    bool left_out; /* only in the rows that `dialects` leaves out; else only in the others */
    const char *path, *method;
    /* Results of find(). */
    struct route_span model, version;
    const char *protocols;       /* of the first pattern that matches; NULL: none does */
    char allowed[ALLOWED_BYTES]; /* the methods of that pattern, if none of them is `method` */
};

static bool take(struct gsv_exchange *exchange, const struct gsv_route *route,
                 const struct route_search *search)
{
    exchange->route = route;
    exchange->dialect = route->dialect;
    exchange->model_name = copy_span(exchange, search->model);
    exchange->version = copy_span(exchange, search->version);
    return exchange->status == 0; /* otherwise out of memory */
}

static bool method_matches(const char *given, const struct gsv_route *route)
{
    return strcmp(given, route->method) == 0 ||
           (strcmp(given, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

static void allow(struct route_search *search, const char *method)
{
    char *allowed = search->allowed;

    if (strstr(allowed, method) || strlen(allowed) + strlen(method) + 3 >= ALLOWED_BYTES)
        return;
    strcat(allowed, allowed[0] ? ", " : "");
    strcat(allowed, method);
}

/* The first row whose pattern and method match; NULL: none. */
static const struct gsv_route *find(struct route_search *search)
{
    const char *pattern = NULL; /* the first one that matched */

    search->protocols = NULL;
    search->allowed[0] = 0;
    for (size_t t = 0; t < N_TABLES; t++) {
        for (const struct gsv_route *route = tables[t].rows; route->method; route++) {
            const char *protocols = protocol_of(route, &tables[t]);

            search->model = search->version = (struct route_span){ 0 };
            if ((pattern && strcmp(pattern, route->pattern) != 0) ||
                !matches(route->pattern, search->path, &search->model, &search->version) ||
                is_served(search->dialects, route, protocols) == search->left_out)
                continue;
            pattern = route->pattern;
            if (!search->protocols)
                search->protocols = protocols;
            if (method_matches(search->method, route))
                return route;
            allow(search, route->method);
        }
    }
    return NULL;
}

static bool refuse(struct gsv_exchange *exchange, const struct route_search *failed)
{
    struct route_search other = *failed;
    const struct gsv_route *route;

    other.left_out = true;
    route = find(&other);
    if (route)
        exchange->dialect = route->dialect;
    if (route || (!failed->protocols && other.protocols))
        return gsv_refuse(exchange, GSV_P_NO_ROUTE, NULL,
                          "%s %s belongs to %s, which %s of this server leaves out",
                          exchange->method, exchange->path, other.protocols,
                          failed->dialects == built_dialects() ? "the build" : "--dialects");
    if (!failed->protocols)
        return gsv_refuse(exchange, GSV_P_NO_ROUTE, NULL, "unknown route %s %s", exchange->method,
                          exchange->path);
    gsv_add_header(exchange, "Allow",
                   gsv_exchange_copy_text(exchange, failed->allowed, strlen(failed->allowed)));
    return gsv_refuse(exchange, GSV_P_METHOD, NULL, "%s %s: method not allowed, only %s",
                      exchange->method, exchange->path, failed->allowed);
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
    struct route_search search = { .dialects = exchange->server->dialects,
                                   .path = exchange->path,
                                   .method = exchange->method };
    const struct gsv_route *route = find(&search);

    exchange->dialect = dialect_of(exchange->path);
    if (!route && !search.protocols && other) {
        search.path = other;
        route = find(&search);
    }
    return route ? take(exchange, route, &search) : refuse(exchange, &search);
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

GPUSERVE_API size_t gpuserve_http_endpoints(const char *names, gpuserve_http_endpoint *endpoints,
                                            size_t capacity)
{
    uint32_t selected;
    size_t n = 0;

    if (gsv_route_dialects(&selected, names, NULL) != GPUSERVE_OK)
        return 0;
    for (size_t t = 0; t < N_TABLES; t++) {
        for (const struct gsv_route *route = tables[t].rows; route->method; route++) {
            const char *protocols = protocol_of(route, &tables[t]);

            if (!is_served(selected, route, protocols))
                continue;
            if (endpoints && n < capacity)
                endpoints[n] = (gpuserve_http_endpoint){
                    .method = route->method,
                    .path = route->pattern,
                    .protocol = protocols,
                    .is_open = (route->flags & GSV_OPEN) != 0,
                };
            n++;
        }
    }
    return n;
}
