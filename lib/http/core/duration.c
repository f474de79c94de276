/*
 * duration.c - Go's form of durations, which Ollama and OpenAI use, in whole milliseconds.
 */
#include "lib/http/core/encoding.h"

#include <stddef.h>
#include <string.h>

static const int64_t max_ms = INT64_C(100) * 366 * 86400000;

static bool unit_of(const char **text, int64_t *ms)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = { { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        const size_t n = strlen(units[i].name);

        if (strncmp(*text, units[i].name, n) == 0) {
            *ms = units[i].ms;
            *text += n;
            return true;
        }
    }
    return false;
}

/* A number such as 1 or 1.5, in thousandths. */
static bool number_of(const char **text, int64_t *thousandths)
{
    int64_t value = 0, unit = 100;
    size_t n_digits = 0;

    for (; **text >= '0' && **text <= '9'; (*text)++, n_digits++) {
        if (value > max_ms)
            return false;
        value = value * 10 + (**text - '0');
    }
    value *= 1000;
    if (**text == '.') {
        for ((*text)++; **text >= '0' && **text <= '9'; (*text)++, n_digits++, unit /= 10)
            value += (**text - '0') * unit;
    }
    *thousandths = value;
    return n_digits > 0 && value <= max_ms * 1000;
}

bool gsv_duration_read(const char *text, int64_t *ms)
{
    const bool is_negative = *text == '-';
    int64_t sum = 0, number, unit;

    text += is_negative;
    if (!*text)
        return false;
    if (strcmp(text, "0") == 0) { /* the only number that needs no unit */
        *ms = 0;
        return true;
    }
    while (*text) {
        if (!number_of(&text, &number))
            return false;
        if (!unit_of(&text, &unit))
            return false;
        if (number > max_ms * 1000 / unit)
            return false;
        sum += number * unit / 1000;
        if (sum > max_ms)
            return false;
    }
    *ms = is_negative ? -sum : sum;
    return true;
}
