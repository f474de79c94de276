/*
 * openai_files.c - OpenAI's /v1/files: upload, list, describe, read, delete.
 *
 * Only files of `purpose` "batch" are kept. A client sees the files of its own API key. The bytes
 * of a file are sent from its descriptor, so a reply of gigabytes needs no memory.
 */
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/http/batch/batch.h"
#include "lib/http/core/encoding.h"
#include "lib/http/dialects/openai_batch.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MIN_EXPIRY_S = 3600, MAX_EXPIRY_S = 2592000 }; /* OpenAI's bounds */

struct gsv_batch_jobs *gsv_batch_jobs_of(struct gsv_exchange *exchange)
{
    if (!exchange->server->batches)
        gsv_refuse(exchange, GSV_P_UNSUPPORTED, NULL,
                   "this server keeps no files and batches: start it with --batch-dir DIR");
    return exchange->server->batches;
}

bool gsv_refuse_storage(struct gsv_exchange *exchange, gpuserve_status status,
                        const gpuserve_error *error)
{
    if (status == GPUSERVE_E_TOO_LARGE)
        return gsv_refuse(exchange, GSV_P_STORAGE, NULL, "%s", error->message);
    if (status == GPUSERVE_E_NOMEM)
        return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "%s", error->message);
    gsv_http_log(exchange->server, GPUSERVE_LOG_WARNING, "%s %s: %s", exchange->method,
                 exchange->path, error->message);
    return gsv_refuse(exchange, GSV_P_INTERNAL, NULL, GSV_BATCH_DISK_FAULT);
}

bool gsv_read_expiry(struct gsv_exchange *exchange, const char *param, const char *anchor,
                     int64_t seconds)
{
    if (anchor && strcmp(anchor, "created_at") != 0)
        return gsv_refuse(exchange, GSV_P_INVALID, param, "`%s.anchor` is not \"created_at\"",
                          param);
    if (seconds < MIN_EXPIRY_S || seconds > MAX_EXPIRY_S)
        return gsv_refuse(exchange, GSV_P_INVALID, param, "`%s.seconds` is %lld, outside %d to %d",
                          param, (long long)seconds, MIN_EXPIRY_S, MAX_EXPIRY_S);
    return true;
}

static void put_file(struct gsv_buffer *to, const struct gsv_stored_file *file)
{
    gsv_buffer_format(to, "{\"id\":\"%s\",\"object\":\"file\",\"bytes\":%llu,\"created_at\":%lld,",
                      file->id, (unsigned long long)file->n_bytes, (long long)file->created);
    if (file->expires)
        gsv_buffer_format(to, "\"expires_at\":%lld,", (long long)file->expires);
    gsv_buffer_text(to, "\"filename\":");
    gsv_put_text(to, file->name);
    gsv_buffer_format(to, ",\"purpose\":\"%s\",\"status\":\"processed\",\"status_details\":null}",
                      file->purpose);
}

/* --------------------------------------------------------------------------------------- upload */

struct upload {
    struct gsv_stored_file file;
    struct gsv_form_part content;
    char purpose[32], anchor[32], seconds[32];
};

static bool is_named(const struct gsv_form_part *part, const char *name)
{
    return part->name_size == strlen(name) && memcmp(part->name, name, part->name_size) == 0;
}

static bool refuse_twice(struct gsv_exchange *exchange, const struct gsv_form_part *part)
{
    return gsv_refuse(exchange, GSV_P_INVALID, NULL, "the form has more than one `%.*s`",
                      (int)part->name_size, part->name);
}

static bool read_field(struct gsv_exchange *exchange, const struct gsv_form_part *part, char to[32])
{
    if (part->size >= 32 || memchr(part->bytes, 0, part->size))
        return gsv_refuse(exchange, GSV_P_INVALID, NULL, "`%.*s` has more than 31 bytes, or a NUL",
                          (int)part->name_size, part->name);
    if (to[0])
        return refuse_twice(exchange, part);
    memcpy(to, part->bytes, part->size);
    to[part->size] = 0;
    return true;
}

