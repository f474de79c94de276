/*
 * curl.c - one HTTP request through libcurl, which is loaded here, at the first request.
 *
 * The program is not linked with libcurl: it brings some 30 shared libraries, and no other command
 * needs one of them. TLS certificates are always verified. An https endpoint never redirects to
 * plain http. libcurl drops the token on a redirect to another host. Used by one thread.
 */
#include "cli/pull/pull.h"

#include <curl/curl.h>

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CONNECT_TIMEOUT_S 20L
#define STALL_TIMEOUT_S 30L
#define MAX_REDIRECTS 5L

static struct curl_calls {
    __typeof__(&curl_global_init) global_init;
    __typeof__(&curl_global_cleanup) global_cleanup;
    __typeof__(&curl_easy_init) easy_init;
    __typeof__(&curl_easy_cleanup) easy_cleanup;
    __typeof__(&curl_easy_reset) easy_reset;
    __typeof__(&curl_easy_setopt) easy_setopt;
    __typeof__(&curl_easy_getinfo) easy_getinfo;
    __typeof__(&curl_easy_perform) easy_perform;
    __typeof__(&curl_easy_strerror) easy_strerror;
} calls;

#define CALL(name)                                       \
    {                                                    \
        "curl_" #name, offsetof(struct curl_calls, name) \
    }

static const struct cli_symbol symbols[] = { CALL(global_init),  CALL(global_cleanup),
                                             CALL(easy_init),    CALL(easy_cleanup),
                                             CALL(easy_reset),   CALL(easy_setopt),
                                             CALL(easy_getinfo), CALL(easy_perform),
                                             CALL(easy_strerror) };

int cli_curl_open(void **curl)
{
    /* OpenSSL's and GnuTLS' build. */
    static const char *const libraries[] = { "libcurl.so.4", "libcurl-gnutls.so.4", NULL };
    char *why;
    void *library = cli_library_open(libraries, &why);

    if (!library) {
        cli_fail("libcurl cannot be loaded: %s", why);
        cli_hint("install it: apt-get install libcurl4 ca-certificates, dnf install libcurl");
        free(why);
        return CLI_FAILED;
    }
    if (cli_library_symbols(library, "libcurl", symbols, sizeof(symbols) / sizeof(symbols[0]),
                            &calls) != CLI_OK)
        return CLI_FAILED;
    if (calls.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(*curl = calls.easy_init()))
        return cli_fail("cannot initialize libcurl");
    return CLI_OK;
}

void cli_curl_close(void *curl)
{
    if (!curl)
        return;
    calls.easy_cleanup(curl);
    calls.global_cleanup();
}

static CURLcode prepare(const struct pull_http *http, const char *url)
{
    CURL *curl = http->curl;
    const bool plain = strncasecmp(http->endpoint, "http://", 7) == 0;
    const char *protocols = plain ? "http,https" : "https", *bundle = getenv("CURL_CA_BUNDLE");
    CURLcode code;

    if (!bundle || !*bundle)
        bundle = getenv("SSL_CERT_FILE");
    calls.easy_reset(curl);
    calls.easy_setopt(curl, CURLOPT_URL, url);
    calls.easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    /* Unknown to libcurl before 7.85; a request without these limits is not sent. */
    code = calls.easy_setopt(curl, CURLOPT_PROTOCOLS_STR, protocols);
    if (code == CURLE_OK)
        code = calls.easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
    calls.easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    calls.easy_setopt(curl, CURLOPT_MAXREDIRS, MAX_REDIRECTS);
    calls.easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
    calls.easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    calls.easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, STALL_TIMEOUT_S);
    calls.easy_setopt(curl, CURLOPT_USERAGENT, "gpuserve");
    if (bundle && *bundle)
        calls.easy_setopt(curl, CURLOPT_CAINFO, bundle);
    if (http->token) {
        calls.easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        calls.easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, http->token);
    }
    return code;
}

struct curl_receiver {
    CURL *curl;
    struct http_request *request;
    bool refused;
};

static size_t receive(char *bytes, size_t one, size_t n, void *user)
{
    struct curl_receiver *receiver = user;
    struct http_request *request = receiver->request;

    (void)one;
    calls.easy_getinfo(receiver->curl, CURLINFO_RESPONSE_CODE, &request->status);
    receiver->refused = !request->receive(request->user, request->status, bytes, n);
    return receiver->refused ? n + 1 : n; /* any other number ends the transfer */
}

static enum request_end end_of(CURLcode code)
{
    switch (code) {
    case CURLE_OK:
        return REQUEST_DONE;
    case CURLE_PEER_FAILED_VERIFICATION:
        return REQUEST_UNTRUSTED;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return REQUEST_BROKEN;
    default:
        return REQUEST_FAILED;
    }
}

enum request_end cli_curl_run(const struct pull_http *http, struct http_request *request)
{
    struct curl_receiver receiver = { .curl = http->curl, .request = request };
    char detail[CURL_ERROR_SIZE] = "", range[32];
    CURLcode code = prepare(http, request->url);

    if (code != CURLE_OK) {
        snprintf(request->detail, sizeof(request->detail), "libcurl is older than 7.85");
        return REQUEST_FAILED;
    }
    calls.easy_setopt(http->curl, CURLOPT_ERRORBUFFER, detail);
    calls.easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, receive);
    calls.easy_setopt(http->curl, CURLOPT_WRITEDATA, &receiver);
    if (request->offset) {
        snprintf(range, sizeof(range), "%llu-", (unsigned long long)request->offset);
        calls.easy_setopt(http->curl, CURLOPT_RANGE, range);
    }
    code = calls.easy_perform(http->curl);
    calls.easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &request->status);
    calls.easy_setopt(http->curl, CURLOPT_ERRORBUFFER, NULL);
    snprintf(request->detail, sizeof(request->detail), "%s",
             detail[0] ? detail : calls.easy_strerror(code));
    return receiver.refused ? REQUEST_REFUSED : end_of(code);
}
