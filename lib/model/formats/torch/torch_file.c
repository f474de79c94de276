/*
 * torch_file.c - finds the tensors of a PyTorch file and where their bytes are.
 *
 * The layout says where each storage of the pickle is in the file. Every tensor of the state dict
 * then becomes a gsv_tensor, sorted by name; the pickle and the archive's directory are freed.
 */
#include "lib/model/formats/torch/torch_file.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/model/formats/torch/pickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME_BYTES 1024u
#define ENTRY_NAME_BYTES 640 /* of a zip entry, and ours */
#define COUNT_BYTES 8u       /* before each storage of the old layout */

struct torch_file {
    struct gsv_weight_file file; /* first */
    struct gsv_tensor *tensors;  /* [n] sorted by name */
    size_t n;
    char *names;
};

/* A file while it is opened. */
struct torch_loader {
    struct torch_file *to;
    const struct gsv_weight_file *file;
    char *bytes;
    size_t size;
    struct gsv_pickle pickle;
    uint64_t *offsets; /* [pickle.n_storages] in the file */
};

static gpuserve_status fail(const struct torch_loader *loader, const char *what,
                            gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: %s", loader->file->shown, what);
}

/* Read `size` bytes, which are bounded, into loader->bytes. */
static gpuserve_status read_bytes(struct torch_loader *loader, uint64_t offset, size_t size,
                                  gpuserve_error *error)
{
    loader->size = size;
    loader->bytes = malloc(size ? size : 1);
    if (!loader->bytes)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for a pickle of %zu bytes",
                        loader->file->shown, size);
    return gsv_fd_read(loader->file->fd, loader->bytes, size, offset, loader->file->shown, error);
}

static gpuserve_status alloc_offsets(struct torch_loader *loader, gpuserve_error *error)
{
    loader->offsets = gsv_alloc_array(loader->pickle.n_storages, sizeof(*loader->offsets));
    return loader->offsets ? GPUSERVE_OK
                           : gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for %zu storages",
                                      loader->file->shown, loader->pickle.n_storages);
}

static uint64_t storage_bytes(const struct gsv_pickle_storage *storage)
{
    return storage->count * gsv_pickle_type_of(storage)->bytes; /* the pickle's reader checked it */
}

/* ---------------------------------------------------------------------------------- zip archive */

static const struct gsv_zip_entry *find_entry(const struct gsv_zip *zip, const char *name,
                                              size_t name_size)
{
    char path[ENTRY_NAME_BYTES];
    const int prefix = (int)strcspn(zip->first, "/"); /* the archive's name, of any entry */
    const int n =
        snprintf(path, sizeof(path), "%.*s/%.*s", prefix, zip->first, (int)name_size, name);

    return n > 0 && (size_t)n < sizeof(path) ? gsv_zip_find(zip, path) : NULL;
}

/* Refuse TorchScript, whose tensors are parts of a program, and big-endian numbers. */
static gpuserve_status check_archive(const struct torch_loader *loader, const struct gsv_zip *zip,
                                     gpuserve_error *error)
{
    const struct gsv_zip_entry *order = find_entry(zip, "byteorder", 9);
    char text[6] = "little";
    gpuserve_status st = GPUSERVE_OK;

    if (find_entry(zip, "constants.pkl", 13))
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: the file is a TorchScript program, not a state dict",
                        loader->file->shown);
    if (order && order->size == sizeof(text))
        st = gsv_fd_read(loader->file->fd, text, sizeof(text), order->offset, loader->file->shown,
                         error);
    if (st == GPUSERVE_OK &&
        ((order && order->size != sizeof(text)) || memcmp(text, "little", sizeof(text)) != 0))
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: the byte order of the tensors is not little-endian",
                        loader->file->shown);
    return st;
}

