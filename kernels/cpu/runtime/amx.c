/*
 * amx.c - detects AMX: CPUID, XCR0, the shape of the tiles, and the permission of Linux.
 *
 * Linux allocates tile data only for a process that asks for it: without the permission the first
 * tile instruction ends in SIGILL. See "Using XSTATE features in user space applications" in the
 * documentation of Linux.
 */
#include "kernels/cpu/runtime/isa.h"

#include "kernels/cpu/runtime/tiles.h"

#define FEATURES (1u << 22 | 1u << 24 | 1u << 25) /* AMX-BF16, AMX-TILE, AMX-INT8 */
#define TILE_STATE (3ull << 17)                   /* XCR0: tile configuration, tile data */
#define TILE_BYTES (GSV_TILE_HEIGHT * GSV_TILE_ROW_BYTES)

bool gsv_amx_is_present(const struct gsv_amx_facts *facts)
{
    const uint32_t bytes = facts->palette_1[0], row = facts->palette_1[1];

    return (facts->features & FEATURES) == FEATURES &&
           (facts->enabled & TILE_STATE) == TILE_STATE && facts->palettes >= 1 &&
           bytes >> 16 == TILE_BYTES && (bytes & 0xFFFF) == TILE_BYTES * GSV_TILE_REGISTERS &&
           (row & 0xFFFF) == GSV_TILE_ROW_BYTES && row >> 16 == GSV_TILE_REGISTERS &&
           (facts->palette_1[2] & 0xFFFF) == GSV_TILE_HEIGHT;
}

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XTILEDATA 18
#define OSXSAVE (1u << 27) /* CPUID leaf 1, ECX: XGETBV is enabled */

static uint64_t read_xcr0(void)
{
    uint32_t low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

struct gsv_amx_facts gsv_amx_read_facts(void)
{
    struct gsv_amx_facts facts = { 0 };
    uint32_t a, b, c, d;

    if (__get_cpuid(1, &a, &b, &c, &d) && (c & OSXSAVE))
        facts.enabled = read_xcr0();
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
        facts.features = d;
    if (__get_cpuid_count(0x1D, 0, &a, &b, &c, &d))
        facts.palettes = a;
    if (facts.palettes >= 1 && __get_cpuid_count(0x1D, 1, &a, &b, &c, &d)) {
        facts.palette_1[0] = a;
        facts.palette_1[1] = b;
        facts.palette_1[2] = c;
    }
    return facts;
}

bool gsv_amx_request_permission(void)
{
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
}
#else
struct gsv_amx_facts gsv_amx_read_facts(void)
{
    return (struct gsv_amx_facts){ 0 };
}

bool gsv_amx_request_permission(void)
{
    return false;
}
#endif
