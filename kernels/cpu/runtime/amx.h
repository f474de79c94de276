/*
 * amx.h - whether the tile registers of AMX can be used: by the processor, and by this process.
 */
#ifndef GSV_CPU_AMX_H
#define GSV_CPU_AMX_H

#include <stdbool.h>
#include <stdint.h>

/* AMX capabilities reported by CPUID, XGETBV and the operating system. */
struct gsv_amx_facts {
    uint32_t features;     /* CPUID leaf 7, EDX */
    uint64_t enabled;      /* XCR0; 0 without XGETBV */
    uint32_t palettes;     /* CPUID leaf 0x1D, EAX: the largest palette */
    uint32_t palette_1[3]; /* CPUID leaf 0x1D, subleaf 1: EAX, EBX, ECX */
};

struct gsv_amx_facts gsv_amx_read_facts(void);

/* True if the facts hold for the kernels in tile registers. */
bool gsv_amx_is_present(const struct gsv_amx_facts *facts);

/* Requests permission to use tile data, for all threads of the process and its children. Linux
 * refuses it to a process with an alternate signal stack too small for the tile data. */
bool gsv_amx_request_permission(void);

#endif
