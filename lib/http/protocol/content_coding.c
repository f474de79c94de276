/*
 * content_coding.c - gzip and zstd of replies, at their fastest levels; gzip and deflate of request
 * bodies.
 *
 * A body is exactly one complete gzip or zlib stream. It is inflated by zlib in chunks of 64 kB, up
 * to max_body_bytes. libzstd is loaded if it is installed, and serves clients that name zstd. Of
 * two accepted codings the one of higher quality is taken, of equal ones zstd: its replies are
 * smaller in less time.
 *
 * Only JSON and text of at least MIN_BYTES is compressed, by default only for clients of other
 * machines: the loopback is faster than both. A probe compresses the first PROBE_BYTES. If the
 * probe or the result exceeds three quarters of its input (base64), the reply is sent uncompressed.
 * Runs on the thread that made the reply: a worker thread for large ones.
 *
 * A streamed reply has one encoder for all of its blocks. The probe of the first block decides, as
 * the coding is in the reply's header. Each block is flushed, so that the client can decompress it
 * before the next one is made. The plain block is freed: a stream holds a compressed block and the
 * encoder's state.
 */
#include "lib/http/protocol/exchange.h"
#include "lib/http/protocol/request.h"

#include "lib/http/net/server_state.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

enum {
    MIN_BYTES = 1024,
    PROBE_BYTES = 4096,
    GZIP_WINDOW = 15 + 16,
    MEMORY_LEVEL = 8,
    PART_BYTES = 64 * 1024, /* by which a compressed block or an inflated body grows */
    ZSTD_LEVEL = 1,
    /* Window of a compressed stream: numbers repeat within it, and the encoder's memory is a
     * multiple of it. */
    ZSTD_WINDOW_LOG = 17
};

static size_t bound_of(size_t size)
{
    return size / 4 * 3;
}

/* ---------------------------------------------------------------------------------- negotiation */

/* "q=0.5" in thousandths; without it 1000. `text` ends at a comma or NUL. */
static unsigned quality_of(const char *text)
{
    const char *end = text + strcspn(text, ",");
    unsigned value, unit = 100;

    while (text < end &&
           !(*text == ';' && strncasecmp(text + 1 + strspn(text + 1, " \t"), "q=", 2) == 0))
        text++;
    if (text == end)
        return 1000;
    text += strcspn(text, "=") + 1;
    value = *text == '1' ? 1000 : 0;
    if (value == 0 && text[0] == '0' && text[1] == '.') {
        for (text += 2; *text >= '0' && *text <= '9' && unit > 0; text++, unit /= 10)
            value += (unsigned)(*text - '0') * unit;
    }
    return value;
}

/* The quality of a coding that the field names; `other` if it does not. */
static unsigned named_or(const char *field, const char *coding, unsigned other)
{
    const size_t n = strlen(coding);

    for (const char *at = field; at && *at; at += strcspn(at, ","), at += *at == ',') {
        at += strspn(at, " \t");
        if (strncasecmp(at, coding, n) == 0 && strchr(";, \t", at[n]))
            return quality_of(at);
    }
    return other;
}

unsigned gsv_accepted_by_name(const char *field, const char *name)
{
    return named_or(field, name, 0);
}

unsigned gsv_accepted(const char *field, const char *coding)
{
    return named_or(field, coding, named_or(field, "*", 0));
}