static gpuserve_status add_entries(struct torch_loader *loader, const struct gsv_zip *zip,
                                   gpuserve_error *error)
{
    const struct gsv_pickle *pickle = &loader->pickle;

    for (size_t i = 0; i < pickle->n_storages; i++) {
        const struct gsv_pickle_storage *storage = &pickle->storages[i];
        const int size = (int)storage->key.size;
        const char *key = storage->key.is.text;
        char name[64];
        const int n = snprintf(name, sizeof(name), "data/%.*s", size, key);
        const struct gsv_zip_entry *entry = find_entry(zip, name, (size_t)n);

        if (!entry)
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: storage '%.*s' has no entry '%s'",
                            loader->file->shown, size, key, name);
        if (entry->size != storage_bytes(storage))
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: storage '%.*s' has %llu elements of %s, which are %llu bytes, but "
                            "its entry has %llu",
                            loader->file->shown, size, key, (unsigned long long)storage->count,
                            gsv_pickle_type_of(storage)->name,
                            (unsigned long long)storage_bytes(storage),
                            (unsigned long long)entry->size);
        loader->offsets[i] = entry->offset;
    }
    return GPUSERVE_OK;
}

static gpuserve_status read_archive(struct torch_loader *loader, const struct gsv_zip *zip,
                                    gpuserve_error *error)
{
    const struct gsv_zip_entry *entry = find_entry(zip, "data.pkl", 8);
    gpuserve_status st = check_archive(loader, zip, error);

    if (st != GPUSERVE_OK)
        return st;
    if (!entry)
        return fail(loader, "the zip archive has no data.pkl: it is not a file of torch.save()",
                    error);
    if (entry->size > GSV_PICKLE_MAX_BYTES)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: data.pkl has %llu bytes, the limit is %u",
                        loader->file->shown, (unsigned long long)entry->size, GSV_PICKLE_MAX_BYTES);
    st = read_bytes(loader, entry->offset, (size_t)entry->size, error);
    if (st == GPUSERVE_OK)
        st = gsv_pickle_read(&loader->pickle, loader->bytes, loader->size, loader->file->shown,
                             "data.pkl", error);
    if (st == GPUSERVE_OK && loader->pickle.at != loader->size)
        st = fail(loader, "data.pkl has bytes after STOP", error);
    if (st == GPUSERVE_OK)
        st = alloc_offsets(loader, error);
    return st == GPUSERVE_OK ? add_entries(loader, zip, error) : st;
}

static gpuserve_status load_archive(struct torch_loader *loader, gpuserve_error *error)
{
    struct gsv_zip zip;
    gpuserve_status st = gsv_zip_read(&zip, loader->file, error);

    if (st == GPUSERVE_OK)
        st = read_archive(loader, &zip, error);
    gsv_zip_reset(&zip);
    return st;
}

/* ------------------------------------------------------------------- layout before PyTorch 1.6 */

/* Two pickles of one integer each: the magic number of the layout, and its version. */
static const unsigned char old_magic[] = { 0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c,
                                           0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19,
                                           '.',  0x80, 2,    'M',  0xe9, 3,    '.' };

/* A storage's key and its position in the pickle, to find all storages of one key. */
struct key {
    const char *text;
    size_t size, storage;
};

static int compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    const int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);

    return order ? order : (x->size > y->size) - (x->size < y->size);
}

/* Place all storages with the key of keys[first] at `offset`. */
static gpuserve_status add_key(struct torch_loader *loader, const struct key *keys, size_t first,
                               uint64_t *offset, gpuserve_error *error)
{
    const struct gsv_pickle_storage *storages = loader->pickle.storages;
    const struct gsv_pickle_storage *one = &storages[keys[first].storage];
    const uint64_t end = loader->file->size_bytes, bytes = storage_bytes(one);
    unsigned char count[COUNT_BYTES];
    uint64_t n = 0;
    gpuserve_status st;

    if (end - *offset < COUNT_BYTES || bytes > end - *offset - COUNT_BYTES)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: storage '%.*s' has %llu bytes at byte %llu: the file is truncated",
                        loader->file->shown, (int)keys[first].size, keys[first].text,
                        (unsigned long long)bytes, (unsigned long long)*offset);
    st = gsv_fd_read(loader->file->fd, count, sizeof(count), *offset, loader->file->shown, error);
    for (unsigned i = COUNT_BYTES; i > 0; i--)
        n = n << 8 | count[i - 1];
    if (st == GPUSERVE_OK && n != one->count)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: storage '%.*s' has %llu elements, the pickle says %llu",
                        loader->file->shown, (int)keys[first].size, keys[first].text,
                        (unsigned long long)n, (unsigned long long)one->count);
    *offset += COUNT_BYTES;
    for (size_t i = first; i < loader->pickle.n_storages && st == GPUSERVE_OK &&
                           compare_keys(&keys[i], &keys[first]) == 0;
         i++) {
        if (storage_bytes(&storages[keys[i].storage]) != bytes)
            return fail(loader, "a storage has two sizes", error);
        loader->offsets[keys[i].storage] = *offset;
    }
    *offset += bytes;
    return st;
}

