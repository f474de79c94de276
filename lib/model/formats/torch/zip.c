/*
 * zip.c - reads and validates the directory of a zip archive.
 *
 * The end record at the end of the file leads to the central directory, whose size and number of
 * entries are bounded before it is read. Each entry's local header is then compared with it, and
 * the entries, sorted by offset, must not overlap. All integers are little-endian.
 */
#include "lib/model/formats/torch/torch_file.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ENTRIES 100000u
#define MAX_DIRECTORY_BYTES (32u << 20)
#define MAX_NAME_BYTES 512u

#define END_BYTES 22u     /* end of central directory */
#define LOCATOR_BYTES 20u /* of the zip64 end record */
#define END64_BYTES 56u
#define CENTRAL_BYTES 46u
#define LOCAL_BYTES 30u

#define END_SIGNATURE 0x06054b50u
#define LOCATOR_SIGNATURE 0x07064b50u
#define END64_SIGNATURE 0x06064b50u
#define CENTRAL_SIGNATURE 0x02014b50u
#define LOCAL_SIGNATURE 0x04034b50u

#define FLAG_ENCRYPTED 0x2041u /* bit 0, strong encryption, encrypted directory */
#define FLAGS_ALLOWED 0x0808u  /* sizes after the content, names in UTF-8 */
#define ZIP64_EXTRA 1u

/* Where the central directory is. */
struct directory {
    uint64_t n, offset, size;
};

static uint32_t u16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32(const unsigned char *p)
{
    return u16(p) | u16(p + 2) << 16;
}

static uint64_t u64(const unsigned char *p)
{
    return (uint64_t)u32(p) | (uint64_t)u32(p + 4) << 32;
}

static gpuserve_status fail(const struct gsv_weight_file *file, const char *what,
                            gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: zip archive: %s", file->shown, what);
}

static gpuserve_status fail_entry(const struct gsv_weight_file *file, const char *name,
                                  const char *what, gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: zip entry '%.128s': %s", file->shown, name,
                    what);
}

/* -------------------------------------------------------------------------------- end records */

/* Replace `directory` by the contents of the zip64 end record that a locator before `end` names.
 * *end becomes the offset of that record. */
static gpuserve_status read_end64(struct directory *directory, uint64_t *end,
                                  const struct gsv_weight_file *file, gpuserve_error *error)
{
    unsigned char locator[LOCATOR_BYTES], record[END64_BYTES];
    uint64_t at;
    gpuserve_status st;

    if (*end < LOCATOR_BYTES + END64_BYTES)
        return GPUSERVE_OK;
    st = gsv_fd_read(file->fd, locator, sizeof(locator), *end - LOCATOR_BYTES, file->shown, error);
    if (st != GPUSERVE_OK || u32(locator) != LOCATOR_SIGNATURE)
        return st;
    at = *end - LOCATOR_BYTES - END64_BYTES;
    if (u32(locator + 4) != 0 || u32(locator + 16) > 1)
        return fail(file, "the archive has more than one disk", error);
    if (u64(locator + 8) != at)
        return fail(file, "the zip64 end record is not before its locator", error);
    st = gsv_fd_read(file->fd, record, sizeof(record), at, file->shown, error);
    if (st != GPUSERVE_OK)
        return st;
    if (u32(record) != END64_SIGNATURE || u64(record + 4) != END64_BYTES - 12)
        return fail(file, "the zip64 end record is invalid", error);
    if (u32(record + 16) != 0 || u32(record + 20) != 0 || u64(record + 24) != u64(record + 32))
        return fail(file, "the archive has more than one disk", error);
    if ((directory->n != UINT16_MAX && directory->n != u64(record + 32)) ||
        (directory->size != UINT32_MAX && directory->size != u64(record + 40)) ||
        (directory->offset != UINT32_MAX && directory->offset != u64(record + 48)))
        return fail(file, "the two end records contradict each other", error);
    *directory = (struct directory){ u64(record + 32), u64(record + 48), u64(record + 40) };
    *end = at;
    return GPUSERVE_OK;
}

