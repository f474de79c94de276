/*
 * packed_weights.c - writes and restores the packed weights of a net.
 *
 *   head | record of each item | hash of each chunk of the image | zeros to a page | image
 *
 * The image is the net's memory up to the last byte in use. Every part has a hash (XXH3-64), and
 * threads verify the chunks of the image before a byte of it is used. A hash detects damage, not
 * forgery, so a file is read only if this user owns it and no other user may write it.
 */
#define _GNU_SOURCE /* mkostemp */
#include "lib/model/formats/lora.h"
#include "lib/model/weights/weights.h"

#include "lib/base/alloc.h"
#include "lib/base/dir.h"
#include "lib/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define CHUNK_BYTES ((uint64_t)4 << 20)
#define PART_BYTES ((size_t)256 << 10) /* of a chunk; in the cache from the read to the hash */
#define PAGE_BYTES 65536               /* a multiple of every page size */
#define NO_LINEAR UINT64_MAX
#define MAX_CHUNK_THREADS 8

static const char magic[8] = "GSVPACK1";

struct packed_head {
    char magic[8];
    uint64_t key[2];
    uint64_t file_bytes;
    uint64_t image_at, image_bytes;
    uint64_t n_items;
    uint64_t digest[2];
    struct gsv_int8_facts int8;
    uint64_t tables_hash; /* of the records and the hashes of chunks */
    uint64_t head_hash;   /* of the fields above */
};

struct packed_record {
    uint64_t offset; /* of the packed weights in the image; NO_LINEAR */
    int32_t n, k;
    uint32_t dtype, flags;
};

/* The parts of a file before its image. */
struct packed_tables {
    struct packed_head head;
    struct packed_record *records; /* [head.n_items]; owned */
    uint64_t *hashes;              /* [n_chunks], in the same block */
    size_t n_chunks, bytes;        /* bytes of both arrays */
};