static bool read_part(struct gsv_exchange *exchange, const struct gsv_form_part *part,
                      struct upload *upload)
{
    if (is_named(part, "purpose"))
        return read_field(exchange, part, upload->purpose);
    if (is_named(part, "expires_after[anchor]"))
        return read_field(exchange, part, upload->anchor);
    if (is_named(part, "expires_after[seconds]"))
        return read_field(exchange, part, upload->seconds);
    if (!is_named(part, "file"))
        return gsv_refuse(exchange, GSV_P_INVALID, NULL, "unknown field \"%.*s\" of the form",
                          (int)(part->name_size < 64 ? part->name_size : 64), part->name);
    if (upload->content.name)
        return refuse_twice(exchange, part);
    upload->content = *part;
    return true;
}

/* The name is metadata and never a path: 1 to 255 bytes of UTF-8 without control characters. */
static bool read_name(struct gsv_exchange *exchange, struct upload *upload)
{
    const char *name = upload->content.filename;
    const size_t size = upload->content.filename_size;

    if (!name || size == 0 || size >= sizeof(upload->file.name))
        return gsv_refuse(exchange, GSV_P_INVALID, "file", "the filename has not 1 to %zu bytes",
                          sizeof(upload->file.name) - 1);
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7F)
            return gsv_refuse(exchange, GSV_P_INVALID, "file",
                              "the filename has a control character");
    }
    if (gsv_utf8_valid_length(name, size) != size)
        return gsv_refuse(exchange, GSV_P_INVALID, "file", "the filename is not UTF-8");
    memcpy(upload->file.name, name, size);
    return true;
}

static bool check_upload(struct gsv_exchange *exchange, struct upload *upload)
{
    static const char bom[] = "\xEF\xBB\xBF";
    const struct gsv_form_part *content = &upload->content;

    if (!content->name)
        return gsv_refuse(exchange, GSV_P_INVALID, "file", "'file' is a required property");
    if (!upload->purpose[0])
        return gsv_refuse(exchange, GSV_P_INVALID, "purpose", "'purpose' is a required property");
    if (strcmp(upload->purpose, "batch") != 0)
        return gsv_refuse(exchange, GSV_P_INVALID, "purpose",
                          "`purpose` is \"%s\": this server keeps only files of \"batch\"",
                          upload->purpose);
    if (content->size == 0)
        return gsv_refuse(exchange, GSV_P_EMPTY, "file", "File is empty.");
    if (content->size > GSV_STORE_MAX_UPLOAD)
        return gsv_refuse(exchange, GSV_P_TOO_LARGE, "file",
                          "the file has %zu bytes, the limit is %d", content->size,
                          GSV_STORE_MAX_UPLOAD);
    if (content->size >= 3 && memcmp(content->bytes, bom, 3) == 0)
        return gsv_refuse(exchange, GSV_P_INVALID, "file",
                          "the file begins with a UTF-8 byte order mark (EF BB BF): save it "
                          "without one");
    return read_name(exchange, upload);
}

/* Both fields, or none. */
static bool read_expiry(struct gsv_exchange *exchange, struct upload *upload)
{
    char *end;
    const int64_t seconds = strtoll(upload->seconds, &end, 10);

    upload->file.created = (int64_t)time(NULL);
    if (!upload->seconds[0] && !upload->anchor[0])
        return true;
    if (end == upload->seconds || *end)
        return gsv_refuse(exchange, GSV_P_INVALID, "expires_after",
                          "`expires_after[seconds]` is \"%s\", not a whole number",
                          upload->seconds);
    if (!gsv_read_expiry(exchange, "expires_after", upload->anchor, seconds))
        return false;
    upload->file.expires = upload->file.created + seconds;
    return true;
}

