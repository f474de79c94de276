/*
 * api_keys.c - parses, stores and checks API keys; token bucket rate limit for each key; the client
 * number of a key or an address.
 *
 * The key set is replaced under `lock`; buckets of unchanged keys survive a reload. Lookup compares
 * SHA-256 digests with all keys in constant time. The line buffer for plain keys is wiped after
 * use.
 *
 * The client number is for stochastic fairness queueing in the library. The server's random seed
 * prevents a client from choosing an address that shares a number with another client.
 */
#include "lib/base/clock.h"
#include "lib/http/protocol/access.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/http/core/encoding.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/route.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    MAX_KEYS = 10000,
    MAX_KEY_BYTES = 512,
    MAX_LINE_BYTES = 1024,
    MAX_FILE_BYTES = 1 << 24, /* the file may be an endless pipe */
    HASHED_PREFIX = 7,
    IPV6_PREFIX_BYTES = 8,
    MAPPED_BYTES = 12,
};

/* -------------------------------------------------------------------------------------- one key */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool read_digest(unsigned char digest[GSV_DIGEST_BYTES], const char *hex)
{
    if (strlen(hex) != 2 * GSV_DIGEST_BYTES)
        return false;
    for (size_t i = 0; i < GSV_DIGEST_BYTES; i++) {
        const int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        digest[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

static bool hash(unsigned char digest[GSV_DIGEST_BYTES], const char *text)
{
    return EVP_Digest(text, strlen(text), digest, NULL, EVP_sha256(), NULL) == 1;
}

/* Why the text is not a valid key, or NULL. Messages never contain the text. */
static const char *fill_key(struct gsv_key *key, const char *text)
{
    const size_t size = strlen(text);

    *key = (struct gsv_key){ 0 };
    if (size == 0)
        return "the key is empty";
    if (size > MAX_KEY_BYTES)
        return "the key has more than 512 bytes";
    for (size_t i = 0; i < size; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return "the key has a space or a character that is not valid in a header";
    }
    if (strncasecmp(text, "sha256:", HASHED_PREFIX) == 0) {
        if (!read_digest(key->digest, text + HASHED_PREFIX))
            return "sha256: must be followed by 64 hexadecimal digits";
    } else if (!hash(key->digest, text)) {
        return "SHA-256 is not available";
    }
    for (size_t i = 0; i < 4; i++)
        snprintf(key->name + 2 * i, 3, "%02x", key->digest[i]);
    return NULL;
}

/* --------------------------------------------------------------------------------------- sets */

struct set {
    struct gsv_key *keys;
    size_t n, capacity;
};

/* Constant time: scans all keys, and no branch or address depends on a digest. The duration does
 * not reveal which key matched or how close a guess is. */
size_t gsv_keys_find(const struct gsv_key *keys, size_t n,
                     const unsigned char digest[GSV_DIGEST_BYTES])
{
    size_t found = n;

    for (size_t i = 0; i < n; i++) {
        const int differs = CRYPTO_memcmp(keys[i].digest, digest, GSV_DIGEST_BYTES) != 0;
        const size_t same = (size_t)differs - 1; /* all bits set, or none */

        found ^= (found ^ i) & same;
    }
    return found;
}

static gpuserve_status add(struct set *set, const char *text, const char *where,
                           gpuserve_error *error)
{
    struct gsv_key key;
    const char *wrong = fill_key(&key, text);

    if (wrong)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s: %s", where, wrong);
    if (gsv_keys_find(set->keys, set->n, key.digest) < set->n)
        return GPUSERVE_OK;
    if (set->n == MAX_KEYS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: more than %d keys", where, MAX_KEYS);
    if (!gsv_grow((void **)&set->keys, &set->capacity, set->n + 1, sizeof(key), MAX_KEYS))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu keys", set->n + 1);
    set->keys[set->n++] = key;
    return GPUSERVE_OK;
}

/* One line with its line end, truncated to the buffer; false at the end of the file. */
static bool read_line(FILE *file, char line[MAX_LINE_BYTES], size_t *size)
{
    int c;

    for (*size = 0; *size < MAX_LINE_BYTES - 1 && (c = getc(file)) != EOF;) {
        line[(*size)++] = (char)c;
        if (c == '\n')
            break;
    }
    line[*size] = 0;
    return *size > 0;
}

static gpuserve_status add_line(struct set *set, char *line, size_t size, const char *where,
                                gpuserve_error *error)
{
    const bool is_cut = size == MAX_LINE_BYTES - 1 && line[size - 1] != '\n';
    const bool has_nul = strlen(line) < size; /* strlen() would hide what follows it */
    const char *text = gsv_trim(line);

    if (is_cut)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s exceeds %d bytes", where,
                        MAX_LINE_BYTES - 2);
    if (has_nul)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s has a NUL byte", where);
    return text[0] && text[0] != '#' ? add(set, text, where, error) : GPUSERVE_OK;
}

static gpuserve_status add_lines(struct set *set, FILE *file, const char *path,
                                 gpuserve_error *error)
{
    char line[MAX_LINE_BYTES], where[320];
    gpuserve_status st = GPUSERVE_OK;
    const size_t before = set->n;
    size_t size, n_bytes = 0;

    for (size_t i = 1; st == GPUSERVE_OK && read_line(file, line, &size); i++) {
        n_bytes += size;
        snprintf(where, sizeof(where), "%.256s: line %zu", path, i);
        st = n_bytes <= MAX_FILE_BYTES
                 ? add_line(set, line, size, where, error)
                 : gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                            "%s: the keys and comments exceed %d bytes", path, MAX_FILE_BYTES);
    }
    OPENSSL_cleanse(line, sizeof(line));
    if (st == GPUSERVE_OK && ferror(file))
        return gsv_fail(error, GPUSERVE_E_IO, "%s: %s", path, strerror(errno));
    if (st == GPUSERVE_OK && set->n == before)
        return gsv_hint(
            error, gsv_fail(error, GPUSERVE_E_INVALID, "%s has no key", path),
            "write one key per line, plain or as sha256:HEX; lines with # are comments");
    return st;
}

static gpuserve_status add_file(struct set *set, const char *path, gpuserve_error *error)
{
    FILE *file = fopen(path, "re");
    gpuserve_status st;

    if (!file)
        return gsv_fail(error, GPUSERVE_E_IO, "%s: %s", path, strerror(errno));
    st = add_lines(set, file, path, error);
    fclose(file);
    return st;
}

/* ------------------------------------------------------------------------------ open and reload */

static void fill_bucket(struct gsv_key *key, double burst)
{
    key->n_left = burst;
    key->filled_ns = gsv_now_ns();
}

gpuserve_status gsv_keys_open(struct gsv_keys *keys, const gpuserve_http_options *options,
                              gpuserve_error *error)
{
    struct set set = { 0 };
    gpuserve_status st = GPUSERVE_OK;

    if (options->n_api_keys > 0 && !options->api_keys)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`api_keys` is NULL, n_api_keys is %zu",
                        options->n_api_keys);
    keys->rate = options->key_rate / 60.0;
    keys->burst = options->key_burst ? options->key_burst : 1 + options->key_rate / 6;
    if (options->key_rate && options->n_api_keys == 0 && !options->api_key_file)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "key_rate is %u requests per minute, but no API key is set",
                        options->key_rate);
    for (size_t i = 0; i < options->n_api_keys && st == GPUSERVE_OK; i++)
        st = add(&set, options->api_keys[i] ? options->api_keys[i] : "", "an API key", error);
    for (size_t i = 0; i < set.n; i++)
        fill_bucket(&set.keys[i], keys->burst);
    keys->keys = set.keys;
    keys->n = keys->n_given = set.n;
    if (st != GPUSERVE_OK || !options->api_key_file)
        return st;
    keys->file = gsv_copy_text(options->api_key_file, strlen(options->api_key_file));
    if (!keys->file)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a file's name");
    return gsv_keys_reload(keys, error);
}

