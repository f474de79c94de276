/*
 * request.c - checks a request before its handler: id, deadline, route, key, origin, body, model.
 *
 * Order: CORS preflight, route, API key, Host and Origin, Content-Length, then body and JSON. The
 * header part runs on the event loop thread, the body part on it or a worker thread.
 */
#include "lib/http/models/model_registry.h"
#include "lib/http/protocol/exchange.h"
#include "lib/http/protocol/request.h"

#include "lib/base/json_tree.h"
#include "lib/http/core/encoding.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/access.h"
#include "lib/http/protocol/route.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { RESERVED_BODY_BYTES = 64 * 1024 };

/* -------------------------------------------------------------------------------------- header */

static bool check_length(struct gsv_exchange *exchange)
{
    const char *length = gsv_header(exchange, "Content-Length");

    /* framing.c has accepted it: it occurs once and fits 64 bits. */
    if (length && strtoull(length, NULL, 10) > exchange->server->options.max_body_bytes)
        return gsv_refuse(exchange, GSV_P_TOO_LARGE, NULL,
                          "the body has %.20s bytes, the limit is %llu (--max-body-bytes)", length,
                          (unsigned long long)exchange->server->options.max_body_bytes);
    return true;
}

static bool read_target(struct gsv_exchange *exchange)
{
    char *query = strchr(exchange->target, '?');
    const size_t size = query ? (size_t)(query - exchange->target) : strlen(exchange->target);

    exchange->path = gsv_exchange_copy_text(exchange, exchange->target, size);
    exchange->query = query ? query + 1 : NULL;
    if (!exchange->path)
        return false;
    if (exchange->path[0] != '/' || !gsv_uri_decode(exchange->path)) {
        exchange->path = gsv_exchange_copy_text(exchange, "", 0);
        exchange->dialect = gsv_route_dialect(exchange->target);
        return gsv_refuse(exchange, GSV_P_SYNTAX, NULL, "the path is not valid");
    }
    return true;
}

/* Uses the client's request id if it has only plain characters, otherwise generates one. */
static void set_id(struct gsv_exchange *exchange)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const char *given = gsv_header(exchange, "x-request-id");
    struct gpuserve_http *server = exchange->server;

    const unsigned long long number = atomic_fetch_add(&server->n_requests, 1ull) + 1;

    if (given && given[0] && strlen(given) <= 128 && strspn(given, plain) == strlen(given))
        exchange->id = given;
    else
        exchange->id =
            gsv_exchange_format(exchange, "%016llx-%llu", (unsigned long long)server->seed, number);
    gsv_add_header(exchange, "x-request-id", exchange->id);
}

/* Parses seconds such as "30" or "0.05". False: another format, which other protocols use in these
 * headers. */
static bool read_seconds(const char *text, uint64_t *ms)
{
    uint64_t unit = 100;

    if (*text < '0' || *text > '9')
        return false;
    for (*ms = 0; *text >= '0' && *text <= '9'; text++) {
        if (*ms < 1000000)
            *ms = *ms * 10 + (uint64_t)(*text - '0');
    }
    *ms *= 1000;
    for (text += *text == '.'; *text >= '0' && *text <= '9'; text++, unit /= 10)
        *ms += (uint64_t)(*text - '0') * unit;
    return !*text;
}

/* Sets the earliest deadline among the timeout headers. */
static void set_deadline(struct gsv_exchange *exchange)
{
    static const char *const names[] = { "x-stainless-read-timeout", "Request-Timeout", "timeout" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = gsv_header(exchange, names[i]);
        uint64_t ms, deadline_ns;

        if (!text || !read_seconds(text, &ms))
            continue;
        deadline_ns = exchange->begun_ns + ms * 1000000;
        if (exchange->deadline_ns == 0 || deadline_ns < exchange->deadline_ns)
            exchange->deadline_ns = deadline_ns;
    }
}

static bool is_open(const struct gsv_exchange *exchange)
{
    const struct gsv_route *route = exchange->route;

    return route && (route->flags & GSV_OPEN || (exchange->server->options.open_metrics &&
                                                 strcmp(route->pattern, "/metrics") == 0));
}

bool gsv_request_begin(struct gsv_exchange *exchange)
{
    size_t n_before;
    bool found;

    set_id(exchange);
    set_deadline(exchange);
    exchange->body.maximum = exchange->server->options.max_body_bytes;
    if (!read_target(exchange) || gsv_cors_begin(exchange))
        return false;
    n_before = exchange->n_headers;
    found = gsv_route_find(exchange);
    /* The key check comes before a 404 or 405, so clients without a key cannot probe paths. Its
     * error replaces the route's error and headers. */
    if (!is_open(exchange)) {
        const size_t n_found = exchange->n_headers;

        exchange->n_headers = n_before;
        if (!gsv_keys_admit(exchange->server->keys, exchange))
            return false;
        exchange->n_headers = n_found;
        if (found && !(exchange->route->flags & GSV_OPEN) && !gsv_origin_admit(exchange))
            return false;
    }
    return found && check_length(exchange);
}

