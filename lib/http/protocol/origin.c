/*
 * origin.c - checks Host, Origin and Sec-Fetch-Site of requests to a server without API keys.
 *
 * A browser sends Origin with every POST and with every cross-origin script request. Pages cannot
 * change Host, Origin or Sec-Fetch-*. Other programs send neither Origin nor Sec-Fetch-Site, and
 * pass. Runs on the event loop thread.
 */
#include "lib/http/protocol/access.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/http/net/server_state.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* --------------------------------------------------------------------------------------- hosts */

static bool is_host_name(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    struct in6_addr address;

    if (strcmp(text, "*") == 0)
        return true;
    return text[0] &&
           (strspn(text, plain) == strlen(text) || inet_pton(AF_INET6, text, &address) == 1);
}

gpuserve_status gsv_hosts_open(struct gpuserve_http *server, gpuserve_error *error)
{
    const gpuserve_http_options *options = &server->options;

    if (options->n_allowed_hosts > 0 && !options->allowed_hosts)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "`allowed_hosts` is NULL, n_allowed_hosts is %zu",
                        options->n_allowed_hosts);
    if (gethostname(server->own_name, sizeof(server->own_name) - 1) != 0)
        server->own_name[0] = 0;
    server->allowed_hosts =
        gsv_alloc_array(options->n_allowed_hosts, sizeof(*server->allowed_hosts));
    for (size_t i = 0; server->allowed_hosts && i < options->n_allowed_hosts; i++) {
        const char *host = options->allowed_hosts[i];

        if (!host)
            return gsv_fail(error, GPUSERVE_E_INVALID, "`allowed_hosts`: host %zu is NULL", i);
        if (!is_host_name(host))
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "\"%.200s\" is not a host name or address without scheme and port, "
                            "such as gpu.example.com",
                            host);
        server->allowed_hosts[i] = gsv_copy_text(host, strlen(host));
        if (!server->allowed_hosts[i])
            break;
        server->n_allowed_hosts++;
    }
    return server->n_allowed_hosts == options->n_allowed_hosts
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for hosts");
}

void gsv_hosts_close(struct gpuserve_http *server)
{
    for (size_t i = 0; i < server->n_allowed_hosts; i++)
        free(server->allowed_hosts[i]);
    free(server->allowed_hosts);
}

/* Extracts the host of "host", "host:port" or "[::1]:port", without brackets, port and trailing
 * dot. False: too long. */
static bool read_host(const char *text, char host[256])
{
    const bool is_ipv6 = text[0] == '[';
    size_t size;

    text += is_ipv6;
    size = strcspn(text, is_ipv6 ? "]" : ":");
    if (!is_ipv6 && size > 0 && text[size - 1] == '.')
        size--;
    if (size >= 256)
        return false;
    memcpy(host, text, size);
    host[size] = 0;
    return true;
}

