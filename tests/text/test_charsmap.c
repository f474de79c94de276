/*
 * test_charsmap.c - SentencePiece charsmaps: lookup, errors of damaged maps, and the characters,
 * grapheme clusters and spans that the normalizer produces.
 */
#define _GNU_SOURCE
#include "lib/text/pipeline/charsmap.h"
#include "lib/text/pipeline/normalizer.h"
#include "tests/text/small_charsmap.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gsv_charsmap *read_map(const struct small_charsmap *m)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_charsmap *map = NULL;
    char *text = encode_charsmap(m, 0);

    cr_assert_eq(gsv_charsmap_read(&map, text, strlen(text), "t", &error), GPUSERVE_OK, "%s",
                 error.message);
    free(text);
    return map;
}

/* ------------------------------------------------------------------ looking up */

Test(charsmap, the_shortest_beginning_is_found)
{
    static struct small_charsmap m;
    struct gsv_charsmap *map;

    small_charsmap_add(&m, "ab", "1");
    small_charsmap_add(&m, "abc", "2");
    small_charsmap_add(&m, "\xC3\xA9", "e");
    small_charsmap_add(&m, "x", "");
    map = read_map(&m);
    cr_expect_str_eq(gsv_charsmap_find(map, "abc", 3), "1");
    cr_expect_str_eq(gsv_charsmap_find(map, "ab", 2), "1");
    cr_expect_null(gsv_charsmap_find(map, "a", 1));
    cr_expect_null(gsv_charsmap_find(map, "b", 1));
    cr_expect_null(gsv_charsmap_find(map, "a\0b", 3));
    cr_expect_str_eq(gsv_charsmap_find(map, "\xC3\xA9", 2), "e");
    cr_expect_str_eq(gsv_charsmap_find(map, "xyz", 3), "");
    cr_expect_gt(gsv_charsmap_bytes(map), 4 * m.n);
    gsv_charsmap_free(&map);
    cr_expect_null(map);
    gsv_charsmap_free(&map);
}

/* ------------------------------------------------------------------ refused */

static void expect_refused(const char *text, const char *says, gpuserve_status status)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_charsmap *map = NULL;

    cr_expect_eq(gsv_charsmap_read(&map, text, strlen(text), "t", &error), status, "%.60s", text);
    cr_expect(strstr(error.message, says), "'%s' is not in: %s", says, error.message);
    cr_expect_null(map);
}

static void expect_map_refused(const struct small_charsmap *m, size_t units_size, const char *says,
                               gpuserve_status status)
{
    char *text = encode_charsmap(m, units_size);

    expect_refused(text, says, status);
    free(text);
}

