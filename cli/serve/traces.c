/*
 * traces.c - options of OpenTelemetry traces: the flags of `serve`, then the environment variables
 * that OpenTelemetry names.
 *
 * Variables of OpenTelemetry that the server does not follow cause a warning, if an endpoint is
 * set.
 */
#include "cli/serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* An empty variable means the same as none. */
static const char *variable(const char *name)
{
    const char *text = getenv(name);

    return text && text[0] ? text : NULL;
}

/* OTEL_EXPORTER_OTLP_TRACES_NAME, or else OTEL_EXPORTER_OTLP_NAME. */
static const char *either_variable(const char *name)
{
    char long_name[64];
    const char *text;

    snprintf(long_name, sizeof(long_name), "OTEL_EXPORTER_OTLP_TRACES_%s", name);
    text = variable(long_name);
    if (text)
        return text;
    snprintf(long_name, sizeof(long_name), "OTEL_EXPORTER_OTLP_%s", name);
    return variable(long_name);
}

/* The address of traces below that of the collector; owned. */
static char *traces_url(const char *endpoint)
{
    size_t size = strlen(endpoint);

    while (size > strlen("http://") && endpoint[size - 1] == '/')
        size--;
    return cli_format("%.*s/v1/traces", (int)size, endpoint);
}

static int read_count(uint32_t *count, const char *name, uint32_t maximum)
{
    const char *text = variable(name);
    unsigned long long value;
    char *end;

    if (!text)
        return CLI_OK;
    value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || value < 1 || value > maximum)
        return cli_usage("%s: \"%s\" is not a number from 1 to %u", name, text, maximum);
    *count = (uint32_t)value;
    return CLI_OK;
}

static void warn_of_others(const char *url)
{
    const char *protocol = either_variable("PROTOCOL");
    const char *port = strstr(url, ":4317");

    if (protocol && strcmp(protocol, "http/json") != 0)
        cli_warn("OTEL_EXPORTER_OTLP_PROTOCOL %s has no effect: traces are sent by http/json",
                 protocol);
    if (port && (port[5] == '/' || port[5] == '\0'))
        cli_warn("%s: 4317 is the port of OTLP over gRPC; traces are sent over HTTP, whose port is "
                 "4318",
                 url);
    if (either_variable("CLIENT_CERTIFICATE") || either_variable("CLIENT_KEY"))
        cli_warn("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE has no effect: exports have no client "
                 "certificate; a local collector can add one");
}

/* The CA certificates of the system: named here, so that the sandbox can allow the file. NULL: none
 * was found. */
static const char *system_authorities(void)
{
    static const char *const files[] = {
        "/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu, Arch, Alpine */
        "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora */
        "/etc/ssl/ca-bundle.pem",             /* SUSE */
        "/etc/ssl/cert.pem",
    };
    const char *named = variable("SSL_CERT_FILE");

    if (named)
        return named;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (access(files[i], R_OK) == 0)
            return files[i];
    }
    return NULL;
}

static int read_authorities(gpuserve_http_options *options, const char *url)
{
    if (strncmp(url, "https://", strlen("https://")) != 0)
        return CLI_OK;
    options->otlp_certificate_file = either_variable("CERTIFICATE");
    if (!options->otlp_certificate_file)
        options->otlp_certificate_file = system_authorities();
    return options->otlp_certificate_file
               ? CLI_OK
               : cli_fail(
                     "no CA certificates were found, which %s needs: install ca-certificates, or "
                     "set OTEL_EXPORTER_OTLP_CERTIFICATE to a PEM file",
                     url);
}

int cli_traces_options(const struct cli_args *args, gpuserve_http_options *options, char **url)
{
    const char *disabled = variable("OTEL_SDK_DISABLED");
    const char *exact = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    const char *base =
        args->otlp_endpoint ? args->otlp_endpoint : variable("OTEL_EXPORTER_OTLP_ENDPOINT");
    int result;

    *url = NULL;
    if (!args->otlp_endpoint && disabled && strcasecmp(disabled, "true") == 0)
        return CLI_OK;
    if (!args->otlp_endpoint && exact)
        *url = cli_copy(exact, strlen(exact));
    else if (base)
        *url = traces_url(base);
    if (!*url)
        return CLI_OK;
    options->otlp_traces_endpoint = *url;
    options->otlp_service_name =
        args->otlp_service_name ? args->otlp_service_name : variable("OTEL_SERVICE_NAME");
    options->otlp_headers = either_variable("HEADERS");
    options->traces_sampler = variable("OTEL_TRACES_SAMPLER");
    options->traces_sampler_argument = variable("OTEL_TRACES_SAMPLER_ARG");
    result = read_count(&options->traces_delay_ms, "OTEL_BSP_SCHEDULE_DELAY", 3600000);
    if (result == CLI_OK)
        result = read_count(&options->traces_queue, "OTEL_BSP_MAX_QUEUE_SIZE", 1048576);
    if (result == CLI_OK)
        result = read_authorities(options, *url);
    if (result == CLI_OK && !args->quiet)
        warn_of_others(*url);
    return result;
}
