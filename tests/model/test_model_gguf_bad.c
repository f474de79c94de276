/*
 * test_model_gguf_bad.c - damaged GGUF files: each bad field, length and count is refused, and the
 * message names the file, the part and what was expected.
 */
#define _GNU_SOURCE
#include "lib/base/gguf.h"
#include "lib/text/tokenizer.h"
#include "tests/base/folder.h"
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------- bad headers */

/* Places in the image of make_image(). */
enum mark {
    MAGIC,
    VERSION,
    N_TENSORS,
    N_VALUES,
    KEY_SIZE,
    KEY,
    VALUE_KIND,
    STRING_SIZE,
    ALIGNMENT,
    BOOL,
    ARRAY_KIND,
    ARRAY_COUNT,
    ELEMENT_SIZE,
    SECOND_KEY,
    NAME_SIZE,
    NAME,
    RANK,
    DIMENSION,
    TYPE,
    OFFSET,
    SECOND_NAME,
    SECOND_DIMENSION,
    SECOND_OFFSET,
    N_MARKS
};

struct image {
    unsigned char bytes[1024];
    size_t size, marks[N_MARKS];
};

static void put(struct image *to, const void *bytes, size_t size)
{
    cr_assert_leq(to->size + size, sizeof(to->bytes));
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

static void put_number(struct image *to, uint64_t value, size_t size)
{
    put(to, &value, size);
}

static void put_text(struct image *to, const char *text)
{
    put_number(to, strlen(text), 8);
    put(to, text, strlen(text));
}

static void put_tensor(struct image *to, const char *name, const uint64_t dims[2], uint32_t type,
                       uint64_t offset, const enum mark marks[5])
{
    to->marks[marks[0]] = to->size + 8;
    put_text(to, name);
    to->marks[marks[1]] = to->size;
    put_number(to, 2, 4);
    to->marks[marks[2]] = to->size;
    put_number(to, dims[0], 8);
    put_number(to, dims[1], 8);
    to->marks[marks[3]] = to->size;
    put_number(to, type, 4);
    to->marks[marks[4]] = to->size;
    put_number(to, offset, 8);
}

static void put_values(struct image *to)
{
    to->marks[KEY_SIZE] = to->size;
    to->marks[KEY] = to->size + 8;
    put_text(to, "general.architecture");
    to->marks[VALUE_KIND] = to->size;
    put_number(to, GSV_GGUF_STRING, 4);
    to->marks[STRING_SIZE] = to->size;
    put_text(to, "bert");
    to->marks[SECOND_KEY] = to->size + 8;
    put_text(to, "general.something___");
    put_number(to, GSV_GGUF_UINT32, 4);
    put_number(to, 32, 4);
    put_text(to, "general.alignment");
    put_number(to, GSV_GGUF_UINT32, 4);
    to->marks[ALIGNMENT] = to->size;
    put_number(to, 32, 4);
    put_text(to, "a.bool");
    put_number(to, GSV_GGUF_BOOL, 4);
    to->marks[BOOL] = to->size;
    put_number(to, 1, 1);
    put_text(to, "an.array");
    put_number(to, GSV_GGUF_ARRAY, 4);
    to->marks[ARRAY_KIND] = to->size;
    put_number(to, GSV_GGUF_STRING, 4);
    to->marks[ARRAY_COUNT] = to->size;
    put_number(to, 2, 8);
    to->marks[ELEMENT_SIZE] = to->size;
    put_text(to, "one");
    put_text(to, "two");
}

static struct image make_image(void)
{
    static const enum mark first[5] = { NAME, RANK, DIMENSION, TYPE, OFFSET };
    static const enum mark second[5] = { SECOND_NAME, N_MARKS - 1, SECOND_DIMENSION, N_MARKS - 1,
                                         SECOND_OFFSET };
    static const uint64_t small[2] = { 3, 2 }, blocks[2] = { 64, 1 };
    struct image image = { .size = 0 };
    const unsigned char zeros[128] = { 0 };

    put(&image, "GGUF", 4);
    image.marks[VERSION] = image.size;
    put_number(&image, 3, 4);
    image.marks[N_TENSORS] = image.size;
    put_number(&image, 2, 8);
    image.marks[N_VALUES] = image.size;
    put_number(&image, 5, 8);
    put_values(&image);
    image.marks[NAME_SIZE] = image.size;
    put_tensor(&image, "one.weight", small, 0, 0, first);
    put_tensor(&image, "two.weight", blocks, 8, 32, second);
    put(&image, zeros, (32 - image.size % 32) % 32);
    put(&image, zeros, 32 + 68);
    return image;
}

static gpuserve_status parse(const unsigned char *bytes, size_t size, uint64_t file_size,
                             bool *is_short, gpuserve_error *error)
{
    unsigned char *copy =
        malloc(size ? size : 1); /* exactly the bytes, so that sanitizers see all */
    struct gsv_gguf *gguf = NULL;
    gpuserve_status st;

    memcpy(copy, bytes, size);
    st = gsv_gguf_parse(&gguf, copy, size, file_size, "FILE", is_short, error);
    cr_expect_eq(gguf != NULL, st == GPUSERVE_OK);
    gsv_gguf_close(&gguf);
    free(copy);
    return st;
}

static const struct {
    enum mark mark;
    size_t size; /* bytes of the value; 0: text */
    uint64_t value;
    const char *text;
    gpuserve_status status;
    const char *message;
} bad[] = {
    { MAGIC, 0, 0, "GGML", GPUSERVE_E_FORMAT, "does not begin with \"GGUF\"" },
    { VERSION, 4, 1, NULL, GPUSERVE_E_UNSUPPORTED, "version 1 is not supported; 2 and 3 are" },
    { VERSION, 4, 4, NULL, GPUSERVE_E_UNSUPPORTED, "version 4 is not supported" },
    { VERSION, 4, 3u << 24, NULL, GPUSERVE_E_UNSUPPORTED, "big-endian" },
    { N_TENSORS, 8, 3, NULL, GPUSERVE_E_FORMAT, "a tensor's name at byte" },
    { N_TENSORS, 8, 1000, NULL, GPUSERVE_E_FORMAT, "the number of tensors is 1000" },
    { N_TENSORS, 8, UINT64_MAX, NULL, GPUSERVE_E_TOO_LARGE, "the limit is 65536" },
    { N_VALUES, 8, 1000, NULL, GPUSERVE_E_FORMAT, "the number of keys is 1000" },
    { N_VALUES, 8, UINT64_MAX / 2, NULL, GPUSERVE_E_TOO_LARGE, "the limit is 65536" },
    { N_VALUES, 8, 4, NULL, GPUSERVE_E_FORMAT, "" },
    { KEY_SIZE, 8, 0, NULL, GPUSERVE_E_FORMAT, "a key at byte 24 has 0 bytes, outside 1 to 65535" },
    { KEY_SIZE, 8, UINT64_MAX, NULL, GPUSERVE_E_FORMAT, "a key at byte 32 needs" },
    { KEY, 0, 0, "\n", GPUSERVE_E_FORMAT, "a key at byte 24 has a control character" },
    { KEY, 0, 0, "\xFF", GPUSERVE_E_FORMAT, "a key at byte 24 is not UTF-8" },
    { VALUE_KIND, 4, 13, NULL, GPUSERVE_E_FORMAT,
      "key 'general.architecture': unknown type 13, outside 0 to 12" },
    { STRING_SIZE, 8, 1 << 20, NULL, GPUSERVE_E_FORMAT, "key 'general.architecture': a string" },
    { SECOND_KEY, 0, 0, "general.architecture", GPUSERVE_E_FORMAT,
      "key 'general.architecture' occurs twice" },
    { ALIGNMENT, 4, 0, NULL, GPUSERVE_E_FORMAT, "'general.alignment' is 0, outside 1 to" },
    { ALIGNMENT, 4, 48, NULL, GPUSERVE_E_FORMAT, "general.alignment is 48, not a power of two" },
    { ALIGNMENT, 4, 1u << 31, NULL, GPUSERVE_E_FORMAT, "'general.alignment' is 2147483648" },
    { ALIGNMENT, 4, 64, NULL, GPUSERVE_E_FORMAT, "begins at offset 32, expected 64" },
    { BOOL, 1, 2, NULL, GPUSERVE_E_FORMAT, "key 'a.bool': a bool is 2, neither 0 nor 1" },
    { ARRAY_KIND, 4, 9, NULL, GPUSERVE_E_FORMAT, "'an.array': an array of arrays" },
    { ARRAY_KIND, 4, 99, NULL, GPUSERVE_E_FORMAT, "'an.array': unknown type 99" },
    { ARRAY_KIND, 4, 12, NULL, GPUSERVE_E_FORMAT, "" },
    { ARRAY_COUNT, 8, UINT64_MAX, NULL, GPUSERVE_E_FORMAT, "key 'an.array': a string" },
    { ARRAY_COUNT, 8, 1, NULL, GPUSERVE_E_FORMAT, "" },
    { ELEMENT_SIZE, 8, UINT64_MAX - 7, NULL, GPUSERVE_E_FORMAT, "key 'an.array': a string" },
    { NAME_SIZE, 8, 65, NULL, GPUSERVE_E_FORMAT, "has 65 bytes, outside 1 to 64" },
    { NAME, 0, 0, "\x01", GPUSERVE_E_FORMAT, "a tensor's name at byte" },
    { SECOND_NAME, 0, 0, "one.weight", GPUSERVE_E_FORMAT, "tensor 'one.weight' occurs twice" },
    { RANK, 4, 0, NULL, GPUSERVE_E_FORMAT, "'one.weight' has rank 0, outside 1 to 4" },
    { RANK, 4, 5, NULL, GPUSERVE_E_FORMAT, "'one.weight' has rank 5, outside 1 to 4" },
    { DIMENSION, 8, UINT64_MAX, NULL, GPUSERVE_E_FORMAT, "the size of its shape overflows" },
    { DIMENSION, 8, UINT64_C(1) << 62, NULL, GPUSERVE_E_FORMAT, "the size of its shape overflows" },
    { DIMENSION, 8, UINT64_C(1) << 61, NULL, GPUSERVE_E_FORMAT, "the size of its shape overflows" },
    { DIMENSION, 8, 1000000, NULL, GPUSERVE_E_FORMAT, "ends after the file's" },
    { DIMENSION, 8, 10, NULL, GPUSERVE_E_FORMAT, "begins at offset 32, expected 96" },
    { TYPE, 4, 4, NULL, GPUSERVE_E_FORMAT, "'one.weight': unknown type 4" },
    { TYPE, 4, UINT32_MAX, NULL, GPUSERVE_E_FORMAT, "'one.weight': unknown type 4294967295" },
    { TYPE, 4, 8, NULL, GPUSERVE_E_FORMAT,
      "rows of 3 elements are not divisible by the block size 32 of Q8_0" },
    { OFFSET, 8, 1, NULL, GPUSERVE_E_FORMAT, "begins at offset 1, expected 0" },
    { OFFSET, 8, UINT64_MAX, NULL, GPUSERVE_E_FORMAT, "expected 0" },
    { SECOND_DIMENSION, 8, 63, NULL, GPUSERVE_E_FORMAT, "not divisible by the block size" },
    { SECOND_DIMENSION, 8, 96, NULL, GPUSERVE_E_FORMAT, "the file is truncated" },
    { SECOND_OFFSET, 8, 0, NULL, GPUSERVE_E_FORMAT, "a gap or an overlap" },
};

Test(gguf_bad, each_bad_field_is_named)
{
    const struct image good = make_image();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    bool is_short;

    cr_assert_eq(parse(good.bytes, good.size, good.size, &is_short, &error), GPUSERVE_OK, "%s",
                 error.message);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct image image = good;
        unsigned char *at = image.bytes + image.marks[bad[i].mark];
        gpuserve_status st;

        if (bad[i].text)
            memcpy(at, bad[i].text, strlen(bad[i].text));
        else
            memcpy(at, &bad[i].value, bad[i].size);
        st = parse(image.bytes, image.size, image.size, &is_short, &error);
        cr_expect_eq(st, bad[i].status, "case %zu: %d %s", i, st, error.message);
        cr_expect(strncmp(error.message, "FILE: ", 6) == 0 && strstr(error.message, bad[i].message),
                  "case %zu: %s", i, error.message);
        cr_expect_not(is_short, "case %zu", i);
    }
}

