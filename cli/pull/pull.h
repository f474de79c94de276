/*
 * pull.h - the parts of `gpuserve pull`: downloads a model from a hub into the Hugging Face cache.
 *
 *   list.c: parses the file list of a revision, selects the needed files
 *   gguf.c: selects one GGUF file, or the parts of a split one
 *   http.c: documents and files by HTTP, with size limits and retries
 *   curl.c, hash.c: one HTTP request with verified TLS, and the hash of a file, by libraries
 *   helper.c: both by a helper program
 *   file.c: downloads one file into blobs/, resumes and verifies it
 *   cache.c: layout of the cache
 *
 *   CACHE/models--ORG--NAME/blobs/HASH                  the content, named by its hash
 *                          /refs/main                   the commit of a branch at download time
 *                          /snapshots/COMMIT/FILE  ->   ../../blobs/HASH
 *
 * Answers of the hub are untrusted input. File names cannot leave the snapshot folder. A file gets
 * its final name only after its size and hash match the list.
 */
#ifndef CLI_PULL_H
#define CLI_PULL_H

#include "cli/options/options.h"
#include "cli/io/output.h"

#include <jansson.h>

/* ---------------------------------------------------------------------------------------- list */

#define PULL_COMMIT_BYTES 41 /* 40 hexadecimal digits and NUL */
#define PULL_HASH_BYTES 65   /* 64 digits of a sha256 or 40 of a git blob hash, and NUL */

struct pull_file {
    char *name; /* validated: inside the snapshot folder */
    uint64_t size;
    char hash[PULL_HASH_BYTES];
    bool is_lfs; /* `hash` is the sha256 of the content; otherwise the SHA-1 of the git blob */
};

struct pull_list {
    char commit[PULL_COMMIT_BYTES];
    struct pull_file *files;
    size_t n, capacity;
    uint64_t total_bytes;
    bool is_gguf; /* the whole model is a GGUF file: files[0] and its other parts */
};

/* Download request: model, file and filters. */
struct pull_request {
    const char *name; /* of the model, also for messages */
    const char *file; /* the GGUF file to download; NULL: the model */
    const struct cli_list *include;
};

/* Parses the hub's JSON description of a revision into the list of needed files. */
int cli_pull_list(struct pull_list *list, const char *json, size_t size,
                  const struct pull_request *request);
void cli_pull_list_free(struct pull_list *list);

bool cli_pull_is_gguf(const char *name);

/* True for NAME-00001-of-0000N.gguf, a part of N > 1. */
bool cli_pull_gguf_part(const char *name, int *number, int *count);

/* Selects the GGUF file named `file`, or the only one if `file` is NULL: its index in the hub's
 * list. A split file is its first part. */
int cli_pull_choose_gguf(const json_t *siblings, const char *model, const char *file,
                         size_t *chosen);
/* The index of part `number` of the split file that begins with `first`. */
int cli_pull_next_gguf_part(const json_t *siblings, const char *model, const char *first,
                            int number, size_t *chosen);

/* Validate "ORG/NAME" or "NAME" by the hub's rules; a branch, tag or commit; a commit hash. */
bool cli_pull_name_ok(const char *name);
/* Validates a relative path, of a revision or a file: no empty, "." or ".." component. */
bool cli_pull_path_ok(const char *path);
bool cli_pull_revision_ok(const char *revision);
bool cli_pull_is_commit(const char *revision);

/* ---------------------------------------------------------------------------------------- http */

struct pull_http {
    void *curl;     /* libcurl's handle; NULL: requests go through `helper` */
    char *helper;   /* the words of GPUSERVE_FETCH, one a line; NULL: the libraries are loaded */
    char *endpoint; /* "https://huggingface.co", without a trailing slash */
    char *token;    /* NULL: none, or must not be sent to this endpoint */
};

/* Reads HF_ENDPOINT, HF_TOKEN or the token file, and GPUSERVE_FETCH; without it loads libcurl and
 * libcrypto. */
int cli_http_init(struct pull_http *http);
void cli_http_reset(struct pull_http *http);

