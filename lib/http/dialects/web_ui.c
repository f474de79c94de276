/*
 * web_ui.c - serves the web UI at / and the API documentation at /docs.
 *
 * The build embeds the files of web_ui/ in the library: no disk access, no other hosts. The pages
 * are static and hold no data, so they need no API key; the API that they call does.
 */
#include "lib/http/protocol/route.h"

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
FILE_OF(openapi_json, "application/json")

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
