/*
 * number.cpp - numbers as text. C++ for std::to_chars alone: of floats it is the shortest exact
 * form, many times faster than printf, and no locale can change it.
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