void gsv_keys_close(struct gsv_keys *keys)
{
    free(keys->keys);
    free(keys->file);
    keys->keys = NULL;
    keys->file = NULL;
    keys->n = 0;
}

/* Swaps in the new set. Known keys keep their buckets: a reload does not refill them. */
static void exchange_keys(struct gsv_keys *keys, const struct set *set)
{
    struct gsv_key *old;

    pthread_mutex_lock(&keys->lock);
    for (size_t i = 0; i < set->n; i++) {
        const size_t same = gsv_keys_find(keys->keys, keys->n, set->keys[i].digest);

        if (same < keys->n)
            set->keys[i] = keys->keys[same];
        else
            fill_bucket(&set->keys[i], keys->burst);
    }
    old = keys->keys;
    keys->keys = set->keys;
    keys->n = set->n;
    pthread_mutex_unlock(&keys->lock);
    free(old);
}

gpuserve_status gsv_keys_reload(struct gsv_keys *keys, gpuserve_error *error)
{
    struct set set = { 0 };
    gpuserve_status st;

    if (!keys->file)
        return GPUSERVE_OK;
    if (!gsv_grow((void **)&set.keys, &set.capacity, keys->n_given + 1, sizeof(*set.keys),
                  MAX_KEYS))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for keys");
    pthread_mutex_lock(&keys->lock); /* given keys stay; buckets change */
    for (; set.n < keys->n_given; set.n++)
        set.keys[set.n] = keys->keys[set.n];
    pthread_mutex_unlock(&keys->lock);
    st = add_file(&set, keys->file, error);
    if (st == GPUSERVE_OK)
        exchange_keys(keys, &set);
    else
        free(set.keys);
    return st;
}

