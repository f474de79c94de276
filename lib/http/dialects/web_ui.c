/*
 * web_ui.c - serves the web UI at / and the API documentation at /docs.
 *
 * The build embeds the files of web_ui/ in the library: no disk access, no other hosts. The pages
 * are static and hold no data, so they need no API key; the API that they call does. A server that
 * leaves out dialects leaves their paths out of the OpenAPI document, which /docs shows.
 */
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/route.h"

#include "lib/base/error.h"

#include <ctype.h>
#include <string.h>

/* Scripts and styles from this server only; no framing by other pages. */
#define POLICY                                                                        \
    "default-src 'none'; script-src 'self'; style-src 'self'; "                       \
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; " \
    "frame-ancestors 'none'"

static void put_file(struct gsv_exchange *exchange, const unsigned char *bytes, size_t size,
                     const char *type)
{
    exchange->borrowed = bytes;
    exchange->n_borrowed = size;
    gsv_add_header(exchange, "Content-Security-Policy", POLICY);
    gsv_add_header(exchange, "X-Content-Type-Options", "nosniff");
    gsv_add_header(exchange, "Referrer-Policy", "no-referrer");
    gsv_add_header(exchange, "Cache-Control", "no-cache");
    gsv_reply(exchange, 200, type);
}

/* Declares an embedded file of web_ui/ and defines its handler. */
#define FILE_OF(name, type)                                                \
    extern const unsigned char gsv_page_##name[];                          \
    extern const size_t gsv_page_##name##_size;                            \
    static void name(struct gsv_exchange *exchange)                        \
    {                                                                      \
        put_file(exchange, gsv_page_##name, gsv_page_##name##_size, type); \
    }

FILE_OF(index_html, "text/html; charset=utf-8")
FILE_OF(docs_html, "text/html; charset=utf-8")
FILE_OF(page_css, "text/css; charset=utf-8")
FILE_OF(base_js, "text/javascript; charset=utf-8")
FILE_OF(charts_js, "text/javascript; charset=utf-8")
FILE_OF(docs_js, "text/javascript; charset=utf-8")
FILE_OF(live_js, "text/javascript; charset=utf-8")
FILE_OF(page_js, "text/javascript; charset=utf-8")

extern const unsigned char gsv_page_openapi_json[];
extern const size_t gsv_page_openapi_json_size;

static void openapi_json(struct gsv_exchange *exchange)
{
    const struct gpuserve_http *server = exchange->server;

    if (server->openapi)
        put_file(exchange, (const unsigned char *)server->openapi, server->openapi_size,
                 "application/json");
    else
        put_file(exchange, gsv_page_openapi_json, gsv_page_openapi_json_size, "application/json");
}

/* True if the server has this operation, whose method is in lower case. */
static bool is_served(const struct gpuserve_http *server, const char *method, const char *path)
{
    char upper[8] = "";

    for (size_t i = 0; method[i] && i + 1 < sizeof(upper); i++)
        upper[i] = (char)toupper((unsigned char)method[i]);
    return gsv_route_is_served(server->dialects, upper, path);
}

/* Deletes the operations that the server leaves out, and paths without one. */
static void delete_left_out(const struct gpuserve_http *server, json_t *paths)
{
    const char *path, *method;
    json_t *operations, *operation;
    void *next_path, *next_method;

    json_object_foreach_safe(paths, next_path, path, operations)
    {
        json_object_foreach_safe(operations, next_method, method, operation)
        {
            if (!is_served(server, method, path))
                json_object_del(operations, method);
        }
        if (json_object_size(operations) == 0)
            json_object_del(paths, path);
    }
}

gpuserve_status gsv_http_make_document(struct gpuserve_http *server, gpuserve_error *error)
{
    json_t *document;

    if (server->dialects == UINT32_MAX)
        return GPUSERVE_OK;
    document = json_loadb((const char *)gsv_page_openapi_json, gsv_page_openapi_json_size, 0, NULL);
    if (document) {
        delete_left_out(server, json_object_get(document, "paths"));
        server->openapi = json_dumps(document, JSON_COMPACT | JSON_ENSURE_ASCII);
        json_decref(document);
    }
    if (!server->openapi)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the OpenAPI document");
    server->openapi_size = strlen(server->openapi);
    return GPUSERVE_OK;
}

const struct gsv_route gsv_page_routes[] = {
    { "GET", "/", GSV_TEI, GSV_OPEN, index_html },
    { "GET", "/page.css", GSV_TEI, GSV_OPEN, page_css },
    { "GET", "/base.js", GSV_TEI, GSV_OPEN, base_js },
    { "GET", "/charts.js", GSV_TEI, GSV_OPEN, charts_js },
    { "GET", "/live.js", GSV_TEI, GSV_OPEN, live_js },
    { "GET", "/page.js", GSV_TEI, GSV_OPEN, page_js },
    { "GET", "/docs", GSV_TEI, GSV_OPEN, docs_html },
    { "GET", "/docs.js", GSV_TEI, GSV_OPEN, docs_js },
    { "GET", "/openapi.json", GSV_TEI, GSV_OPEN, openapi_json },
    { "GET", "/api-doc/openapi.json", GSV_TEI, GSV_OPEN, openapi_json,
      "text-embeddings-inference" },
    { 0 },
};
