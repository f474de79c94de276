/*
 * weights_cache.c - names, keys and writes the files of packed weights.
 *
 * The key covers everything that the bits of the packed weights depend on:
 *
 *   - the files of the model: name, inode, size, mtime and ctime of each, and of open weight files.
 *     The kernel sets the ctime at each change of a file's bytes, name or links, and no program can
 *     set it back. Changes within one tick of the clock have the same time, so a file is only
 *     written if the model's last change is SETTLED_SECONDS before the load began, and if nothing
 *     changed until its end;
 *   - shapes, settings and labels, as in the model's digest; dtype; token limit;
 *   - the build of the library by its GNU build id, its C library, and the instruction set.
 *
 * The token ids of calibration and probes follow from these: the tokenizer is among the model's
 * files, the texts are built in. So a load from a file tokenizes none.
 *
 * The name covers the model's path and the settings, not their contents: a changed model, an
 * upgraded library or a touched file replaces its own file.
 */
#define _GNU_SOURCE /* realpath */
#include "lib/runtime/models/weights_cache.h"

#include "kernels/kernels.h"
#include "lib/base/error.h"
#include "lib/runtime/core/process.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define SETTLED_SECONDS 2
#define MAX_DEPTH 3

/* -------------------------------------------------------------------------------------- hashing */

static void feed(XXH3_state_t *state, const void *bytes, size_t size)
{
    XXH3_128bits_update(state, bytes, size);
}

static void feed_number(XXH3_state_t *state, int64_t number)
{
    feed(state, &number, sizeof(number));
}

static void feed_text(XXH3_state_t *state, const char *text)
{
    feed_number(state, (int64_t)strlen(text));
    feed(state, text, strlen(text));
}

/* ------------------------------------------------------------------------------- model's files */

struct listing {
    const struct gsv_dir *dir;
    XXH3_state_t *state;
    int64_t changed;
};

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* False if NAME is not a regular file. */
static bool feed_file(struct listing *listing, const char *name)
{
    uint64_t size;
    struct stat s;
    bool is_known;
    int fd;

    if (gsv_dir_open_file(listing->dir, name, &fd, &size, NULL) != GPUSERVE_OK)
        return false;
    is_known = fstat(fd, &s) == 0;
    close(fd);
    if (!is_known)
        return false;
    feed_number(listing->state, (int64_t)s.st_ino);
    feed_number(listing->state, (int64_t)s.st_size);
    feed_number(listing->state, (int64_t)s.st_mtim.tv_sec);
    feed_number(listing->state, s.st_mtim.tv_nsec);
    feed_number(listing->state, (int64_t)s.st_ctim.tv_sec);
    feed_number(listing->state, s.st_ctim.tv_nsec);
    listing->changed = later(listing->changed, later(s.st_mtim.tv_sec, s.st_ctim.tv_sec));
    return true;
}

/* Files of a folder and of the folders below it. False: out of memory, or too many files. */
static bool feed_folder(struct listing *listing, const char *folder, int depth)
{
    char name[GSV_FILE_NAME_BYTES];
    struct gsv_names names;
    gpuserve_status st = gsv_dir_list(listing->dir, folder, &names, NULL);
    bool is_known = true;

    if (st == GPUSERVE_E_NOMEM || st == GPUSERVE_E_TOO_LARGE)
        return false;
    for (size_t i = 0; st == GPUSERVE_OK && i < names.n && is_known; i++) {
        feed_text(listing->state, names.names[i]);
        if (gsv_join_name(name, folder, names.names[i]) && !feed_file(listing, name) &&
            depth < MAX_DEPTH)
            is_known = feed_folder(listing, name, depth + 1);
    }
    gsv_names_free(&names);
    return is_known;
}

/* ------------------------------------------------------------------------------------------ key */

/* False without a build id: another build of the same version could not be told from this one. */
static bool feed_build(XXH3_state_t *state)
{
    unsigned char id[64];
    const size_t size = gsv_build_id(id, sizeof(id));

    if (size == 0)
        return false;
    feed_text(state, gpuserve_version());
    feed_number(state, (int64_t)size);
    feed(state, id, size);
#ifdef __GLIBC__
    feed_text(state, gnu_get_libc_version());
#endif
    return true;
}

/* Hash the model's path and settings, which both the name and the key of a file cover. */
static void feed_subject(XXH3_state_t *state, const struct gsv_plan *plan,
                         const struct gsv_identity *identity, const char *path)
{
    feed_text(state, path);
    feed_text(state, plan->device.backend->name);
    feed_text(state, plan->device.facts.isa);
    feed_number(state, plan->dtype);
    feed_number(state, plan->max_tokens);
    feed(state, identity->shape, sizeof(identity->shape));
}