/* Place the storages in the order of `list`, a list of their keys. */
static gpuserve_status add_list(struct torch_loader *loader, const struct gsv_pickle *list,
                                struct key *keys, uint64_t offset, gpuserve_error *error)
{
    const size_t n = loader->pickle.n_storages;
    const struct gsv_pickle_container *names = &list->containers[list->root.is.index];

    for (size_t i = 0; i < n; i++) {
        const struct gsv_pickle_value *key = &loader->pickle.storages[i].key;

        keys[i] = (struct key){ key->is.text, key->size, i };
    }
    qsort(keys, n, sizeof(*keys), compare_keys);
    for (size_t i = 0; i < names->n; i++) {
        const struct key name = { names->items[i].is.text, names->items[i].size, 0 };
        const struct key *found = NULL;
        gpuserve_status st;

        if (names->items[i].kind == GSV_PICKLE_STRING)
            found = bsearch(&name, keys, n, sizeof(*keys), compare_keys);
        while (found && found > keys && compare_keys(found - 1, found) == 0)
            found--;
        if (!found || loader->offsets[found->storage] != 0)
            return fail(loader, "the list of storages has an unknown or repeated key", error);
        st = add_key(loader, keys, (size_t)(found - keys), &offset, error);
        if (st != GPUSERVE_OK)
            return st;
    }
    for (size_t i = 0; i < n; i++)
        if (loader->offsets[i] == 0)
            return fail(loader, "the list of storages lacks a key that a tensor uses", error);
    if (offset != loader->file->size_bytes)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: the storages end at byte %llu of %llu: the file is too long",
                        loader->file->shown, (unsigned long long)offset,
                        (unsigned long long)loader->file->size_bytes);
    return GPUSERVE_OK;
}

/* Read the pickle at `*at`; *at becomes its end. */
static gpuserve_status read_next(struct torch_loader *loader, struct gsv_pickle *pickle,
                                 enum gsv_pickle_kind kind, const char *part, size_t *at,
                                 gpuserve_error *error)
{
    const gpuserve_status st = gsv_pickle_read(pickle, loader->bytes + *at, loader->size - *at,
                                               loader->file->shown, part, error);

    if (st != GPUSERVE_OK)
        return st;
    *at += pickle->at;
    return pickle->root.kind == kind
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_FORMAT, "%s: %s is not a %s", loader->file->shown, part,
                          kind == GSV_PICKLE_DICT ? "dict" : "list");
}

static gpuserve_status check_system(const struct torch_loader *loader,
                                    const struct gsv_pickle *system, gpuserve_error *error)
{
    const struct gsv_pickle_value *little = gsv_pickle_get(system, &system->root, "little_endian");

    if (little && little->kind == GSV_PICKLE_BOOL && little->is.integer == 1)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    "%s: the byte order of the tensors is not little-endian", loader->file->shown);
}

static gpuserve_status load_old(struct torch_loader *loader, gpuserve_error *error)
{
    const uint64_t size = loader->file->size_bytes;
    struct gsv_pickle system = { 0 }, list = { 0 };
    struct key *keys = NULL;
    size_t at = sizeof(old_magic);
    gpuserve_status st = read_bytes(
        loader, 0, size < GSV_PICKLE_MAX_BYTES ? (size_t)size : GSV_PICKLE_MAX_BYTES, error);

    if (st == GPUSERVE_OK)
        st = read_next(loader, &system, GSV_PICKLE_DICT, "system pickle", &at, error);
    if (st == GPUSERVE_OK)
        st = check_system(loader, &system, error);
    if (st == GPUSERVE_OK)
        st = read_next(loader, &loader->pickle, GSV_PICKLE_DICT, "state pickle", &at, error);
    if (st == GPUSERVE_OK)
        st = read_next(loader, &list, GSV_PICKLE_LIST, "storage pickle", &at, error);
    if (st == GPUSERVE_OK)
        st = alloc_offsets(loader, error);
    if (st == GPUSERVE_OK) {
        keys = gsv_alloc_array(loader->pickle.n_storages, sizeof(*keys));
        st = keys ? add_list(loader, &list, keys, at, error)
                  : gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", loader->file->shown);
    }
    free(keys);
    gsv_pickle_reset(&system);
    gsv_pickle_reset(&list);
    return st;
}