static bool read_upload(struct gsv_exchange *exchange, struct upload *upload)
{
    struct gsv_multipart multipart;
    struct gsv_form_part part;

    if (!gsv_multipart_begin(&multipart, gsv_header(exchange, "Content-Type"), exchange->body.bytes,
                             exchange->body.size))
        return gsv_refuse(exchange, GSV_P_MEDIA, NULL,
                          "the Content-Type is not multipart/form-data with a boundary");
    while (gsv_multipart_next(&multipart, &part)) {
        if (!read_part(exchange, &part, upload))
            return false;
    }
    if (multipart.fault)
        return gsv_refuse(exchange, GSV_P_INVALID, NULL, "%s", multipart.fault);
    return check_upload(exchange, upload) && read_expiry(exchange, upload);
}

static void upload_file(struct gsv_exchange *exchange)
{
    struct gsv_batch_jobs *batches = gsv_batch_jobs_of(exchange);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct upload upload = { .purpose = "" };
    gpuserve_status st;

    if (!batches || !read_upload(exchange, &upload))
        return;
    memcpy(upload.file.owner, exchange->key_name, sizeof(upload.file.owner));
    memcpy(upload.file.purpose, "batch", sizeof("batch"));
    st = gsv_store_upload(&batches->store, &upload.file, upload.content.bytes, upload.content.size,
                          &error);
    if (st != GPUSERVE_OK) {
        gsv_refuse_storage(exchange, st, &error);
        return;
    }
    put_file(&exchange->reply, &upload.file);
    gsv_reply_json(exchange);
}

/* ----------------------------------------------------------------------------------------- read */

/* Finds the client's file with the id in the path. False after gsv_refuse. */
static bool find_file(struct gsv_exchange *exchange, struct gsv_batch_jobs *batches,
                      struct gsv_stored_file *file)
{
    return gsv_store_find(&batches->store, exchange->version, exchange->key_name, file) ||
           gsv_refuse(exchange, GSV_P_NO_OBJECT, "id", "No such File object: %.64s",
                      exchange->version);
}

static void one_file(struct gsv_exchange *exchange)
{
    struct gsv_batch_jobs *batches = gsv_batch_jobs_of(exchange);
    struct gsv_stored_file file;

    if (!batches || !find_file(exchange, batches, &file))
        return;
    put_file(&exchange->reply, &file);
    gsv_reply_json(exchange);
}

static void read_content(struct gsv_exchange *exchange)
{
    struct gsv_batch_jobs *batches = gsv_batch_jobs_of(exchange);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_stored_file file;
    gpuserve_status status;
    struct stat st;
    int fd = -1;

    if (!batches || !find_file(exchange, batches, &file))
        return;
    status = gsv_store_open_data(&batches->store, file.id, O_RDONLY, &fd, &error);
    if (status == GPUSERVE_OK && fstat(fd, &st) != 0) {
        status = gsv_fail(&error, GPUSERVE_E_IO, "%s: %s", file.id, strerror(errno));
        close(fd);
    }
    if (status != GPUSERVE_OK) { /* 404 if another request has deleted it */
        if (find_file(exchange, batches, &file))
            gsv_refuse_storage(exchange, status, &error);
        return;
    }
    exchange->reply_fd = fd;
    exchange->n_borrowed = (size_t)st.st_size;
    gsv_add_header(exchange, "X-Content-Type-Options", "nosniff");
    gsv_reply(exchange, 200, "application/octet-stream");
}

static void delete_file(struct gsv_exchange *exchange)
{
    struct gsv_batch_jobs *batches = gsv_batch_jobs_of(exchange);
    const char *id = exchange->version;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st;

    if (!batches)
        return;
    st = gsv_batch_jobs_delete_file(batches, id, exchange->key_name, &error);
    if (st != GPUSERVE_OK) {
        gsv_refuse(exchange, st == GPUSERVE_E_MISMATCH ? GSV_P_STATE : GSV_P_NO_OBJECT, "id", "%s",
                   error.message);
        return;
    }
    gsv_buffer_format(&exchange->reply, "{\"id\":\"%s\",\"object\":\"file\",\"deleted\":true}", id);
    gsv_reply_json(exchange);
}

