/*
 * hash.c - the hash of a downloaded file, through OpenSSL's libcrypto, which is loaded here.
 *
 * The program is not linked with libcrypto: no other command needs it. Its functions are declared
 * here: their binary interface is the same in OpenSSL 1.1 and 3, and the program builds without
 * OpenSSL's headers. With GPUSERVE_FETCH the helper program computes the hash instead (helper.c).
 */
#include "cli/pull/pull.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES (1 << 20)
#define MAX_DIGEST_BYTES 64 /* EVP_MAX_MD_SIZE */

/* EVP_MD_CTX and EVP_MD are opaque. */
static struct crypto_calls {
    void *(*context_new)(void);
    void (*context_free)(void *context);
    int (*init)(void *context, const void *digest, void *engine);
    int (*update)(void *context, const void *bytes, size_t size);
    int (*final)(void *context, unsigned char *bytes, unsigned int *size);
    const void *(*sha1)(void);
    const void *(*sha256)(void);
} calls;

#define CALL(name, field)                          \
    {                                              \
        name, offsetof(struct crypto_calls, field) \
    }

static const struct cli_symbol symbols[] = {
    CALL("EVP_MD_CTX_new", context_new), CALL("EVP_MD_CTX_free", context_free),
    CALL("EVP_DigestInit_ex", init),     CALL("EVP_DigestUpdate", update),
    CALL("EVP_DigestFinal_ex", final),   CALL("EVP_sha1", sha1),
    CALL("EVP_sha256", sha256)
};

int cli_hash_open(void)
{
    static const char *const libraries[] = { "libcrypto.so.3", "libcrypto.so.1.1", NULL };
    char *why;
    void *library = cli_library_open(libraries, &why);

    if (!library) {
        cli_fail("libcrypto, which verifies downloads, cannot be loaded: %s", why);
        cli_hint("install it: apt-get install libssl3, dnf install openssl-libs");
        free(why);
        return CLI_FAILED;
    }
    return cli_library_symbols(library, "libcrypto", symbols, sizeof(symbols) / sizeof(symbols[0]),
                               &calls);
}

/* Adds the file from its first byte on. */
static bool add_file(void *context, int fd)
{
    unsigned char *bytes = cli_alloc(READ_BYTES, 1);
    bool good = lseek(fd, 0, SEEK_SET) == 0;
    ssize_t n = 1;

    while (good && n != 0) {
        n = read(fd, bytes, READ_BYTES);
        good = n < 0 ? errno == EINTR : calls.update(context, bytes, (size_t)n) == 1;
    }
    free(bytes);
    return good;
}

/* Computes the digest. The reason of a failure, or NULL. */
static const char *compute(void *context, int fd, const struct pull_file *file,
                           unsigned char *digest, unsigned int *size)
{
    char header[64];
    /* git hashes a blob with the prefix "blob SIZE" and a NUL */
    const int n = snprintf(header, sizeof(header), "blob %llu", (unsigned long long)file->size);

    if (!context || calls.init(context, file->is_lfs ? calls.sha256() : calls.sha1(), NULL) != 1 ||
        (!file->is_lfs && calls.update(context, header, (size_t)n + 1) != 1))
        return "libcrypto refuses it";
    if (!add_file(context, fd))
        return strerror(errno);
    return calls.final(context, digest, size) == 1 ? NULL : "libcrypto fails";
}

int cli_hash_file(int fd, const struct pull_file *file, char text[PULL_HASH_BYTES])
{
    void *context = calls.context_new();
    unsigned char digest[MAX_DIGEST_BYTES];
    unsigned int size = 0;
    const char *why = compute(context, fd, file, digest, &size);

    calls.context_free(context);
    if (why)
        return cli_fail("%s: cannot compute the %s of the download: %s", file->name,
                        file->is_lfs ? "sha256" : "git hash", why);
    for (unsigned int i = 0; i < size && i < PULL_HASH_BYTES / 2; i++)
        snprintf(text + (size_t)2 * i, 3, "%02x", digest[i]);
    return CLI_OK;
}
