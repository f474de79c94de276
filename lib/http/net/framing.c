/*
 * framing.c - the request parser behind gsv_framing_take(): a state machine over raw bytes.
 *
 * HEADER -> BODY or CHUNK_* [TRAILER_*] -> HEADER ... ; any error -> REFUSED, which is final. A
 * header is parsed only when complete. A body with a length is counted. Chunks are parsed byte by
 * byte except their data. A caller owns `framing` and may use it from one thread at a time.
 */
#include "lib/http/net/framing.h"

#include <string.h>
#include <strings.h>

/* Summary of one header. */
struct framing_header {
    unsigned minor;  /* of HTTP/1.minor */
    size_t n_fields; /* query parts and cookies included; each costs libmicrohttpd memory */
    size_t n_hosts, n_lengths, n_encodings;
    uint64_t length;
    bool expects; /* Expect: waits for 100 Continue before sending the body */
};

static bool fail_limit(struct gsv_framing *framing, unsigned status, const char *reason,
                       uint64_t limit, const char *unit)
{
    framing->state = GSV_FRAMING_REFUSED;
    framing->status = status;
    framing->reason = reason;
    framing->limit = limit;
    framing->unit = unit;
    return false;
}

static bool fail(struct gsv_framing *framing, unsigned status, const char *reason)
{
    return fail_limit(framing, status, reason, 0, "");
}

static bool fail_body(struct gsv_framing *framing, const char *reason)
{
    return fail_limit(framing, 413, reason, framing->max_body, "bytes (--max-body-bytes)");
}

static bool fail_header(struct gsv_framing *framing)
{
    return fail_limit(framing, 431, "the header is too large", GSV_HEADER_BYTES, "bytes");
}

static bool fail_fields(struct gsv_framing *framing)
{
    return fail_limit(framing, 431, "too many header fields, query parameters and cookies",
                      GSV_HEADER_FIELDS, "in total");
}

bool gsv_is_token(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* --------------------------------------------------------------------------------- request line */

static bool is_health_path(const char *target, size_t size)
{
    static const char *const paths[] = { "/health",         "/ping",    "/livez",
                                         "/readyz",         "/healthz", "/v2/health/live",
                                         "/v2/health/ready" };

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (strlen(paths[i]) == size && memcmp(paths[i], target, size) == 0)
            return true;
    }
    return false;
}

static bool check_version(struct gsv_framing *framing, const char *text, size_t size,
                          struct framing_header *header)
{
    if (size != 8 || memcmp(text, "HTTP/", 5) != 0 || text[6] != '.')
        return fail(framing, 400, "the request line is not METHOD target HTTP/1.1");
    if (text[5] != '1' || (text[7] != '0' && text[7] != '1'))
        return fail(framing, 505, "the HTTP version is not supported, only HTTP/1.1 and HTTP/1.0");
    header->minor = (unsigned)(text[7] - '0');
    return true;
}

static bool count_parts(struct gsv_framing *framing, struct framing_header *header,
                        const char *text, size_t size, char separator)
{
    for (size_t i = 0; i < size; i++)
        header->n_fields += text[i] == separator;
    return header->n_fields <= GSV_HEADER_FIELDS || fail_fields(framing);
}

static void keep_target(struct gsv_framing *framing, const char *target, size_t size)
{
    if (size >= GSV_TARGET_BYTES)
        size = GSV_TARGET_BYTES - 1;
    memcpy(framing->target, target, size);
    framing->target[size] = 0;
}

/* `size` bytes followed by CR, which stops each loop at the latest. */
static bool check_request_line(struct gsv_framing *framing, const char *line, size_t size,
                               struct framing_header *header)
{
    size_t method = 0, target, end;