bool gsv_request_has_body(const struct gsv_exchange *exchange)
{
    const char *length = gsv_header(exchange, "Content-Length");

    return gsv_header(exchange, "Transfer-Encoding") ||
           (length && strspn(length, "0") != strlen(length));
}

/* ---------------------------------------------------------------------------------------- body */

/* Reserves small bodies at once: growth would leave up to the same size unused. */
static void reserve(struct gsv_exchange *exchange)
{
    const char *length = gsv_header(exchange, "Content-Length");
    const unsigned long long wanted = length ? strtoull(length, NULL, 10) : 0;

    if (wanted <= RESERVED_BODY_BYTES)
        gsv_buffer_reserve(&exchange->body, (size_t)wanted);
}

void gsv_request_take(struct gsv_exchange *exchange, const char *bytes, size_t size)
{
    if (exchange->body.size == 0)
        reserve(exchange);
    gsv_buffer_add(&exchange->body, bytes, size);
}

void gsv_request_end(struct gsv_exchange *exchange)
{
    /* The size is within the limit: check_length() and, for chunks, framing.c have checked it. */
    if (exchange->body.failed)
        gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory for the body");
    else if (exchange->status == 0)
        gsv_unpack(exchange);
}

bool gsv_request_parse(struct gsv_exchange *exchange, const char *bytes, size_t size)
{
    const struct gsv_json_limits limits = { GSV_BODY_VALUES, GSV_BODY_DEPTH };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st;

    if (size == 0)
        return gsv_refuse(exchange, GSV_P_SYNTAX, NULL, "the body is empty, expected JSON");
    if (size >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0)
        return gsv_refuse(
            exchange, GSV_P_SYNTAX, NULL,
            "the body begins with a UTF-8 byte order mark (EF BB BF), which JSON does "
            "not allow: send it without one");
    st = gsv_json_parse(&exchange->json, bytes, size, "body", limits, &error);
    if (st == GPUSERVE_OK && !json_is_object(exchange->json))
        return gsv_refuse(exchange, GSV_P_INVALID, NULL, "the body is not a JSON object");
    if (st == GPUSERVE_OK)
        return true;
    if (st == GPUSERVE_E_NOMEM)
        return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "%s", error.message);
    return gsv_refuse(exchange, st == GPUSERVE_E_TOO_LARGE ? GSV_P_TOO_LARGE : GSV_P_SYNTAX, NULL,
                      "%s", error.message);
}

bool gsv_request_json(struct gsv_exchange *exchange)
{
    if (!gsv_request_parse(exchange, exchange->body.bytes, exchange->body.size))
        return false;
    gsv_buffer_reset(&exchange->body); /* the JSON tree holds the strings now */
    return true;
}

/* --------------------------------------------------------------------------------------- model */

static bool refuse_name(struct gsv_exchange *exchange, const char *name)
{
    const struct gsv_models *models = exchange->server->models;
    struct gsv_buffer known = { .maximum = 512 };

    for (size_t i = 0; i < models->n; i++)
        gsv_buffer_format(&known, "%s\"%s\"", i ? ", " : "", models->entries[i].name);
    gsv_buffer_add(&known, "", 1);
    gsv_refuse(exchange, GSV_P_NO_MODEL, "model",
               "unknown model \"%.200s\"; this server has %s (--alias gives a model more names)",
               name, known.size > 0 && !known.failed ? known.bytes : "others");
    gsv_buffer_reset(&known);
    return false;
}

/* Vectors of different vector spaces are not comparable: rejects a model other than the client
 * expects. */
static bool check_space(struct gsv_exchange *exchange)
{
    const char *wanted = gsv_header(exchange, "x-gpuserve-space");

    if (!wanted || strcasecmp(wanted, exchange->served->space) == 0)
        return true;
    return gsv_refuse(exchange, GSV_P_CONFLICT, NULL,
                      "model \"%s\" has the vector space %s, not %.64s: embed the stored texts "
                      "again, or use the model that made the stored vectors",
                      exchange->served->name, exchange->served->space, wanted);
}

bool gsv_request_model(struct gsv_exchange *exchange, const char *name)
{
    struct gsv_models *models = exchange->server->models;
    struct gsv_entry *entry = name ? gsv_models_entry(models, name) : models->entries;

    if (!entry)
        return refuse_name(exchange, name);
    gsv_served_release(exchange->served);
    exchange->served = gsv_models_hold(models, entry);
    if (!exchange->served)
        return gsv_refuse(exchange, GSV_P_UNAVAILABLE, "model", "model \"%s\" is not loaded",
                          entry->name);
    return check_space(exchange);
}

