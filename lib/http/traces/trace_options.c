/*
 * trace_options.c - reads the endpoint, header fields, the sampler and the W3C trace context.
 *
 * Samplers have the names of OpenTelemetry's OTEL_TRACES_SAMPLER. The ratio is that of the trace
 * ids: the lower half of an id, a random number, is compared with a bound, so that services with
 * the same ratio sample the same traces.
 */
#include "lib/http/traces/traces.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/http/core/encoding.h"
#include "lib/http/net/framing.h"
#include "lib/http/net/tls.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ------------------------------------------------------------------------------- trace context */

enum { TRACEPARENT_BYTES = 55 };

static bool read_hex(const char *text, size_t size, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < size; i++) {
        const char c = text[i];

        if ((c < '0' || c > '9') && (c < 'a' || c > 'f'))
            return false;
        *value = *value << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
}

/* VERSION-TRACE-PARENT-FLAGS in lower-case hexadecimal. Versions above 00 may continue after
 * another dash. */
bool gsv_traceparent_read(const char *header, struct gsv_span_context *context)
{
    uint64_t version, flags;

    if (!header || strlen(header) < TRACEPARENT_BYTES || header[2] != '-' || header[35] != '-' ||
        header[52] != '-' || !read_hex(header, 2, &version) ||
        !read_hex(header + 3, 16, &context->trace[0]) ||
        !read_hex(header + 19, 16, &context->trace[1]) ||
        !read_hex(header + 36, 16, &context->span) || !read_hex(header + 53, 2, &flags))
        return false;
    context->is_sampled = flags & 1;
    if (version == 0xff || (context->trace[0] | context->trace[1]) == 0 || context->span == 0)
        return false;
    return !header[TRACEPARENT_BYTES] || (header[TRACEPARENT_BYTES] == '-' && version > 0);
}

/* ------------------------------------------------------------------------------------- endpoint */

static gpuserve_status refuse_url(const char *url, const char *why, gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_INVALID,
                    "the OTLP endpoint \"%.200s\" %s: it is an address such as "
                    "http://localhost:4318/v1/traces",
                    url, why);
}

/* Only what a request line and a Host field may hold. */
static bool is_plain(const char *text)
{
    for (; *text; text++) {
        if (*text <= ' ' || *text > '~' || *text == '"' || *text == '#')
            return false;
    }
    return true;
}

/* HOST, HOST:PORT, [IPV6] or [IPV6]:PORT */
static bool read_authority(struct gsv_trace_options *to, const char *text, size_t size,
                           const char *default_port)
{
    const bool is_ipv6 = text[0] == '[';
    const char *end = text + size;
    const char *host = text + is_ipv6;
    const char *host_end = memchr(host, is_ipv6 ? ']' : ':', (size_t)(end - host));
    const char *colon = host_end && is_ipv6 ? host_end + 1 : host_end;
    const size_t n_port = colon && colon < end ? (size_t)(end - colon - 1) : 0;

    if ((is_ipv6 && !host_end) || (colon && colon < end && *colon != ':'))
        return false;
    if (!host_end)
        host_end = end;
    if (host_end == host || (size_t)(host_end - host) >= sizeof(to->host))
        return false;
    snprintf(to->host, sizeof(to->host), "%.*s", (int)(host_end - host), host);
    snprintf(to->port, sizeof(to->port), "%s", default_port);
    if (!colon || colon == end)
        return true;
    if (n_port > 5 || strspn(colon + 1, "0123456789") < n_port)
        return false;
    snprintf(to->port, sizeof(to->port), "%.*s", (int)n_port, colon + 1);
    return atoi(to->port) > 0 && atoi(to->port) < 65536;
}

static gpuserve_status read_url(struct gsv_trace_options *to, const char *url,
                                const char *certificate_file, gpuserve_error *error)
{
    const bool is_tls = strncmp(url, "https://", 8) == 0;
    const char *authority = url + strlen(is_tls ? "https://" : "http://");
    size_t size;

    if (!is_tls && strncmp(url, "http://", 7) != 0)
        return refuse_url(url, "does not begin with http:// or https://", error);
    size = strcspn(authority, "/?");
    if (memchr(authority, '@', size))
        return refuse_url(url, "has a user name", error);
    if (!is_plain(url) || !read_authority(to, authority, size, is_tls ? "443" : "80"))
        return refuse_url(url, "is not valid", error);
    to->url = gsv_copy_text(url, strlen(url));
    if (!to->url)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the OTLP endpoint");
    to->path = to->url + (authority - url) + size;
    if (!*to->path)
        to->path = "/";
    return is_tls ? gsv_tls_outgoing_open(&to->tls, certificate_file, error) : GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------------- headers */

enum { MAX_HEADERS_BYTES = 8192 };

/* The text is not shown: it may be a key. */
static gpuserve_status refuse_header(size_t number, const char *why, gpuserve_error *error)
{
    return gsv_hint(error,
                    gsv_fail(error, GPUSERVE_E_INVALID,
                             "header %zu of OTLP exports (OTEL_EXPORTER_OTLP_HEADERS) %s", number,
                             why),
                    "headers are NAME=VALUE,NAME=VALUE with values in percent-encoding, such as "
                    "\"authorization=Bearer%%20KEY\"");
}

static bool is_name(const char *text)
{
    const char *at = text;

    while (gsv_is_token(*at))
        at++;
    return at > text && *at == '\0';
}

static bool is_own(const char *name)
{
    static const char *const own[] = { "Host",           "User-Agent",       "Content-Type",
                                       "Content-Length", "Connection",       "Expect",
                                       "Upgrade",        "Transfer-Encoding" };

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (strcasecmp(own[i], name) == 0)
            return true;
    }
    return false;
}

