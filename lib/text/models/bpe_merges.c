/*
 * bpe_merges.c - reads the BPE merges from the text of merges.txt.
 *
 * Format: a line "#version: ...", then one merge a line: two tokens with a space between, in the
 * order of their ranks.
 *
 * transformers always drops the first line and any text after the last line break. A file without
 * the version line, or without a final line break, would lose a merge and is refused.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/text/models/bpe.h"

#include <stdlib.h>
#include <string.h>

/* State while the file is read. */
struct bpe_merges_reading {
    struct gsv_bpe *model;
    const struct gsv_vocab *vocab;
    const char *name;
    size_t line;  /* counted from 1 */
    char *joined; /* text of the joined token */
    size_t capacity;
    uint32_t rank;
};

/* Add the merge of left[0, n_left) and right[0, n_right). */
static gpuserve_status take_merge(struct bpe_merges_reading *r, const char *left, size_t n_left,
                                  const char *right, size_t n_right, gpuserve_error *error)
{
    const int32_t a = gsv_vocab_id(r->vocab, left, n_left);
    const int32_t b = gsv_vocab_id(r->vocab, right, n_right);
    int32_t id;

    if (a < 0 || b < 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s:%zu: the %s token of this merge is not in the vocabulary", r->name,
                        r->line, a < 0 ? "first" : "second");
    if (!gsv_grow((void **)&r->joined, &r->capacity, n_left + n_right, 1, SIZE_MAX))
        goto no_memory;
    memcpy(r->joined, left, n_left);
    memcpy(r->joined + n_left, right, n_right);
    id = gsv_vocab_id(r->vocab, r->joined, n_left + n_right);
    if (id < 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s:%zu: the result of this merge is not in the vocabulary", r->name,
                        r->line);
    if (gsv_bpe_has_merge(r->model, a, b))
        return GPUSERVE_OK;                               /* of duplicate merges the first counts */
    if (gsv_bpe_add_merge(r->model, a, b, id, r->rank++)) /* cannot overflow */
        return GPUSERVE_OK;
no_memory:
    return gsv_fail(error, GPUSERVE_E_NOMEM, "%s:%zu: out of memory", r->name, r->line);
}

static gpuserve_status take_line(struct bpe_merges_reading *r, const char *line, size_t size,
                                 gpuserve_error *error)
{
    const char *space = size > 0 ? memchr(line, ' ', size) : NULL;
    const size_t left = space ? (size_t)(space - line) : 0;
    const size_t right = space ? size - left - 1 : 0;

    if (left == 0 || right == 0 || memchr(space + 1, ' ', right))
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s:%zu: the line is not two tokens separated by a space", r->name,
                        r->line);
    return take_merge(r, line, left, space + 1, right, error);
}

gpuserve_status gsv_bpe_read_merges(struct gsv_bpe *m, const char *text, size_t size,
                                    const struct gsv_vocab *vocab, const char *name,
                                    gpuserve_error *error)
{
    static const char head[] = "#version";
    struct bpe_merges_reading r = { .model = m, .vocab = vocab, .name = name, .line = 1 };
    const char *const end = text + size;
    gpuserve_status status = GPUSERVE_OK;

    if (size < sizeof(head) - 1 || memcmp(text, head, sizeof(head) - 1) != 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s:1: the line \"%s\" is missing", name, head);
    if (text[size - 1] != '\n')
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: the last line has no newline: the file is truncated", name);
    for (; text < end && status == GPUSERVE_OK; r.line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const size_t n = (size_t)(newline - text);

        if (r.line > 1)
            status = take_line(&r, text, n > 0 && newline[-1] == '\r' ? n - 1 : n, error);
        text = newline + 1;
    }
    free(r.joined);
    return status;
}