static bool is_local(const struct gsv_exchange *exchange)
{
    const struct sockaddr_storage *address;

    if (!exchange->client)
        return true;
    address = &exchange->client->address;
    if (address->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    if (address->ss_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;

        return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
    }
    return true;
}

static bool is_wanted(const struct gsv_exchange *exchange)
{
    const uint32_t mode = exchange->server->options.compression;

    return mode == GPUSERVE_COMPRESSION_ALWAYS ||
           (mode == GPUSERVE_COMPRESSION_REMOTE && !is_local(exchange));
}

static bool is_text(const char *type)
{
    return type && (strncmp(type, "application/json", 16) == 0 || strncmp(type, "text/", 5) == 0 ||
                    strncmp(type, "application/x-ndjson", 20) == 0);
}

/* ---------------------------------------------------------------------------------- compression */

/* Compresses `size` bytes. Returns the size of the result; 0: it does not fit `capacity`, or memory
 * is short. */
typedef size_t (*compressor)(const char *from, size_t size, char *to, size_t capacity);

static size_t deflate_all(const char *from, size_t size, char *to, size_t capacity)
{
    z_stream stream = { 0 };
    size_t made = 0;

    if (size > UINT32_MAX || deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW,
                                          MEMORY_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
        return 0;
    stream.next_in = (Bytef *)(uintptr_t)from;
    stream.avail_in = (uInt)size;
    stream.next_out = (Bytef *)to;
    stream.avail_out = (uInt)capacity;
    if (deflate(&stream, Z_FINISH) == Z_STREAM_END)
        made = capacity - stream.avail_out;
    deflateEnd(&stream);
    return made;
}

/* The part of <zstd.h> (1.4.0, the stable interface) that is used. */
struct zstd_in { /* ZSTD_inBuffer */
    const void *bytes;
    size_t size, at;
};

struct zstd_out { /* ZSTD_outBuffer */
    void *bytes;
    size_t size, at;
};

enum { ZSTD_SET_LEVEL = 100, ZSTD_SET_WINDOW_LOG = 101 }; /* ZSTD_cParameter */
enum { ZSTD_FLUSH = 1, ZSTD_END = 2 };                    /* ZSTD_EndDirective */

static struct {
    size_t (*compress)(void *to, size_t capacity, const void *from, size_t size, int level);
    unsigned (*is_error)(size_t result);
    void *(*create)(void);
    size_t (*destroy)(void *context);
    size_t (*set)(void *context, int parameter, int value);
    size_t (*compress_stream)(void *context, struct zstd_out *to, struct zstd_in *from, int end);
    bool is_loaded;
} zstd;

static void load_zstd(void)
{
    void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return;
    *(void **)&zstd.compress = dlsym(library, "ZSTD_compress");
    *(void **)&zstd.is_error = dlsym(library, "ZSTD_isError");
    *(void **)&zstd.create = dlsym(library, "ZSTD_createCCtx");
    *(void **)&zstd.destroy = dlsym(library, "ZSTD_freeCCtx");
    *(void **)&zstd.set = dlsym(library, "ZSTD_CCtx_setParameter");
    *(void **)&zstd.compress_stream = dlsym(library, "ZSTD_compressStream2");
    zstd.is_loaded = zstd.compress && zstd.is_error && zstd.create && zstd.destroy && zstd.set &&
                     zstd.compress_stream;
}

void gsv_compress_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load_zstd);
}

static size_t zstd_all(const char *from, size_t size, char *to, size_t capacity)
{
    const size_t made = zstd.compress(to, capacity, from, size, ZSTD_LEVEL);

    return zstd.is_error(made) ? 0 : made;
}

/* The coding for this client and its compressor; NULL: none. */
static const char *choose(const struct gsv_exchange *exchange, compressor *compress)
{
    const char *accepted = gsv_header(exchange, "Accept-Encoding");
    const unsigned gzip = gsv_accepted(accepted, "gzip");
    /* Not for `*`: more clients read gzip than know that they accept zstd. */
    const unsigned of_zstd = zstd.is_loaded ? gsv_accepted_by_name(accepted, "zstd") : 0;

    *compress = of_zstd > 0 && of_zstd >= gzip ? zstd_all : deflate_all;
    if (*compress == zstd_all)
        return "zstd";
    return gzip > 0 ? "gzip" : NULL;
}

static bool shrinks(const struct gsv_buffer *reply, compressor compress)
{
    const size_t size = reply->size < PROBE_BYTES ? reply->size : PROBE_BYTES;
    char probe[PROBE_BYTES];

    return compress(reply->bytes, size, probe, bound_of(size)) > 0;
}

/* ----------------------------------------------------------------------------- streamed replies */

struct gsv_reply_encoder {
    z_stream gzip;
    void *zstd; /* ZSTD_CCtx; NULL: gzip */
};

void gsv_reply_encoder_free(struct gsv_reply_encoder *encoder)
{
    if (!encoder)
        return;
    if (encoder->zstd)
        zstd.destroy(encoder->zstd);
    else
        deflateEnd(&encoder->gzip);
    free(encoder);
}

