/*
 * large_angle.c - exact range reduction of large float32 angles (Payne and Hanek).
 *
 *   x = m * 2^e  ->  x * 2/pi modulo 4 in fixed point  ->  quadrant and angle in float64
 *
 * m is an integer of 24 bits. Bits of 2/pi whose product with x is a multiple of 4 do not change
 * the result: 96 bits after them are multiplied by m in integers. The fraction then has an absolute
 * error of 2^-70 quarter turns. The float32 number closest to a multiple of pi/2 is about 2^-30
 * away from it, so the angle has 40 significant bits or more.
 */
#include "kernels/cpu/compute/large_angle.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define WORDS 7
#define HALF_PI 1.57079632679489661923

/* 2/pi in units of 2^-32, 2^-64, ... */
static const uint32_t two_over_pi[WORDS] = {
    0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
};

/* Bits [at, at + 32) of 2/pi; the first bit after the binary point is bit 0. */
static uint32_t bits_at(int at)
{
    const int word = at / 32, shift = at % 32;

    if (shift == 0)
        return two_over_pi[word];
    return two_over_pi[word] << shift |
           (word + 1 < WORDS ? two_over_pi[word + 1] >> (32 - shift) : 0);
}

/* |x| = *angle + (*quadrant + 4 k) * pi/2 with |*angle| <= pi/4. */
static void reduce(uint32_t bits, int *quadrant, double *angle)
{
    const uint32_t m = (bits & 0x7FFFFF) | 0x800000;
    const int e = (int)(bits >> 23 & 0xFF) - 150;
    const int first = e < 2 ? 0 : e - 2; /* earlier bits give multiples of 4 */
    unsigned __int128 product = 0;

    for (int i = 0; i < 3; i++)
        product = (product << 32) + (uint64_t)m * bits_at(first + 32 * i);
    product <<= e < 2 ? 30 + e : 32; /* two integer bits, then the fraction; overflow is modulo 4 */
    *quadrant = (int)(product >> 126);
    product <<= 2;
    *quadrant += (int)(product >> 127); /* to the nearest multiple: a fraction of -1/2 to 1/2 */
    *angle = (double)(int64_t)(product >> 64) * 0x1p-64 * HALF_PI;
}

/* The sine of the angle after `turn` further quarter turns. */
static float sine(float x, int turn)
{
    uint32_t bits;
    double angle, value;
    int quadrant;

    if (!isfinite(x))
        return x - x;
    memcpy(&bits, &x, sizeof(bits));
    reduce(bits & 0x7FFFFFFF, &quadrant, &angle);
    quadrant += turn;
    value = quadrant & 1 ? cos(angle) : sin(angle);
    return (float)(quadrant & 2 ? -value : value);
}

float gsv_sin_large(float x)
{
    const float value = sine(x, 0);

    return x < 0.0f ? -value : value;
}

float gsv_cos_large(float x)
{
    return sine(x, 1);
}
