/*
 * gguf_parts.c - split GGUF files: NAME-00001-of-0000N.gguf and the parts after it.
 *
 * The first part has the model's key-values, and split.count, the number of parts. Each part has
 * split.no, its index, and its own tensors. The parts lie in one directory.
 */
#define _GNU_SOURCE /* asprintf */
#include "lib/base/gguf.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DIGITS 5
#define SUFFIX_BYTES (sizeof("-00001-of-00002.gguf") - 1)

/* The decimal number of DIGITS digits at `text`; -1 if one is none. */
static int32_t number_at(const char *text)
{
    int32_t number = 0;

    for (int i = 0; i < DIGITS; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        number = 10 * number + (text[i] - '0');
    }
    return number;
}

bool gsv_gguf_part_name(struct gsv_gguf_part_name *part, const char *name)
{
    const size_t size = strlen(name);
    const char *suffix = name + size - SUFFIX_BYTES;

    if (size <= SUFFIX_BYTES || suffix[0] != '-' || strncmp(suffix + 1 + DIGITS, "-of-", 4) != 0 ||
        strcasecmp(suffix + 5 + 2 * DIGITS, ".gguf") != 0)
        return false;
    part->stem = size - SUFFIX_BYTES;
    part->number = number_at(suffix + 1);
    part->count = number_at(suffix + 5 + DIGITS);
    return part->number >= 1 && part->number <= part->count && part->count > 1;
}

bool gsv_gguf_is_first_part(const char *name, size_t n)
{
    struct gsv_gguf_part_name part;

    return gsv_gguf_part_name(&part, name) && part.number == 1 && (size_t)part.count == n;
}

bool gsv_gguf_part_path(char **real, const char *path)
{
    const char *const slash = strrchr(path, '/'), *const name = slash ? slash + 1 : path;
    struct gsv_gguf_part_name part;
    char *folder, *real_folder = NULL, *own = NULL;

    if (!gsv_gguf_part_name(&part, name))
        return true;
    folder = slash ? gsv_copy_text(path, (size_t)(name - path)) : gsv_copy_text(".", 1);
    if (folder)
        real_folder = realpath(folder, NULL);
    if (real_folder && asprintf(&own, "%s/%s", real_folder, name) < 0)
        own = NULL;
    free(folder);
    free(real_folder);
    if (!own)
        return false;
    free(*real);
    *real = own;
    return true;
}

/* The name of a part of the same file as `name`. */
static void write_name(char to[GSV_FILE_NAME_BYTES], const char *name, size_t stem, int32_t number,
                       int32_t count)
{
    snprintf(to, GSV_FILE_NAME_BYTES, "%.*s-%05d-of-%05d%s", (int)stem, name, (int)number,
             (int)count, name + strlen(name) - strlen(".gguf"));
}

/* The file's name must be that of the first part, so that the names of the others are known. */
static gpuserve_status check_name(const struct gsv_gguf *gguf, const char *name, int64_t index,
                                  int64_t count, struct gsv_gguf_part_name *part,
                                  gpuserve_error *error)
{
    char first[GSV_FILE_NAME_BYTES];
    gpuserve_status st;

    if (!gsv_gguf_part_name(part, name) || part->count != count || strlen(name) > 255) {
        st = gsv_fail(error, GPUSERVE_E_FORMAT,
                      "%s: the file is part %lld of %lld of a split GGUF file, and its name does "
                      "not end in -%05lld-of-%05lld.gguf",
                      gguf->shown, (long long)index + 1, (long long)count, (long long)index + 1,
                      (long long)count);
        return gsv_hint(error, st,
                        "the names lead to the other parts: rename the file back, or "
                        "merge the parts: llama-gguf-split --merge FIRST-PART OUTPUT");
    }
    if (part->number == 1 && index == 0)
        return GPUSERVE_OK;
    write_name(first, name, part->stem, 1, part->count);
    st = gsv_fail(error, GPUSERVE_E_INVALID,
                  "%s: the file is part %lld of %lld of a split GGUF file; the model begins with "
                  "the first part",
                  gguf->shown, (long long)index + 1, (long long)count);
    return gsv_hint(error, st, "give the path of the first part, %s, or of a directory with all",
                    first);
}

