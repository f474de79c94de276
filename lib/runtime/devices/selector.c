/*
 * selector.c - parses a device selector and ranks the candidate GPUs by it.
 *
 * gsv_selector_parse() needs no device. gsv_selector_pick() filters the candidates by the options
 * and sorts the rest by the order (stable insertion sort). Mistyped words get the nearest name as a
 * hint.
 */
#define _GNU_SOURCE
#include "lib/runtime/devices/selector.h"

#include "lib/base/error.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

/* ------------------------------------------------------------------------------------- words */

#define MAX_WORD 24

/* Damerau-Levenshtein distance (optimal string alignment) between `a` and `b`. No name is longer
 * than MAX_WORD. */
static size_t edits(const char *a, size_t n, const char *b, size_t m)
{
    size_t table[MAX_WORD + 1][MAX_WORD + 1];

    if (n > MAX_WORD)
        return MAX_WORD;
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            size_t min_distance = i + j;

            if (i > 0 && j > 0) {
                min_distance = table[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
                min_distance =
                    table[i - 1][j] + 1 < min_distance ? table[i - 1][j] + 1 : min_distance;
                min_distance =
                    table[i][j - 1] + 1 < min_distance ? table[i][j - 1] + 1 : min_distance;
            }
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                table[i - 2][j - 2] + 1 < min_distance)
                min_distance = table[i - 2][j - 2] + 1;
            table[i][j] = min_distance;
        }
    }
    return table[n][m];
}

const char *gsv_nearest(const char *word, size_t length, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t min_distance = length / 3 + 2; /* a larger distance means another word */

    for (size_t i = 0; i < n; i++) {
        const size_t d = edits(word, length, names[i], strlen(names[i]));

        if (d < min_distance) {
            min_distance = d;
            best = names[i];
        }
    }
    return best;
}

/* A word of the selector's text. */
struct selector_word {
    const char *text;
    size_t length;
};

static bool is(struct selector_word word, const char *name)
{
    return word.length == strlen(name) && strncmp(word.text, name, word.length) == 0;
}

/* Read a decimal number of one to six digits. */
static bool read_index(struct selector_word word, int32_t *index)
{
    if (word.length == 0 || word.length > 6)
        return false;
    *index = 0;
    for (size_t i = 0; i < word.length; i++) {
        if (word.text[i] < '0' || word.text[i] > '9')
            return false;
        *index = *index * 10 + (word.text[i] - '0');
    }
    return true;
}

/* Read "0.5" or "50%", independent of the locale. At most 15 digits, so the quotient is exactly
 * rounded. */
static bool read_part(struct selector_word word, double *part)
{
    double value = 0, scale = 1;
    size_t digits = 0;
    bool behind_point = false;

    if (word.length > 0 && word.text[word.length - 1] == '%') {
        word.length--;
        scale = 100;
    }
    for (size_t i = 0; i < word.length; i++) {
        const char c = word.text[i];

        if (c == '.' && !behind_point) {
            behind_point = true;
            continue;
        }
        if (c < '0' || c > '9' || ++digits > 15)
            return false;
        value = value * 10 + (c - '0');
        scale *= behind_point ? 10 : 1;
    }
    *part = value / scale;
    return digits > 0;
}