bool gsv_request_body_model(struct gsv_exchange *exchange)
{
    const char *name = NULL;

    return gsv_member_text(exchange, exchange->json, "model", &name) &&
           gsv_request_model(exchange, name);
}

/* ----------------------------------------------------------------------------- query parameters */

bool gsv_query_text(struct gsv_exchange *exchange, const char *name, const char **value)
{
    const size_t n = strlen(name);
    char *text;

    for (const char *at = exchange->query; at && *at; at += *at == '&') {
        const size_t size = strcspn(at, "&");

        if (size > n && strncmp(at, name, n) == 0 && at[n] == '=') {
            text = gsv_exchange_copy_text(exchange, at + n + 1, size - n - 1);
            if (text && !gsv_uri_decode(text))
                return gsv_refuse(exchange, GSV_P_INVALID, name, "`%s` is not valid", name);
            *value = text;
            return text != NULL;
        }
        at += size;
    }
    return true;
}

bool gsv_query_count(struct gsv_exchange *exchange, const char *name, int64_t minimum,
                     int64_t maximum, int64_t *value)
{
    const char *text = NULL;
    long long number;
    char *end;

    if (!gsv_query_text(exchange, name, &text))
        return false;
    if (!text)
        return true;
    errno = 0;
    number = strtoll(text, &end, 10);
    if (*end || end == text || errno != 0 || number < minimum || number > maximum)
        return gsv_refuse(exchange, GSV_P_INVALID, name, "`%s` is \"%.40s\", not %lld to %lld",
                          name, text, (long long)minimum, (long long)maximum);
    *value = number;
    return true;
}

/* ---------------------------------------------------------------------------------- JSON fields */

const json_t *gsv_member_given(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return value && !json_is_null(value) ? value : NULL;
}

bool gsv_member_flag(struct gsv_exchange *exchange, const json_t *object, const char *key,
                     bool *value)
{
    const json_t *found = gsv_member_given(object, key);

    if (!found)
        return true;
    if (!json_is_boolean(found))
        return gsv_refuse(exchange, GSV_P_INVALID, key, "`%s` is neither true nor false", key);
    *value = json_is_true(found);
    return true;
}

bool gsv_member_count(struct gsv_exchange *exchange, const json_t *object, const char *key,
                      int64_t minimum, int64_t maximum, int64_t *value)
{
    const json_t *found = gsv_member_given(object, key);
    int64_t number;

    if (!found)
        return true;
    if (!json_is_integer(found))
        return gsv_refuse(exchange, GSV_P_INVALID, key, "`%s` is not a whole number", key);
    number = json_integer_value(found);
    if (number < minimum || number > maximum)
        return gsv_refuse(exchange, GSV_P_INVALID, key, "`%s` is %lld, outside %lld to %lld", key,
                          (long long)number, (long long)minimum, (long long)maximum);
    *value = number;
    return true;
}

bool gsv_member_text(struct gsv_exchange *exchange, const json_t *object, const char *key,
                     const char **value)
{
    const json_t *found = gsv_member_given(object, key);

    if (!found)
        return true;
    if (!json_is_string(found) || memchr(json_string_value(found), 0, json_string_length(found)))
        return gsv_refuse(exchange, GSV_P_INVALID, key, "`%s` is not a string", key);
    *value = json_string_value(found);
    return true;
}

static bool refuse_choice(struct gsv_exchange *exchange, const char *key, const char *text,
                          const char *const *names)
{
    struct gsv_buffer known = { .maximum = 512 };

    for (size_t i = 0; names[i]; i++)
        gsv_buffer_format(&known, "%s%s", i > 0 ? ", " : "", names[i]);
    gsv_buffer_add(&known, "", 1);
    gsv_refuse(exchange, GSV_P_INVALID, key, "`%s` is \"%.64s\", not one of %s", key, text,
               known.failed ? "the supported values" : known.bytes);
    gsv_buffer_reset(&known);
    return false;
}

bool gsv_member_choice(struct gsv_exchange *exchange, const json_t *object, const char *key,
                       const char *const *names, uint32_t *value)
{
    const char *text = NULL;

    if (!gsv_member_text(exchange, object, key, &text))
        return false;
    if (!text)
        return true;
    for (uint32_t i = 0; names[i]; i++) {
        if (strcasecmp(names[i], text) == 0) {
            *value = i;
            return true;
        }
    }
    return refuse_choice(exchange, key, text, names);
}