static size_t chunk_count(uint64_t image_bytes)
{
    return (size_t)((image_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES);
}

static size_t chunk_bytes(const struct packed_head *head, size_t chunk)
{
    const uint64_t left = head->image_bytes - chunk * CHUNK_BYTES;

    return (size_t)(left < CHUNK_BYTES ? left : CHUNK_BYTES);
}

static uint64_t hash_head(const struct packed_head *head)
{
    return XXH3_64bits(head, offsetof(struct packed_head, head_hash));
}

/* head->n_items and image_bytes are those of the net at hand or below the file's size, so no sum
 * overflows. */
static bool alloc_tables(struct packed_tables *tables)
{
    const size_t records = (size_t)tables->head.n_items * sizeof(struct packed_record);

    tables->n_chunks = chunk_count(tables->head.image_bytes);
    tables->bytes = records + tables->n_chunks * sizeof(uint64_t);
    tables->records = gsv_alloc_array(tables->bytes + 1, 1);
    tables->hashes = (uint64_t *)(void *)((char *)tables->records + records);
    return tables->records != NULL;
}

static uint64_t image_offset(const struct packed_tables *tables)
{
    return gsv_round_up(sizeof(tables->head) + tables->bytes, PAGE_BYTES);
}

/* -------------------------------------------------------------------------------------- chunks */

/* Hashes chunks of the image by several threads; with a file they are read first. */
struct chunk_work {
    const struct packed_tables *tables;
    char *image;
    int fd;      /* -1: the image is in memory */
    bool checks; /* compare the hashes; else store them */
    atomic_size_t next;
    atomic_bool failed;
};

/* Reads a chunk by parts, if it is in a file, and hashes it. */
static bool hash_chunk(const struct chunk_work *work, size_t chunk, uint64_t *hash)
{
    const struct packed_head *head = &work->tables->head;
    const uint64_t offset = chunk * CHUNK_BYTES;
    const size_t size = chunk_bytes(head, chunk);
    XXH3_state_t state;

    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    for (size_t at = 0, part; at < size; at += part) {
        char *to = work->image + offset + at;

        part = size - at < PART_BYTES ? size - at : PART_BYTES;
        if (work->fd >= 0 &&
            gsv_fd_read(work->fd, to, part, head->image_at + offset + at, "", NULL) != GPUSERVE_OK)
            return false;
        XXH3_64bits_update(&state, to, part);
    }
    *hash = XXH3_64bits_digest(&state);
    return true;
}

static void do_chunk(struct chunk_work *work, size_t chunk)
{
    uint64_t hash = 0;

    if (!hash_chunk(work, chunk, &hash))
        atomic_store(&work->failed, true);
    else if (!work->checks)
        work->tables->hashes[chunk] = hash;
    else if (work->tables->hashes[chunk] != hash)
        atomic_store(&work->failed, true);
}

static void *do_chunks(void *argument)
{
    struct chunk_work *work = argument;
    size_t chunk;

    while (!atomic_load(&work->failed) &&
           (chunk = atomic_fetch_add(&work->next, 1)) < work->tables->n_chunks)
        do_chunk(work, chunk);
    return NULL;
}

/* If a thread cannot be created, the others do its chunks. */
static bool run_chunks(struct chunk_work *work, int32_t n_threads)
{
    const int32_t max = n_threads < MAX_CHUNK_THREADS ? n_threads : MAX_CHUNK_THREADS;
    pthread_t threads[MAX_CHUNK_THREADS];
    int32_t n = 0;

    while (n < max - 1 && pthread_create(&threads[n], NULL, do_chunks, work) == 0)
        n++;
    do_chunks(work);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    return !atomic_load(&work->failed);
}

/* ------------------------------------------------------------------------------------- opening */

static bool refuse(struct gsv_packed_file *packed, const char *format, ...) GPUSERVE_PRINTF(2, 3);

static bool refuse(struct gsv_packed_file *packed, const char *format, ...)
{
    va_list arguments;

    packed->state = GSV_PACKED_INVALID;
    va_start(arguments, format);
    vsnprintf(packed->note, sizeof(packed->note), format, arguments);
    va_end(arguments);
    return false;
}

/* Opens a file that only this user may have written. -1: none, or refused. */
static int open_file(struct gsv_packed_file *packed, uint64_t *size)
{
    const int fd = open(packed->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    struct stat info;

    if (fd < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            refuse(packed, "%s", strerror(errno));
        return -1;
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        refuse(packed, "it is not a regular file");
    else if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        refuse(packed, "another user may have written it");
    else {
        *size = (uint64_t)info.st_size;
        return fd;
    }
    close(fd);
    return -1;
}

/* The bytes of the net's items, before those of products kept in higher precision. */
static uint64_t item_bytes(const struct gsv_net *net)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < net->spec->n_items; i++)
        bytes += gsv_weight_bytes(net->spec, net->backend, &net->spec->items[i], net->dtype);
    return bytes;
}

/* The facts index their own bitmap. */
static bool has_valid_numbers(const struct gsv_int8_facts *facts)
{
    return facts->n_products >= 0 && facts->n_products <= GSV_MAX_PRODUCTS &&
           facts->n_layer_products >= 0 && facts->n_layer_products <= facts->n_products &&
           facts->n_kept >= 0 && facts->n_kept <= facts->n_products && facts->n_probes >= 0;
}

/* Checks the fields that sizes are computed from, before their use. */
static bool check_head(struct gsv_packed_file *packed, const struct packed_head *head,
                       const struct gsv_net *net, uint64_t file_bytes, uint64_t net_bytes)
{
    if (memcmp(head->magic, magic, sizeof(magic)) != 0)
        return refuse(packed, "it is not a file of packed weights");
    if (head->head_hash != hash_head(head))
        return refuse(packed, "its head is damaged");
    if (memcmp(head->key, packed->key, sizeof(head->key)) != 0) {
        packed->state = GSV_PACKED_STALE;
        return false;
    }
    if (head->file_bytes != file_bytes)
        return refuse(packed, "it has %llu bytes, expected %llu", (unsigned long long)file_bytes,
                      (unsigned long long)head->file_bytes);
    if (head->n_items != net->spec->n_items || head->image_bytes > net_bytes ||
        head->image_bytes < item_bytes(net) || head->image_at > file_bytes ||
        head->image_bytes != file_bytes - head->image_at)
        return refuse(packed, "its sizes are not those of the model");
    if (!has_valid_numbers(&head->int8))
        return refuse(packed, "its facts of int8 are damaged");
    return true;
}

static bool read_tables(struct gsv_packed_file *packed, struct packed_tables *tables,
                        const struct gsv_net *net, int fd, uint64_t file_bytes, uint64_t net_bytes)
{
    struct packed_head *head = &tables->head;

    if (file_bytes < sizeof(*head) ||
        gsv_fd_read(fd, head, sizeof(*head), 0, "", NULL) != GPUSERVE_OK)
        return refuse(packed, "it ends in its head");
    if (!check_head(packed, head, net, file_bytes, net_bytes))
        return false;
    if (!alloc_tables(tables))
        return refuse(packed, "out of memory");
    if (head->image_at != image_offset(tables) ||
        gsv_fd_read(fd, tables->records, tables->bytes, sizeof(*head), "", NULL) != GPUSERVE_OK ||
        head->tables_hash != XXH3_64bits(tables->records, tables->bytes))
        return refuse(packed, "its tables are damaged");
    return true;
}

/* ----------------------------------------------------------------------------------- restoring */

static bool map_image(struct gsv_net *net, const struct packed_head *head, int fd)
{
    void *memory =
        mmap(NULL, (size_t)head->file_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);

    if (memory == MAP_FAILED)
        return false;
    /* Only some file systems have huge pages; the others ignore it. */
    (void)madvise(memory, (size_t)head->file_bytes, MADV_HUGEPAGE);
    net->mapped = memory;
    net->mapped_bytes = (size_t)head->file_bytes;
    net->memory = net->mapped + head->image_at;
    return true;
}

/* Gets the image into net->memory and verifies it. */
static bool load_image(struct gsv_net *net, struct gsv_packed_file *packed,
                       const struct packed_tables *tables, int fd, uint64_t net_bytes,
                       int32_t n_threads)
{
    struct chunk_work work = { .tables = tables, .fd = -1, .checks = true };
    void *memory;

    if (packed->maps) {
        if (!map_image(net, &tables->head, fd))
            return refuse(packed, "mmap: %s", strerror(errno));
    } else {
        if (net->backend->memory_alloc(net->device, &memory, (size_t)net_bytes, NULL) !=
            GPUSERVE_OK)
            return refuse(packed, "out of memory");
        net->memory = memory;
        work.fd = fd;
    }
    net->bytes = (size_t)net_bytes;
    work.image = net->memory;
    return run_chunks(&work, n_threads) || refuse(packed, "its weights are damaged");
}

static bool restore_linear(struct gsv_net *net, const struct gsv_packed_file *packed, size_t item,
                           const struct packed_record *record, uint64_t image_bytes)
{
    const struct gsv_weight *weight = &net->spec->items[item];
    const struct gsv_packed_linear linear = { record->n, record->k, record->dtype, record->flags,
                                              net->memory + record->offset };

    if (record->n != weight->n || record->k != weight->k ||
        record->offset % GSV_ITEM_ALIGNMENT != 0 || record->offset > image_bytes ||
        net->backend->activation_size(record->dtype) == 0 ||
        net->backend->linear_bytes(record->n, record->k, record->dtype) >
            image_bytes - record->offset)
        return false;
    return packed->packing->restore(net->device, &net->linears[item], &linear, NULL) == GPUSERVE_OK;
}

static bool is_linear(const struct gsv_weight *item)
{
    return item->kind == GSV_ITEM_LINEAR || item->kind == GSV_ITEM_LINEAR_PLAIN ||
           item->kind == GSV_ITEM_LINEAR_EXACT;
}

static bool restore_linears(struct gsv_net *net, struct gsv_packed_file *packed,
                            const struct packed_tables *tables)
{
    for (size_t i = 0; i < net->spec->n_items; i++) {
        const struct packed_record *record = &tables->records[i];

        if (record->offset == NO_LINEAR && !is_linear(&net->spec->items[i]))
            continue;
        if (record->offset == NO_LINEAR || !is_linear(&net->spec->items[i]) ||
            !restore_linear(net, packed, i, record, tables->head.image_bytes))
            return refuse(packed, "the record of weight %zu is damaged", i);
    }
    return true;
}

/* The net has neither linears nor memory, as before. */
static void undo(struct gsv_net *net)
{
    for (size_t i = 0; i < net->spec->n_items; i++)
        net->backend->linear_destroy(&net->linears[i]);
    if (net->mapped)
        gsv_net_unmap(net);
    else if (net->memory)
        net->backend->memory_free(net->device, net->memory);
    net->memory = NULL;
    net->bytes = 0;
}

bool gsv_net_restore(struct gsv_net *net, const struct gsv_net_options *options)
{
    struct gsv_packed_file *packed = options->packed;
    const uint64_t net_bytes = gsv_net_bytes(net->spec, net->backend, net->dtype);
    struct packed_tables tables = { 0 };
    uint64_t file_bytes = 0;
    bool is_restored;
    int fd;

    packed->state = GSV_PACKED_ABSENT;
    fd = open_file(packed, &file_bytes);
    if (fd < 0)
        return false;
    is_restored = read_tables(packed, &tables, net, fd, file_bytes, net_bytes) &&
                  load_image(net, packed, &tables, fd, net_bytes, options->n_threads) &&
                  restore_linears(net, packed, &tables);
    if (is_restored) {
        memcpy(net->digest, tables.head.digest, sizeof(net->digest));
        net->int8 = tables.head.int8;
        packed->state = GSV_PACKED_USED;
        (void)futimens(fd, NULL); /* time of the last use */
    } else {
        undo(net);
    }
    free(tables.records);
    close(fd);
    return is_restored;
}

void gsv_net_unmap(struct gsv_net *net)
{
    munmap(net->mapped, net->mapped_bytes);
    net->mapped = NULL;
    net->memory = NULL;
}

/* -------------------------------------------------------------------------------------- saving */

/* Records the linears; the image ends after the last item or linear. */
static void fill_records(const struct gsv_net *net, const struct gsv_packing *packing,
                         struct packed_record *records, uint64_t *image_bytes)
{
    uint64_t end = item_bytes(net);

    for (size_t i = 0; i < net->spec->n_items; i++) {
        struct packed_record *record = &records[i];
        struct gsv_packed_linear linear;

        *record = (struct packed_record){ .offset = NO_LINEAR };
        if (!net->linears[i])
            continue;
        packing->describe(net->linears[i], &linear);
        *record = (struct packed_record){ (uint64_t)((const char *)linear.memory - net->memory),
                                          linear.n, linear.k, linear.dtype, linear.flags };
    }
    for (size_t i = 0; i < net->spec->n_items; i++) {
        const struct packed_record *record = &records[i];
        const uint64_t linear_end =
            record->offset == NO_LINEAR
                ? 0
                : record->offset + net->backend->linear_bytes(record->n, record->k, record->dtype);

        end = linear_end > end ? linear_end : end;
    }
    *image_bytes = end;
}

static gpuserve_status fill_tables(const struct gsv_net *net, const struct gsv_packed_file *packed,
                                   struct packed_tables *tables, int32_t n_threads,
                                   gpuserve_error *error)
{
    struct packed_head *head = &tables->head;
    struct chunk_work work = { .tables = tables, .image = net->memory, .fd = -1 };

    memcpy(head->magic, magic, sizeof(magic));
    memcpy(head->key, packed->key, sizeof(head->key));
    memcpy(head->digest, net->digest, sizeof(head->digest));
    head->n_items = net->spec->n_items;
    head->int8 = net->int8;
    head->image_bytes = net->bytes; /* at most: the arrays fit the whole memory */
    if (!alloc_tables(tables))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the packed weights' tables");
    fill_records(net, packed->packing, tables->records, &head->image_bytes);
    tables->n_chunks = chunk_count(head->image_bytes);
    tables->bytes = (size_t)head->n_items * sizeof(*tables->records) +
                    tables->n_chunks * sizeof(*tables->hashes);
    head->image_at = image_offset(tables);
    head->file_bytes = head->image_at + head->image_bytes;
    (void)run_chunks(&work, n_threads); /* hashing memory cannot fail */
    head->tables_hash = XXH3_64bits(tables->records, tables->bytes);
    head->head_hash = hash_head(head);
    return GPUSERVE_OK;
}

static gpuserve_status write_parts(const struct gsv_net *net, const struct packed_tables *tables,
                                   int fd, const char *shown, gpuserve_error *error)
{
    const struct packed_head *head = &tables->head;
    gpuserve_status st = gsv_fd_write(fd, head, sizeof(*head), 0, shown, error);

    if (st == GPUSERVE_OK)
        st = gsv_fd_write(fd, tables->records, tables->bytes, sizeof(*head), shown, error);
    if (st == GPUSERVE_OK)
        st = gsv_fd_write(fd, net->memory, (size_t)head->image_bytes, head->image_at, shown, error);
    return st;
}

/* Writes a temporary file in the folder of `path` and renames it: others see the old file or the
 * new one, complete. */
static gpuserve_status replace_file(const struct gsv_net *net, const struct packed_tables *tables,
                                    const char *path, gpuserve_error *error)
{
    char *temporary = NULL;
    gpuserve_status st;
    int fd;

    if (asprintf(&temporary, "%s.XXXXXX", path) < 0)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a path");
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        st = gsv_fail(error, GPUSERVE_E_IO, "%s: %s", temporary, strerror(errno));
    } else {
        st = write_parts(net, tables, fd, temporary, error);
        st = gsv_finish_file(fd, st, "packed weights", strrchr(temporary, '/') + 1, error);
        if (st == GPUSERVE_OK && rename(temporary, path) != 0)
            st = gsv_fail(error, GPUSERVE_E_IO, "%s: %s", path, strerror(errno));
        if (st != GPUSERVE_OK)
            unlink(temporary);
    }
    free(temporary);
    return st;
}

