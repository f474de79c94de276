/*
 * tables.c - writes embedding tables in the type that a model's dtype has: gsv_table_type().
 *
 * An element beyond the range of float16 becomes infinite, and so does the result of a text with
 * that token, which is an error then. The other texts are not affected.
 */
#include "kernels/cpu/runtime/cpu.h"
#include "kernels/hostmem.h"

#include "lib/base/number.h"

size_t gsv_cpu_table_size(uint32_t dtype)
{
    if (gsv_cpu_activation_size(dtype) == 0)
        return 0;
    return gsv_table_type(dtype) == GSV_TABLE_F32 ? sizeof(float) : sizeof(uint16_t);
}

gpuserve_status gsv_cpu_write_table(struct gpuserve_device *device, void *to, const float *from,
                                    size_t count, uint32_t dtype, gpuserve_error *error)
{
    const enum gsv_table_type type = gsv_table_type(dtype);
    uint16_t *halves = to;

    if (type == GSV_TABLE_F32)
        return gsv_hostmem_memory_write_floats(device, to, from, count, dtype, error);
    for (size_t i = 0; i < count; i++)
        halves[i] = type == GSV_TABLE_F16 ? gsv_f16_of(from[i]) : gsv_bf16_of(from[i]);
    return GPUSERVE_OK;
}
