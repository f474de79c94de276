/*
 * alignment.cpp - hears of misaligned accesses in kernels.
 *
 * Emulated kernels are compiled with -fsanitize=alignment, which calls the functions below for each
 * access to memory that its type does not allow, float4 at an address not divisible by 16 say. They
 * bear the names of the undefined behaviour sanitizer's runtime, which is not linked; where it is,
 * its own take their place and speak for themselves.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "block.h"

namespace
{

struct source_location {
    const char *file;
    uint32_t line;
    uint32_t column;
};

/* What compilers hand over, version 1 of the layout. */
struct type_mismatch {
    source_location location;
    const void *type;
    unsigned char log_alignment;
    unsigned char check;
};

void misaligned(const type_mismatch *data, uintptr_t address)
{
    const unsigned alignment = 1u << data->log_alignment;

    if (gsv_emu_running())
        gsv_emu_fault(cudaErrorMisalignedAddress,
                      "%s:%u: access of %u-byte alignment at an address that is %u past one",
                      data->location.file, data->location.line, alignment,
                      (unsigned)(address % alignment));
    fprintf(stderr, "%s:%u: misaligned access on the host\n", data->location.file,
            data->location.line);
    abort();
}

} // namespace

extern "C" {
__attribute__((visibility("default"))) void
__ubsan_handle_type_mismatch_v1(const type_mismatch *data, uintptr_t address)
{
    misaligned(data, address);
}

__attribute__((visibility("default"))) void
__ubsan_handle_type_mismatch_v1_abort(const type_mismatch *data, uintptr_t address)
{
    misaligned(data, address);
}
}
