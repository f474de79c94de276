/*
 * model_path.h - from a model's name to its directory. Nothing is downloaded.
 */
#ifndef GSV_RUNTIME_MODEL_PATH_H
#define GSV_RUNTIME_MODEL_PATH_H

#include <gpuserve/types.h>

/* The folders names are looked up in, as the environment said when the context was made. */
struct gsv_hub {
    char *cache;  /* Hugging Face: holds models--ORG--NAME; NULL: none */
    char *models; /* our own: holds NAME; NULL: none */
};

/* `cache_dir` replaces what the environment says; may be NULL. */
gpuserve_status gsv_hub_init(struct gsv_hub *hub, const char *cache_dir, gpuserve_error *error);
void gsv_hub_reset(struct gsv_hub *hub);

/*
 * The directory of a model: `name` itself when it is a directory; else a name of parts of
 * [A-Za-z0-9._-] without leading dots, looked up as models--ORG--NAME/snapshots/REVISION by
 * refs/main, then as a folder of our own cache by the whole name and by its last part. *path is
 * owned. GPUSERVE_E_NOT_FOUND says where it looked, and the hint what to do.
 */
gpuserve_status gsv_hub_find(const struct gsv_hub *hub, const char *name, char **path,
                             gpuserve_error *error);

#endif
