/*
 * checkpoint.h - a model's files below one folder of its directory: JSON objects, and the weights
 * of one or many safetensors files.
 */
#ifndef GSV_MODEL_CHECKPOINT_H
#define GSV_MODEL_CHECKPOINT_H

#include "lib/model/formats/safetensors.h"

#define GSV_MODEL_DIRECTORY_HINT                                     \
    "a model directory holds config.json and model.safetensors, or " \
    "model.safetensors.index.json with the files it names"

/* Read FOLDER/NAME as a JSON object, owned. An absent file leaves *json NULL and is
 * GPUSERVE_E_NOT_FOUND. */
gpuserve_status gsv_read_json(struct gsv_json_value **json, const struct gsv_dir *dir,
                              const char *folder, const char *name, gpuserve_error *error);

/* A JSON array from the directory itself. */
gpuserve_status gsv_read_json_array(struct gsv_json_value **json, const struct gsv_dir *dir,
                                    const char *name, gpuserve_error *error);

/* As gsv_read_json, but an absent file is GPUSERVE_OK. */
gpuserve_status gsv_read_optional_json(struct gsv_json_value **json, const struct gsv_dir *dir,
                                       const char *folder, const char *name, gpuserve_error *error);

/* All weights below a folder: model.safetensors, or the files that model.safetensors.index.json
 * names. */
struct gsv_checkpoint {
    struct gsv_safetensors **files;
    size_t n_files;
};

gpuserve_status gsv_checkpoint_open(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                    const char *folder, gpuserve_error *error);
void gsv_checkpoint_close(struct gsv_checkpoint *checkpoint); /* leaves it empty */

bool gsv_checkpoint_find(const struct gsv_checkpoint *checkpoint, const char *name,
                         struct gsv_tensor *tensor);

#endif