static bool start_zstd(struct gsv_reply_encoder *encoder)
{
    encoder->zstd = zstd.create();
    if (!encoder->zstd)
        return false;
    if (!zstd.is_error(zstd.set(encoder->zstd, ZSTD_SET_LEVEL, ZSTD_LEVEL)) &&
        !zstd.is_error(zstd.set(encoder->zstd, ZSTD_SET_WINDOW_LOG, ZSTD_WINDOW_LOG)))
        return true;
    zstd.destroy(encoder->zstd);
    return false;
}

/* NULL if out of memory: the reply is sent uncompressed. */
static struct gsv_reply_encoder *start_encoder(bool is_zstd)
{
    struct gsv_reply_encoder *encoder = calloc(1, sizeof(*encoder));

    if (!encoder)
        return NULL;
    if (is_zstd ? start_zstd(encoder)
                : deflateInit2(&encoder->gzip, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW, MEMORY_LEVEL,
                               Z_DEFAULT_STRATEGY) == Z_OK)
        return encoder;
    free(encoder);
    return NULL;
}

/* The two append a block to `to`, flushed or, if it is the last one, ended. False: out of memory.
 */
static bool gzip_block(z_stream *gzip, const struct gsv_buffer *from, bool is_last,
                       struct gsv_buffer *to)
{
    char *part;

    if (from->size > UINT32_MAX)
        return false;
    gzip->next_in = (Bytef *)from->bytes;
    gzip->avail_in = (uInt)from->size;
    do {
        part = gsv_buffer_reserve(to, PART_BYTES);
        if (!part)
            return false;
        gzip->next_out = (Bytef *)part;
        gzip->avail_out = PART_BYTES;
        if (deflate(gzip, is_last ? Z_FINISH : Z_SYNC_FLUSH) == Z_STREAM_ERROR)
            return false;
        to->size += PART_BYTES - gzip->avail_out;
    } while (gzip->avail_out == 0);
    return true;
}

static bool zstd_block(void *context, const struct gsv_buffer *from, bool is_last,
                       struct gsv_buffer *to)
{
    struct zstd_in in = { from->bytes, from->size, 0 };
    size_t left;

    do {
        struct zstd_out out = { gsv_buffer_reserve(to, PART_BYTES), PART_BYTES, 0 };

        if (!out.bytes)
            return false;
        left = zstd.compress_stream(context, &out, &in, is_last ? ZSTD_END : ZSTD_FLUSH);
        if (zstd.is_error(left))
            return false;
        to->size += out.at;
    } while (left > 0);
    return true;
}

/* Compression policy: content type, size and server options. Accept-Encoding decides afterwards. */
static bool may_compress(const struct gsv_exchange *exchange)
{
    return exchange->reply.size >= MIN_BYTES && is_text(exchange->content_type) &&
           is_wanted(exchange);
}

/* The first block decides about the whole stream. Returns the coding, or NULL. */
static const char *decide_stream(struct gsv_exchange *exchange)
{
    compressor compress;
    const char *coding;

    if (!may_compress(exchange))
        return NULL;
    gsv_add_header(exchange, "Vary", "Accept-Encoding");
    coding = choose(exchange, &compress);
    if (!coding || !shrinks(&exchange->reply, compress))
        return NULL;
    exchange->encoder = start_encoder(compress == zstd_all);
    return exchange->encoder ? coding : NULL;
}

static void compress_block(struct gsv_exchange *exchange)
{
    struct gsv_stream *stream = exchange->stream;
    const char *coding = stream->has_begun ? NULL : decide_stream(exchange);
    struct gsv_reply_encoder *encoder = exchange->encoder;
    struct gsv_buffer made = { 0 };

    if (!encoder)
        return;
    if (encoder->zstd ? zstd_block(encoder->zstd, &exchange->reply, stream->is_last, &made)
                      : gzip_block(&encoder->gzip, &exchange->reply, stream->is_last, &made)) {
        gsv_buffer_reset(&exchange->reply);
        exchange->reply = made;
        gsv_add_header(exchange, "Content-Encoding", coding); /* nothing if it is NULL */
        return;
    }
    gsv_buffer_reset(&made);
    if (stream->has_begun) { /* what was sent cannot be continued */
        gsv_buffer_reset(&exchange->reply);
        stream->is_last = stream->is_cut = true;
    } else {
        gsv_reply_encoder_free(encoder);
        exchange->encoder = NULL;
    }
}

/* ---------------------------------------------------------------------------------------- reply */