Test(charsmap, what_is_no_base64_is_refused)
{
    static const char *const wrong[] = {
        "A",     "AA",   "AAA",  "AA=A",  "A===",     "====", "AAA*",
        "AA\n=", "AB==", "AAB=", "AAAA=", "AA==AAAA", "-_AA"
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect_refused(wrong[i], "is not base64", GPUSERVE_E_FORMAT);
    expect_refused("", "a trie of 0 bytes does not fit the 0", GPUSERVE_E_FORMAT);
    expect_refused("AAAA", "a trie of 0 bytes does not fit the 3", GPUSERVE_E_FORMAT);
    expect_refused("AAAAAA==", "a trie of 0 bytes does not fit the 4", GPUSERVE_E_FORMAT);
    expect_refused("/////w==", "a trie of 4294967295 bytes does not fit the 4", GPUSERVE_E_FORMAT);
}

Test(charsmap, what_leads_out_of_it_is_refused)
{
    static struct small_charsmap m, wrong;

    small_charsmap_add(&m, "a", "b");
    wrong = m;
    expect_map_refused(&wrong, 4 * wrong.n + 16, "a trie of", GPUSERVE_E_FORMAT);
    wrong.units[0] = 1u << 20;
    expect_map_refused(&wrong, 0, "unit 0 points to unit", GPUSERVE_E_FORMAT);
    wrong = m;
    wrong.units[0] |= 1u << 31; /* the first unit is always a node */
    expect_map_refused(&wrong, 0, "unit 0 points to unit", GPUSERVE_E_FORMAT);
    wrong = m;
    wrong.units[256 + 'a'] |= 1u << 9; /* its offset times 256 */
    expect_map_refused(&wrong, 0, "points to unit", GPUSERVE_E_FORMAT);
    wrong = m;
    wrong.units[512] = 1u << 31 | 3;
    expect_map_refused(&wrong, 0, "points to invalid string offset 3 of 2 bytes",
                       GPUSERVE_E_FORMAT);
    wrong.units[512] = 1u << 31 | 2; /* an unused one at the end */
    gsv_charsmap_free(&(struct gsv_charsmap *){ read_map(&wrong) });
    wrong = m;
    memcpy(wrong.strings, "\xC3\xA9", 2);
    wrong.units[512] = 1u << 31 | 1;
    expect_map_refused(&wrong, 0, "points to invalid string offset 1 of 2 bytes",
                       GPUSERVE_E_FORMAT);
    memcpy(wrong.strings, "\xC3\0", 2);
    expect_map_refused(&wrong, 0, "not UTF-8 at byte 0", GPUSERVE_E_FORMAT);
    wrong = m;
    wrong.size = GSV_CHARSMAP_MAX_STRING + 1;
    memset(wrong.strings, 'x', wrong.size);
    expect_map_refused(&wrong, 0, "a string has 1025 bytes, the limit is 1024",
                       GPUSERVE_E_TOO_LARGE);
    wrong.size--;
    gsv_charsmap_free(&(struct gsv_charsmap *){ read_map(&wrong) });
}

/* ------------------------------------------------------------------ clusters */

static void set_text(struct gsv_normal_buffers *b, const char *text)
{
    static const struct gsv_normalizer none;

    cr_assert(gsv_normalizer_apply(&none, text, 0, strlen(text), b));
}

Test(charsmap, small_clusters_end_where_unicode_says)
{
    static const struct {
        const char *text;
        size_t length; /* characters of the first cluster */
    } cases[] = {
        { "ab", 1 },
        { "a", 1 },
        { "\r\n", 2 },
        { "\n\r", 1 },
        { "\r\r", 1 },
        { "e\xCC\x81", 2 },
        { "e\xCC\x81\xCC\x81", 3 },
        { "\n\xCC\x81", 1 },
        { "a\xE0\xB8\xB3", 2 }, /* SARA AM is a spacing mark */
        { "a\xE2\x80\x8D", 2 }, /* ZWJ */
        { "a\xE2\x80\x8B", 1 }, /* zero width space is a control */
        { "\xD8\x80"
          "1",
          2 }, /* a number sign before a digit */
        { "\xD8\x80\n", 1 },
        { "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", 3 }, /* L V T */
        { "\xEA\xB0\x80\xE1\x86\xA8", 2 },             /* LV T */
        { "\xEA\xB0\x81\xE1\x85\xA1", 1 },             /* LVT V */
        { "\xE1\x86\xA8\xE1\x84\x80", 1 },             /* T L */
        { "\xE1\x85\xA1\xEA\xB0\x80", 1 },             /* V LV */
        { "\xC2\xA9\xE2\x80\x8D\xC2\xA9", 3 },         /* pictures joined */
        { "\xC2\xA9\xCC\x81\xE2\x80\x8D\xC2\xA9", 4 },
        { "\xC2\xA9\xE2\x80\x8D\xE2\x80\x8D\xC2\xA9", 3 },
        { "\xC2\xA9\xE2\x80\x8D"
          "a",
          2 },
        { "a\xE2\x80\x8D\xC2\xA9", 2 },
        { "\xE0\xA4\x95\xE0\xA5\x8D\xE0\xA4\x95", 3 }, /* Devanagari KA virama KA */
        { "\xE0\xA4\x95\xCC\x81\xE0\xA4\x95", 2 },
        { "\xE0\xA4\x95\xE0\xA5\x8D\xE2\x80\x8D\xE0\xA4\x95", 4 },
        { "a\xE0\xA5\x8D\xE0\xA4\x95", 2 },
    };
    struct gsv_normal_buffers b = { 0 };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        set_text(&b, cases[i].text);
        cr_expect_eq(gsv_grapheme_length(b.text.at, b.text.n), cases[i].length, "case %zu: %s", i,
                     cases[i].text);
    }
    gsv_normal_buffers_reset(&b);
}

/* ------------------------------------------------------------------ the normalizer */

/* "e0-3 x3-4": characters with their byte spans; ASCII only. */
static const char *normalized(const struct gsv_charsmap *map, const char *text)
{
    static char out[256];
    struct gsv_normal_buffers b = { 0 };
    size_t n = 0;

    set_text(&b, text);
    cr_assert(gsv_normal_charsmap(&b, map));
    out[0] = '\0';
    for (size_t i = 0; i < b.text.n; i++)
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%c%u-%u", i ? " " : "",
                              b.text.at[i].c < 0x80 ? (char)b.text.at[i].c : '?',
                              b.text.at[i].begin, b.text.at[i].end);
    gsv_normal_buffers_reset(&b);
    return out;
}

/* Expected results from tokenizers 0.23.3. */
Test(charsmap, clusters_are_looked_up_whole_and_spans_follow)
{
    static struct small_charsmap m;
    struct gsv_charsmap *map;

    small_charsmap_add(&m, "e", "E");
    small_charsmap_add(&m, "o\xCC\x81", "O");
    small_charsmap_add(&m, "\xE2\x84\xA2", "TM"); /* trade mark */
    small_charsmap_add(&m, "x", "");
    map = read_map(&m);
    cr_expect_str_eq(normalized(map, "ae"), "a0-1 E1-2");
    /* A prefix of the cluster is an entry, so the mark is lost with it; not for a long cluster. */
    cr_expect_str_eq(normalized(map, "e\xCC\x81"
                                     "a"),
                     "E0-1 a3-4");
    cr_expect_str_eq(normalized(map, "e\xCC\x81\xCC\x81\xCC\x81"
                                     "a"),
                     "E0-1 ?1-3 ?3-5 ?5-7 a7-8");
    cr_expect_str_eq(normalized(map, "o\xCC\x81\xCC\x81"), "O0-1");
    cr_expect_str_eq(normalized(map, "o"), "o0-1");
    cr_expect_str_eq(normalized(map, "a\xE2\x84\xA2"
                                     "b"),
                     "a0-1 T1-4 M1-4 b4-5");
    /* Dropped characters belong to no span after the first character, */
    cr_expect_str_eq(normalized(map, "axb"), "a0-1 b2-3");
    cr_expect_str_eq(normalized(map, "\xE2\x84\xA2xb"), "T0-3 M3-4 b4-5");
    /* nor at the begin of the text. */
    cr_expect_str_eq(normalized(map, "xab"), "a0-1 b1-2");
    cr_expect_str_eq(normalized(map, "x"), "");
    gsv_charsmap_free(&map);
}
