/*
 * zip.h - the directory of a zip archive as torch.save() writes it: entries stored as they are.
 *
 * Accepted: one disk, zip64, no compression, no encryption, no comment, unique names that stay
 * inside the archive, entries that lie one after the other from byte 0 to the central directory.
 * So an archive never expands, and every byte range is inside the file. CRCs are not verified:
 * PyTorch may leave them out.
 */
#ifndef GSV_MODEL_ZIP_H
#define GSV_MODEL_ZIP_H

#include "lib/model/formats/weight_file.h"

struct gsv_zip_entry {
    const char *name;
    uint64_t header;       /* file offset of the local header */
    uint64_t offset, size; /* of the content in the file */
};

struct gsv_zip {
    struct gsv_zip_entry *entries; /* [n] sorted by name */
    size_t n;
    const char *first; /* the name of the entry at byte 0 */
    char *names;       /* owns the entries' names */
};

/* Read and validate the directory of `file`. On an error *zip is empty. */
gpuserve_status gsv_zip_read(struct gsv_zip *zip, const struct gsv_weight_file *file,
                             gpuserve_error *error);
void gsv_zip_reset(struct gsv_zip *zip);

/* NULL if the archive has no entry of that name. */
const struct gsv_zip_entry *gsv_zip_find(const struct gsv_zip *zip, const char *name);

#endif
