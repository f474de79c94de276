/*
 * torch_file.h - opens the weights that torch.save() writes ("pytorch_model.bin").
 *
 * Two layouts are read. Since PyTorch 1.6: a zip archive with a pickle, data.pkl, and one stored
 * entry for each storage. Before: a sequence of pickles and then the storages. The pickle is a
 * state dict, or a checkpoint with one under "state_dict" or "model_state_dict". Only tensors are
 * read, by the interpreter of pickle.h; a file that needs code is refused. Tensors may share
 * storages.
 */
#ifndef GSV_MODEL_TORCH_FILE_H
#define GSV_MODEL_TORCH_FILE_H

#include "lib/model/formats/weight_file.h"

#define GSV_PICKLE_HINT                                                                          \
    "gpuserve reads tensors only and runs no code; if you trust the file, convert it once: "     \
    "python "                                                                                    \
    "-c \"from transformers import AutoModel; AutoModel.from_pretrained('DIR').save_pretrained(" \
    "'DIR', safe_serialization=True)\""

/* Open DIR/NAME and validate all of it but the numbers. *file is owned: gsv_weight_file_close(). */
gpuserve_status gsv_torch_file_open(struct gsv_weight_file **file, const struct gsv_dir *dir,
                                    const char *name, gpuserve_error *error);

/*
 * The directory of a zip archive as torch.save() writes it: entries stored as they are.
 *
 * Accepted: one disk, zip64, no compression, no encryption, no comment, unique names that stay
 * inside the archive, entries that lie one after the other from byte 0 to the central directory.
 * So an archive never expands, and every byte range is inside the file. CRCs are not verified:
 * PyTorch may leave them out.
 */

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