/* ----------------------------------------------------------------------------------- state dict */

/* The state dict: the pickle's dict, or one in it under a usual name. */
static const struct gsv_pickle_container *state_dict(const struct gsv_pickle *pickle)
{
    static const char *const names[] = { "state_dict", "model_state_dict" };

    if (pickle->root.kind != GSV_PICKLE_DICT)
        return NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct gsv_pickle_value *value = gsv_pickle_get(pickle, &pickle->root, names[i]);

        if (value && value->kind == GSV_PICKLE_DICT)
            return &pickle->containers[value->is.index];
    }
    return &pickle->containers[pickle->root.is.index];
}

static bool is_named_tensor(const struct gsv_pickle_value *key,
                            const struct gsv_pickle_value *value)
{
    return key->kind == GSV_PICKLE_STRING && value->kind == GSV_PICKLE_TENSOR;
}

static bool name_ok(const struct gsv_pickle_value *name)
{
    return name->size > 0 && name->size <= MAX_NAME_BYTES &&
           !memchr(name->is.text, '\0', name->size) &&
           gsv_utf8_valid_length(name->is.text, name->size) == name->size;
}

static void set_tensor(struct gsv_tensor *tensor, const struct torch_loader *loader,
                       const struct gsv_pickle_tensor *from)
{
    const struct gsv_pickle_storage *storage = &loader->pickle.storages[from->storage];
    const struct gsv_pickle_type *type = gsv_pickle_type_of(storage);
    const struct gsv_pickle_container *shape = &loader->pickle.containers[from->shape];

    tensor->file = loader->file;
    tensor->type = type->type;
    tensor->type_name = type->name;
    tensor->is_strided = from->is_strided;
    tensor->rank = shape->n;
    for (size_t i = 0; i < shape->n && i < GSV_TENSOR_MAX_RANK; i++)
        tensor->shape[i] = (uint64_t)shape->items[i].is.integer;
    tensor->count = from->count;
    tensor->offset = loader->offsets[from->storage] + from->offset * type->bytes;
    if (!from->is_strided) /* its elements may repeat, so their number has no bound */
        tensor->size_bytes = from->count * type->bytes;
}

static int compare_tensors(const void *a, const void *b)
{
    const struct gsv_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* Copy the tensors of a dict; the arrays have capacity for them. */
static gpuserve_status copy_tensors(struct torch_loader *loader,
                                    const struct gsv_pickle_container *dict, gpuserve_error *error)
{
    struct torch_file *to = loader->to;
    char *name = to->names;

    for (size_t i = 0; i + 1 < dict->n; i += 2) {
        const struct gsv_pickle_value *key = &dict->items[i], *value = &dict->items[i + 1];

        if (!is_named_tensor(key, value))
            continue;
        if (!name_ok(key))
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: a tensor's name of %u bytes is empty, longer than %u or not UTF-8",
                            loader->file->shown, key->size, MAX_NAME_BYTES);
        memcpy(name, key->is.text, key->size);
        set_tensor(&to->tensors[to->n], loader, &loader->pickle.tensors[value->is.index]);
        to->tensors[to->n++].name = name;
        name += key->size + 1; /* the buffer is zeroed */
    }
    qsort(to->tensors, to->n, sizeof(*to->tensors), compare_tensors);
    for (size_t i = 1; i < to->n; i++)
        if (compare_tensors(&to->tensors[i - 1], &to->tensors[i]) == 0)
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%.128s' appears twice",
                            loader->file->shown, to->tensors[i].name);
    return GPUSERVE_OK;
}

