/*
 * model_path.h - resolves a model's name to its directory or GGUF file. Downloads nothing.
 */
#ifndef GSV_RUNTIME_MODEL_PATH_H
#define GSV_RUNTIME_MODEL_PATH_H

#include "lib/base/dir.h"
#include "lib/model/model.h"

#include <gpuserve/types.h>

/* Folders that are searched for names, read from the environment when the context is created. */
struct gsv_hub {
    char *cache;  /* of Hugging Face: holds models--ORG--NAME; NULL: none */
    char *models; /* of gpuserve: holds NAME; NULL: none */
};

/* `cache_dir` overrides the environment; may be NULL. */
gpuserve_status gsv_hub_init(struct gsv_hub *hub, const char *cache_dir, gpuserve_error *error);
void gsv_hub_reset(struct gsv_hub *hub);

/*
 * Find the directory of a model: `name` itself if it is a directory, a file *.gguf or a random
 * model
 * ("random:SHAPE", see formats.h), else a name
 * of components of [A-Za-z0-9._-] without leading dots. It is looked up as
 * models--ORG--NAME/snapshots/REVISION, by refs/main or by the revision after an '@'. A name
 * without a revision is then looked up in gpuserve's own cache, by the whole name and by its last
 * component. *path is owned. GPUSERVE_E_NOT_FOUND lists the places searched, and its hint the
 * remedy.
 */
gpuserve_status gsv_hub_find(const struct gsv_hub *hub, const char *name, char **path,
                             gpuserve_error *error);

/* Open the directory at a path that gsv_hub_find() gave. That of a LoRA adapter gets the directory
 * of its base model, found by the name or path in adapter_config.json. */
gpuserve_status gsv_hub_open(const struct gsv_hub *hub, struct gsv_dir **dir, const char *path,
                             gpuserve_error *error);

/* Open the directories of gpuserve_model_options.adapters; NULL: none. On an error there are none.
 */
gpuserve_status gsv_hub_open_adapters(const struct gsv_hub *hub, struct gsv_adapter_dirs *adapters,
                                      const char *lines, gpuserve_error *error);
void gsv_hub_close_adapters(struct gsv_adapter_dirs *adapters);

#endif