gpuserve_status gsv_net_save(const struct gsv_net *net, const struct gsv_packed_file *packed,
                             int32_t n_threads, gpuserve_error *error)
{
    struct packed_tables tables = { 0 };
    gpuserve_status st = fill_tables(net, packed, &tables, n_threads, error);

    if (st == GPUSERVE_OK)
        st = replace_file(net, &tables, packed->path, error);
    free(tables.records);
    return st;
}

/* ------------------------------------------------------------------------------------ identity */

static void feed_number(XXH3_state_t *state, int64_t number)
{
    XXH3_128bits_update(state, &number, sizeof(number));
}

static void write_hash(const XXH3_state_t *state, uint64_t out[2])
{
    const XXH128_hash_t hash = XXH3_128bits_digest(state);

    out[0] = hash.high64;
    out[1] = hash.low64;
}

/* The state of an open file: size, inode and the times of the last change. False: it has none. */
static bool feed_file(XXH3_state_t *state, int fd, int64_t *changed)
{
    struct stat info;

    if (fd < 0 || fstat(fd, &info) != 0)
        return false;
    feed_number(state, (int64_t)info.st_ino);
    feed_number(state, (int64_t)info.st_size);
    feed_number(state, (int64_t)info.st_mtim.tv_sec);
    feed_number(state, info.st_mtim.tv_nsec);
    feed_number(state, (int64_t)info.st_ctim.tv_sec);
    feed_number(state, info.st_ctim.tv_nsec);
    *changed = info.st_ctim.tv_sec > *changed ? (int64_t)info.st_ctim.tv_sec : *changed;
    *changed = info.st_mtim.tv_sec > *changed ? (int64_t)info.st_mtim.tv_sec : *changed;
    return true;
}

