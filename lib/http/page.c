/*
 * page.c - the page for people at /, from files that the build puts into the library: nothing is
 * read from disk, nothing comes from another host.
 *
 * It is static and tells nothing, so it is open to those without a key; what it asks for is not.
 */
#include "lib/http/route.h"

#define FILE_OF(name)                             \
    extern const unsigned char gsv_page_##name[]; \
    extern const size_t gsv_page_##name##_size

FILE_OF(index_html);
FILE_OF(page_css);
FILE_OF(page_js);
FILE_OF(docs_html);
FILE_OF(docs_js);
FILE_OF(openapi_json);

/* Scripts and styles from here alone, and the page in nobody's frame. */
#define POLICY                                                                        \
    "default-src 'none'; script-src 'self'; style-src 'self'; "                       \
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; " \
    "frame-ancestors 'none'"

static void put_file(struct gsv_exchange *exchange, const unsigned char *bytes, size_t size,
                     const char *type)
{
    exchange->lent = bytes;
    exchange->n_lent = size;
    gsv_add_header(exchange, "Content-Security-Policy", POLICY);
    gsv_add_header(exchange, "X-Content-Type-Options", "nosniff");
    gsv_add_header(exchange, "Referrer-Policy", "no-referrer");
    gsv_add_header(exchange, "Cache-Control", "no-cache");
    gsv_reply(exchange, 200, type);
}

static void index_page(struct gsv_exchange *exchange)
{
    put_file(exchange, gsv_page_index_html, gsv_page_index_html_size, "text/html; charset=utf-8");
}

static void style(struct gsv_exchange *exchange)
{
    put_file(exchange, gsv_page_page_css, gsv_page_page_css_size, "text/css; charset=utf-8");
}

static void script(struct gsv_exchange *exchange)
{
    put_file(exchange, gsv_page_page_js, gsv_page_page_js_size, "text/javascript; charset=utf-8");
}

static void docs_page(struct gsv_exchange *exchange)
{
    put_file(exchange, gsv_page_docs_html, gsv_page_docs_html_size, "text/html; charset=utf-8");
}

static void docs_script(struct gsv_exchange *exchange)
{
    put_file(exchange, gsv_page_docs_js, gsv_page_docs_js_size, "text/javascript; charset=utf-8");
}

static void document(struct gsv_exchange *exchange)
{
    put_file(exchange, gsv_page_openapi_json, gsv_page_openapi_json_size, "application/json");
}

const struct gsv_route gsv_page_routes[] = {
    { "GET", "/", GSV_TEI, GSV_OPEN, index_page },
    { "GET", "/page.css", GSV_TEI, GSV_OPEN, style },
    { "GET", "/page.js", GSV_TEI, GSV_OPEN, script },
    { "GET", "/docs", GSV_TEI, GSV_OPEN, docs_page },
    { "GET", "/docs.js", GSV_TEI, GSV_OPEN, docs_script },
    { "GET", "/openapi.json", GSV_TEI, GSV_OPEN, document },
    { "GET", "/api-doc/openapi.json", GSV_TEI, GSV_OPEN, document },
    { 0 },
};
