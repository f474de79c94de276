/*
 * number.cpp - formats numbers as text by std::to_chars.
 *
 * C++ only for std::to_chars: it writes the shortest decimal that restores the float, is many times
 * faster than printf and does not depend on the locale.
 */
#include "lib/base/number.h"

#include <charconv>
#include <cmath>
#include <cstring>

extern "C" size_t gsv_float_text(float value, char *text)
{
    if (!std::isfinite(value)) {
        std::memcpy(text, "null", 4); /* JSON has no NaN */
        return 4;
    }
    return static_cast<size_t>(std::to_chars(text, text + GSV_FLOAT_BYTES, value).ptr - text);
}

extern "C" size_t gsv_integer_text(int64_t value, char *text)
{
    return static_cast<size_t>(std::to_chars(text, text + GSV_FLOAT_BYTES, value).ptr - text);
}
