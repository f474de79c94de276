/*
 * number.cpp - floats as text. The one C++ file: std::to_chars is the shortest exact form, many
 * times faster than printf's %.9g, and no locale can change it.
 */
#include <charconv>
#include <cmath>
#include <cstring>

extern "C" {
#include "cli.h"
}

extern "C" size_t cli_float_text(float value, char *text)
{
    if (!std::isfinite(value)) {
        std::memcpy(text, "null", 4); /* JSON has no NaN */
        return 4;
    }
    return static_cast<size_t>(std::to_chars(text, text + CLI_FLOAT_BYTES, value).ptr - text);
}