/* ---------------------------------------------------------------------------------------- admit */

/* The key in the request, or NULL. Some clients send the bare key instead of "Bearer KEY". */
static const char *key_of(const struct gsv_exchange *exchange)
{
    static const char *const others[] = { "x-api-key", "api-key" };
    const char *text = gsv_header(exchange, "Authorization");

    if (text && strncasecmp(text, "Bearer", 6) == 0 && (text[6] == ' ' || text[6] == 0))
        text += 6 + strspn(text + 6, " ");
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]) && !text; i++)
        text = gsv_header(exchange, others[i]);
    return text;
}

/* Takes one token from the bucket: 0, or the milliseconds until one is available. */
static uint32_t take_one(const struct gsv_keys *keys, struct gsv_key *key)
{
    const uint64_t now = gsv_now_ns();

    if (keys->rate == 0)
        return 0;
    key->n_left += (double)(now - key->filled_ns) / 1e9 * keys->rate;
    key->filled_ns = now;
    if (key->n_left > keys->burst)
        key->n_left = keys->burst;
    if (key->n_left < 1)
        return 1 + (uint32_t)((1 - key->n_left) / keys->rate * 1000);
    key->n_left -= 1;
    return 0;
}

bool gsv_keys_admit(struct gsv_keys *keys, struct gsv_exchange *exchange)
{
    unsigned char digest[GSV_DIGEST_BYTES];
    const char *text = key_of(exchange);
    uint32_t wait_ms = 0;
    size_t index;
    bool known;

    if (!keys->n_given && !keys->file)
        return true;
    if (text && !hash(digest, text))
        return gsv_refuse(exchange, GSV_P_INTERNAL, NULL, "SHA-256 is not available");
    pthread_mutex_lock(&keys->lock);
    index = text ? gsv_keys_find(keys->keys, keys->n, digest) : keys->n;
    known = index < keys->n;
    if (known) {
        struct gsv_key *key = &keys->keys[index];

        memcpy(exchange->key_name, key->name, sizeof(exchange->key_name));
        wait_ms = take_one(keys, key);
    }
    pthread_mutex_unlock(&keys->lock);
    if (!known) {
        gsv_add_header(exchange, "WWW-Authenticate", "Bearer");
        return gsv_refuse(exchange, GSV_P_UNAUTHORIZED, NULL,
                          text ? "the API key is not valid"
                               : "the request needs an API key: Authorization: Bearer KEY");
    }
    if (wait_ms == 0)
        return true;
    gsv_add_retry_after(exchange, wait_ms);
    return gsv_refuse(exchange, GSV_P_RATE_LIMIT, NULL,
                      "this API key exceeds its limit of %.0f requests per minute (--key-rate)",
                      keys->rate * 60);
}

/* ------------------------------------------------------------------------------- client number */

/* FNV-1a with the seed instead of the offset basis. */
static uint64_t number_of(uint64_t seed, char kind, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t value = (seed ^ (unsigned char)kind) * UINT64_C(0x100000001b3);

    for (size_t i = 0; i < size; i++)
        value = (value ^ at[i]) * UINT64_C(0x100000001b3);
    return value ? value : 1;
}

uint64_t gsv_identity_of(const char *key_name, const struct sockaddr_storage *address,
                         uint64_t seed)
{
    if (key_name[0])
        return number_of(seed, 'k', key_name, strlen(key_name));
    if (address->ss_family == AF_INET)
        return number_of(seed, '4', &((const struct sockaddr_in *)address)->sin_addr, 4);
    if (address->ss_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;

        if (IN6_IS_ADDR_V4MAPPED(v6))
            return number_of(seed, '4', v6->s6_addr + MAPPED_BYTES, 4);
        return number_of(seed, '6', v6, IPV6_PREFIX_BYTES);
    }
    return number_of(seed, 'u', "", 0);
}

uint64_t gsv_client_identity(const struct gsv_exchange *exchange)
{
    static const struct sockaddr_storage none;

    return gsv_identity_of(exchange->key_name,
                           exchange->client ? &exchange->client->address : &none,
                           exchange->server->seed);
}
