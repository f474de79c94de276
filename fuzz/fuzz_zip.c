/*
 * fuzz_zip.c - arbitrary bytes as a zip archive: the entries of an accepted archive have names of
 * their own, lie inside the file and do not overlap.
 *
 * fuzz_torch.c reads the same archives with the pickle in them.
 */
#define _GNU_SOURCE /* memfd_create */
#include "fuzz/fuzz.h"

#include "lib/model/formats/torch/torch_file.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_BYTES = 1 << 16 };

static bool overlap(const struct gsv_zip_entry *a, const struct gsv_zip_entry *b)
{
    return a->header < b->offset + b->size && b->header < a->offset + a->size;
}

static void check_entries(const struct gsv_zip *zip, size_t size)
{
    size_t n_first = 0;

    for (size_t i = 0; i < zip->n; i++) {
        const struct gsv_zip_entry *entry = &zip->entries[i];

        if (entry->header >= entry->offset || entry->offset > size ||
            entry->size > size - entry->offset)
            abort();
        if (gsv_zip_find(zip, entry->name) != entry)
            abort();
        if (i > 0 && strcmp(entry[-1].name, entry->name) >= 0)
            abort();
        for (size_t k = 0; k < i; k++)
            if (overlap(entry, &zip->entries[k]))
                abort();
        n_first += entry->header == 0;
    }
    if (zip->n > 0 && (n_first != 1 || gsv_zip_find(zip, zip->first)->header != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char shown[] = "file";
    struct gsv_weight_file file = { .shown = shown, .size_bytes = size };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_zip zip;

    if (size > MAX_BYTES)
        return 0;
    if (fd < 0)
        fd = memfd_create("fuzz-zip", MFD_CLOEXEC);
    if (fd < 0 || pwrite(fd, data, size, 0) != (ssize_t)size || ftruncate(fd, (off_t)size))
        abort();
    file.fd = fd;
    if (gsv_zip_read(&zip, &file, &error) == GPUSERVE_OK)
        check_entries(&zip, size);
    else if (zip.entries || !error.message[0])
        abort();
    gsv_zip_reset(&zip);
    return 0;
}