static gpuserve_status check_limits(const struct directory *directory, uint64_t end,
                                    const struct gsv_weight_file *file, gpuserve_error *error)
{
    if (directory->n > MAX_ENTRIES)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "%s: zip archive: %llu entries, the limit is %u", file->shown,
                        (unsigned long long)directory->n, MAX_ENTRIES);
    if (directory->size > MAX_DIRECTORY_BYTES)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "%s: zip archive: the central directory has %llu bytes, the limit is %u",
                        file->shown, (unsigned long long)directory->size, MAX_DIRECTORY_BYTES);
    if (directory->offset > end || directory->size != end - directory->offset)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: zip archive: the central directory of %llu bytes at byte %llu does "
                        "not end at the end record at byte %llu",
                        file->shown, (unsigned long long)directory->size,
                        (unsigned long long)directory->offset, (unsigned long long)end);
    if (directory->n == 0 || directory->n > directory->size / CENTRAL_BYTES)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: zip archive: %llu entries in a central directory of %llu bytes",
                        file->shown, (unsigned long long)directory->n,
                        (unsigned long long)directory->size);
    return GPUSERVE_OK;
}

static gpuserve_status find_directory(struct directory *directory,
                                      const struct gsv_weight_file *file, gpuserve_error *error)
{
    unsigned char record[END_BYTES];
    uint64_t end;
    gpuserve_status st;

    if (file->size_bytes < END_BYTES)
        return fail(file, "too few bytes for an end record: the file is truncated", error);
    end = file->size_bytes - END_BYTES;
    st = gsv_fd_read(file->fd, record, sizeof(record), end, file->shown, error);
    if (st != GPUSERVE_OK)
        return st;
    if (u32(record) != END_SIGNATURE || u16(record + 20) != 0)
        return fail(file,
                    "no end record in the last 22 bytes: the file is truncated, or has a comment",
                    error);
    if (u16(record + 4) != 0 || u16(record + 6) != 0 || u16(record + 8) != u16(record + 10))
        return fail(file, "the archive has more than one disk", error);
    *directory = (struct directory){ u16(record + 10), u32(record + 16), u32(record + 12) };
    st = read_end64(directory, &end, file, error);
    return st == GPUSERVE_OK ? check_limits(directory, end, file, error) : st;
}

/* ---------------------------------------------------------------------------- central directory */

/* Whether a name is a relative path of printable UTF-8 without empty, "." and ".." parts. */
static bool name_ok(const char *name, size_t size)
{
    size_t part = 0;

    if (size > MAX_NAME_BYTES || gsv_utf8_valid_length(name, size) != size)
        return false;
    for (size_t i = 0; i <= size; i++) {
        if (i < size && name[i] != '/') {
            if ((unsigned char)name[i] < 0x20 || name[i] == 0x7F || name[i] == '\\')
                return false;
            continue;
        }
        if (i == part || (i - part == 1 && name[part] == '.') ||
            (i - part == 2 && name[part] == '.' && name[part + 1] == '.'))
            return false;
        part = i + 1;
    }
    return true;
}

/* Replace saturated 32-bit fields by those of the zip64 extra field. False if it lacks one. */
static bool read_extra(const unsigned char *extra, size_t bytes, uint64_t *size, uint64_t *packed,
                       uint64_t *header)
{
    uint64_t *const wide[] = { *size == UINT32_MAX ? size : NULL,
                               *packed == UINT32_MAX ? packed : NULL,
                               *header == UINT32_MAX ? header : NULL };
    size_t at = 0, end;

    while (bytes - at >= 4 && u16(extra + at) != ZIP64_EXTRA) {
        if (u16(extra + at + 2) > bytes - at - 4)
            return false;
        at += 4 + u16(extra + at + 2);
    }
    end = bytes - at >= 4 ? at + 4 + u16(extra + at + 2) : at;
    at += 4;
    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++) {
        if (!wide[i])
            continue;
        if (end > bytes || at > end || end - at < 8)
            return false;
        *wide[i] = u64(extra + at);
        at += 8;
    }
    return true;
}