    framing->target[0] = 0;
    while (line[method] >= 'A' && line[method] <= 'Z')
        method++;
    if (method == 0 || method > 16 || line[method] != ' ')
        return fail(framing, 400, "the request line is not METHOD target HTTP/1.1");
    target = method + 1;
    for (end = target; line[end] > ' ' && line[end] < 0x7F; end++) {
    }
    if (line[end] != ' ')
        return fail(framing, 400, "the request target has an invalid byte");
    if (line[target] != '/' && !(end - target == 1 && line[target] == '*'))
        return fail(framing, 400, "the request target is not a path");
    framing->is_health = is_health_path(line + target, end - target);
    keep_target(framing, line + target, end - target);
    return check_version(framing, line + end + 1, size - end - 1, header) &&
           count_parts(framing, header, line + target, end - target, '&');
}

/* --------------------------------------------------------------------------------------- fields */

static bool is_named(const char *name, size_t size, const char *wanted)
{
    return strlen(wanted) == size && strncasecmp(name, wanted, size) == 0;
}

static bool take_length(struct gsv_framing *framing, struct framing_header *header,
                        const char *value, size_t size)
{
    if (++header->n_lengths > 1)
        return fail(framing, 400, "more than one Content-Length header");
    if (size == 0)
        return fail(framing, 400, "Content-Length is not a number");
    for (size_t i = 0; i < size; i++) {
        if (value[i] < '0' || value[i] > '9')
            return fail(framing, 400, "Content-Length is not a number");
        if (i >= 18)
            return fail_body(framing, "Content-Length is too large");
        header->length = header->length * 10 + (uint64_t)(value[i] - '0');
    }
    return true;
}

/* A name or an address, with an optional port. RFC 9112 requires rejecting anything else. */
static bool take_host(struct gsv_framing *framing, struct framing_header *header, const char *value,
                      size_t size)
{
    if (++header->n_hosts > 1)
        return fail(framing, 400, "more than one Host header");
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)value[i] <= ' ' || (unsigned char)value[i] > '~' ||
            strchr("\"#,/<>?@\\^`{|}", value[i]))
            return fail(framing, 400, "the Host header is not a valid host");
    }
    return true;
}

static bool take_field(struct gsv_framing *framing, struct framing_header *header, const char *name,
                       size_t name_size, const char *value, size_t size)
{
    if (is_named(name, name_size, "Content-Length"))
        return take_length(framing, header, value, size);
    if (is_named(name, name_size, "Host"))
        return take_host(framing, header, value, size);
    if (is_named(name, name_size, "Cookie"))
        return count_parts(framing, header, value, size, ';');
    if (is_named(name, name_size, "Expect"))
        header->expects = true;
    if (is_named(name, name_size, "Transfer-Encoding") &&
        (++header->n_encodings > 1 || !is_named(value, size, "chunked")))
        return fail(framing, 400, "unsupported Transfer-Encoding, only chunked");
    return true;
}

/* libmicrohttpd keeps trailing blanks in values: it does not parse "31 " as a number, so it would
 * read the body as the next request. */
static bool is_framing_field(const char *name, size_t size)
{
    return is_named(name, size, "Content-Length") || is_named(name, size, "Transfer-Encoding");
}

/* A line as for check_request_line(). */
static bool check_field(struct gsv_framing *framing, const char *line, size_t size,
                        struct framing_header *header)
{
    size_t name = 0, begin, end = size;

    if (++header->n_fields > GSV_HEADER_FIELDS)
        return fail_fields(framing);
    while (gsv_is_token(line[name]))
        name++;
    if (name == 0 || line[name] != ':')
        return fail(framing, 400, "a header line is not `Name: value`");
    for (begin = name + 1; begin < size && (line[begin] == ' ' || line[begin] == '\t'); begin++) {
    }
    while (end > begin && (line[end - 1] == ' ' || line[end - 1] == '\t'))
        end--;
    if (end < size && is_framing_field(line, name))
        return fail(framing, 400,
                    "whitespace between Content-Length or Transfer-Encoding and its colon");
    for (size_t i = begin; i < end; i++) {
        if (((unsigned char)line[i] < ' ' && line[i] != '\t') || line[i] == 0x7F)
            return fail(framing, 400, "a header field has a control character");
    }
    return take_field(framing, header, line, name, line + begin, end - begin);
}

