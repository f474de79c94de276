/*
 * curand.cpp - cuRAND's generator Philox4x32-10 in its legacy order.
 *
 * Written from the paper (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
 * 3", 2011) with 128-bit integers and the round as its figure draws it, and from cuRAND's manual:
 * 65,536 threads, of which each takes four outputs of its subsequence at a time. It shares nothing
 * with lib/base/philox.h; tests/cudaemu/test_philox.cpp compares it with the known answers of the
 * paper's authors and with outputs of cuRAND.
 */
#include <array>

#include <curand.h>

#include "state.h"

namespace
{

enum {
    SUCCESS = 0,
    NOT_INITIALIZED = 101,
    ALLOCATION_FAILED = 102,
    TYPE_ERROR = 103,
    OUT_OF_RANGE = 104,
    LAUNCH_FAILURE = 201
};
enum { PHILOX = 161, LEGACY = 103 };

struct generator {
    cudaStream_t stream = nullptr;
    unsigned long long seed = 0;
    unsigned long long offset = 0; /* outputs */
    int order = 0;
};

int to_status(cudaError_t error)
{
    return error == cudaSuccess                 ? SUCCESS
           : error == cudaErrorMemoryAllocation ? ALLOCATION_FAILED
                                                : LAUNCH_FAILURE;
}

/* A round of the generator on (L0, R0, L1, R1), as in the paper. */
std::array<uint32_t, 4> philox_round(const std::array<uint32_t, 4> &in, uint32_t k0, uint32_t k1)
{
    const unsigned __int128 first = static_cast<unsigned __int128>(0xD2511F53u) * in[0];
    const unsigned __int128 second = static_cast<unsigned __int128>(0xCD9E8D57u) * in[2];

    return { static_cast<uint32_t>(second >> 32) ^ in[1] ^ k0, static_cast<uint32_t>(second),
             static_cast<uint32_t>(first >> 32) ^ in[3] ^ k1, static_cast<uint32_t>(first) };
}

std::array<uint32_t, 4> philox(unsigned __int128 counter, uint64_t key)
{
    std::array<uint32_t, 4> words;

    for (size_t i = 0; i < words.size(); i++)
        words[i] = static_cast<uint32_t>(counter >> 32 * i);
    for (uint32_t round = 0; round < 10; round++)
        words = philox_round(words, static_cast<uint32_t>(key) + round * 0x9E3779B9u,
                             static_cast<uint32_t>(key >> 32) + round * 0xBB67AE85u);
    return words;
}

/* Output `index` of the sequence: the threads take turns, four outputs each. */
uint32_t output(uint64_t seed, uint64_t index)
{
    const uint64_t thread = index / 4 % 65536, turn = index / 4 / 65536;
    const unsigned __int128 counter = static_cast<unsigned __int128>(thread) << 64 | turn;

    return philox(counter, seed)[index % 4];
}

} /* namespace */

/* For the test of known answers. */
extern "C" __attribute__((visibility("default"))) void
gsv_emu_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t found[4])
{
    unsigned __int128 wide = 0;

    for (int i = 3; i >= 0; i--)
        wide = wide << 32 | counter[i];
    const std::array<uint32_t, 4> words =
        philox(wide, static_cast<uint64_t>(key[1]) << 32 | key[0]);
    for (size_t i = 0; i < words.size(); i++)
        found[i] = words[i];
}

extern "C" {

int curandCreateGenerator(void **object, int type)
{
    gsv_emu_entry entry("curandCreateGenerator");

    *object = nullptr;
    if (entry.failed())
        return to_status(entry.error());
    if (type != PHILOX)
        return TYPE_ERROR;
    *object = new generator;
    gsv_emu.counters.live_objects++;
    return SUCCESS;
}

int curandDestroyGenerator(void *object)
{
    gsv_emu_entry entry("curandDestroyGenerator");

    if (!object)
        return NOT_INITIALIZED;
    gsv_emu.counters.live_objects--;
    delete static_cast<generator *>(object);
    return to_status(entry.error());
}

int curandSetStream(void *object, cudaStream_t stream)
{
    gsv_emu_entry entry("curandSetStream");

    if (entry.failed())
        return to_status(entry.error());
    static_cast<generator *>(object)->stream = stream;
    return SUCCESS;
}

int curandSetPseudoRandomGeneratorSeed(void *object, unsigned long long seed)
{
    gsv_emu_entry entry("curandSetPseudoRandomGeneratorSeed");

    if (entry.failed())
        return to_status(entry.error());
    static_cast<generator *>(object)->seed = seed;
    return SUCCESS;
}

int curandSetGeneratorOffset(void *object, unsigned long long offset)
{
    gsv_emu_entry entry("curandSetGeneratorOffset");

    if (entry.failed())
        return to_status(entry.error());
    static_cast<generator *>(object)->offset = offset;
    return SUCCESS;
}

int curandSetGeneratorOrdering(void *object, int order)
{
    gsv_emu_entry entry("curandSetGeneratorOrdering");

    if (entry.failed())
        return to_status(entry.error());
    if (order < 100 || order > 104)
        return OUT_OF_RANGE;
    static_cast<generator *>(object)->order = order;
    return SUCCESS;
}

/* Only the legacy order is the same in every release. */
int curandGenerate(void *object, unsigned *outputs, size_t n)
{
    gsv_emu_entry entry("curandGenerate");
    gsv_emu_operation operation = { gsv_emu_work::product, 0, nullptr, nullptr, {} };
    generator *const g = static_cast<generator *>(object);

    if (entry.failed())
        return to_status(entry.error());
    if (!g || g->order != LEGACY)
        return NOT_INITIALIZED;
    const gsv_emu_allocation *const found = gsv_emu_find(outputs, n * sizeof(*outputs));
    if (!found || !found->device)
        return to_status(entry.finish(cudaErrorIllegalAddress));
    const uint64_t seed = g->seed, offset = g->offset;
    g->offset += n;
    operation.run = [=] {
        for (size_t i = 0; i < n; i++)
            outputs[i] = output(seed, offset + i);
        return cudaSuccess;
    };
    return to_status(
        entry.finish(gsv_emu_enqueue(gsv_emu_stream(g->stream), std::move(operation))));
}

} // extern "C"