Test(gguf_bad, a_file_cut_at_any_byte_is_refused)
{
    const struct image image = make_image();

    for (size_t n = 0; n < image.size; n++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        bool is_short;

        cr_expect_neq(parse(image.bytes, n, n, &is_short, &error), GPUSERVE_OK, "%zu bytes", n);
        cr_expect(error.message[0] && !is_short, "%zu bytes", n);
        /* The beginning of a whole file: more of it must be read, or the header is complete. */
        if (parse(image.bytes, n, image.size, &is_short, &error) != GPUSERVE_OK)
            cr_expect(is_short, "%zu of %zu bytes: %s", n, image.size, error.message);
    }
}

/* ---------------------------------------------------------------------------------- bad models */

/* In a copy of a file, the text `from` becomes `to`, of the same size; `offset` bytes after it the
 * number `value` of `size` bytes is written. */
static const struct {
    const char *file, *from, *to;
    size_t offset, size;
    uint64_t value;
    gpuserve_status status;
    const char *message;
} bad_models[] = {
    { "bert-f32", "general.architecture", "general.architecturX", 0, 0, 0, GPUSERVE_E_FORMAT,
      "key 'general.architecture' is missing" },
    { "bert-f32", "general.architecture", "general.architecture", 0, 4, 4, GPUSERVE_E_FORMAT, "" },
    { "bert-f32", "bert.block_count", "bert.block_cXunt", 0, 0, 0, GPUSERVE_E_FORMAT,
      "key 'bert.block_count' is missing" },
    { "bert-f32", "bert.block_count", "bert.block_count", 4, 4, 0, GPUSERVE_E_FORMAT,
      "key 'bert.block_count' is 0, outside 1 to 2147483647" },
    { "bert-f32", "bert.block_count", "bert.block_count", 4, 4, 3, GPUSERVE_E_FORMAT,
      "encoder.layer.2.attention.self.query.weight' is missing" },
    { "bert-f32", "bert.block_count", "bert.block_count", 4, 4, 100000, GPUSERVE_E_FORMAT,
      "num_hidden_layers" },
    { "bert-f32", "bert.block_count", "bert.block_count", 0, 4, 6, GPUSERVE_E_FORMAT,
      "key 'bert.block_count' is not an integer" },
    { "bert-f32", "bert.attention.head_count", "bert.attention.head_count", 4, 4, 5,
      GPUSERVE_E_FORMAT, "not divisible by 5 attention heads" },
    { "bert-f32", "bert.attention.layer_norm_epsilon", "bert.attention.layer_norm_epsilon", 4, 4,
      0x7FC00000, GPUSERVE_E_FORMAT, "layer_norm_epsilon' is not a finite number" },
    { "bert-f32", "bert.attention.layer_norm_epsilon", "bert.attention.layer_norm_epsilXn", 0, 0, 0,
      GPUSERVE_E_FORMAT, "layer_norm_epsilon' is missing or outside 0 to 1" },
    { "bert-f32", "bert.attention.causal", "bert.attention.causal", 4, 1, 1, GPUSERVE_E_UNSUPPORTED,
      "'bert.attention.causal' is true; only encoders" },
    { "bert-f32", "bert.pooling_type", "bert.pooling_type", 4, 4, 9, GPUSERVE_E_FORMAT,
      "key 'bert.pooling_type' is 9, outside 0 to 4" },
    { "bert-f32", "bert.embedding_length", "bert.embedding_length", 4, 4, 64, GPUSERVE_E_FORMAT,
      "expected shape [96, 64]" },
    { "bert-f32", "token_embd.weight", "token_embX.weight", 0, 0, 0, GPUSERVE_E_FORMAT,
      "tensor 'token_embd.weight' is missing" },
    { "bert-f32", "blk.1.attn_k.bias", "blk.1.attn_k.biaX", 0, 0, 0, GPUSERVE_E_UNSUPPORTED,
      "tensor 'blk.1.attn_k.biaX' belongs to no part" },
    { "bert-f32", "blk.1.attn_k.bias", "blk.01.attn_.bias", 0, 0, 0, GPUSERVE_E_UNSUPPORTED,
      "tensor 'blk.01.attn_.bias' belongs to no part" },
    /* Tensors that would be optional by their right names. */
    { "bert-f32", "token_types.weight", "token_typeX.weight", 0, 0, 0, GPUSERVE_E_UNSUPPORTED,
      "tensor 'token_typeX.weight' belongs to no part" },
    { "modern-bert", "blk.2.attn_norm.weight", "embeddings.norm.weight", 0, 0, 0,
      GPUSERVE_E_UNSUPPORTED, "tensor 'embeddings.norm.weight' belongs to no part" },
    { "qwen3", "blk.0.attn_k_norm.weight", "blk.0.attn_k_rope.weight", 0, 0, 0,
      GPUSERVE_E_UNSUPPORTED, "tensor 'blk.0.attn_k_rope.weight' belongs to no part" },
    { "xlm-roberta-rank", "cls.output.weight", "cls.outpXt.weight", 0, 0, 0, GPUSERVE_E_UNSUPPORTED,
      "only one layer of the classifier: tensor 'cls.output.weight' is missing" },
    { "xlm-roberta-rank", "cls.weight", "clX.weight", 0, 0, 0, GPUSERVE_E_UNSUPPORTED,
      "tensor 'cls.weight' is missing" },
};

