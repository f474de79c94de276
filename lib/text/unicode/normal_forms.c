/*
 * normal_forms.c - the Unicode normalization forms NFD, NFC, NFKD and NFKC.
 *
 * Steps: decompose each character, sort combining marks by class (canonical ordering), compose for
 * NFC and NFKC, and align the result with the byte ranges of the original text.
 */
#include "lib/text/unicode/unicode.h"

#include "lib/base/alloc.h"

#include <string.h>

enum { SHORT_RUN = 16 }; /* marks on one letter; more only in hostile text */

static bool decompose(struct gsv_normal_buffers *b, bool compatible, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < b->text.n; i++) {
        uint32_t parts[GSV_UNICODE_MAX_MAPPING];
        const size_t n_parts = gsv_unicode_decompose(b->text.at[i].c, compatible, parts);

        if (!gsv_grow((void **)&b->decomposed, &b->decomposed_capacity, *n + n_parts,
                      sizeof(*b->decomposed), SIZE_MAX))
            return false;
        for (size_t k = 0; k < n_parts; k++)
            b->decomposed[(*n)++] =
                (struct gsv_decomposed){ parts[k], k > 0, gsv_unicode_get_class(parts[k]) };
    }
    return true;
}

static void insertion_sort(struct gsv_decomposed *run, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const struct gsv_decomposed moved = run[i];
        size_t at = i;

        for (; at > 0 && run[at - 1].combining_class > moved.combining_class; at--)
            run[at] = run[at - 1];
        run[at] = moved;
    }
}

/* A stable sort in linear time. */
static bool counting_sort(struct gsv_normal_buffers *b, struct gsv_decomposed *run, size_t n)
{
    size_t starts[257] = { 0 };

    if (!gsv_grow((void **)&b->sorted, &b->sorted_capacity, n, sizeof(*b->sorted), SIZE_MAX))
        return false;
    for (size_t i = 0; i < n; i++)
        starts[run[i].combining_class + 1]++;
    for (size_t k = 1; k < 257; k++)
        starts[k] += starts[k - 1];
    for (size_t i = 0; i < n; i++)
        b->sorted[starts[run[i].combining_class]++] = run[i];
    memcpy(run, b->sorted, n * sizeof(*run));
    return true;
}

/* Canonical ordering: sort each run of marks between characters of class 0 by combining class. */
static bool sort_marks(struct gsv_normal_buffers *b, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;

        while (end < n && b->decomposed[end].combining_class)
            end++;
        if (end - i <= SHORT_RUN)
            insertion_sort(b->decomposed + i, end - i);
        else if (!counting_sort(b, b->decomposed + i, end - i))
            return false;
        i = end + 1;
    }
    return true;
}

/* Canonical composition of starters with following characters. Returns the remaining number. */
static size_t compose(struct gsv_decomposed *all, size_t n)
{
    struct gsv_decomposed *letter = NULL; /* the starter to compose with */
    int last_class = -1;                  /* class of the last mark kept after it; -1: none */
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        const struct gsv_decomposed c = all[i];
        const uint32_t united =
            letter && last_class < (int)c.combining_class ? gsv_unicode_compose(letter->c, c.c) : 0;

        if (united) {
            letter->c = united;
            letter->change += c.change - 1;
            continue;
        }
        if (c.combining_class == 0) {
            letter = &all[kept];
            last_class = -1;
        } else if (letter) {
            last_class = c.combining_class;
        }
        all[kept++] = c;
    }
    return kept;
}

/* Write the n decomposed characters to the text, aligned with the old one. */
static bool take_decomposed(struct gsv_normal_buffers *b, size_t n)
{
    const struct gsv_chars from = b->text;
    struct gsv_chars *to = &b->other;
    size_t used = 0;

    to->n = 0;
    if (!gsv_grow((void **)&to->at, &to->capacity, n, sizeof(*to->at), SIZE_MAX))
        return false;
    for (size_t i = 0; i < n; i++)
        to->at[to->n++] =
            gsv_normal_align(&from, &used, b->decomposed[i].c, b->decomposed[i].change);
    b->text = *to;
    *to = from;
    return true;
}

bool gsv_normal_form(struct gsv_normal_buffers *b, bool compatible, bool composed)
{
    size_t n;

    if (!decompose(b, compatible, &n) || !sort_marks(b, n))
        return false;
    if (composed)
        n = compose(b->decomposed, n);
    return take_decomposed(b, n);
}