/* A GET request. */
struct http_request {
    const char *url;
    uint64_t offset; /* first byte that is asked for; 0: the whole body */
    /* Called with each part of the body; false refuses the rest. */
    bool (*receive)(void *user, long status, const char *bytes, size_t n);
    void *user;
    long status;      /* of the answer; 0: none came */
    char detail[256]; /* why there is none */
};

enum request_end {
    REQUEST_DONE,      /* the answer is complete */
    REQUEST_BROKEN,    /* the connection broke */
    REQUEST_REFUSED,   /* receive() refused the body */
    REQUEST_UNTRUSTED, /* the server's certificate is not trusted */
    REQUEST_FAILED
};

/* Loads libcurl and creates its handle. */
int cli_curl_open(void **curl);
void cli_curl_close(void *curl);
enum request_end cli_curl_run(const struct pull_http *http, struct http_request *request);
enum request_end cli_helper_run(const struct pull_http *http, struct http_request *request);

/* Percent-encodes a part of a URL path; keeps '/' if `slashes`. Owned. */
char *cli_http_escape(const char *text, bool slashes);

/* GET of a small document. Owned; NULL after a message. `what` is used in messages. */
char *cli_http_get(struct pull_http *http, const char *url, size_t max_bytes, size_t *size,
                   const char *what);

enum http_end {
    HTTP_DONE,
    HTTP_BROKEN, /* connection broken; the download can resume */
    HTTP_FAILED  /* failed for good; a message was printed */
};

/* GET of a file from offset `have`; writes to `fd` and advances `have`. An answer with the whole
 * file (status 200) resets `have` to 0. A body longer than `size` bytes is an error. */
struct http_file {
    int fd;
    uint64_t have, size;
    struct cli_progress *progress;
    double done_before, total; /* bytes of the earlier files, and of all files */
    const char *what;
};
enum http_end cli_http_get_file(struct pull_http *http, const char *url, struct http_file *file);

/* --------------------------------------------------------------------------------------- cache */

struct pull_cache {
    char *folder; /* CACHE/models--ORG--NAME */
};

int cli_cache_init(struct pull_cache *cache, const char *name, const char *cache_dir);
void cli_cache_reset(struct pull_cache *cache);

/* Creates all parent folders of a file. */
int cli_make_folders(const char *path);

/* Creates snapshots/COMMIT/FILE as a symbolic link to the blob. */
int cli_cache_link(const struct pull_cache *cache, const char *commit,
                   const struct pull_file *file);
/* Writes the commit to refs/REVISION. */
int cli_cache_set_ref(const struct pull_cache *cache, const char *revision, const char *commit);
/* Path of the cached snapshot of a revision, or of `file` in it, owned; NULL if it is not in the
 * cache. A snapshot without config.json is the path of its only GGUF file. */
char *cli_cache_snapshot(const struct pull_cache *cache, const char *revision, const char *file);

/* Reads the base model of a LoRA adapter from its adapter_config.json: *name, which may be a path,
 * and *revision are owned; *name is NULL if the model is no adapter. */
#define PULL_ADAPTER_CONFIG "adapter_config.json"
void cli_pull_read_base(const char *snapshot, char **name, char **revision);

/* ---------------------------------------------------------------------------------------- hash */

/* Loads libcrypto. */
int cli_hash_open(void);
/* Writes the hash of a downloaded file as hexadecimal digits: SHA-256 of an LFS file, else git's
 * SHA-1. CLI_FAILED after a message. */
int cli_hash_file(int fd, const struct pull_file *file, char text[PULL_HASH_BYTES]);
/* The same by the helper. */
int cli_helper_hash(const struct pull_http *http, int fd, const struct pull_file *file,
                    char text[PULL_HASH_BYTES]);

/* ---------------------------------------------------------------------------------------- file */

struct pull_job {
    struct pull_http *http;
    const struct pull_cache *cache;
    const char *name; /* name of the model */
    const char *commit;
    struct cli_progress progress;
    double done, total; /* bytes */
    bool quiet;
};

/* Downloads a file; on CLI_OK its blob is in the cache, complete and verified. */
int cli_pull_file(struct pull_job *job, const struct pull_file *file);

#endif