static gpuserve_status read_header(struct gsv_buffer *to, char *item, size_t number,
                                   gpuserve_error *error)
{
    char *equals = strchr(item, '='), *name, *value;

    if (!equals)
        return refuse_header(number, "has no =", error);
    *equals = '\0';
    name = gsv_trim(item);
    value = gsv_trim(equals + 1);
    if (!is_name(name))
        return refuse_header(number, "has no valid name", error);
    if (is_own(name))
        return refuse_header(number, "is one that the server sets", error);
    if (!gsv_uri_decode(value))
        return refuse_header(number, "has a value with a broken %-escape or a control character",
                             error);
    gsv_buffer_format(to, "%s: %s\r\n", name, value);
    return GPUSERVE_OK;
}

/* The format of W3C Baggage without properties: names, and values in percent-encoding. */
static gpuserve_status read_headers(struct gsv_trace_options *to, const char *text,
                                    gpuserve_error *error)
{
    char *copy = gsv_copy_text(text, strlen(text)), *rest = copy, *item;
    gpuserve_status st = GPUSERVE_OK;
    size_t n = 0;

    if (!copy)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the headers of OTLP exports");
    to->headers.maximum = MAX_HEADERS_BYTES + 1; /* a NUL */
    while (st == GPUSERVE_OK && (item = strsep(&rest, ","))) {
        if (item[strspn(item, " \t")])
            st = read_header(&to->headers, item, ++n, error);
    }
    free(copy);
    if (st == GPUSERVE_OK && to->headers.failed)
        st = gsv_fail(error, GPUSERVE_E_INVALID,
                      "the headers of OTLP exports (OTEL_EXPORTER_OTLP_HEADERS) exceed %d bytes",
                      MAX_HEADERS_BYTES);
    return st;
}

/* -------------------------------------------------------------------------------------- sampler */

/* False: not a number, as JSON writes it in any locale, from 0 to 1. */
static bool read_share(const char *text, double *share)
{
    json_t *number = json_loads(text, JSON_DECODE_ANY, NULL);
    const bool is_number = json_is_number(number);

    if (is_number)
        *share = json_number_value(number);
    json_decref(number);
    return is_number && *share >= 0 && *share <= 1;
}

static gpuserve_status read_ratio(struct gsv_trace_options *to, const char *text,
                                  gpuserve_error *error)
{
    double ratio = 1;

    if (text && !read_share(text, &ratio))
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "the ratio \"%.40s\" of the traces sampler (OTEL_TRACES_SAMPLER_ARG) is "
                        "not a number from 0 to 1",
                        text);
    to->bound = ratio >= 1 ? UINT64_MAX : (uint64_t)(ratio * 0x1p64);
    if (ratio >= 1)
        to->sampler = GSV_SAMPLE_ALL;
    return GPUSERVE_OK;
}

static gpuserve_status read_sampler(struct gsv_trace_options *to, const char *name,
                                    const char *argument, gpuserve_error *error)
{
    static const struct {
        const char *name;
        enum gsv_sampler sampler;
        bool by_parent;
    } samplers[] = {
        { "parentbased_always_on", GSV_SAMPLE_ALL, true },
        { "parentbased_always_off", GSV_SAMPLE_NONE, true },
        { "parentbased_traceidratio", GSV_SAMPLE_RATIO, true },
        { "always_on", GSV_SAMPLE_ALL, false },
        { "always_off", GSV_SAMPLE_NONE, false },
        { "traceidratio", GSV_SAMPLE_RATIO, false },
    };

    if (!name)
        name = samplers[0].name;
    for (size_t i = 0; i < sizeof(samplers) / sizeof(samplers[0]); i++) {
        if (strcmp(samplers[i].name, name) != 0)
            continue;
        to->sampler = samplers[i].sampler;
        to->by_parent = samplers[i].by_parent;
        return to->sampler == GSV_SAMPLE_RATIO ? read_ratio(to, argument, error) : GPUSERVE_OK;
    }
    return gsv_fail(error, GPUSERVE_E_INVALID,
                    "the traces sampler \"%.40s\" (OTEL_TRACES_SAMPLER) is not one of always_on, "
                    "always_off, traceidratio, parentbased_always_on, parentbased_always_off, "
                    "parentbased_traceidratio",
                    name);
}

gpuserve_status gsv_trace_options_read(struct gsv_trace_options *to,
                                       const gpuserve_http_options *from, gpuserve_error *error)
{
    const char *service = from->otlp_service_name ? from->otlp_service_name : "gpuserve";
    gpuserve_status st =
        read_sampler(to, from->traces_sampler, from->traces_sampler_argument, error);

    to->delay_ms = from->traces_delay_ms ? from->traces_delay_ms : 5000;
    to->max_queue = from->traces_queue ? from->traces_queue : 2048;
    if (st == GPUSERVE_OK && gsv_utf8_valid_length(service, strlen(service)) != strlen(service))
        st = gsv_fail(error, GPUSERVE_E_INVALID, "the service name of traces is not UTF-8");
    if (st == GPUSERVE_OK && from->otlp_traces_endpoint)
        st = read_url(to, from->otlp_traces_endpoint, from->otlp_certificate_file, error);
    if (st == GPUSERVE_OK && from->otlp_headers)
        st = read_headers(to, from->otlp_headers, error);
    if (st != GPUSERVE_OK)
        return st;
    to->service = gsv_copy_text(service, strlen(service));
    return to->service ? GPUSERVE_OK
                       : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the service name");
}

void gsv_trace_options_reset(struct gsv_trace_options *options)
{
    free(options->url);
    free(options->service);
    options->url = options->service = NULL;
    gsv_tls_outgoing_close(&options->tls);
    gsv_buffer_reset(&options->headers);
}
