/*
 * test_philox.c - lib/base/philox.h: the published known-answer vectors of Philox4x32-10, random
 * access, and the conversion to floats.
 */
#include "lib/base/philox.h"
#include "tests/base/philox_answers.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(philox, published_known_answers)
{
    for (size_t i = 0; i < sizeof(philox_answers) / sizeof(philox_answers[0]); i++) {
        const struct philox_answer *known = &philox_answers[i];
        uint32_t words[4];

        memcpy(words, known->counter, sizeof(words));
        gsv_philox_block(words, known->key[0], known->key[1]);
        cr_expect_arr_eq(words, known->answer, sizeof(words), "vector %zu", i);
    }
}

/* Outputs of curandGenerate() of cuRAND 10.3.10 (CURAND_RNG_PSEUDO_PHILOX4_32_10, default order,
 * seed 0x123456789), from its host generator, which equals that of a GPU. */
Test(philox, the_sequence_is_that_of_curand)
{
    static const struct {
        uint64_t position;
        uint32_t output;
    } curand[] = {
        { 0, 0x5aa1da32 },       { 1, 0xb611012a },       { 5, 0xe0c755e6 },
        { 262143, 0xf6c7cb05 },  { 262144, 0x43d5dacf },  { 524291, 0xb2afe834 },
        { 1234567, 0xbcff0707 }, { 3000002, 0x8ee399f7 },
    };

    for (size_t i = 0; i < sizeof(curand) / sizeof(curand[0]); i++) {
        uint32_t words[4];

        gsv_philox_at(words, UINT64_C(0x123456789), curand[i].position / 4);
        cr_expect_eq(words[curand[i].position % 4], curand[i].output, "output %llu",
                     (unsigned long long)curand[i].position);
    }
}

Test(philox, a_block_is_found_by_its_64_bit_index)
{
    static const uint64_t indices[] = { 0, 1, UINT32_MAX, UINT64_C(1) << 50, UINT64_MAX };

    for (size_t i = 0; i < sizeof(indices) / sizeof(indices[0]); i++) {
        const uint64_t position = indices[i] >> 16;
        uint32_t words[4], expected[4] = { (uint32_t)position, (uint32_t)(position >> 32),
                                           (uint32_t)indices[i] & 0xffff, 0 };

        gsv_philox_at(words, UINT64_C(0x123456789abcdef0), indices[i]);
        gsv_philox_block(expected, 0x9abcdef0, 0x12345678);
        cr_expect_arr_eq(words, expected, sizeof(words));
    }
}

Test(philox, the_conversion_covers_the_interval_and_is_exact_at_its_ends)
{
    double sum = 0, squares = 0;
    const int n = 100000;

    cr_expect_eq(gsv_philox_uniform(0, 0.5f), 0.0f);
    cr_expect_eq(gsv_philox_uniform(0x80000000u, 0.5f), -0.5f);
    cr_expect_eq(gsv_philox_uniform(0x40000000u, 0.5f), 0.25f);
    cr_expect_leq(gsv_philox_uniform(0x7fffffffu, 0.5f), 0.5f);
    for (int i = 0; i < n; i++) {
        uint32_t words[4];
        double value;

        gsv_philox_at(words, 7, (uint64_t)i);
        value = (double)gsv_philox_uniform(words[i % 4], 1.0f);
        sum += value;
        squares += value * value;
    }
    cr_expect_lt(fabs(sum / n), 0.01);
    cr_expect_lt(fabs(squares / n - 1.0 / 3.0), 0.01);
}