/* Read MiB, or a number with a unit. */
static bool read_bytes(struct selector_word word, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    int shift = 20;
    uint64_t value = 0;

    if (word.length > 0 && (word.text[word.length - 1] | 32) == 'b')
        word.length--;
    if (word.length > 0 && (word.text[word.length - 1] | 32) == 'i')
        word.length--;
    if (word.length > 0) {
        const char *unit = strchr(units, word.text[word.length - 1] & ~32);

        if (unit && *unit) {
            shift = 10 * (int)(unit - units + 1);
            word.length--;
        }
    }
    if (word.length == 0 || word.length > 9)
        return false;
    for (size_t i = 0; i < word.length; i++) {
        if (word.text[i] < '0' || word.text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(word.text[i] - '0');
    }
    *bytes = value << shift;
    return value <= UINT64_MAX >> shift;
}

/* ----------------------------------------------------------------------------------- options */

enum option {
    OPTION_ORDER,
    OPTION_LIMIT,
    OPTION_MAX_LOAD,
    OPTION_MAX_MEMORY,
    OPTION_MEMORY_FREE,
    OPTION_INCLUDE,
    OPTION_EXCLUDE,
    OPTION_EXCLUDE_UUID,
    OPTIONS
};
static const char *const option_names[OPTIONS] = { "order",      "limit",       "max_load",
                                                   "max_memory", "memory_free", "include_unknown",
                                                   "exclude",    "exclude_uuid" };
static const char *const order_names[] = { "first", "index", "last", "load", "memory", "random" };
static const enum gsv_selector_order orders[] = { GSV_ORDER_FIRST,  GSV_ORDER_FIRST,
                                                  GSV_ORDER_LAST,   GSV_ORDER_LOAD,
                                                  GSV_ORDER_MEMORY, GSV_ORDER_RANDOM };

static gpuserve_status fail_word(const char *what, struct selector_word word,
                                 const char *const *names, size_t n, gpuserve_error *error)
{
    const char *nearest = gsv_nearest(word.text, word.length, names, n);
    char known[160] = "";
    size_t at = 0;

    gsv_fail(error, GPUSERVE_E_INVALID, "device auto: unknown %s \"%.*s\"", what,
             (int)(word.length < 64 ? word.length : 64), word.text);
    if (nearest)
        return gsv_hint(error, GPUSERVE_E_INVALID, "did you mean %s?", nearest);
    for (size_t i = 0; i < n && at < sizeof(known); i++)
        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "", names[i]);
    return gsv_hint(error, GPUSERVE_E_INVALID, "valid: %s", known);
}

static gpuserve_status fail_value(enum option option, struct selector_word word, const char *wanted,
                                  gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_INVALID, "device auto: %s=%.*s: %s", option_names[option],
                    (int)(word.length < 64 ? word.length : 64), word.text, wanted);
}

static gpuserve_status set_order(struct gsv_selector *s, struct selector_word word,
                                 gpuserve_error *error)
{
    const size_t n = sizeof(order_names) / sizeof(order_names[0]);

    for (size_t i = 0; i < n; i++) {
        if (is(word, order_names[i])) {
            s->order = orders[i];
            return GPUSERVE_OK;
        }
    }
    return fail_word("order", word, order_names, n, error);
}

static gpuserve_status add_exclude(struct gsv_selector *s, struct selector_word word,
                                   gpuserve_error *error)
{
    if (s->n_exclude == GSV_SELECTOR_LIST)
        return fail_value(OPTION_EXCLUDE, word, "the list has more than 32 entries", error);
    if (!read_index(word, &s->exclude[s->n_exclude]))
        return fail_value(OPTION_EXCLUDE, word, "not a GPU index", error);
    s->n_exclude++;
    return GPUSERVE_OK;
}

static gpuserve_status add_exclude_uuid(struct gsv_selector *s, struct selector_word word,
                                        gpuserve_error *error)
{
    if (s->n_exclude_uuid == GSV_SELECTOR_LIST)
        return fail_value(OPTION_EXCLUDE_UUID, word, "the list has more than 32 entries", error);
    if (word.length == 0 || word.length >= GSV_UUID_BYTES)
        return fail_value(OPTION_EXCLUDE_UUID, word, "not a UUID", error);
    memcpy(s->exclude_uuid[s->n_exclude_uuid++], word.text, word.length);
    return GPUSERVE_OK;
}

static gpuserve_status set(struct gsv_selector *s, enum option option, struct selector_word value,
                           gpuserve_error *error)
{
    int32_t limit;

    switch (option) {
    case OPTION_ORDER:
        return set_order(s, value, error);
    case OPTION_LIMIT:
        if (!read_index(value, &limit) || limit == 0)
            return fail_value(option, value, "expected a number from 1 to 999999", error);
        s->limit = (uint32_t)limit;
        return GPUSERVE_OK;
    case OPTION_MAX_LOAD:
        return read_part(value, &s->max_load)
                   ? GPUSERVE_OK
                   : fail_value(option, value, "expected a fraction such as 0.5 or 50%", error);
    case OPTION_MAX_MEMORY:
        return read_part(value, &s->max_memory)
                   ? GPUSERVE_OK
                   : fail_value(option, value, "expected a fraction such as 0.5 or 50%", error);
    case OPTION_MEMORY_FREE:
        return read_bytes(value, &s->memory_free_bytes)
                   ? GPUSERVE_OK
                   : fail_value(option, value, "expected MiB or a size such as 8G", error);
    case OPTION_INCLUDE:
        s->include_unknown = is(value, "yes") || is(value, "1") || is(value, "true");
        return s->include_unknown || is(value, "no") || is(value, "0") || is(value, "false")
                   ? GPUSERVE_OK
                   : fail_value(option, value, "expected yes or no", error);
    case OPTION_EXCLUDE:
        return add_exclude(s, value, error);
    default:
        return add_exclude_uuid(s, value, error);
    }
}

