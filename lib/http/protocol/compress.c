/*
 * compress.c - gzip of replies by zlib and zstd by libzstd, at their fastest levels.
 *
 * libzstd is loaded if it is installed, and serves clients that name zstd. Of two accepted codings
 * the one of higher quality is taken, of equal ones zstd: its replies are smaller in less time.
 *
 * Only JSON and text of at least MIN_BYTES is compressed, by default only for clients of other
 * machines: the loopback is faster than both. A probe compresses the first PROBE_BYTES. If the
 * probe or the result exceeds three quarters of its input (base64), the reply is sent uncompressed.
 * Runs on the thread that made the reply: a worker thread for large ones.
 */
#include "lib/http/protocol/exchange.h"

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
    ZSTD_LEVEL = 1
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

/* The functions of libzstd that are used, as <zstd.h> declares them; NULL: it is not installed. */
static struct {
    size_t (*compress)(void *to, size_t capacity, const void *from, size_t size, int level);
    unsigned (*is_error)(size_t result);
} zstd;

static void load_zstd(void)
{
    void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return;
    *(void **)&zstd.compress = dlsym(library, "ZSTD_compress");
    *(void **)&zstd.is_error = dlsym(library, "ZSTD_isError");
    if (!zstd.is_error)
        zstd.compress = NULL;
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
    const unsigned of_zstd = zstd.compress ? gsv_accepted_by_name(accepted, "zstd") : 0;

    *compress = of_zstd > 0 && of_zstd >= gzip ? zstd_all : deflate_all;
    if (*compress == zstd_all)
        return "zstd";
    return gzip > 0 ? "gzip" : NULL;
}

static bool shrinks(const char *bytes, compressor compress)
{
    char probe[PROBE_BYTES];

    return compress(bytes, PROBE_BYTES, probe, bound_of(PROBE_BYTES)) > 0;
}

void gsv_compress_reply(struct gsv_exchange *exchange, size_t max_bytes)
{
    struct gsv_buffer *reply = &exchange->reply;
    size_t capacity = bound_of(reply->size), size;
    compressor compress;
    const char *coding;
    char *to;

    if (exchange->is_compressed || exchange->borrowed || exchange->reply_fd >= 0 ||
        exchange->stream || reply->size < MIN_BYTES || reply->size > max_bytes ||
        !is_text(exchange->content_type) || !is_wanted(exchange))
        return;
    exchange->is_compressed = true;
    gsv_add_header(exchange, "Vary", "Accept-Encoding");
    coding = choose(exchange, &compress);
    if (!coding || (reply->size > PROBE_BYTES && !shrinks(reply->bytes, compress)))
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