static bool make_key(struct gsv_weights_cache *cache, const struct gsv_plan *plan, const char *path,
                     uint64_t *name)
{
    XXH3_state_t state;
    struct listing listing = { plan->dir, &state, 0 };
    struct gsv_identity identity;
    XXH128_hash_t hash;

    if (gsv_spec_identify(plan->spec, &identity, NULL) != GPUSERVE_OK || !identity.is_known)
        return false;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    feed_subject(&state, plan, &identity, path);
    *name = XXH3_128bits_digest(&state).low64;
    if (!feed_build(&state))
        return false;
    feed(&state, identity.files, sizeof(identity.files));
    if (!feed_folder(&listing, "", 0))
        return false;
    hash = XXH3_128bits_digest(&state);
    cache->file.key[0] = hash.high64;
    cache->file.key[1] = hash.low64;
    cache->changed = later(listing.changed, identity.changed);
    return true;
}

/* Only the backend of this library has host memory and a packing. */
static bool may_keep(const struct gsv_model *model)
{
    const struct gsv_plan *plan = &model->plan;

    return model->context->weights_folder &&
           (plan->device.backend == gsv_backend_cpu() ||
            plan->device.backend == gsv_backend_cpu_portable()) &&
           (plan->dtype == GPUSERVE_DTYPE_INT8 || plan->maps_weights) &&
           !gsv_dir_is_made(plan->dir);
}

void gsv_weights_cache_begin(struct gsv_weights_cache *cache, const struct gsv_model *model)
{
    const char *folder = model->context->weights_folder;
    char *path = may_keep(model) ? realpath(gsv_dir_path(model->plan.dir), NULL) : NULL;
    uint64_t name;

    memset(cache, 0, sizeof(*cache));
    cache->began = (int64_t)time(NULL);
    if (path && make_key(cache, &model->plan, path, &name))
        cache->is_on =
            snprintf(cache->path, sizeof(cache->path), "%s/%016" PRIx64 GSV_WEIGHTS_SUFFIX, folder,
                     name) < (int)sizeof(cache->path);
    cache->file.path = cache->path;
    cache->file.packing = gsv_cpu_packing();
    cache->file.maps = model->plan.maps_weights; /* else read into huge pages */
    free(path);
}

/* ----------------------------------------------------------------------------------------- end */

static void log_state(const struct gsv_weights_cache *cache, const struct gsv_model *model)
{
    switch (cache->file.state) {
    case GSV_PACKED_USED:
        gsv_log(model->context, GPUSERVE_LOG_DEBUG, "%s: packed weights from %s", model->name,
                cache->path);
        break;
    case GSV_PACKED_STALE:
        gsv_log(model->context, GPUSERVE_LOG_INFO,
                "%s: the packed weights in %s are of other files, options or another library",
                model->name, cache->path);
        break;
    case GSV_PACKED_INVALID:
        gsv_log(model->context, GPUSERVE_LOG_WARNING, "%s: %s is ignored: %s", model->name,
                cache->path, cache->file.note);
        break;
    default:
        break;
    }
}

/* True if the model's files were the same from before the load until now. */
static bool is_settled(const struct gsv_weights_cache *cache, const struct gsv_model *model)
{
    struct gsv_weights_cache now;

    if (cache->changed > cache->began - SETTLED_SECONDS)
        return false;
    gsv_weights_cache_begin(&now, model);
    return now.is_on && memcmp(now.file.key, cache->file.key, sizeof(now.file.key)) == 0;
}

void gsv_weights_cache_end(struct gsv_weights_cache *cache, const struct gsv_model *model,
                           const struct gsv_net *net)
{
    const char *folder = model->context->weights_folder;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (!cache->is_on)
        return;
    log_state(cache, model);
    if (cache->file.state == GSV_PACKED_USED)
        return;
    if (!is_settled(cache, model)) {
        gsv_log(model->context, GPUSERVE_LOG_DEBUG,
                "%s: the packed weights are not kept: the files changed less than %d s before the "
                "load",
                model->name, SETTLED_SECONDS);
        return;
    }
    if (!gsv_weights_folder_make(folder)) {
        gsv_log(model->context, GPUSERVE_LOG_INFO, "%s: the packed weights are not kept: %s: %s",
                model->name, folder, strerror(errno));
        return;
    }
    if (gsv_net_save(net, &cache->file, model->plan.n_workers, &error) != GPUSERVE_OK)
        gsv_log(model->context, GPUSERVE_LOG_INFO, "%s: the packed weights are not kept: %s",
                model->name, error.message);
    else
        gsv_log(model->context, GPUSERVE_LOG_DEBUG, "%s: packed weights written to %s", model->name,
                cache->path);
    gsv_weights_folder_bound(folder);
}