static bool feed_tensor(XXH3_state_t *state, const struct gsv_tensor *tensor,
                        const struct gsv_weight_file **last, int64_t *changed)
{
    if (tensor->count == 0)
        return true;
    feed_number(state, (int64_t)tensor->offset);
    feed_number(state, (int64_t)tensor->rows_offset);
    feed_number(state, (int64_t)tensor->scales_offset);
    if (tensor->file == *last)
        return true;
    *last = tensor->file;
    return feed_file(state, gsv_weight_file_fd(tensor->file), changed);
}

/* The merged tensors of an adapter are of all these files. */
static bool feed_adapter(XXH3_state_t *state, const struct gsv_checkpoint *weights,
                         int64_t *changed)
{
    struct gsv_lora_facts facts;
    bool is_known = true;

    if (!weights->lora)
        return true;
    gsv_lora_read_facts(weights->lora, &facts);
    feed_number(state, (int64_t)facts.scales);
    for (size_t i = 0; i < weights->n_files; i++)
        is_known = feed_file(state, gsv_weight_file_fd(weights->files[i]), changed) && is_known;
    return is_known;
}

gpuserve_status gsv_spec_identify(const struct gsv_spec *spec, struct gsv_identity *identity,
                                  gpuserve_error *error)
{
    const struct gsv_weight_file *last = NULL;
    struct gsv_hashes hashes; /* all zero: names, shapes and settings remain in the digest */
    XXH3_state_t state;
    gpuserve_status st = gsv_hashes_init(&hashes, spec, error);

    memset(identity, 0, sizeof(*identity));
    if (st != GPUSERVE_OK)
        return st;
    gsv_hashes_digest(&hashes, spec, identity->shape);
    gsv_hashes_reset(&hashes);
    identity->is_known = true;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < spec->n_items; i++) {
        const struct gsv_weight *item = &spec->items[i];

        identity->is_known = identity->is_known && item->kind != GSV_ITEM_RECURRENT;
        for (size_t j = 0; j < 3 && identity->is_known; j++)
            identity->is_known = feed_tensor(&state, &item->weight[j], &last, &identity->changed) &&
                                 feed_tensor(&state, &item->bias[j], &last, &identity->changed);
    }
    identity->is_known =
        identity->is_known && feed_adapter(&state, &spec->weights, &identity->changed);
    write_hash(&state, identity->files);
    return GPUSERVE_OK;
}
