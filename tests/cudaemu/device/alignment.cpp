/*
 * alignment.cpp - detects misaligned accesses in kernels.
 *
 * Emulated kernels are compiled with -fsanitize=alignment. The compiler inserts calls of the
 * functions below for each access that its type does not allow, e.g. float4 at an address not
 * divisible by 16. They have the names of the UBSan runtime, which is not linked. If it is linked,
 * its functions replace these and print their own reports.
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

/* Argument of the handlers, version 1 of the layout. */
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
