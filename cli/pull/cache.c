/*
 * cache.c - the layout of the Hugging Face cache, compatible with huggingface_hub.
 *
 * Links and refs are created under a temporary name and renamed, so other programs that read the
 * cache never see a partial entry. The diagram of the folders is in pull.h.
 */
#include "cli/pull/pull.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *set_or_null(const char *variable)
{
    const char *value = getenv(variable);

    return value && *value ? value : NULL;
}

/* Cache folder in the library's search order: --cache-dir, HF_HUB_CACHE, HF_HOME/hub, then the
 * user's cache folder. */
static char *cache_root(const char *cache_dir)
{
    const char *hub = set_or_null("HF_HUB_CACHE"), *hf_home = set_or_null("HF_HOME");
    const char *xdg = set_or_null("XDG_CACHE_HOME"), *home = set_or_null("HOME");

    if (cache_dir || hub)
        return cli_format("%s", cache_dir ? cache_dir : hub);
    if (hf_home)
        return cli_format("%s/hub", hf_home);
    if (xdg)
        return cli_format("%s/huggingface/hub", xdg);
    return home ? cli_format("%s/.cache/huggingface/hub", home) : NULL;
}

int cli_cache_init(struct pull_cache *cache, const char *name, const char *cache_dir)
{
    const char *slash = strchr(name, '/');
    char *root = cache_root(cache_dir);

    cache->folder = NULL;
    if (!root)
        return cli_fail("the cache has no directory: set HOME, HF_HOME or --cache-dir");
    if (slash)
        cache->folder =
            cli_format("%s/models--%.*s--%s", root, (int)(slash - name), name, slash + 1);
    else
        cache->folder = cli_format("%s/models--%s", root, name);
    free(root);
    return CLI_OK;
}

void cli_cache_reset(struct pull_cache *cache)
{
    free(cache->folder);
    cache->folder = NULL;
}

int cli_make_folders(const char *path)
{
    char *copy = cli_copy(path, strlen(path));
    int result = CLI_OK;

    for (char *slash = strchr(copy + 1, '/'); slash && result == CLI_OK;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(copy, 0777) && errno != EEXIST)
            result = cli_fail("%s: %s", copy, strerror(errno));
        *slash = '/';
    }
    free(copy);
    return result;
}

int cli_cache_link(const struct pull_cache *cache, const char *commit, const struct pull_file *file)
{
    char *path = cli_format("%s/snapshots/%s/%s", cache->folder, commit, file->name);
    char *temporary = cli_format("%s.%ld.tmp", path, (long)getpid());
    char *target = cli_format("../../blobs/%s", file->hash), *deeper;
    int result;

    for (const char *p = strchr(file->name, '/'); p; p = strchr(p + 1, '/')) {
        deeper = cli_format("../%s", target);
        free(target);
        target = deeper;
    }
    result = cli_make_folders(path);
    if (result == CLI_OK) {
        unlink(temporary);
        if (symlink(target, temporary) || rename(temporary, path))
            result = cli_fail("%s: %s", path, strerror(errno));
    }
    free(path);
    free(temporary);
    free(target);
    return result;
}

int cli_cache_set_ref(const struct pull_cache *cache, const char *revision, const char *commit)
{
    char *path = cli_format("%s/refs/%s", cache->folder, revision);
    char *temporary = cli_format("%s.%ld.tmp", path, (long)getpid());
    int result = cli_make_folders(path);
    FILE *file = result == CLI_OK ? fopen(temporary, "we") : NULL;
    bool written;

    if (result == CLI_OK) {
        written = file && fputs(commit, file) >= 0;
        if (file && fclose(file))
            written = false;
        if (!written || rename(temporary, path)) {
            result = cli_fail("%s: %s", path, strerror(errno));
            unlink(temporary);
        }
    }
    free(path);
    free(temporary);
    return result;
}

static int is_gguf_entry(const struct dirent *entry)
{
    return cli_pull_is_gguf(entry->d_name);
}

/* The path of the only GGUF file of a folder, or of the first of its parts, owned; NULL if there is
 * none or there are several. */
static char *only_gguf(const char *folder)
{
    struct dirent **entries = NULL;
    const int n = scandir(folder, &entries, is_gguf_entry, alphasort);
    int number, count = 1;
    char *path = NULL;

    if (n > 0 && (!cli_pull_gguf_part(entries[0]->d_name, &number, &count) || number != 1))
        count = 1;
    if (n > 0 && n == count)
        path = cli_format("%s/%s", folder, entries[0]->d_name);
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    return path;
}

/* `file` in a snapshot, or the snapshot itself, owned; NULL if it is not there. */
static char *find_in_snapshot(const char *snapshot, const char *file)
{
    char *path = cli_format("%s/%s", snapshot, file ? file : "config.json");
    bool found = access(path, R_OK) == 0;

    if (found && file)
        return path;
    free(path);
    for (size_t i = 0; i < 2 && !found && !file; i++) {
        path = cli_format("%s/%s", snapshot, i ? PULL_ADAPTER_CONFIG : "gliner_config.json");
        found = access(path, R_OK) == 0;
        free(path);
    }
    if (found)
        return cli_copy(snapshot, strlen(snapshot));
    return file ? NULL : only_gguf(snapshot);
}

char *cli_cache_snapshot(const struct pull_cache *cache, const char *revision, const char *file)
{
    char *ref = cli_format("%s/refs/%s", cache->folder, revision), *snapshot, *found;
    char commit[PULL_COMMIT_BYTES] = "";
    FILE *stream;

    if (cli_pull_is_commit(revision)) {
        memcpy(commit, revision, sizeof(commit));
    } else if ((stream = fopen(ref, "re"))) {
        if (!fgets(commit, sizeof(commit), stream))
            commit[0] = '\0';
        fclose(stream);
    }
    free(ref);
    if (!cli_pull_is_commit(commit))
        return NULL;
    snapshot = cli_format("%s/snapshots/%s", cache->folder, commit);
    found = find_in_snapshot(snapshot, file);
    free(snapshot);
    return found;
}
