/*
 * openmetrics.c - rewrites a page of the Prometheus text format (0.0.4) as OpenMetrics 1.0.
 *
 * The formats differ in four points. The family of a counter has no `_total`, which its samples
 * must have: a counter without it is of type `unknown`. Help texts escape quotes. The bound of a
 * bucket is a float, "1.0". The page ends with "# EOF". Only OpenMetrics has exemplars.
 */
#include "lib/http/core/openmetrics.h"

#include <string.h>

struct line {
    const char *text;
    size_t size; /* without the line feed */
};

static bool has_end(const char *text, size_t size, const char *end)
{
    const size_t n = strlen(end);

    return size > n && memcmp(text + size - n, end, n) == 0;
}

static bool begins(const struct line *line, const char *word)
{
    return line->size > strlen(word) && memcmp(line->text, word, strlen(word)) == 0;
}

/* "# HELP NAME TEXT" and "# TYPE NAME KIND" of a family. */
static void put_family(struct gsv_buffer *to, const struct line *help, const struct line *type)
{
    const char *const name = type->text + strlen("# TYPE ");
    const char *const type_end = type->text + type->size;
    const char *space = memchr(name, ' ', (size_t)(type_end - name));
    size_t n_name = space ? (size_t)(space - name) : (size_t)(type_end - name);
    const char *kind = space ? space + 1 : "unknown";
    size_t n_kind = space ? (size_t)(type_end - kind) : strlen("unknown");

    if (n_kind == strlen("counter") && memcmp(kind, "counter", n_kind) == 0) {
        if (has_end(name, n_name, "_total")) {
            n_name -= strlen("_total");
        } else {
            kind = "unknown";
            n_kind = strlen(kind);
        }
    }
    gsv_buffer_format(to, "# TYPE %.*s %.*s\n", (int)n_name, name, (int)n_kind, kind);
    space = help->size > 7 ? memchr(help->text + 7, ' ', help->size - 7) : NULL;
    if (!space)
        return;
    gsv_buffer_format(to, "# HELP %.*s ", (int)n_name, name);
    for (const char *c = space + 1; c < help->text + help->size; c++) {
        if (*c == '"')
            gsv_buffer_text(to, "\\");
        gsv_buffer_add(to, c, 1);
    }
    gsv_buffer_text(to, "\n");
}

/* A decimal number of seconds; "+Inf" is the maximum. */
static uint64_t read_ns(const char *text, size_t size)
{
    uint64_t ns = 0, unit = 1000000000;
    bool in_fraction = false;

    if (size == 0 || text[0] == '+')
        return UINT64_MAX;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '.') {
            in_fraction = true;
        } else if (!in_fraction) {
            ns = ns * 10 + (uint64_t)(text[i] - '0') * 1000000000;
        } else {
            unit /= 10;
            ns += (uint64_t)(text[i] - '0') * unit;
        }
    }
    return ns;
}

/* NAME_bucket{...le="BOUND"...} COUNT; *above_ns is the bound of the bucket before. */
static void put_bucket(struct gsv_buffer *to, const struct line *line, const char *bound,
                       uint64_t *above_ns, gsv_put_exemplar put_exemplar, void *user)
{
    const char *const end = line->text + line->size;
    const char *const brace = memchr(line->text, '{', line->size);
    const size_t n_bound = strcspn(bound, "\"");
    const uint64_t upto_ns = read_ns(bound, n_bound);
    const size_t n_name = (size_t)(brace - line->text) - strlen("_bucket");

    gsv_buffer_add(to, line->text, (size_t)(bound + n_bound - line->text));
    if (bound[0] != '+' && !memchr(bound, '.', n_bound))
        gsv_buffer_text(to, ".0");
    gsv_buffer_add(to, bound + n_bound, (size_t)(end - bound - n_bound));
    if (put_exemplar)
        put_exemplar(user, to, line->text, n_name, *above_ns, upto_ns);
    *above_ns = upto_ns == UINT64_MAX ? 0 : upto_ns;
    gsv_buffer_text(to, "\n");
}

static const char *bound_of(const struct line *line)
{
    const char *brace = memchr(line->text, '{', line->size);
    const char *bound = brace && has_end(line->text, (size_t)(brace - line->text), "_bucket")
                            ? memmem(brace, (size_t)(line->text + line->size - brace), "le=\"", 4)
                            : NULL;

    return bound ? bound + 4 : NULL;
}

void gsv_openmetrics_write(struct gsv_buffer *to, const char *page, size_t size,
                           gsv_put_exemplar put_exemplar, void *user)
{
    const char *const page_end = page + size;
    struct line help = { 0 };
    uint64_t above_ns = 0;

    for (const char *at = page; at < page_end;) {
        const char *feed = memchr(at, '\n', (size_t)(page_end - at));
        const struct line line = { at, (size_t)((feed ? feed : page_end) - at) };
        const char *bound;

        at += line.size + 1;
        if (begins(&line, "# HELP ")) {
            help = line;
        } else if (begins(&line, "# TYPE ")) {
            put_family(to, &help, &line);
            above_ns = 0;
        } else if ((bound = bound_of(&line)) != NULL) {
            put_bucket(to, &line, bound, &above_ns, put_exemplar, user);
        } else if (line.size > 0) {
            gsv_buffer_add(to, line.text, line.size);
            gsv_buffer_text(to, "\n");
        }
    }
    gsv_buffer_text(to, "# EOF\n");
}
