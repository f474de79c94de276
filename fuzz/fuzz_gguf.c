/*
 * fuzz_gguf.c - arbitrary bytes as a GGUF file: header, configuration, tensor table, blocks and
 * tokenizer.
 */
#include "fuzz/fuzz.h"

#include "lib/model/families/config.h"
#include "lib/model/formats/checkpoint.h"
#include "lib/model/formats/formats.h"
#include "lib/text/load/gguf_tokens.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES (1u << 20)

/* All tensors must lie inside the file, each behind the one before it. */
static void check_tensors(const struct gsv_gguf *gguf)
{
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        const struct gsv_gguf_tensor *t = &gguf->tensors[i];

        if (t->size_bytes > gguf->file_size || t->offset > gguf->file_size - t->size_bytes ||
            !gsv_gguf_type_of(t->type))
            abort();
        for (size_t k = 0; k < i; k++) {
            const struct gsv_gguf_tensor *other = &gguf->tensors[k];

            if (t->size_bytes && other->size_bytes &&
                t->offset < other->offset + other->size_bytes &&
                other->offset < t->offset + t->size_bytes)
                abort();
        }
    }
}

static void read_config(const struct gsv_gguf *gguf)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_config config = { 0 };
    struct gsv_json_value *json = NULL;
    struct gsv_gguf_modules modules;

    (void)gsv_gguf_read_modules(&modules, gguf, &error);
    if (gsv_gguf_config(&json, gguf, &error) == GPUSERVE_OK)
        (void)gsv_config_parse(&config, json, &error);
    else if (json || !error.message[0])
        abort();
    gsv_config_reset(&config);
    gsv_json_free(&json);
}

static void read_weights(const struct gsv_gguf *gguf)
{
    struct gsv_weight_file *file = NULL;
    struct gsv_tensor tensor;

    if (gsv_gguf_weights(&file, gguf, 0, "", NULL) != GPUSERVE_OK)
        return;
    if (gsv_weight_file_find(file, "embeddings.word_embeddings.weight", &tensor) &&
        (tensor.rank != 2 && tensor.rank < 3))
        abort();
    gsv_weight_file_close(&file);
}

static void read_tokenizer(const struct gsv_gguf *gguf)
{
    static const char text[] = " Na\xC3\xAFve  [MASK] <mask> \xEF\xAC\x81ne\xE3\x80\x80words ";
    struct gsv_tokenizer *t = calloc(1, sizeof(*t));
    struct gsv_encoding e = { 0 };

    if (!t)
        return;
    if (gsv_tokenizer_read_gguf(t, gguf, NULL) == GPUSERVE_OK &&
        gsv_tokenizer_finish(t, "fuzz", NULL) == GPUSERVE_OK) {
        if (gsv_tokenizer_encode(t, &e, text, strlen(text), "pair", 4, NULL, NULL) != GPUSERVE_OK)
            abort();
        for (size_t i = 0; i < e.n; i++)
            if (e.ids[i] < 0 || e.ids[i] >= gsv_tokenizer_vocab_size(t) ||
                e.spans[i].begin > e.spans[i].end || e.spans[i].end > strlen(text))
                abort();
    }
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&t);
}

/* The bytes as one block of each type. */
static void read_blocks(const uint8_t *data, size_t size)
{
    uint8_t block[512] = { 0 };
    float floats[256];

    memcpy(block, data, size < sizeof(block) ? size : sizeof(block));
    for (int type = GSV_TENSOR_Q4_0; type <= GSV_TENSOR_Q6_K; type++)
        gsv_floats_from_blocks(floats, block, (enum gsv_tensor_type)type,
                               type < GSV_TENSOR_Q2_K ? 32 : 256);
}

/* The input is the header of a larger file: its file size includes tensor data that the input need
 * not contain. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_gguf *gguf;
    bool is_short;

    read_blocks(data, size);
    if (gsv_gguf_parse(&gguf, data, size, size + FILE_BYTES, "fuzz", &is_short, &error) !=
        GPUSERVE_OK) {
        if (gguf || !error.message[0])
            abort();
        return 0;
    }
    check_tensors(gguf);
    read_config(gguf);
    gguf->fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (gguf->fd >= 0)
        read_weights(gguf);
    read_tokenizer(gguf);
    gsv_gguf_close(&gguf);
    return 0;
}