/* Fill an entry from its central header of `n_name` and `n_extra` bytes after the fixed part. */
static gpuserve_status read_entry(struct gsv_zip_entry *entry, const unsigned char *p,
                                  size_t n_extra, const struct gsv_weight_file *file,
                                  gpuserve_error *error)
{
    const uint32_t flags = u16(p + 8), method = u16(p + 10);
    uint64_t packed = u32(p + 20);

    entry->size = u32(p + 24);
    entry->header = u32(p + 42);
    if (flags & FLAG_ENCRYPTED)
        return fail_entry(file, entry->name, "the entry is encrypted", error);
    if (method != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: zip entry '%.128s': compressed with method %u; torch.save() stores "
                        "entries uncompressed",
                        file->shown, entry->name, method);
    if (flags & ~FLAGS_ALLOWED)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: zip entry '%.128s': unknown flags 0x%x",
                        file->shown, entry->name, flags);
    if (u16(p + 34) != 0)
        return fail_entry(file, entry->name, "the entry is on another disk", error);
    if (!read_extra(p + CENTRAL_BYTES + u16(p + 28), n_extra, &entry->size, &packed,
                    &entry->header))
        return fail_entry(file, entry->name, "the zip64 field is missing or truncated", error);
    if (packed != entry->size)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: zip entry '%.128s': stored in %llu bytes, but its size is %llu",
                        file->shown, entry->name, (unsigned long long)packed,
                        (unsigned long long)entry->size);
    return GPUSERVE_OK;
}

/* Compare the local header with the entry, and compute where the content begins. */
static gpuserve_status read_local(struct gsv_zip_entry *entry, uint64_t limit,
                                  const struct gsv_weight_file *file, gpuserve_error *error)
{
    unsigned char local[LOCAL_BYTES + MAX_NAME_BYTES];
    const size_t n_name = strlen(entry->name);
    gpuserve_status st;

    if (entry->header > limit || limit - entry->header < LOCAL_BYTES + n_name)
        return fail_entry(file, entry->name, "its header is outside the archive", error);
    st = gsv_fd_read(file->fd, local, LOCAL_BYTES + n_name, entry->header, file->shown, error);
    if (st != GPUSERVE_OK)
        return st;
    if (u32(local) != LOCAL_SIGNATURE)
        return fail_entry(file, entry->name, "it has no local header", error);
    if ((u16(local + 6) & ~FLAGS_ALLOWED) != 0 || u16(local + 8) != 0 ||
        u16(local + 26) != n_name || memcmp(local + LOCAL_BYTES, entry->name, n_name) != 0)
        return fail_entry(file, entry->name, "its local header contradicts the directory", error);
    entry->offset = entry->header + LOCAL_BYTES + n_name + u16(local + 28);
    if (entry->offset > limit || entry->size > limit - entry->offset)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: zip entry '%.128s': %llu bytes at byte %llu, but the entries end at "
                        "byte %llu",
                        file->shown, entry->name, (unsigned long long)entry->size,
                        (unsigned long long)entry->offset, (unsigned long long)limit);
    return GPUSERVE_OK;
}

static gpuserve_status read_entries(struct gsv_zip *zip, const unsigned char *bytes,
                                    const struct directory *directory,
                                    const struct gsv_weight_file *file, gpuserve_error *error)
{
    size_t at = 0, name_at = 0;
    gpuserve_status st = GPUSERVE_OK;

    for (zip->n = 0; zip->n < directory->n && st == GPUSERVE_OK; zip->n++) {
        struct gsv_zip_entry *entry = &zip->entries[zip->n];
        const unsigned char *p = bytes + at;
        const size_t left = (size_t)directory->size - at;
        size_t n_name, n_extra, n_comment;

        if (left < CENTRAL_BYTES || u32(p) != CENTRAL_SIGNATURE)
            return fail(file, "an entry of the central directory is invalid", error);
        n_name = u16(p + 28);
        n_extra = u16(p + 30);
        n_comment = u16(p + 32);
        if (n_name + n_extra + n_comment > left - CENTRAL_BYTES)
            return fail(file, "an entry of the central directory is truncated", error);
        if (!name_ok((const char *)p + CENTRAL_BYTES, n_name))
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: zip archive: the name of entry %zu has %zu bytes; it is empty, "
                            "longer than %u, not text, or leads outside the archive",
                            file->shown, zip->n, n_name, MAX_NAME_BYTES);
        entry->name = memcpy(zip->names + name_at, p + CENTRAL_BYTES, n_name);
        name_at += n_name + 1; /* the buffer is zeroed */
        st = read_entry(entry, p, n_extra, file, error);
        if (st == GPUSERVE_OK)
            st = read_local(entry, directory->offset, file, error);
        at += CENTRAL_BYTES + n_name + n_extra + n_comment;
    }
    if (st == GPUSERVE_OK && at != directory->size)
        return fail(file, "the central directory has bytes after its last entry", error);
    return st;
}