/* Checks the combination of fields and selects the body framing. */
static bool check_together(struct gsv_framing *framing, const struct framing_header *header)
{
    if (header->n_lengths > 0 && header->n_encodings > 0)
        return fail(framing, 400, "Content-Length and Transfer-Encoding are both set");
    if (header->n_encodings > 0 && header->minor == 0)
        return fail(framing, 400, "Transfer-Encoding is not valid in HTTP/1.0");
    if (header->n_hosts == 0 && header->minor == 1)
        return fail(framing, 400, "the Host header is missing");
    /* libmicrohttpd would read the next request as the body it asked for. */
    if (header->expects && header->length == 0 && header->n_encodings == 0)
        return fail(framing, 400, "Expect is set, but the request has no body");
    framing->left = header->length;
    framing->chunked = 0;
    framing->digits = 0;
    framing->n_dropped = 0;
    if (header->n_encodings > 0)
        framing->state = GSV_FRAMING_CHUNK_SIZE;
    else
        framing->state = header->length > 0 ? GSV_FRAMING_BODY : GSV_FRAMING_HEADER;
    framing->n_headers++;
    return true;
}

static bool check_header(struct gsv_framing *framing, const char *bytes, size_t size)
{
    struct framing_header header = { 0 };
    size_t at = 0;
    bool first = true;

    /* Up to the empty line, which `size` includes. Each line ends in LF. No line starts with LF:
     * header_end() would have ended the header there. */
    while (at < size - 2) {
        const char *end = memchr(bytes + at, '\n', size - at);
        const size_t line = (size_t)(end - bytes) - at - 1;

        if (end[-1] != '\r')
            return fail(framing, 400, "a line ends in LF without CR");
        if (!(first ? check_request_line(framing, bytes + at, line, &header)
                    : check_field(framing, bytes + at, line, &header)))
            return false;
        first = false;
        at += line + 2;
    }
    return !first ? check_together(framing, &header)
                  : fail(framing, 400, "an empty line in place of a request");
}

/* Offset after the header's empty line; 0: incomplete. An empty line of a bare LF also ends it, so
 * that take_header() rejects it at once instead of waiting for more. */
static size_t header_end(struct gsv_framing *framing, const char *bytes, size_t size)
{
    size_t at = framing->scanned;
    const char *lf;

    while (at < size && (lf = memchr(bytes + at, '\n', size - at)) != NULL) {
        const size_t line = (size_t)(lf - bytes);

        if (line == 0 || bytes[line - 1] == '\n' ||
            (bytes[line - 1] == '\r' && (line == 1 || bytes[line - 2] == '\n')))
            return line + 1;
        at = line + 1;
    }
    framing->scanned = at;
    return 0;
}

static size_t take_header(struct gsv_framing *framing, const char *bytes, size_t size)
{
    const size_t end = header_end(framing, bytes, size);

    if (end == 0)
        return size < GSV_HEADER_BYTES ? 0 : fail_header(framing);
    if (end > GSV_HEADER_BYTES)
        return fail_header(framing);
    if (end < 2 || bytes[end - 2] != '\r')
        return fail(framing, 400, "a line ends in LF without CR");
    framing->scanned = 0;
    return check_header(framing, bytes, end) ? end : 0;
}

