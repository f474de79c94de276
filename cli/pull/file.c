/*
 * file.c - downloads one file of the hub to blobs/HASH.
 *
 * Data is written to blobs/HASH.incomplete. The file stays after a broken download, and the next
 * run resumes it. A lock (flock) on it keeps two programs from writing it at the same time. After
 * the last byte the content is read back from the file and hashed; on a match it is renamed to
 * blobs/HASH. A mismatch after a resumed download causes one full download.
 */
#include "cli/pull/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TRIES 6
#define FIRST_PAUSE_MS 250

/* Opens and locks the incomplete file. Another program may finish and rename the file while this
 * one waits for the lock; the loop then opens the name again (compares inode and device). */
static int open_incomplete(const char *path, const char *name)
{
    struct stat ours, there;
    bool told = false;

    for (;;) {
        const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);

        if (fd < 0) {
            cli_fail("%s: %s", path, strerror(errno));
            return -1;
        }
        if (flock(fd, LOCK_EX | LOCK_NB)) {
            if (!told)
                cli_warn("%s: another program downloads the file, waiting", name);
            told = true;
            while (flock(fd, LOCK_EX) && errno == EINTR)
                ;
        }
        if (fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
            ours.st_dev == there.st_dev)
            return fd;
        close(fd);
    }
}

static char *url_of(const struct pull_job *job, const struct pull_file *file)
{
    char *name = cli_http_escape(file->name, true);
    char *url =
        cli_format("%s/%s/resolve/%s/%s", job->http->endpoint, job->name, job->commit, name);

    free(name);
    return url;
}

/* Downloads all missing bytes, with retries and exponential backoff. The retry count restarts
 * whenever bytes arrived. */
static int receive(struct pull_job *job, const struct pull_file *file, struct http_file *to)
{
    char *url = url_of(job, file);
    int failures = 0, result = CLI_FAILED;

    for (;;) {
        const uint64_t before = to->have;
        const enum http_end end =
            to->have == to->size && to->size ? HTTP_DONE : cli_http_get_file(job->http, url, to);

        if (end == HTTP_DONE)
            result = CLI_OK;
        if (end != HTTP_BROKEN)
            break;
        failures = to->have > before ? 1 : failures + 1;
        if (failures == TRIES) {
            cli_fail("%s: the download stopped at %llu of %llu bytes", file->name,
                     (unsigned long long)to->have, (unsigned long long)to->size);
            cli_hint("run the command again: it resumes the download");
            break;
        }
        const long ms = (long)FIRST_PAUSE_MS << (failures - 1);
        nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
    }
    free(url);
    return result;
}

static int fetch(struct pull_job *job, const struct pull_file *file, int fd)
{
    struct http_file to = { .fd = fd,
                            .size = file->size,
                            .progress = &job->progress,
                            .done_before = job->done,
                            .total = job->total,
                            .what = file->name };
    char hash[PULL_HASH_BYTES] = "";
    struct stat st;
    bool resumed;

    if (fstat(fd, &st))
        return cli_fail("%s: %s", file->name, strerror(errno));
    if ((uint64_t)st.st_size <= file->size)
        to.have = (uint64_t)st.st_size;
    do {
        resumed = to.have > 0;
        if (receive(job, file, &to) != CLI_OK)
            return CLI_FAILED;
        if ((job->http->helper ? cli_helper_hash(job->http, fd, file, hash)
                               : cli_hash_file(fd, file, hash)) != CLI_OK)
            return CLI_FAILED;
        if (strcmp(hash, file->hash) == 0)
            return fsync(fd) == 0 ? CLI_OK : cli_fail("%s: %s", file->name, strerror(errno));
        to.have = 0;
        if (ftruncate(fd, 0))
            return cli_fail("%s: %s", file->name, strerror(errno));
    } while (resumed); /* the resumed part may be the wrong one: download all once more */
    cli_fail("%s: the %s is %s, but the hub lists %s", file->name,
             file->is_lfs ? "sha256" : "git hash", hash, file->hash);
    cli_hint("gpuserve deleted the download; a proxy or a mirror may change files");
    return CLI_FAILED;
}

int cli_pull_file(struct pull_job *job, const struct pull_file *file)
{
    char *blob = cli_format("%s/blobs/%s", job->cache->folder, file->hash);
    char *incomplete = cli_format("%s.incomplete", blob);
    struct stat st;
    int fd = -1, result = cli_make_folders(blob);

    if (result == CLI_OK && !(stat(blob, &st) == 0 && (uint64_t)st.st_size == file->size)) {
        fd = open_incomplete(incomplete, file->name);
        if (fd < 0) {
            result = CLI_FAILED;
        } else if (stat(blob, &st) == 0 && (uint64_t)st.st_size == file->size) {
            unlink(incomplete); /* created by open() above, after the other program had finished */
        } else {
            result = fetch(job, file, fd);
            if (result == CLI_OK && rename(incomplete, blob))
                result = cli_fail("%s: %s", blob, strerror(errno));
            if (lseek(fd, 0, SEEK_END) == 0 && result != CLI_OK)
                unlink(incomplete); /* empty: nothing to resume */
        }
    }
    if (fd >= 0)
        close(fd);
    if (result == CLI_OK)
        job->done += (double)file->size;
    free(blob);
    free(incomplete);
    return result;
}
