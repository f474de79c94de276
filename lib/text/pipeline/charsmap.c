/*
 * charsmap.c - reads, validates and searches SentencePiece's charsmap.
 *
 * Layout: the array size in bytes (32 bits, little-endian), the units, the replacement strings.
 * A unit (darts-clone) has its label byte in bits 0 to 7, a flag in bit 8 that a key ends there,
 * and the XOR offset of its children above. At the end of a key, the child of label 0 holds the
 * offset of the replacement; its bit 31 (VALUE_BIT) is never set in a node.
 */
#include "lib/text/pipeline/charsmap.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define VALUE_BIT 0x80000000u

static size_t base_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

static bool ends_text(uint32_t unit)
{
    return unit >> 8 & 1;
}

/* ------------------------------------------------------------------ reading */

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decode padded base64; the unused bits of the last group must be 0. */
static bool decode_base64(const char *text, size_t size, unsigned char *out, size_t *n)
{
    size_t i = 0;

    *n = 0;
    for (; i + 4 <= size; i += 4) {
        const bool last = i + 4 == size;
        const size_t pads = !last || text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
        uint32_t group = 0;

        for (size_t k = 0; k < 4 - pads; k++) {
            const int digit = digit_of(text[i + k]);

            if (digit < 0)
                return false;
            group |= (uint32_t)digit << (18 - 6 * k);
        }
        if (group & ((1u << 8 * pads) - 1))
            return false;
        for (size_t k = 0; k < 3 - pads; k++)
            out[(*n)++] = (unsigned char)(group >> (16 - 8 * k));
    }
    return i == size;
}

static uint32_t number_at(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static gpuserve_status take_parts(struct gsv_charsmap *m, const unsigned char *bytes, size_t n,
                                  const char *name, gpuserve_error *error)
{
    const size_t units_size = n < 4 ? 0 : number_at(bytes);
    size_t after;

    m->n_units = units_size / 4;
    after = 4 + 4 * m->n_units;
    if (m->n_units == 0 || after > n)
        return gsv_fail(
            error, GPUSERVE_E_FORMAT,
            "%s: \"precompiled_charsmap\": a trie of %zu bytes does not fit the %zu bytes of data",
            name, units_size, n);
    m->size = n - after;
    m->units = gsv_alloc_array(m->n_units, sizeof(*m->units));
    m->strings = gsv_copy_text((const char *)bytes + after, m->size);
    if (!m->units || !m->strings)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for a charsmap", name);
    for (size_t i = 0; i < m->n_units; i++)
        m->units[i] = number_at(bytes + 4 + 4 * i);
    return GPUSERVE_OK;
}

static gpuserve_status check_strings(const struct gsv_charsmap *m, const char *name,
                                     gpuserve_error *error)
{
    const size_t valid = gsv_utf8_valid_length(m->strings, m->size);

    if (valid != m->size)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: \"precompiled_charsmap\": the strings are not UTF-8 at byte %zu", name,
                        valid);
    for (size_t at = 0; at < m->size;) {
        const size_t length = strlen(m->strings + at);

        if (length > GSV_CHARSMAP_MAX_STRING)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                            "%s: \"precompiled_charsmap\": a string has %zu bytes, the limit is %d",
                            name, length, GSV_CHARSMAP_MAX_STRING);
        at += length + 1;
    }
    return GPUSERVE_OK;
}

/* A step from a unit leads to one of the 256 units of its base's block: the whole block must
 * exist. */
static gpuserve_status check_unit(const struct gsv_charsmap *m, size_t i, const char *name,
                                  gpuserve_error *error)
{
    const size_t base = i ^ base_of(m->units[i]);
    size_t value;

    if ((base | 255) >= m->n_units)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: \"precompiled_charsmap\": unit %zu points to unit %zu of %zu", name, i,
                        base | 255, m->n_units);
    if (!ends_text(m->units[i]))
        return GPUSERVE_OK;
    value = m->units[base] & ~VALUE_BIT;
    if (value > m->size || ((unsigned char)m->strings[value] & 0xC0) == 0x80)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: \"precompiled_charsmap\": unit %zu points to invalid string offset "
                        "%zu of %zu bytes",
                        name, base, value, m->size);
    return GPUSERVE_OK;
}

static gpuserve_status check(const struct gsv_charsmap *m, const char *name, gpuserve_error *error)
{
    gpuserve_status status = check_strings(m, name, error);

    for (size_t i = 0; i < m->n_units && status == GPUSERVE_OK; i++)
        if (i == 0 || !(m->units[i] & VALUE_BIT)) /* unit 0 is always the root */
            status = check_unit(m, i, name, error);
    return status;
}

gpuserve_status gsv_charsmap_read_bytes(struct gsv_charsmap **charsmap, const unsigned char *bytes,
                                        size_t size, const char *name, gpuserve_error *error)
{
    struct gsv_charsmap *m = gsv_alloc_array(1, sizeof(*m));
    gpuserve_status status;

    *charsmap = NULL;
    if (!m)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for a charsmap", name);
    status = take_parts(m, bytes, size, name, error);
    if (status == GPUSERVE_OK)
        status = check(m, name, error);
    if (status == GPUSERVE_OK)
        *charsmap = m;
    else
        gsv_charsmap_free(&m);
    return status;
}

gpuserve_status gsv_charsmap_read(struct gsv_charsmap **charsmap, const char *base64, size_t size,
                                  const char *name, gpuserve_error *error)
{
    unsigned char *bytes = malloc(size / 4 * 3 + 1);
    gpuserve_status status;
    size_t n;

    *charsmap = NULL;
    if (!bytes)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for a charsmap", name);
    if (decode_base64(base64, size, bytes, &n))
        status = gsv_charsmap_read_bytes(charsmap, bytes, n, name, error);
    else
        status =
            gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"precompiled_charsmap\" is not base64", name);
    free(bytes);
    return status;
}

void gsv_charsmap_free(struct gsv_charsmap **charsmap)
{
    struct gsv_charsmap *m = *charsmap;

    *charsmap = NULL;
    if (!m)
        return;
    free(m->units);
    free(m->strings);
    free(m);
}

size_t gsv_charsmap_bytes(const struct gsv_charsmap *m)
{
    return m ? sizeof(*m) + m->n_units * sizeof(*m->units) + m->size + 1 : 0;
}

/* ------------------------------------------------------------------ lookup */

const char *gsv_charsmap_find(const struct gsv_charsmap *m, const char *text, size_t size)
{
    size_t at = base_of(m->units[0]);

    for (size_t i = 0; i < size && text[i]; i++) {
        uint32_t unit;

        at ^= (unsigned char)text[i];
        unit = m->units[at];
        if ((unit & (VALUE_BIT | 255)) != (unsigned char)text[i])
            return NULL;
        at ^= base_of(unit);
        if (ends_text(unit))
            return m->strings + (m->units[at] & ~VALUE_BIT);
    }
    return NULL;
}