static gpuserve_status load_tokenizer(const char *path, gpuserve_error *error)
{
    struct gsv_tokenizer *tokenizer = NULL;
    struct gsv_dir *dir = NULL;
    gpuserve_status st = gsv_dir_open(&dir, path, error);

    if (st == GPUSERVE_OK)
        st = gsv_tokenizer_load(&tokenizer, dir, NULL, error);
    gsv_tokenizer_free(&tokenizer);
    gsv_dir_close(&dir);
    return st;
}

/* Write the changed copy to folder/bad.gguf. */
static void write_bad(const char *file, const char *from, const char *to, size_t offset,
                      size_t number_size, uint64_t value)
{
    char name[64];
    size_t size;
    char *bytes, *at;

    snprintf(name, sizeof(name), "gguf/%s.gguf", file);
    bytes = read_file(test_data(name), &size);
    at = memmem(bytes, size, from, strlen(from));
    cr_assert(at, "%s: %s", file, from);
    cr_assert_eq(strlen(from), strlen(to), "%s", to);
    memcpy(at, to, strlen(to));
    memcpy(at + strlen(to) + offset, &value, number_size);
    write_file(in_folder("bad.gguf"), bytes, size);
    free(bytes);
}

Test(gguf_bad, bad_models_are_refused, .init = make_folder, .fini = remove_folder)
{
    for (size_t i = 0; i < sizeof(bad_models) / sizeof(bad_models[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_status st;

        write_bad(bad_models[i].file, bad_models[i].from, bad_models[i].to, bad_models[i].offset,
                  bad_models[i].size, bad_models[i].value);
        st = try_load(in_folder("bad.gguf"), NULL, &error);
        cr_expect_eq(st, bad_models[i].status, "case %zu: %d %s", i, st, error.message);
        cr_expect(strstr(error.message, "bad.gguf") && strstr(error.message, bad_models[i].message),
                  "case %zu: %s", i, error.message);
    }
}

/* -------------------------------------------------------------------------------- added options */

/* A key that the file has in addition: a float32, a uint32, a bool or a string. */
static const struct {
    const char *file, *key;
    enum gsv_gguf_kind kind;
    float number; /* or the text: */
    const char *text;
    gpuserve_status status;
    const char *message;
} options[] = {
    { "nomic-bert", "nomic-bert.rope.scaling.type", GSV_GGUF_STRING, 0, "none", GPUSERVE_OK, "" },
    { "nomic-bert", "nomic-bert.rope.scaling.type", GSV_GGUF_STRING, 0, "linear", GPUSERVE_OK, "" },
    { "nomic-bert", "nomic-bert.rope.scaling.type", GSV_GGUF_STRING, 0, "yarn",
      GPUSERVE_E_UNSUPPORTED, "'nomic-bert.rope.scaling.type' is 'yarn' with factor 1" },
    { "qwen3", "qwen3.rope.scaling.factor", GSV_GGUF_FLOAT32, 1, NULL, GPUSERVE_OK, "" },
    { "qwen3", "qwen3.rope.scaling.factor", GSV_GGUF_FLOAT32, 4, NULL, GPUSERVE_E_UNSUPPORTED,
      "is 'linear' with factor 4" },
    { "qwen3", "qwen3.rope.scale_linear", GSV_GGUF_FLOAT32, 4, NULL, GPUSERVE_E_UNSUPPORTED,
      "key 'qwen3.rope.scale_linear' is 4, only 1" },
    { "qwen3", "qwen3.rope.scaling.attn_factor", GSV_GGUF_FLOAT32, 2, NULL, GPUSERVE_E_UNSUPPORTED,
      "key 'qwen3.rope.scaling.attn_factor' is 2, only 1" },
    { "modern-bert", "modern-bert.rope.dimension_count", GSV_GGUF_UINT32, 8, NULL, GPUSERVE_OK,
      "" },
    { "modern-bert", "modern-bert.rope.dimension_count", GSV_GGUF_UINT32, 4, NULL,
      GPUSERVE_E_UNSUPPORTED, "key 'modern-bert.rope.dimension_count' is 4, but a head has 8" },
    { "qwen3", "qwen3.attention.value_length", GSV_GGUF_UINT32, 16, NULL, GPUSERVE_OK, "" },
    { "qwen3", "qwen3.attention.value_length", GSV_GGUF_UINT32, 8, NULL, GPUSERVE_E_UNSUPPORTED,
      "key 'qwen3.attention.value_length' is 8, but a head has 16" },
    { "bert-f32", "bert.attention.key_length", GSV_GGUF_UINT32, 16, NULL, GPUSERVE_E_UNSUPPORTED,
      "key 'bert.attention.key_length' is 16, but a head has 8" },
    { "gemma-embedding", "gemma-embedding.attn_logit_softcapping", GSV_GGUF_FLOAT32, 0, NULL,
      GPUSERVE_OK, "" },
    { "gemma-embedding", "gemma-embedding.attn_logit_softcapping", GSV_GGUF_FLOAT32, 50, NULL,
      GPUSERVE_E_UNSUPPORTED, "key 'gemma-embedding.attn_logit_softcapping' is 50, only 0" },
    { "qwen3", "qwen3.attention.scale", GSV_GGUF_FLOAT32, 0.5f, NULL, GPUSERVE_E_UNSUPPORTED,
      "key 'qwen3.attention.scale' is 0.5" },
    { "nomic-bert", "nomic-bert.expert_count", GSV_GGUF_UINT32, 8, NULL, GPUSERVE_E_UNSUPPORTED,
      "key 'nomic-bert.expert_count' is 8; experts are not supported" },
    { "bert-f32", "bert.use_parallel_residual", GSV_GGUF_BOOL, 1, NULL, GPUSERVE_E_UNSUPPORTED,
      "key 'bert.use_parallel_residual' is not supported" },
};

static void put_key(struct image *to, const char *key, enum gsv_gguf_kind kind, float number,
                    const char *text)
{
    put_text(to, key);
    put_number(to, kind, 4);
    if (kind == GSV_GGUF_STRING)
        put_text(to, text);
    else if (kind == GSV_GGUF_FLOAT32)
        put(to, &number, sizeof(number));
    else
        put_number(to, (uint64_t)number, kind == GSV_GGUF_BOOL ? 1 : 4);
}

/* Write a copy of the file with the key to folder/bad.gguf. A second key keeps the alignment of the
 * tensors: its text has the bytes that the first lacks to a multiple of 32. */
static void write_option(size_t i)
{
    static const char filler[] = "................................";
    struct image keys = { .size = 0 };
    char name[64], *bytes, *made;
    uint64_t n_values;
    size_t size;

    put_key(&keys, options[i].key, options[i].kind, options[i].number, options[i].text);
    put_key(&keys, "filler", GSV_GGUF_STRING, 0, "");
    keys.size -= 8;
    put_text(&keys, filler + (keys.size + 8) % 32);
    cr_assert_eq(keys.size % 32, 0);
    snprintf(name, sizeof(name), "gguf/%s.gguf", options[i].file);
    bytes = read_file(test_data(name), &size);
    made = malloc(size + keys.size);
    memcpy(made, bytes, 24);
    memcpy(&n_values, bytes + 16, 8);
    n_values += 2;
    memcpy(made + 16, &n_values, 8);
    memcpy(made + 24, keys.bytes, keys.size);
    memcpy(made + 24 + keys.size, bytes + 24, size - 24);
    write_file(in_folder("bad.gguf"), made, size + keys.size);
    free(made);
    free(bytes);
}

Test(gguf_bad, options_that_are_not_computed_are_refused, .init = make_folder,
     .fini = remove_folder)
{
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_status st;

        write_option(i);
        st = try_load(in_folder("bad.gguf"), NULL, &error);
        cr_expect_eq(st, options[i].status, "case %zu: %d %s", i, st, error.message);
        cr_expect(strstr(error.message, options[i].message), "case %zu: %s", i, error.message);
    }
}

/* ----------------------------------------------------------------------------------- bad parts */

#define SECOND "bert-split-00002-of-00003.gguf"

/* Part `from` of a split file is written as part `to`, with the number after a key changed. */
static const struct {
    int from, to;
    const char *key; /* NULL: no change */
    size_t size;
    uint64_t value;
    gpuserve_status status;
    const char *message;
} bad_parts[] = {
    { 1, 1, "split.count", 2, 65, GPUSERVE_E_TOO_LARGE, "split.count is 65, the limit is 64" },
    { 1, 1, "split.count", 2, 2, GPUSERVE_E_FORMAT, "name does not end in -00001-of-00002.gguf" },
    { 1, 1, "split.no", 2, 1, GPUSERVE_E_INVALID, "the file is part 2 of 3" },
    { 1, 1, "split.tensors.count", 4, 7, GPUSERVE_E_FORMAT, "split.tensors.count is 7, but" },
    { 2, 2, "split.count", 2, 4, GPUSERVE_E_FORMAT, "split.no is 1 and split.count is 4" },
    { 3, 2, NULL, 0, 0, GPUSERVE_E_FORMAT, SECOND ": split.no is 2 and" },
    { 2, 3, "split.no", 2, 2, GPUSERVE_E_FORMAT, "' is also in an earlier part" },
};

static const char *part_path(int number)
{
    static char name[64];

    snprintf(name, sizeof(name), "bert-split-%05d-of-00003.gguf", number);
    return in_folder(name);
}

static void write_part(int from, int to, const char *key, const void *value, size_t value_size)
{
    char name[64];
    size_t size;
    char *bytes, *at;

    snprintf(name, sizeof(name), "gguf/bert-split-%05d-of-00003.gguf", from);
    bytes = read_file(test_data(name), &size);
    if (key) {
        at = memmem(bytes, size, key, strlen(key));
        cr_assert(at, "%s", key);
        memcpy(at + strlen(key) + 4, value, value_size); /* after the type */
    }
    write_file(part_path(to), bytes, size);
    free(bytes);
}

Test(gguf_bad, bad_parts_are_refused, .init = make_folder, .fini = remove_folder)
{
    for (size_t i = 0; i < sizeof(bad_parts) / sizeof(bad_parts[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_status st;

        for (int part = 1; part <= 3; part++)
            write_part(part, part, NULL, NULL, 0);
        write_part(bad_parts[i].from, bad_parts[i].to, bad_parts[i].key, &bad_parts[i].value,
                   bad_parts[i].size);
        st = try_load(part_path(1), NULL, &error);
        cr_expect_eq(st, bad_parts[i].status, "case %zu: %d %s", i, st, error.message);
        cr_expect(strstr(error.message, bad_parts[i].message), "case %zu: %s", i, error.message);
    }
}

Test(gguf_bad, a_part_by_itself_names_the_first, .init = make_folder, .fini = remove_folder)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    size_t size;
    char *bytes;

    write_part(2, 2, NULL, NULL, 0);
    cr_expect_eq(try_load(part_path(2), NULL, &error), GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "the file is part 2 of 3 of a split GGUF file"), "%s",
              error.message);
    cr_expect(strstr(error.hint, "bert-split-00001-of-00003.gguf"), "%s", error.hint);
    bytes = read_file(test_data("gguf/" SECOND), &size);
    write_file(in_folder("part.gguf"), bytes, size);
    free(bytes);
    cr_expect_eq(try_load(in_folder("part.gguf"), NULL, &error), GPUSERVE_E_FORMAT);
    cr_expect(strstr(error.hint, "rename the file back"), "%s", error.hint);
}

static const struct {
    const char *file, *from, *to;
    size_t offset, size;
    uint64_t value;
    gpuserve_status status;
    const char *message;
} bad_tokenizers[] = {
    { "bert-cls", "bert.block_count", "bert.block_count", 0, 0, 0, GPUSERVE_E_FORMAT,
      "key 'tokenizer.ggml.model' is missing" },
    { "bert-f32", "tokenizer.ggml.tokens", "tokenizer.ggml.tokenX", 0, 0, 0, GPUSERVE_E_FORMAT,
      "key 'tokenizer.ggml.tokens' is missing" },
    { "bert-f32", "tokenizer.ggml.tokens", "tokenizer.ggml.tokens", 0, 4, 8, GPUSERVE_E_FORMAT,
      "" },
    { "bert-f32", "[UNK]", "[UN\xFF]", 0, 0, 0, GPUSERVE_E_FORMAT, "token 2 is not UTF-8" },
    { "bert-f32", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.bos_token_id", 4, 4, 96,
      GPUSERVE_E_FORMAT, "key 'tokenizer.ggml.bos_token_id' is 96, outside 0 to 95" },
    { "bert-f32", "tokenizer.ggml.normalizer.lowercase", "tokenizer.ggml.normalizer.lowercase", 0,
      4, 0, GPUSERVE_E_FORMAT, "lowercase' is not a bool" },
    { "xlm-roberta", "tokenizer.ggml.scores", "tokenizer.ggml.scoreX", 0, 0, 0, GPUSERVE_E_FORMAT,
      "key 'tokenizer.ggml.scores' is missing" },
    { "xlm-roberta", "tokenizer.ggml.scores", "tokenizer.ggml.scores", 16, 4, 0x7F800000,
      GPUSERVE_E_FORMAT, "token 0 has a score that is not a finite number" },
    { "xlm-roberta", "tokenizer.ggml.scores", "tokenizer.ggml.scores", 4, 4, 4, GPUSERVE_E_FORMAT,
      "key 'tokenizer.ggml.scores' is not an array of float32" },
    { "xlm-roberta", "tokenizer.ggml.token_type\x09", "tokenizer.ggml.token_type\x09", 3, 4, 6,
      GPUSERVE_E_FORMAT, "key 'tokenizer.ggml.token_type' is not an array of int32" },
    { "xlm-roberta", "tokenizer.ggml.precompiled_charsmap", "tokenizer.ggml.precompiled_charsmap",
      16, 4, UINT32_MAX, GPUSERVE_E_FORMAT, "charsmap" },
};

Test(gguf_bad, bad_tokenizers_are_refused, .init = make_folder, .fini = remove_folder)
{
    for (size_t i = 0; i < sizeof(bad_tokenizers) / sizeof(bad_tokenizers[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_status st;

        write_bad(bad_tokenizers[i].file, bad_tokenizers[i].from, bad_tokenizers[i].to,
                  bad_tokenizers[i].offset, bad_tokenizers[i].size, bad_tokenizers[i].value);
        st = load_tokenizer(in_folder("bad.gguf"), &error);
        cr_expect_eq(st, bad_tokenizers[i].status, "case %zu: %d %s", i, st, error.message);
        cr_expect(strstr(error.message, "bad.gguf") &&
                      strstr(error.message, bad_tokenizers[i].message),
                  "case %zu: %s", i, error.message);
    }
}

/* -------------------------------------------------------------------------------- every number */

/* Invalid values of a scalar by its kind: the largest, and of floating-point numbers NaN. */
static uint64_t invalid_value(enum gsv_gguf_kind kind)
{
    return kind == GSV_GGUF_FLOAT32   ? 0x7FC00000
           : kind == GSV_GGUF_FLOAT64 ? UINT64_C(0x7FF8000000000000)
                                      : UINT64_MAX;
}

/* The configuration and the tokenizer of the file: the first failure. */
static gpuserve_status load_whole(const char *path, gpuserve_error *error)
{
    const gpuserve_status st = try_load(path, NULL, error);

    return st == GPUSERVE_OK ? load_tokenizer(path, error) : st;
}

static void check_number(const char *file, const struct gsv_gguf *gguf,
                         const struct gsv_gguf_value *value, size_t size)
{
    const size_t offset = (size_t)(value->data - gguf->header);
    const uint64_t number = invalid_value(value->kind);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char key[96], *bytes = malloc(size);
    gpuserve_status st;

    cr_assert(bytes);
    cr_assert_eq(gsv_fd_read(gguf->fd, bytes, size, 0, file, NULL), GPUSERVE_OK);
    memcpy(bytes + offset, &number, value->size);
    write_file(in_folder("bad.gguf"), bytes, size);
    free(bytes);
    snprintf(key, sizeof(key), "'%.*s'", (int)value->key.size, value->key.at);
    st = load_whole(in_folder("bad.gguf"), &error);
    cr_expect_eq(st, GPUSERVE_E_FORMAT, "%s: %s: %d %s", file, key, st, error.message);
    cr_expect(strstr(error.message, key), "%s: %s: %s", file, key, error.message);
}

Test(gguf_bad, an_invalid_number_of_every_key_is_named, .init = make_folder, .fini = remove_folder)
{
    static const char *const files[] = { "bert-f32",    "xlm-roberta", "nomic-bert",
                                         "modern-bert", "qwen3",       "gemma-embedding" };
    size_t n_numbers = 0;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char name[64];
        struct gsv_dir *dir;
        struct gsv_gguf *gguf;

        snprintf(name, sizeof(name), "gguf/%s.gguf", files[i]);
        cr_assert_eq(gsv_dir_open(&dir, test_data(name), NULL), GPUSERVE_OK);
        cr_assert_eq(gsv_gguf_open(&gguf, dir, NULL), GPUSERVE_OK);
        for (size_t k = 0; k < gguf->n_values; k++) {
            const struct gsv_gguf_value *value = &gguf->values[k];

            if (value->is_array || value->kind == GSV_GGUF_STRING)
                continue;
            check_number(files[i], gguf, value, (size_t)gguf->file_size);
            n_numbers++;
        }
        gsv_gguf_close(&gguf);
        gsv_dir_close(&dir);
    }
    cr_expect_geq(n_numbers, 80);
}