static void compress_all(struct gsv_exchange *exchange)
{
    struct gsv_buffer *reply = &exchange->reply;
    size_t capacity = bound_of(reply->size), size;
    compressor compress;
    const char *coding;
    char *to;

    gsv_add_header(exchange, "Vary", "Accept-Encoding");
    coding = choose(exchange, &compress);
    if (!coding || (reply->size > PROBE_BYTES && !shrinks(reply, compress)))
        return;
    to = malloc(capacity);
    size = to ? compress(reply->bytes, reply->size, to, capacity) : 0;
    if (size == 0) {
        free(to);
        return;
    }
    gsv_buffer_reset(reply);
    *reply = (struct gsv_buffer){ .bytes = to, .size = size, .capacity = capacity };
    gsv_add_header(exchange, "Content-Encoding", coding);
}

void gsv_compress_reply(struct gsv_exchange *exchange, size_t max_bytes)
{
    const struct gsv_stream *stream = exchange->stream;
    const bool is_block = stream && (stream->has_begun || exchange->status == 200);

    if (exchange->is_compressed || exchange->borrowed || exchange->reply_fd >= 0)
        return;
    if (is_block) {
        exchange->is_compressed = true;
        compress_block(exchange);
    } else if (exchange->reply.size <= max_bytes && may_compress(exchange)) {
        exchange->is_compressed = true;
        compress_all(exchange);
    }
}

/* --------------------------------------------------------------------------------------- bodies */

/* Inflates one stream; rejects trailing bytes. */
static bool inflate_all(struct gsv_exchange *exchange, z_stream *stream, struct gsv_buffer *to)
{
    const size_t limit = to->maximum;
    int result = Z_OK;

    while (result != Z_STREAM_END) {
        size_t capacity = limit - to->size;
        char *at;

        if (capacity == 0) /* full before the end of the stream: the body is over the limit */
            return gsv_refuse(exchange, GSV_P_TOO_LARGE, NULL,
                              "the decompressed body exceeds %zu bytes (--max-body-bytes)", limit);
        capacity = capacity < PART_BYTES ? capacity : PART_BYTES;
        at = gsv_buffer_reserve(to, capacity);
        if (!at)
            return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory for the body");
        stream->next_out = (Bytef *)at;
        stream->avail_out = (uInt)capacity;
        result = inflate(stream, Z_NO_FLUSH);
        to->size += capacity - stream->avail_out;
        if (result != Z_OK && result != Z_STREAM_END)
            return gsv_refuse(exchange, GSV_P_SYNTAX, NULL, "the compressed body is corrupt");
        if (result == Z_OK && stream->avail_out > 0 && stream->avail_in == 0)
            return gsv_refuse(exchange, GSV_P_SYNTAX, NULL, "the compressed body is truncated");
    }
    return stream->avail_in == 0 ||
           gsv_refuse(exchange, GSV_P_SYNTAX, NULL, "data follows the compressed body");
}

bool gsv_unpack(struct gsv_exchange *exchange)
{
    const char *encoding = gsv_header(exchange, "Content-Encoding");
    struct gsv_buffer unpacked = { .maximum = exchange->server->options.max_body_bytes };
    z_stream stream = { 0 };
    bool good;

    if (!encoding || !encoding[0] || strcasecmp(encoding, "identity") == 0)
        return true;
    if (strcasecmp(encoding, "gzip") != 0 && strcasecmp(encoding, "x-gzip") != 0 &&
        strcasecmp(encoding, "deflate") != 0)
        return gsv_refuse(exchange, GSV_P_MEDIA, NULL,
                          "Content-Encoding \"%.40s\" is not supported, only gzip and deflate",
                          encoding);
    if (exchange->body.size == 0)
        return true;
    if (inflateInit2(&stream, 15 + 32) != Z_OK) /* +32: detects zlib or gzip by the header */
        return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL,
                          "out of memory to decompress the body");
    stream.next_in = (Bytef *)exchange->body.bytes;
    stream.avail_in = (uInt)exchange->body.size;
    good = inflate_all(exchange, &stream, &unpacked);
    inflateEnd(&stream);
    if (!good) {
        gsv_buffer_reset(&unpacked);
        return false;
    }
    gsv_buffer_reset(&exchange->body);
    exchange->body = unpacked;
    return true;
}