/* --------------------------------------------------------------------------------------- chunks */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One character of a chunk size: a digit or the CR after it. */
static bool take_size(struct gsv_framing *framing, char c)
{
    const int digit = hex_digit(c);

    if (digit >= 0) {
        framing->left =
            framing->digits == 0 ? (uint64_t)digit : framing->left << 4 | (uint64_t)digit;
        if (++framing->digits > 15)
            return fail_body(framing, "a chunk is too large");
        return true;
    }
    if (c != '\r' || framing->digits == 0)
        return fail(framing, 400, "a chunk's size is not a hexadecimal number with CR LF");
    framing->chunked += framing->left;
    if (framing->chunked > framing->max_body)
        return fail_body(framing, "the body is too large");
    framing->state = GSV_FRAMING_CHUNK_SIZE_LF;
    return true;
}

static bool expect(struct gsv_framing *framing, char c, char wanted, enum gsv_framing_state next)
{
    if (c != wanted)
        return fail(framing, 400, "a chunk does not end in CR LF, or data follows the last chunk");
    framing->state = next;
    framing->digits = 0;
    return true;
}

static bool take_chunk_byte(struct gsv_framing *framing, char c)
{
    switch (framing->state) {
    case GSV_FRAMING_CHUNK_SIZE:
        return take_size(framing, c);
    case GSV_FRAMING_CHUNK_SIZE_LF:
        return expect(framing, c, '\n',
                      framing->left > 0 ? GSV_FRAMING_CHUNK_DATA : GSV_FRAMING_END_CR);
    case GSV_FRAMING_CHUNK_CR:
        return expect(framing, c, '\r', GSV_FRAMING_CHUNK_LF);
    case GSV_FRAMING_CHUNK_LF:
        return expect(framing, c, '\n', GSV_FRAMING_CHUNK_SIZE);
    case GSV_FRAMING_END_CR:
        return expect(framing, c, '\r', GSV_FRAMING_END_LF);
    default:
        return expect(framing, c, '\n', GSV_FRAMING_HEADER);
    }
}

static bool is_dropping(const struct gsv_framing *framing)
{
    return framing->state == GSV_FRAMING_CHUNK_EXTENSION ||
           framing->state == GSV_FRAMING_TRAILER_NAME ||
           framing->state == GSV_FRAMING_TRAILER_VALUE || framing->state == GSV_FRAMING_TRAILER_LF;
}

/* Enters the state of an extension or a trailer line if `c` begins one. */
static bool begin_dropping(struct gsv_framing *framing, char c)
{
    if (framing->state == GSV_FRAMING_CHUNK_SIZE && framing->digits > 0 && c == ';') {
        framing->state = GSV_FRAMING_CHUNK_EXTENSION;
        framing->is_quoted = false;
        framing->last = 0;
    } else if (framing->state == GSV_FRAMING_END_CR && gsv_is_token(c)) {
        framing->state = GSV_FRAMING_TRAILER_NAME;
        framing->digits = 0;
    }
    return is_dropping(framing);
}

static bool is_field_byte(char c)
{
    return c == '\t' || ((unsigned char)c >= ' ' && c != 0x7F);
}

/* One byte of `;name`, `;name=value` or `;name="quoted"`. */
static bool drop_extension_byte(struct gsv_framing *framing, char c)
{
    if (!is_field_byte(c))
        return fail(framing, 400, "a chunk extension has a control character");
    if (!framing->is_quoted && framing->last == ';' && !gsv_is_token(c))
        return fail(framing, 400, "a chunk extension has no name");
    if (c == '"' && !(framing->is_quoted && framing->last == '\\'))
        framing->is_quoted = !framing->is_quoted;
    /* A backslash that is quoted itself quotes nothing. */
    framing->last = c == '\\' && framing->last == '\\' ? 0 : c;
    return true;
}

/* The CR after an extension. */
static bool end_extension(struct gsv_framing *framing)
{
    if (framing->is_quoted || framing->last == ';' || framing->last == '=')
        return fail(framing, 400, "a chunk extension is not `;name=value`");
    framing->state = GSV_FRAMING_CHUNK_SIZE;
    return true;
}

