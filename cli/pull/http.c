/*
 * http.c - HTTP requests to a hub through libcurl.
 *
 * TLS certificates are always verified. An https endpoint never redirects to plain http. The token
 * is sent to the endpoint's host only (libcurl drops it on a redirect to another host). Over plain
 * http the token is sent to a loopback address only. Used by one thread.
 */
#include "cli/pull/pull.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_ENDPOINT "https://huggingface.co"
#define CONNECT_TIMEOUT_S 20L
#define STALL_TIMEOUT_S 30L
#define MAX_REDIRECTS 5L
#define TOKEN_BYTES 512

/* ---------------------------------------------------------------------------------- environment */

static const char *set_or_null(const char *variable)
{
    const char *value = getenv(variable);

    return value && *value ? value : NULL;
}

/* Reads the token that `hf auth login` stored. Owned, or NULL. */
static char *token_of_file(void)
{
    const char *home = set_or_null("HF_HOME"), *given = set_or_null("HF_TOKEN_PATH");
    char *path, text[TOKEN_BYTES] = "";
    FILE *file;

    if (given)
        path = cli_format("%s", given);
    else if (home)
        path = cli_format("%s/token", home);
    else
        path = cli_format("%s/.cache/huggingface/token", set_or_null("HOME") ? getenv("HOME") : "");
    file = fopen(path, "re");
    free(path);
    if (!file)
        return NULL;
    if (!fgets(text, sizeof(text), file))
        text[0] = '\0';
    fclose(file);
    return cli_format("%s", text);
}

/* Removes trailing whitespace. Frees the token and returns NULL if it has bytes that are invalid in
 * a header. */
static char *clean_token(char *token)
{
    size_t size;

    if (!token)
        return NULL;
    size = strlen(token);
    while (size && strchr(" \t\r\n", token[size - 1]))
        token[--size] = '\0';
    for (size_t i = 0; i < size; i++) {
        if (token[i] <= ' ' || token[i] > '~')
            size = 0;
    }
    if (size)
        return token;
    free(token);
    return NULL;
}

static bool is_loopback(const char *url)
{
    CURLU *parts = curl_url();
    char *host = NULL;
    bool loopback = false;

    if (parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK)
        loopback = strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
                   strncmp(host, "127.", 4) == 0;
    curl_free(host);
    curl_url_cleanup(parts);
    return loopback;
}

int cli_http_init(struct pull_http *http)
{
    const char *endpoint = set_or_null("HF_ENDPOINT"), *token = set_or_null("HF_TOKEN");
    size_t size;

    memset(http, 0, sizeof(*http));
    if (!endpoint)
        endpoint = DEFAULT_ENDPOINT;
    size = strlen(endpoint);
    while (size && endpoint[size - 1] == '/')
        size--;
    if (strncasecmp(endpoint, "https://", 8) != 0 && strncasecmp(endpoint, "http://", 7) != 0)
        return cli_fail("HF_ENDPOINT: \"%s\" is not an http or https URL", endpoint);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(http->curl = curl_easy_init()))
        return cli_fail("cannot initialize libcurl");
    http->endpoint = cli_copy(endpoint, size);
    http->token = clean_token(token ? cli_copy(token, strlen(token)) : token_of_file());
    if (http->token && strncasecmp(endpoint, "https://", 8) != 0 && !is_loopback(http->endpoint)) {
        cli_warn("the token is not sent to %s: the connection is not encrypted", http->endpoint);
        free(http->token);
        http->token = NULL;
    }
    return CLI_OK;
}

void cli_http_reset(struct pull_http *http)
{
    if (http->curl)
        curl_easy_cleanup(http->curl);
    free(http->endpoint);
    free(http->token);
    memset(http, 0, sizeof(*http));
    curl_global_cleanup();
}

char *cli_http_escape(const char *text, bool slashes)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    char *out = cli_alloc(strlen(text) + 1, 3), *at = out;

    for (; *text; text++) {
        if (strchr(plain, *text) || (slashes && *text == '/'))
            *at++ = *text;
        else
            at += sprintf(at, "%%%02X", (unsigned char)*text);
    }
    return out;
}

/* ------------------------------------------------------------------------------------- requests */

static void prepare(struct pull_http *http, const char *url)
{
    CURL *curl = http->curl;
    const bool plain = strncasecmp(http->endpoint, "http://", 7) == 0;
    const char *bundle = set_or_null("CURL_CA_BUNDLE");

    if (!bundle)
        bundle = set_or_null("SSL_CERT_FILE");
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, plain ? "http,https" : "https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, plain ? "http,https" : "https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, MAX_REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, STALL_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "gpuserve");
    if (bundle)
        curl_easy_setopt(curl, CURLOPT_CAINFO, bundle);
    if (http->token) {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, http->token);
    }
}

static bool may_pass(CURLcode code, long status)
{
    switch (code) {
    case CURLE_OK:
        return status == 429 || (status >= 500 && status <= 504);
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return true;
    default:
        return false;
    }
}

