/*
 * pull.h - the parts of `gpuserve pull`: from a hub into the Hugging Face cache.
 *
 *   list.c: which files a revision has and which of them are needed
 *   http.c: one request, bounded, with TLS verified
 *   file.c: one file into blobs/, resumed and checked
 *   cache.c: the cache's layout
 *
 *   CACHE/models--ORG--NAME/blobs/HASH                  the bytes, named by their hash
 *                          /refs/main                   the commit that a branch stood for
 *                          /snapshots/COMMIT/FILE  ->   ../../blobs/HASH
 *
 * Nothing from the hub is believed: names cannot leave the snapshot, sizes and hashes must be those
 * listed, and a file gets its name only when they are.
 */
#ifndef CLI_PULL_H
#define CLI_PULL_H

#include "cli/options/options.h"
#include "cli/io/progress.h"

#include <curl/curl.h>

/* ---------------------------------------------------------------------------------------- list */

#define PULL_COMMIT_BYTES 41 /* 40 hexadecimal digits */
#define PULL_HASH_BYTES 65   /* 64 of a sha256, 40 of a git blob */

struct pull_file {
    char *name; /* checked: stays inside the snapshot */
    uint64_t size;
    char hash[PULL_HASH_BYTES];
    bool is_lfs; /* the hash is the content's sha256, else git's sha1 of a blob */
};

struct pull_list {
    char commit[PULL_COMMIT_BYTES];
    struct pull_file *files;
    size_t n, capacity;
    uint64_t total_bytes;
};

/* The hub's description of a revision -> the files needed. `name` is for messages. */
int cli_pull_list(struct pull_list *list, const char *json, size_t size, const char *name,
                  const struct cli_list *include);
void cli_pull_list_free(struct pull_list *list);

/* "ORG/NAME" or "NAME" as the hub allows them; a branch, tag or commit. */
bool cli_pull_name_ok(const char *name);
bool cli_pull_revision_ok(const char *revision);
bool cli_pull_is_commit(const char *revision);

/* ---------------------------------------------------------------------------------------- http */

struct pull_http {
    CURL *curl;
    char *endpoint; /* "https://huggingface.co", no slash at its end */
    char *token;    /* NULL: none, or not to be sent to this endpoint */
};

/* From HF_ENDPOINT and HF_TOKEN or the token file. */
int cli_http_init(struct pull_http *http);
void cli_http_reset(struct pull_http *http);

/* A part of a path for a URL; slashes stay when `slashes`. Owned. */
char *cli_http_escape(const char *text, bool slashes);

/* GET a small document. Owned; NULL after a message. `what` is for messages. */
char *cli_http_get(struct pull_http *http, const char *url, size_t max_bytes, size_t *size,
                   const char *what);

enum http_end {
    HTTP_DONE,
    HTTP_BROKEN, /* broken off: what came may be gone on with */
    HTTP_FAILED  /* a message was printed */
};

/* GET a file from `*have` on, writing at the descriptor's place; *have grows. A server that begins
 * from the start again sets it back. More than `size` bytes are refused. */
struct http_file {
    int fd;
    uint64_t have, size;
    struct cli_progress *progress;
    double done_before, total; /* bytes of other files, and of all */
    const char *what;
};
enum http_end cli_http_get_file(struct pull_http *http, const char *url, struct http_file *file);

/* --------------------------------------------------------------------------------------- cache */

struct pull_cache {
    char *folder; /* CACHE/models--ORG--NAME */
};

int cli_cache_init(struct pull_cache *cache, const char *name, const char *cache_dir);
void cli_cache_reset(struct pull_cache *cache);

/* Make every folder on the way to a file. */
int cli_make_folders(const char *path);

/* snapshots/COMMIT/FILE as a link to the blob. */
int cli_cache_link(const struct pull_cache *cache, const char *commit,
                   const struct pull_file *file);
/* refs/REVISION holds the commit. */
int cli_cache_set_ref(const struct pull_cache *cache, const char *revision, const char *commit);
/* The snapshot of a revision that is here, owned; NULL when it is not. */
char *cli_cache_snapshot(const struct pull_cache *cache, const char *revision);

/* ---------------------------------------------------------------------------------------- file */

struct pull_job {
    struct pull_http *http;
    const struct pull_cache *cache;
    const char *name; /* of the model */
    const char *commit;
    struct cli_progress progress;
    double done, total; /* bytes */
    bool quiet;
};

/* The file's blob is in the cache, whole and checked, when this is CLI_OK. */
int cli_pull_file(struct pull_job *job, const struct pull_file *file);

#endif