/* --------------------------------------------------------------------------------- all entries */

static int compare_offsets(const void *a, const void *b)
{
    const struct gsv_zip_entry *x = a, *y = b;

    return x->header == y->header ? 0 : x->header < y->header ? -1 : 1;
}

static int compare_names(const void *a, const void *b)
{
    const struct gsv_zip_entry *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* Check that entries do not overlap and that names are unique; leaves them sorted by name. */
static gpuserve_status check_entries(struct gsv_zip *zip, const struct gsv_weight_file *file,
                                     gpuserve_error *error)
{
    qsort(zip->entries, zip->n, sizeof(*zip->entries), compare_offsets);
    if (zip->entries[0].header != 0)
        return fail(file, "the first entry does not begin at byte 0", error);
    for (size_t i = 1; i < zip->n; i++) {
        const struct gsv_zip_entry *before = &zip->entries[i - 1], *entry = &zip->entries[i];

        if (entry->header < before->offset + before->size)
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: zip entry '%.128s' at byte %llu overlaps '%.128s', which ends at "
                            "byte %llu",
                            file->shown, entry->name, (unsigned long long)entry->header,
                            before->name, (unsigned long long)(before->offset + before->size));
    }
    zip->first = zip->entries[0].name;
    qsort(zip->entries, zip->n, sizeof(*zip->entries), compare_names);
    for (size_t i = 1; i < zip->n; i++)
        if (compare_names(&zip->entries[i - 1], &zip->entries[i]) == 0)
            return fail_entry(file, zip->entries[i].name, "the name appears twice", error);
    return GPUSERVE_OK;
}

gpuserve_status gsv_zip_read(struct gsv_zip *zip, const struct gsv_weight_file *file,
                             gpuserve_error *error)
{
    struct directory directory = { 0 };
    unsigned char *bytes = NULL;
    gpuserve_status st = find_directory(&directory, file, error);

    memset(zip, 0, sizeof(*zip));
    if (st != GPUSERVE_OK)
        return st;
    bytes = malloc((size_t)directory.size);
    zip->names = gsv_alloc_array((size_t)directory.size, 1);
    zip->entries = gsv_alloc_array((size_t)directory.n, sizeof(*zip->entries));
    if (!bytes || !zip->names || !zip->entries)
        st = gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for %llu zip entries",
                      file->shown, (unsigned long long)directory.n);
    else
        st = gsv_fd_read(file->fd, bytes, (size_t)directory.size, directory.offset, file->shown,
                         error);
    if (st == GPUSERVE_OK)
        st = read_entries(zip, bytes, &directory, file, error);
    if (st == GPUSERVE_OK)
        st = check_entries(zip, file, error);
    free(bytes);
    if (st != GPUSERVE_OK)
        gsv_zip_reset(zip);
    return st;
}

void gsv_zip_reset(struct gsv_zip *zip)
{
    free(zip->entries);
    free(zip->names);
    memset(zip, 0, sizeof(*zip));
}

const struct gsv_zip_entry *gsv_zip_find(const struct gsv_zip *zip, const char *name)
{
    const struct gsv_zip_entry key = { .name = name };

    return bsearch(&key, zip->entries, zip->n, sizeof(*zip->entries), compare_names);
}