/* Prints the message of a request that failed and is not retried. */
static void fail_request(const struct pull_http *http, CURLcode code, long status, const char *what,
                         const char *detail)
{
    if (code != CURLE_OK) {
        cli_fail("%s: %s: %s", http->endpoint, what, detail[0] ? detail : curl_easy_strerror(code));
        if (code == CURLE_PEER_FAILED_VERIFICATION)
            cli_hint("set CURL_CA_BUNDLE to a file with the trusted CA certificates");
        else
            cli_hint("check the network, https_proxy and HF_ENDPOINT");
        return;
    }
    cli_fail("%s: %s: status %ld", http->endpoint, what, status);
    if (status == 401 || status == 403)
        cli_hint(http->token ? "the token has no access: request access on the model's page"
                             : "the model does not exist or requires a token: set HF_TOKEN");
    else if (status == 404)
        cli_hint("the model or the revision does not exist");
    else if (status == 429)
        cli_hint("too many requests: wait, or set HF_TOKEN");
}

struct document {
    char *bytes;
    size_t size, capacity, max_bytes;
};

static size_t add_to_document(char *bytes, size_t one, size_t n, void *user)
{
    struct document *document = user;

    (void)one;
    if (n > document->max_bytes - document->size)
        return CURL_WRITEFUNC_ERROR;
    document->bytes = cli_grow(document->bytes, &document->capacity, document->size + n + 1, 1);
    memcpy(document->bytes + document->size, bytes, n);
    document->size += n;
    document->bytes[document->size] = '\0';
    return n;
}

char *cli_http_get(struct pull_http *http, const char *url, size_t max_bytes, size_t *size,
                   const char *what)
{
    struct document document = { .max_bytes = max_bytes };
    char detail[CURL_ERROR_SIZE];
    long status = 0;
    CURLcode code = CURLE_OK;

    for (int attempt = 0; attempt < 3; attempt++) {
        if (attempt > 0)
            nanosleep(&(struct timespec){ attempt, 0 }, NULL);
        document.size = 0;
        detail[0] = '\0';
        prepare(http, url);
        curl_easy_setopt(http->curl, CURLOPT_ERRORBUFFER, detail);
        curl_easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, add_to_document);
        curl_easy_setopt(http->curl, CURLOPT_WRITEDATA, &document);
        code = curl_easy_perform(http->curl);
        curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &status);
        if (!may_pass(code, status))
            break;
    }
    *size = document.size;
    if (code == CURLE_OK && status == 200 && document.bytes)
        return document.bytes;
    if (code == CURLE_WRITE_ERROR)
        cli_fail("%s: %s: the response exceeds %zu bytes", http->endpoint, what, max_bytes);
    else
        fail_request(http, code, status, what, detail);
    free(document.bytes);
    return NULL;
}

/* ---------------------------------------------------------------------------------------- files */

struct receiver {
    struct pull_http *http;
    struct http_file *file;
    bool begun, too_long;
    int disk_errno;
};

/* First bytes of a body: 206 continues at `have`, 200 is the whole file, so `have` becomes 0. */
static bool begin_body(struct receiver *r)
{
    long status = 0;

    r->begun = true;
    curl_easy_getinfo(r->http->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200)
        r->file->have = 0;
    if (lseek(r->file->fd, (off_t)r->file->have, SEEK_SET) >= 0 &&
        ftruncate(r->file->fd, (off_t)r->file->have) == 0)
        return true;
    r->disk_errno = errno;
    return false;
}

static size_t add_to_file(char *bytes, size_t one, size_t n, void *user)
{
    struct receiver *r = user;
    struct http_file *file = r->file;
    long status = 0;

    (void)one;
    curl_easy_getinfo(r->http->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && status != 206)
        return n; /* body of an error page: discarded */
    if (!r->begun && !begin_body(r))
        return CURL_WRITEFUNC_ERROR;
    r->too_long = n > file->size - file->have;
    if (r->too_long)
        return CURL_WRITEFUNC_ERROR;
    for (size_t at = 0; at < n;) {
        const ssize_t written = write(file->fd, bytes + at, n - at);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            r->disk_errno = errno;
            return CURL_WRITEFUNC_ERROR;
        }
        at += (size_t)written;
        file->have += (uint64_t)written;
    }
    cli_progress_update(file->progress, file->done_before + (double)file->have,
                        (file->done_before + (double)file->have) / file->total);
    return n;
}

enum http_end cli_http_get_file(struct pull_http *http, const char *url, struct http_file *file)
{
    struct receiver receiver = { .http = http, .file = file };
    char detail[CURL_ERROR_SIZE] = "", range[32];
    long status = 0;
    CURLcode code;

    prepare(http, url);
    curl_easy_setopt(http->curl, CURLOPT_ERRORBUFFER, detail);
    curl_easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, add_to_file);
    curl_easy_setopt(http->curl, CURLOPT_WRITEDATA, &receiver);
    if (file->have) {
        snprintf(range, sizeof(range), "%llu-", (unsigned long long)file->have);
        curl_easy_setopt(http->curl, CURLOPT_RANGE, range);
    }
    code = curl_easy_perform(http->curl);
    curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK && (status == 200 || status == 206))
        return file->have == file->size ? HTTP_DONE : HTTP_BROKEN;
    if (code == CURLE_OK && status == 416 && file->have) {
        file->have = 0; /* 416: the file on the server changed; restart from byte 0 */
        return ftruncate(file->fd, 0) == 0 ? HTTP_BROKEN : HTTP_FAILED;
    }
    if (may_pass(code, status))
        return HTTP_BROKEN;
    if (receiver.disk_errno)
        cli_fail("%s: %s", file->what, strerror(receiver.disk_errno));
    else if (receiver.too_long)
        cli_fail("%s: the server sends more than the %llu bytes listed", file->what,
                 (unsigned long long)file->size);
    else
        fail_request(http, code, status, file->what, detail);
    return HTTP_FAILED;
}