/* ----------------------------------------------------------------------------------------- list */

struct file_list {
    const char *purpose, *after;
    int64_t limit;
    bool ascending;
};

static bool read_list(struct gsv_exchange *exchange, struct file_list *list)
{
    const char *order = "desc";

    *list = (struct file_list){ .limit = GSV_STORE_MAX_FILES };
    if (!gsv_query_text(exchange, "purpose", &list->purpose) ||
        !gsv_query_text(exchange, "after", &list->after) ||
        !gsv_query_text(exchange, "order", &order) ||
        !gsv_query_count(exchange, "limit", 1, GSV_STORE_MAX_FILES, &list->limit))
        return false;
    list->ascending = strcmp(order, "asc") == 0;
    return list->ascending || strcmp(order, "desc") == 0 ||
           gsv_refuse(exchange, GSV_P_INVALID, "order", "`order` is neither \"asc\" nor \"desc\"");
}

/* Called with the store's lock held. False: `after` is unknown. */
static bool put_list(struct gsv_exchange *exchange, const struct gsv_store *store,
                     const struct file_list *list)
{
    const char *first = NULL, *last = NULL;
    struct gsv_buffer *to = &exchange->reply;
    bool begun = !list->after, has_more = false;
    const int64_t now = (int64_t)time(NULL);
    int64_t n = 0;

    gsv_buffer_text(to, "{\"object\":\"list\",\"data\":[");
    for (size_t k = 0; k < store->n_files && !has_more; k++) {
        const struct gsv_stored_file *file =
            &store->files[list->ascending ? k : store->n_files - 1 - k];

        if (strcmp(file->owner, exchange->key_name) != 0 || gsv_store_has_expired(file, now) ||
            (list->purpose && strcmp(list->purpose, file->purpose) != 0))
            continue;
        if (!begun) {
            begun = strcmp(file->id, list->after) == 0;
            continue;
        }
        has_more = n == list->limit;
        if (has_more)
            break;
        gsv_buffer_text(to, n++ > 0 ? "," : "");
        put_file(to, file);
        first = first ? first : file->id;
        last = file->id;
    }
    gsv_buffer_text(to, "],\"first_id\":");
    gsv_put_text(to, first);
    gsv_buffer_text(to, ",\"last_id\":");
    gsv_put_text(to, last);
    gsv_buffer_format(to, ",\"has_more\":%s}", has_more ? "true" : "false");
    return begun;
}

static void list_files(struct gsv_exchange *exchange)
{
    struct gsv_batch_jobs *batches = gsv_batch_jobs_of(exchange);
    struct file_list list;
    bool found;

    if (!batches || !read_list(exchange, &list))
        return;
    pthread_mutex_lock(&batches->store.lock);
    found = put_list(exchange, &batches->store, &list);
    pthread_mutex_unlock(&batches->store.lock);
    if (found)
        gsv_reply_json(exchange);
    else
        gsv_refuse(exchange, GSV_P_INVALID, "after", "`after` names no file of the list");
}

const struct gsv_route gsv_files_routes[] = {
    { "POST", "/v1/files", GSV_OPENAI, GSV_RAW_BODY | GSV_BLOCKING, upload_file },
    { "GET", "/v1/files", GSV_OPENAI, GSV_BLOCKING, list_files },
    { "GET", "/v1/files/{id}/content", GSV_OPENAI, GSV_BLOCKING, read_content },
    { "GET", "/v1/files/{id}", GSV_OPENAI, GSV_BLOCKING, one_file },
    { "DELETE", "/v1/files/{id}", GSV_OPENAI, GSV_BLOCKING, delete_file },
    { 0 },
};