/* A part has the index and the count that its name says, and no tensor of an earlier part. */
static gpuserve_status check_part(const struct gsv_gguf *first, const struct gsv_gguf *part,
                                  int64_t index, int64_t count, gpuserve_error *error)
{
    int64_t found = -1, found_count = -1;
    gpuserve_status st = gsv_gguf_int(part, "split.no", 0, UINT16_MAX, &found, error);

    if (st == GPUSERVE_OK)
        st = gsv_gguf_int(part, "split.count", 0, UINT16_MAX, &found_count, error);
    if (st != GPUSERVE_OK)
        return st;
    if (found != index || found_count != count)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: split.no is %lld and split.count is %lld, expected %lld and %lld",
                        part->shown, (long long)found, (long long)found_count, (long long)index,
                        (long long)count);
    for (size_t i = 0; i < part->n_tensors; i++) {
        char name[GSV_GGUF_MAX_NAME + 1];
        const struct gsv_gguf_text text = part->tensors[i].name;

        snprintf(name, sizeof(name), "%.*s", (int)text.size, text.at);
        if (gsv_gguf_find_tensor(first, name))
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is also in an earlier part",
                            part->shown, name);
    }
    return GPUSERVE_OK;
}

static gpuserve_status add_part(struct gsv_gguf *gguf, const struct gsv_dir *dir,
                                const struct gsv_gguf_part_name *name, int64_t index,
                                gpuserve_error *error)
{
    char part[GSV_FILE_NAME_BYTES], *shown = NULL;
    struct gsv_gguf *opened;
    const char *const slash = strrchr(gguf->shown, '/');
    const int folder = slash ? (int)(slash + 1 - gguf->shown) : 0;
    gpuserve_status st;

    write_name(part, gsv_dir_gguf(dir), name->stem, (int32_t)index + 1, name->count);
    if (asprintf(&shown, "%.*s%s", folder, gguf->shown, part) < 0)
        shown = NULL;
    st = gsv_gguf_open_file(&opened, dir, part, shown, GSV_GGUF_MAX_PART_HEADER, error);
    if (st == GPUSERVE_E_NOT_FOUND)
        return gsv_hint(error, st,
                        "%s is a split GGUF file of %d parts; all belong in one directory",
                        gguf->shown, (int)name->count);
    if (st != GPUSERVE_OK)
        return st;
    st = check_part(gguf, opened, index, name->count, error);
    if (st == GPUSERVE_OK)
        gguf->parts[gguf->n_parts++] = opened;
    else
        gsv_gguf_close(&opened);
    return st;
}

static gpuserve_status check_total(const struct gsv_gguf *gguf, gpuserve_error *error)
{
    size_t n = gguf->n_tensors;
    int64_t expected = -1;
    gpuserve_status st;

    for (size_t i = 0; i < gguf->n_parts; i++)
        n += gguf->parts[i]->n_tensors;
    st = gsv_gguf_int(gguf, "split.tensors.count", 0, INT32_MAX, &expected, error);
    if (st != GPUSERVE_OK || expected < 0 || (uint64_t)expected == n)
        return st;
    return gsv_fail(error, GPUSERVE_E_FORMAT,
                    "%s: split.tensors.count is %lld, but the parts have %zu tensors", gguf->shown,
                    (long long)expected, n);
}

gpuserve_status gsv_gguf_open_parts(struct gsv_gguf *gguf, const struct gsv_dir *dir,
                                    gpuserve_error *error)
{
    struct gsv_gguf_part_name name;
    int64_t count = 1, index = 0;
    gpuserve_status st = gsv_gguf_int(gguf, "split.count", 0, UINT16_MAX, &count, error);

    if (st == GPUSERVE_OK)
        st = gsv_gguf_int(gguf, "split.no", 0, UINT16_MAX, &index, error);
    if (st != GPUSERVE_OK || count <= 1)
        return st;
    if (count > GSV_GGUF_MAX_PARTS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: split.count is %lld, the limit is %d",
                        gguf->shown, (long long)count, GSV_GGUF_MAX_PARTS);
    st = check_name(gguf, gsv_dir_gguf(dir), index, count, &name, error);
    if (st != GPUSERVE_OK)
        return st;
    gguf->parts = gsv_alloc_array((size_t)count - 1, sizeof(*gguf->parts));
    if (!gguf->parts)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gguf->shown);
    for (int64_t i = 1; i < count && st == GPUSERVE_OK; i++)
        st = add_part(gguf, dir, &name, i, error);
    return st == GPUSERVE_OK ? check_total(gguf, error) : st;
}