/* Fields of framing and routing are not accepted after the body. */
static bool end_trailer_name(struct gsv_framing *framing)
{
    static const char *const refused[] = { "Content-Length", "Transfer-Encoding", "Host",
                                           "Content-Encoding" };

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (is_named(framing->name, framing->digits, refused[i]))
            return fail(framing, 400, "a trailer is a field of framing");
    }
    framing->state = GSV_FRAMING_TRAILER_VALUE;
    return true;
}

/* One byte of a trailer line `Name: value` CR LF. */
static bool drop_trailer_byte(struct gsv_framing *framing, char c)
{
    if (framing->state == GSV_FRAMING_TRAILER_NAME) {
        if (c == ':')
            return end_trailer_name(framing);
        if (!gsv_is_token(c))
            return fail(framing, 400, "a trailer line is not `Name: value`");
        if (framing->digits < sizeof(framing->name))
            framing->name[framing->digits] = c;
        framing->digits++;
        return true;
    }
    if (framing->state == GSV_FRAMING_TRAILER_VALUE) {
        if (c == '\r')
            framing->state = GSV_FRAMING_TRAILER_LF;
        return c == '\r' || is_field_byte(c) ||
               fail(framing, 400, "a trailer has a control character");
    }
    return expect(framing, c, '\n', GSV_FRAMING_END_CR);
}

/* The bytes of an extension or of trailer lines. An extension ends before the CR of its line, which
 * belongs to the chunk size. */
static size_t drop_bytes(struct gsv_framing *framing, const char *bytes, size_t size)
{
    size_t at = 0;

    while (at < size && is_dropping(framing)) {
        const char c = bytes[at];
        const bool is_extension = framing->state == GSV_FRAMING_CHUNK_EXTENSION;

        if (is_extension && c == '\r')
            return end_extension(framing) ? at : 0;
        if (++framing->n_dropped > GSV_DROPPED_BYTES) {
            fail_limit(framing, 431, "chunk extensions and trailers are too long",
                       GSV_DROPPED_BYTES, "bytes");
            return 0;
        }
        if (!(is_extension ? drop_extension_byte(framing, c) : drop_trailer_byte(framing, c)))
            return 0;
        at++;
    }
    return at;
}

static size_t take_data(struct gsv_framing *framing, size_t size, enum gsv_framing_state next)
{
    const size_t taken = framing->left < size ? (size_t)framing->left : size;

    framing->left -= taken;
    if (framing->left == 0)
        framing->state = next;
    return taken;
}

static size_t take_chunks(struct gsv_framing *framing, const char *bytes, size_t size)
{
    size_t at = 0;

    while (at < size && framing->state != GSV_FRAMING_HEADER) {
        if (begin_dropping(framing, bytes[at]))
            break;
        if (framing->state == GSV_FRAMING_CHUNK_DATA)
            at += take_data(framing, size - at, GSV_FRAMING_CHUNK_CR);
        else if (take_chunk_byte(framing, bytes[at]))
            at++;
        else
            return 0; /* rejected: valid bytes before the error are not passed on either */
    }
    return at;
}

size_t gsv_framing_take(struct gsv_framing *framing, const char *bytes, size_t size)
{
    size_t n;

    framing->drop = false;
    if (size == 0 || framing->state == GSV_FRAMING_REFUSED)
        return 0;
    if (framing->state == GSV_FRAMING_HEADER)
        return take_header(framing, bytes, size);
    if (framing->state == GSV_FRAMING_BODY)
        return take_data(framing, size, GSV_FRAMING_HEADER);
    if (is_dropping(framing) && (n = drop_bytes(framing, bytes, size)) > 0) {
        framing->drop = true;
        return n;
    }
    if (framing->state == GSV_FRAMING_REFUSED)
        return 0;
    n = take_chunks(framing, bytes, size);
    if (n > 0 || !is_dropping(framing))
        return n;
    framing->drop = true;
    return drop_bytes(framing, bytes, size);
}
