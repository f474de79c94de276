/*
 * endpoints.c - prints the endpoints of the server: a table for people, a JSON array for programs.
 */
#include "cli/serve/serve.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "KServe v2, Triton" as a list. */
static json_t *split(const char *protocols)
{
    json_t *list = json_array();

    for (const char *at = protocols; *at;) {
        const size_t size = strcspn(at, ",");

        json_array_append_new(list, json_stringn(at, size));
        at += size;
        at += strspn(at, ", ");
    }
    return list;
}

static int print_json(const gpuserve_http_endpoint *endpoints, size_t n)
{
    json_t *list = json_array();
    char *text;

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:b}", "method", endpoints[i].method,
                                              "path", endpoints[i].path, "protocols",
                                              split(endpoints[i].protocol), "needs_key",
                                              !endpoints[i].is_open));
    text = json_array_size(list) == n ? json_dumps(list, JSON_INDENT(2)) : NULL;
    json_decref(list);
    if (!text)
        return cli_fail("out of memory");
    puts(text);
    free(text);
    return CLI_OK;
}

static void print_table(const gpuserve_http_endpoint *endpoints, size_t n)
{
    int width = 0;

    for (size_t i = 0; i < n; i++)
        width = (int)strlen(endpoints[i].path) > width ? (int)strlen(endpoints[i].path) : width;
    printf("%-6s  %-*s  %-3s  %s\n", "METHOD", width, "PATH", "KEY", "PROTOCOL");
    for (size_t i = 0; i < n; i++)
        printf("%-6s  %-*s  %-3s  %s\n", endpoints[i].method, width, endpoints[i].path,
               endpoints[i].is_open ? "no" : "yes", endpoints[i].protocol);
}

int cli_print_endpoints(const struct cli_http_library *library, const char *dialects, bool as_json)
{
    const size_t n = library->endpoints(dialects, NULL, 0);
    gpuserve_http_options options = GPUSERVE_HTTP_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_http_endpoint *endpoints;
    int result = CLI_OK;

    options.dialects = dialects;
    if (library->check(&options, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    endpoints = cli_alloc(n, sizeof(*endpoints));
    library->endpoints(dialects, endpoints, n);
    if (as_json)
        result = print_json(endpoints, n);
    else
        print_table(endpoints, n);
    free(endpoints);
    return result;
}