/* Parse "name=value,name=value"; a word without = extends the preceding exclude or exclude_uuid
 * list. */
static gpuserve_status read_options(struct gsv_selector *s, const char *text, gpuserve_error *error)
{
    enum option option = OPTIONS;

    s->has_options = true;
    s->order = GSV_ORDER_FIRST;
    s->limit = 1;
    s->max_load = s->max_memory = 0.5;
    for (;;) {
        struct selector_word word = { text, strcspn(text, ",") };
        const char *equals = memchr(word.text, '=', word.length);
        gpuserve_status st;

        if (equals) {
            const struct selector_word name = { word.text, (size_t)(equals - word.text) };

            for (option = 0; option < OPTIONS && !is(name, option_names[option]); option++)
                continue;
            if (option == OPTIONS)
                return fail_word("option", name, option_names, OPTIONS, error);
            word.length -= name.length + 1;
            word.text = equals + 1;
        } else if (option != OPTION_EXCLUDE && option != OPTION_EXCLUDE_UUID) {
            return fail_word("option", word, option_names, OPTIONS, error);
        }
        st = set(s, option, word, error);
        if (st != GPUSERVE_OK)
            return st;
        text = word.text + word.length;
        if (*text++ == '\0')
            return GPUSERVE_OK;
    }
}

/* -------------------------------------------------------------------------------------- parse */

static bool has_prefix(const char *text, const char *prefix)
{
    return strncasecmp(text, prefix, strlen(prefix)) == 0;
}

static gpuserve_status fail_selector(const char *text, gpuserve_error *error)
{
    static const char *const names[] = { "auto", "cpu", "cuda", "cuda:0", "cuda:*" };
    const char *nearest = gsv_nearest(text, strlen(text), names, 5);

    gsv_fail(error, GPUSERVE_E_INVALID, "\"%.200s\" is not a device", text);
    if (nearest && strncmp(text, "cuda:", 5) != 0)
        return gsv_hint(error, GPUSERVE_E_INVALID, "did you mean \"%s\"?", nearest);
    return gsv_hint(error, GPUSERVE_E_INVALID,
                    "valid: \"auto\", \"auto:OPTIONS\", \"cpu\", \"cuda\", \"cuda:N\", "
                    "\"cuda:N,cuda:N\", \"cuda:*\", or a UUID: \"GPU-...\", \"MIG-...\"");
}

/* Parse "cuda:N,cuda:N": several numbers, each once. */
static gpuserve_status read_list(struct gsv_selector *s, const char *text, gpuserve_error *error)
{
    s->kind = GSV_SELECT_LIST;
    for (const char *at = text;; at++) {
        const size_t length = strcspn(at, ",");
        int32_t index;

        if (strncmp(at, "cuda:", 5) != 0 ||
            !read_index((struct selector_word){ at + 5, length - 5 }, &index))
            return fail_selector(text, error);
        for (size_t i = 0; i < s->n_list; i++)
            if (s->list[i] == index)
                return gsv_fail(error, GPUSERVE_E_INVALID, "\"%.200s\" has cuda:%d twice", text,
                                index);
        if (s->n_list == GSV_SELECTOR_LIST)
            return gsv_fail(error, GPUSERVE_E_INVALID, "\"%.200s\" has more than %d devices", text,
                            GSV_SELECTOR_LIST);
        s->list[s->n_list++] = index;
        at += length;
        if (*at == '\0')
            return GPUSERVE_OK;
    }
}

