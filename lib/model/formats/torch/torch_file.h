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

#endif