static bool is_own_host(const struct gpuserve_http *server, const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (strcasecmp(host, "localhost") == 0 || strcmp(host, server->host) == 0 ||
        (server->own_name[0] && strcasecmp(host, server->own_name) == 0))
        return true;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static bool is_allowed_host(const struct gpuserve_http *server, const char *text)
{
    char host[256];

    if (!read_host(text, host))
        return false;
    for (size_t i = 0; i < server->n_allowed_hosts; i++) {
        if (strcmp(server->allowed_hosts[i], "*") == 0 ||
            strcasecmp(server->allowed_hosts[i], host) == 0)
            return true;
    }
    return is_own_host(server, host);
}

/* Only HTTP/1.0 allows a request without Host; browsers do not send one. */
static bool check_host(struct gsv_exchange *exchange)
{
    const struct gpuserve_http *server = exchange->server;
    const char *host = gsv_header(exchange, "Host");

    if (!host || server->unix_address.sun_path[0] ||
        (!server->is_loopback && server->n_allowed_hosts == 0) || is_allowed_host(server, host))
        return true;
    return gsv_refuse(exchange, GSV_P_FORBIDDEN, NULL,
                      "host \"%.200s\" is not allowed: without API keys the server accepts only "
                      "localhost, its own address and the hosts of --allowed-host",
                      host);
}

/* -------------------------------------------------------------------------------------- origin */

static bool is_own_origin(const struct gsv_exchange *exchange, const char *origin)
{
    const char *host = gsv_header(exchange, "Host");
    const char *authority = strstr(origin, "://");

    if (!host || !authority)
        return false;
    /* The scheme is checked only with TLS on: a proxy may add TLS to a plain server. */
    if (gsv_tls_is_on(&exchange->server->tls) && strncmp(origin, "https://", 8) != 0)
        return false;
    return strcasecmp(authority + 3, host) == 0;
}

static bool has_value(const struct gsv_exchange *exchange, const char *name, const char *value)
{
    const char *found = gsv_header(exchange, name);

    return found && strcmp(found, value) == 0;
}

/* A followed link: only the new document reads the reply. */
static bool is_navigation(const struct gsv_exchange *exchange)
{
    return strcmp(exchange->method, "POST") != 0 &&
           has_value(exchange, "Sec-Fetch-Mode", "navigate") &&
           has_value(exchange, "Sec-Fetch-Dest", "document");
}

static bool check_origin(struct gsv_exchange *exchange)
{
    const char *origin = gsv_header(exchange, "Origin");
    const char *site = gsv_header(exchange, "Sec-Fetch-Site");
    bool anyone = false;

    /* Behind a proxy that rewrites Host, only the browser knows whether the origin is the same. */
    if (site && strcmp(site, "same-origin") == 0)
        return true;
    if (gsv_cors_allows(exchange->server, origin ? origin : "", &anyone))
        return true;
    if (origin)
        return is_own_origin(exchange, origin) ||
               gsv_refuse(exchange, GSV_P_FORBIDDEN, NULL,
                          "origin \"%.200s\" is not allowed to send requests to this server; "
                          "--cors-origin allows an origin",
                          origin);
    return !site || strcmp(site, "none") == 0 || is_navigation(exchange) ||
           gsv_refuse(exchange, GSV_P_FORBIDDEN, NULL,
                      "the server rejects a %.20s request from a page of another origin "
                      "(Sec-Fetch-Site); --cors-origin allows an origin",
                      site);
}

bool gsv_origin_admit(struct gsv_exchange *exchange)
{
    struct gsv_keys *keys = exchange->server->keys;
    bool needs_key;

    pthread_mutex_lock(&keys->lock);
    needs_key = keys->n > 0;
    pthread_mutex_unlock(&keys->lock);
    return needs_key || (check_host(exchange) && check_origin(exchange));
}

/*
 * CORS: which origins may send requests, and what their scripts may read.
 *
 * Preflights (OPTIONS with Access-Control-Request-Method) carry no API key and are answered here.
 * Origins that are not listed get no CORS header, so the browser hides the reply from the page.
 * Stateless; runs on the event loop thread.
 */

bool gsv_cors_allows(const struct gpuserve_http *server, const char *origin, bool *anyone)
{
    *anyone = false;
    for (size_t i = 0; i < server->n_origins; i++) {
        if (strcmp(server->origins[i], "*") == 0)
            *anyone = true;
        else if (strcmp(server->origins[i], origin) == 0)
            return true;
    }
    return *anyone;
}

bool gsv_cors_begin(struct gsv_exchange *exchange)
{
    const struct gpuserve_http *server = exchange->server;
    const char *origin, *headers;
    bool anyone;

    if (server->n_origins == 0)
        return false;
    gsv_add_header(exchange, "Vary", "Origin");
    origin = gsv_header(exchange, "Origin");
    if (!origin || !gsv_cors_allows(server, origin, &anyone))
        return false;
    gsv_add_header(exchange, "Access-Control-Allow-Origin", anyone ? "*" : origin);
    if (strcmp(exchange->method, "OPTIONS") != 0 ||
        !gsv_header(exchange, "Access-Control-Request-Method")) {
        gsv_add_header(exchange, "Access-Control-Expose-Headers",
                       "*, x-request-id, Retry-After, retry-after-ms, x-gpuserve-space, "
                       "x-gpuserve-dtype, x-gpuserve-products-dtype, x-compute-type, "
                       "x-compute-tokens, x-total-time");
        return false;
    }
    headers = gsv_header(exchange, "Access-Control-Request-Headers");
    gsv_add_header(exchange, "Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
    /* "*" never includes Authorization, so the requested names are repeated. */
    gsv_add_header(exchange, "Access-Control-Allow-Headers",
                   headers ? headers : "Authorization, Content-Type");
    gsv_add_header(exchange, "Access-Control-Max-Age", "600");
    exchange->status = 204;
    return true;
}