gpuserve_status gsv_selector_parse(struct gsv_selector *s, const char *text, gpuserve_error *error)
{
    memset(s, 0, sizeof(*s));
    s->order = GSV_ORDER_FREE;
    s->limit = 1;
    s->max_load = s->max_memory = 2; /* above the possible maximum */
    s->include_unknown = true;
    if (!text || strcmp(text, "auto") == 0)
        return GPUSERVE_OK;
    if (strnlen(text, GSV_SELECTOR_BYTES) == GSV_SELECTOR_BYTES)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the device's name is longer than %d bytes",
                        GSV_SELECTOR_BYTES);
    if (strncmp(text, "auto:", 5) == 0) {
        s->include_unknown = false;
        return read_options(s, text + 5, error);
    }
    if (strcmp(text, "cpu") == 0) {
        s->kind = GSV_SELECT_CPU;
        return GPUSERVE_OK;
    }
    if (strncmp(text, "cuda:", 5) == 0 && strchr(text, ','))
        return read_list(s, text, error);
    if (strcmp(text, "cuda:*") == 0) {
        s->kind = GSV_SELECT_ALL;
        s->limit = UINT32_MAX;
        return GPUSERVE_OK;
    }
    if (strcmp(text, "cuda") == 0 ||
        (strncmp(text, "cuda:", 5) == 0 &&
         read_index((struct selector_word){ text + 5, strlen(text + 5) }, &s->index))) {
        s->kind = GSV_SELECT_CUDA;
        return GPUSERVE_OK;
    }
    if ((has_prefix(text, "GPU-") || has_prefix(text, "MIG-")) && text[4] != '\0' &&
        strlen(text) < sizeof(s->uuid)) {
        s->kind = GSV_SELECT_UUID;
        memcpy(s->uuid, text, strlen(text));
        return GPUSERVE_OK;
    }
    return fail_selector(text, error);
}

/* --------------------------------------------------------------------------------------- pick */

/* Used part of the memory; false if unknown, which acts like a NaN. */
static bool memory_part(const struct gsv_candidate *c, double *part)
{
    if (c->memory_bytes == 0)
        return false;
    *part = (double)c->memory_used_bytes / (double)c->memory_bytes;
    return true;
}

static bool is_excluded(const struct gsv_selector *s, const struct gsv_candidate *c)
{
    for (size_t i = 0; i < s->n_exclude; i++) {
        if (s->exclude[i] == c->id)
            return true;
    }
    for (size_t i = 0; i < s->n_exclude_uuid; i++) {
        if (strcasecmp(s->exclude_uuid[i], c->uuid) == 0)
            return true;
    }
    return false;
}

const char *gsv_selector_refusal(const struct gsv_selector *s, const struct gsv_candidate *c,
                                 char *text, size_t capacity)
{
    double part = 0;

    if (c->fault)
        return c->fault;
    if (is_excluded(s, c))
        return "excluded";
    if (c->load_percent < 0) {
        if (!s->include_unknown)
            return "load unknown";
    } else if (!(c->load_percent / 100.0 < s->max_load)) {
        snprintf(text, capacity, "load %d%%", c->load_percent);
        return text;
    }
    if (!memory_part(c, &part)) {
        if (s->has_options) /* GPUtil's includeNan does not cover memory either */
            return "memory usage unknown";
    } else if (!(part < s->max_memory)) {
        snprintf(text, capacity, "%d%% of its memory in use", (int)(part * 100));
        return text;
    } else if (c->memory_free_bytes < s->memory_free_bytes) {
        snprintf(text, capacity, "%llu MiB free", (unsigned long long)(c->memory_free_bytes >> 20));
        return text;
    }
    return NULL;
}

/* Sort key: smaller is better, unknown values come last. */
static double rank(const struct gsv_selector *s, const struct gsv_candidate *c)
{
    const double last = 1e300;
    double part;
    uint32_t random = 0;

    switch (s->order) {
    case GSV_ORDER_LAST:
        return -c->id;
    case GSV_ORDER_LOAD:
        return c->load_percent < 0 ? last : c->load_percent;
    case GSV_ORDER_MEMORY:
        return memory_part(c, &part) ? part : last;
    case GSV_ORDER_FREE:
        return c->memory_bytes ? -(double)c->memory_free_bytes : last;
    case GSV_ORDER_RANDOM:
        return getrandom(&random, sizeof(random), GRND_NONBLOCK) > 0 ? (double)random : c->id;
    default:
        return c->id;
    }
}

#define MAX_CANDIDATES 128

size_t gsv_selector_pick(const struct gsv_selector *s, const struct gsv_candidate *all, size_t n,
                         size_t picked[])
{
    double ranks[MAX_CANDIDATES];
    size_t count = 0;
    char text[64];

    for (size_t i = 0; i < n && i < MAX_CANDIDATES; i++) {
        size_t at = count;
        double r;

        if (gsv_selector_refusal(s, &all[i], text, sizeof(text)))
            continue;
        r = rank(s, &all[i]);
        for (; at > 0 && ranks[at - 1] > r; at--) { /* stable for equal ranks */
            ranks[at] = ranks[at - 1];
            picked[at] = picked[at - 1];
        }
        ranks[at] = r;
        picked[at] = i;
        count++;
    }
    return count < s->limit ? count : s->limit;
}
