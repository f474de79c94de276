/*
 * test_model_packed.c - files of packed weights whose hashes are right and whose content is not,
 * and memory of mapped weights.
 *
 * The offsets of fields are those of struct packed_head in lib/model/weights/packed_weights.c.
 */
#define _GNU_SOURCE /* mkdtemp */
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    AT_FILE_BYTES = 24,
    AT_IMAGE = 32,
    AT_IMAGE_BYTES = 40,
    AT_N_ITEMS = 48,
    AT_INT8 = 72,
    AT_TABLES_HASH = AT_INT8 + sizeof(struct gsv_int8_facts),
    AT_HEAD_HASH = AT_TABLES_HASH + 8,
    HEAD_BYTES = AT_HEAD_HASH + 8,
    RECORD_BYTES = 24
};

struct file {
    char folder[32], path[64];
    char *bytes; /* as gsv_net_save() wrote them */
    size_t size;
    struct gsv_packed_file packed;
};

static void open_with(struct loaded *model, struct file *file, uint32_t dtype, bool maps)
{
    const struct load_options options = { .dtype = dtype, .packed = &file->packed };

    file->packed = (struct gsv_packed_file){
        .path = file->path, .key = { 1, 2 }, .maps = maps, .packing = gsv_cpu_packing()
    };
    load_model(model, test_data("models/bert"), &options);
}

static void begin(struct file *file, uint32_t dtype)
{
    struct loaded model;

    memset(file, 0, sizeof(*file));
    strcpy(file->folder, "/tmp/gsv-packed-XXXXXX");
    cr_assert_not_null(mkdtemp(file->folder));
    snprintf(file->path, sizeof(file->path), "%s/packed", file->folder);
    open_with(&model, file, dtype, false);
    cr_expect_eq(file->packed.state, GSV_PACKED_ABSENT);
    cr_assert_eq(gsv_net_save(model.net, &file->packed, 1, NULL), GPUSERVE_OK);
    unload_model(&model);
    file->bytes = read_file(file->path, &file->size);
}

static void end(struct file *file)
{
    each_file(file->folder, NULL);
    free(file->bytes);
}

static uint64_t number_at(const char *bytes, size_t at)
{
    uint64_t number;

    memcpy(&number, bytes + at, sizeof(number));
    return number;
}

static void set_number(char *bytes, size_t at, uint64_t number)
{
    memcpy(bytes + at, &number, sizeof(number));
}

/* The state of a load after `size` bytes of a changed file were written with right hashes; its
 * image is one chunk. */
static enum gsv_packed_state load_forged(struct file *file, char *bytes, size_t size)
{
    const size_t records = (size_t)number_at(bytes, AT_N_ITEMS) * RECORD_BYTES;
    const size_t image = (size_t)number_at(bytes, AT_IMAGE);
    struct loaded model;

    set_number(bytes, AT_FILE_BYTES, size);
    set_number(bytes, AT_IMAGE_BYTES, size - image);
    set_number(bytes, HEAD_BYTES + records, XXH3_64bits(bytes + image, size - image));
    set_number(bytes, AT_TABLES_HASH, XXH3_64bits(bytes + HEAD_BYTES, records + 8));
    set_number(bytes, AT_HEAD_HASH, XXH3_64bits(bytes, AT_HEAD_HASH));
    write_file(file->path, bytes, size);
    open_with(&model, file, GPUSERVE_DTYPE_FLOAT32, false);
    unload_model(&model);
    return file->packed.state;
}

Test(model_packed, content_is_checked_behind_right_hashes)
{
    const size_t product = AT_INT8 + offsetof(struct gsv_int8_facts, n_products);
    const int32_t many = GSV_MAX_PRODUCTS + 1;
    struct file file;
    char *bytes;

    begin(&file, GPUSERVE_DTYPE_FLOAT32);
    bytes = malloc(file.size);
    memcpy(bytes, file.bytes, file.size);
    cr_assert_leq(file.size - number_at(bytes, AT_IMAGE), (size_t)4 << 20);
    cr_expect_eq(load_forged(&file, bytes, file.size), GSV_PACKED_USED, "%s", file.packed.note);

    memcpy(bytes + product, &many, sizeof(many)); /* beyond the bitmap */
    cr_expect_eq(load_forged(&file, bytes, file.size), GSV_PACKED_INVALID);

    memcpy(bytes, file.bytes, file.size); /* an image without the last item */
    cr_expect_eq(load_forged(&file, bytes, file.size - 64), GSV_PACKED_INVALID);

    memcpy(bytes, file.bytes, file.size); /* no linears */
    for (uint64_t i = 0; i < number_at(bytes, AT_N_ITEMS); i++)
        set_number(bytes, HEAD_BYTES + i * RECORD_BYTES, UINT64_MAX);
    cr_expect_eq(load_forged(&file, bytes, file.size), GSV_PACKED_INVALID);
    free(bytes);
    end(&file);
}

static gpuserve_status count_call(void *user, gpuserve_error *error)
{
    (void)error;
    ++*(int *)user;
    return GPUSERVE_OK;
}

/* Tokenized texts are asked for only where the model's weights are read. */
Test(model_packed, valid_file_needs_no_texts)
{
    int n_calls = 0;
    struct load_options options = { .calibrate = count_call, .calibrate_user = &n_calls };
    struct loaded model;
    struct file file;

    begin(&file, GPUSERVE_DTYPE_FLOAT32);
    options.packed = &file.packed;
    load_model(&model, test_data("models/bert"), &options);
    unload_model(&model);
    cr_expect_eq(file.packed.state, GSV_PACKED_USED, "%s", file.packed.note);
    cr_expect_eq(n_calls, 0);
    file.packed.key[0]++;
    load_model(&model, test_data("models/bert"), &options);
    unload_model(&model);
    cr_expect_eq(file.packed.state, GSV_PACKED_STALE);
    cr_expect_eq(n_calls, 1);
    end(&file);
}

static size_t bytes_read;

static gpuserve_status note_read(struct gpuserve_device *device, void *host, const void *memory,
                                 size_t size, gpuserve_error *error)
{
    (void)device;
    (void)host;
    (void)memory;
    (void)error;
    bytes_read = size;
    return GPUSERVE_E_DEVICE;
}

/* The image of an int8 net ends before the memory for products in higher precision. */
Test(model_packed, offload_reads_no_more_than_is_mapped)
{
    struct gpuserve_backend backend = *gsv_backend_cpu();
    const struct load_options options = { .dtype = GPUSERVE_DTYPE_INT8, .backend = &backend };
    struct load_options mapped = options;
    struct loaded model;
    struct file file;
    char nothing;

    begin(&file, GPUSERVE_DTYPE_INT8);
    file.packed.maps = true;
    mapped.packed = &file.packed;
    backend.memory_read = note_read;
    load_model(&model, test_data("models/bert"), &mapped);
    cr_assert_eq(file.packed.state, GSV_PACKED_USED, "%s", file.packed.note);
    gsv_exec_free(&model.work);
    cr_expect_eq(gsv_net_offload(model.net, &nothing, NULL), GPUSERVE_E_DEVICE);
    cr_expect_leq(bytes_read, file.size - number_at(file.bytes, AT_IMAGE));
    cr_expect_lt(bytes_read, gsv_net_bytes(model.spec, &backend, GPUSERVE_DTYPE_INT8));
    unload_model(&model);
    end(&file);
}