static gpuserve_status collect_tensors(struct torch_loader *loader, gpuserve_error *error)
{
    const struct gsv_pickle_container *dict = state_dict(&loader->pickle);
    size_t n = 0, bytes = 0;

    for (size_t i = 0; dict && i + 1 < dict->n; i += 2) {
        if (!is_named_tensor(&dict->items[i], &dict->items[i + 1]))
            continue;
        n++;
        bytes += dict->items[i].size + 1; /* at most MAX_ITEMS times MAX_BYTES: below 2^45 */
    }
    if (n == 0)
        return fail(loader, "the pickle has no state dict: no dict of names and tensors", error);
    if (n > GSV_PICKLE_MAX_TENSORS || bytes > GSV_PICKLE_MAX_BYTES)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "%s: %zu tensors with names of %zu bytes, the limits are %u and %u",
                        loader->file->shown, n, bytes, GSV_PICKLE_MAX_TENSORS,
                        GSV_PICKLE_MAX_BYTES);
    loader->to->tensors = gsv_alloc_array(n, sizeof(struct gsv_tensor));
    loader->to->names = gsv_alloc_array(bytes, 1);
    if (!loader->to->tensors || !loader->to->names)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for %zu tensors",
                        loader->file->shown, n);
    return copy_tensors(loader, dict, error);
}

/* ---------------------------------------------------------------------------- opening a file */

static gpuserve_status load(struct torch_loader *loader, gpuserve_error *error)
{
    unsigned char start[sizeof(old_magic)] = { 0 };
    const uint64_t size = loader->file->size_bytes;
    gpuserve_status st =
        gsv_fd_read(loader->file->fd, start, size < sizeof(start) ? (size_t)size : sizeof(start), 0,
                    loader->file->shown, error);

    if (st != GPUSERVE_OK)
        return st;
    if (memcmp(start, "PK\3\4", 4) == 0)
        st = load_archive(loader, error);
    else if (memcmp(start, old_magic, sizeof(old_magic)) == 0)
        st = load_old(loader, error);
    else
        return fail(loader,
                    "the file is not one of torch.save(): it begins neither like a zip archive nor "
                    "like the layout before PyTorch 1.6",
                    error);
    return st == GPUSERVE_OK ? collect_tensors(loader, error) : st;
}

static bool find(const struct gsv_weight_file *file, const char *name, struct gsv_tensor *tensor)
{
    const struct torch_file *torch = (const struct torch_file *)(const void *)file;
    const struct gsv_tensor key = { .name = name };
    const struct gsv_tensor *found =
        bsearch(&key, torch->tensors, torch->n, sizeof(*torch->tensors), compare_tensors);

    if (found)
        *tensor = *found;
    return found != NULL;
}

static bool at(const struct gsv_weight_file *file, size_t i, struct gsv_tensor *tensor)
{
    const struct torch_file *torch = (const struct torch_file *)(const void *)file;

    if (i < torch->n)
        *tensor = torch->tensors[i];
    return i < torch->n;
}

static void close_torch(struct gsv_weight_file *file)
{
    struct torch_file *torch = (struct torch_file *)(void *)file;

    free(torch->tensors);
    free(torch->names);
}

static const struct gsv_weight_format format = { "pickle", find, at, close_torch };

gpuserve_status gsv_torch_file_open(struct gsv_weight_file **file, const struct gsv_dir *dir,
                                    const char *name, gpuserve_error *error)
{
    struct torch_loader loader = { 0 };
    gpuserve_status st =
        gsv_weight_file_open(file, sizeof(struct torch_file), &format, dir, name, error);

    if (st != GPUSERVE_OK)
        return st;
    loader.to = (struct torch_file *)(void *)*file;
    loader.file = *file;
    st = load(&loader, error);
    free(loader.bytes);
    free(loader.offsets);
    gsv_pickle_reset(&loader.pickle);
    if (st == GPUSERVE_E_UNSUPPORTED)
        st = gsv_hint(error, st, GSV_PICKLE_HINT);
    if (st != GPUSERVE_OK)
        gsv_weight_file_close(file);
    return st;
}
