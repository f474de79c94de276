/*
 * test_philox.cpp - the CUDA kernel of Philox4x32-10 against the host and against cuRAND's outputs.
 */
#include <criterion/criterion.h>

#include <vector>

#include <curand.h>

#include "emu.h"
#include "kernels/cuda/compute/philox.cuh"
#include "tests/base/philox_answers.h"

namespace
{

/* The kernel's outputs, with a guard word behind them that must stay. */
std::vector<uint32_t> fill(uint64_t n, uint64_t seed, uint64_t first)
{
    std::vector<uint32_t> found(n + 1, 0xA5A5A5A5u);
    void *at = nullptr;
    const size_t bytes = found.size() * sizeof(uint32_t);

    cr_assert_eq(cudaMalloc(&at, bytes), cudaSuccess);
    cr_assert_eq(cudaMemcpy(at, found.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
    cr_assert_eq(gsv_cuda_philox(static_cast<uint32_t *>(at), n, seed, first, nullptr),
                 cudaSuccess);
    cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
    cr_assert_eq(cudaMemcpy(found.data(), at, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    cr_assert_eq(cudaFree(at), cudaSuccess);
    cr_expect_eq(found.back(), 0xA5A5A5A5u);
    found.pop_back();
    return found;
}

/* Numbers of the emulator's cuRAND. */
std::vector<uint32_t> generate(uint64_t n, uint64_t seed, uint64_t offset)
{
    std::vector<uint32_t> found(n);
    void *generator = nullptr, *at = nullptr;

    cr_assert_eq(cudaMalloc(&at, n * sizeof(uint32_t)), cudaSuccess);
    cr_assert_eq(curandCreateGenerator(&generator, 161), 0);
    cr_assert_eq(curandSetGeneratorOrdering(generator, 103), 0);
    cr_assert_eq(curandSetPseudoRandomGeneratorSeed(generator, seed), 0);
    cr_assert_eq(curandSetGeneratorOffset(generator, offset), 0);
    cr_assert_eq(curandGenerate(generator, static_cast<uint32_t *>(at), n), 0);
    cr_assert_eq(cudaMemcpy(found.data(), at, n * sizeof(uint32_t), cudaMemcpyDeviceToHost),
                 cudaSuccess);
    cr_assert_eq(curandDestroyGenerator(generator), 0);
    cr_assert_eq(cudaFree(at), cudaSuccess);
    return found;
}

} /* namespace */

extern "C" void gsv_emu_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t found[4]);

/* The published answers, for the emulator's own generator. */
Test(cuda_philox, the_emulator_s_generator_is_that_of_the_paper)
{
    for (const auto &k : philox_answers) {
        uint32_t found[4];

        gsv_emu_philox(k.counter, k.key, found);
        for (int i = 0; i < 4; i++)
            cr_expect_eq(found[i], k.answer[i]);
    }
}

/* Two independent programs of one algorithm: any size, any place, and the offset counts numbers. */
Test(cuda_philox, equals_the_emulator_s_curand)
{
    const uint64_t seed = UINT64_C(0xfedcba9876543210);

    for (const uint64_t first : { UINT64_C(0), UINT64_C(65535), UINT64_C(1) << 40 })
        cr_expect(fill(5001, seed, first) == generate(5001, seed, 4 * first));
}

/* A refused generator, order, or memory of the host has the status that cuRAND gives. */
Test(cuda_philox, the_emulator_s_curand_refuses)
{
    uint32_t here[4];
    void *generator = nullptr;

    cr_expect_eq(curandCreateGenerator(&generator, 100), 103);
    cr_assert_eq(curandCreateGenerator(&generator, 161), 0);
    cr_expect_eq(curandSetGeneratorOrdering(generator, 99), 104);
    cr_expect_eq(curandGenerate(generator, here, 4), 101);
    cr_assert_eq(curandSetGeneratorOrdering(generator, 103), 0);
    cr_expect_eq(curandGenerate(generator, here, 4), 201); /* and the device is lost */
}

Test(cuda_philox, equals_the_host_at_any_size_and_place)
{
    const uint64_t sizes[] = { 1, 3, 4, 1023, 1024, 1025, 5000 };
    const uint64_t firsts[] = { 0, 65535, UINT64_C(1) << 40, UINT64_MAX - 3000 };

    for (const uint64_t n : sizes)
        for (const uint64_t first : firsts) {
            const std::vector<uint32_t> found = fill(n, UINT64_C(0xfedcba9876543210), first);

            for (uint64_t i = 0; i < n; i++) {
                uint32_t words[4];

                gsv_philox_at(words, UINT64_C(0xfedcba9876543210), first + i / 4);
                cr_assert_eq(found[i], words[i % 4], "output %d of %d", static_cast<int>(i),
                             static_cast<int>(n));
            }
        }
}

/* Outputs of curandGenerate(), as in tests/base/test_philox.c. */
Test(cuda_philox, equals_curand)
{
    const std::vector<uint32_t> head = fill(8, UINT64_C(0x123456789), 0);
    const std::vector<uint32_t> next = fill(4, UINT64_C(0x123456789), 65536);

    cr_expect_eq(head[0], 0x5aa1da32u);
    cr_expect_eq(head[1], 0xb611012au);
    cr_expect_eq(head[5], 0xe0c755e6u);
    cr_expect_eq(next[0], 0x43d5dacfu);
}

Test(cuda_philox, sizes_have_limits)
{
    cr_expect_eq(gsv_cuda_philox(nullptr, 0, 1, 0, nullptr), cudaSuccess);
    cr_expect_eq(gsv_cuda_philox(nullptr, (UINT64_C(1) << 40) + 1, 1, 0, nullptr),
                 cudaErrorInvalidValue);
}
