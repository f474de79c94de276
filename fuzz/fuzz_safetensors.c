/*
 * fuzz_safetensors.c - arbitrary safetensors headers: accepted tensors cover the file exactly.
 */
#include "fuzz/fuzz.h"

#include "lib/model/formats/formats.h"

#include <stdlib.h>
#include <string.h>

/* Total size of the accepted tensors in bytes. */
static uint64_t total_bytes(const struct gsv_json_value *header)
{
    uint64_t total = 0;

    for (size_t i = 0; i < header->n; i++) {
        const struct gsv_json_value *info = header->is.fields[i];
        const struct gsv_json_value *offsets = gsv_json_member(info, "data_offsets");

        if (strcmp(info->key, "__metadata__") == 0)
            continue;
        if (gsv_json_count(offsets) != 2)
            abort();
        total += (uint64_t)gsv_json_get_int(gsv_json_at(offsets, 1)) -
                 (uint64_t)gsv_json_get_int(gsv_json_at(offsets, 0));
    }
    return total;
}

/* The first two bytes are the size of the tensor data; the rest is the header. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_json_value *header = NULL;
    uint64_t data_size;

    if (size < 2)
        return 0;
    data_size = (uint64_t)data[0] << 8 | data[1];
    if (gsv_safetensors_check(&header, (const char *)data + 2, size - 2, size + 6 + data_size,
                              "fuzz", &error) != GPUSERVE_OK) {
        if (header || !error.message[0])
            abort();
        return 0;
    }
    if (total_bytes(header) != data_size)
        abort();
    gsv_json_free(&header);
    return 0;
}
