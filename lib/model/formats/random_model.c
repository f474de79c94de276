/*
 * random_model.c - parses the shape of a random model, and writes its files in memory.
 *
 *   path -> shape -> config.json, vocab.txt, tokenizer_config.json
 *
 * The vocabulary has the special tokens, printable ASCII characters and all groups of two and three
 * letters, as far as it reaches: any ASCII text has ordinary tokens, about three letters each.
 */
#include "lib/model/formats/formats.h"

#include "lib/base/alloc.h"
#include "lib/base/buffer.h"
#include "lib/base/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATH_BYTES 256
#define MAX_LAYERS 512
#define MAX_WIDTH 65536
#define MIN_VOCAB 16
#define MAX_VOCAB (1 << 24)
#define MIN_POSITIONS 8
#define MAX_POSITIONS (1 << 20)
#define HEAD_SIZE 64

#define SHAPES_HINT                                                                        \
    "a random model is random:NAME or random:KEY=N, then any ,KEY=N; names: bert-tiny, "   \
    "bert-mini, bert-small, bert-medium, bert-base, bert-large, minilm-l6; keys: layers, " \
    "hidden, heads, intermediate, vocab, positions, seed"

static const struct named_shape {
    const char *name;
    int64_t layers, hidden, heads;
} named_shapes[] = {
    { "bert-tiny", 2, 128, 2 },   { "bert-mini", 4, 256, 4 },   { "bert-small", 4, 512, 8 },
    { "bert-medium", 8, 512, 8 }, { "bert-base", 12, 768, 12 }, { "bert-large", 24, 1024, 16 },
    { "minilm-l6", 6, 384, 12 },
};

static const struct shape_key {
    const char *name;
    size_t offset;
    int64_t minimum, maximum;
} shape_keys[] = {
    { "layers", offsetof(struct gsv_random_shape, layers), 1, MAX_LAYERS },
    { "hidden", offsetof(struct gsv_random_shape, hidden), 1, MAX_WIDTH },
    { "heads", offsetof(struct gsv_random_shape, heads), 1, MAX_WIDTH },
    { "intermediate", offsetof(struct gsv_random_shape, intermediate), 1, MAX_WIDTH },
    { "vocab", offsetof(struct gsv_random_shape, vocab), MIN_VOCAB, MAX_VOCAB },
    { "positions", offsetof(struct gsv_random_shape, positions), MIN_POSITIONS, MAX_POSITIONS },
    { "seed", offsetof(struct gsv_random_shape, seed), 0, INT64_MAX },
};

#define N_NAMES (sizeof(named_shapes) / sizeof(named_shapes[0]))
#define N_KEYS (sizeof(shape_keys) / sizeof(shape_keys[0]))

/* -------------------------------------------------------------------------------------- parsing */

static gpuserve_status fail_part(const char *path, const char *part, size_t size, const char *what,
                                 gpuserve_error *error)
{
    gsv_fail(error, GPUSERVE_E_INVALID, "%s: \"%.*s\" is %s", path, (int)size, part, what);
    return gsv_hint(error, GPUSERVE_E_INVALID, SHAPES_HINT);
}

static gpuserve_status read_name(struct gsv_random_shape *shape, const char *path, const char *part,
                                 size_t size, gpuserve_error *error)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        const struct named_shape *named = &named_shapes[i];

        if (strlen(named->name) != size || memcmp(named->name, part, size) != 0)
            continue;
        shape->layers = named->layers;
        shape->hidden = named->hidden;
        shape->heads = named->heads;
        return GPUSERVE_OK;
    }
    return fail_part(path, part, size, "not the name of a shape", error);
}

/* Digits only; a number over `maximum` is any larger one. False if it is not a number. */
static bool read_number(const char *text, size_t size, int64_t maximum, int64_t *number)
{
    int64_t value = 0;

    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_add_overflow(value, (int64_t)(text[i] - '0'), &value)) {
            value = maximum;
            if (value == INT64_MAX)
                return false;
            value++;
            break;
        }
    }
    *number = value;
    return size > 0;
}

/* Read KEY=N; *given collects the keys that were read. */
static gpuserve_status read_key(struct gsv_random_shape *shape, const char *path, const char *part,
                                size_t size, uint32_t *given, gpuserve_error *error)
{
    const char *const equals = memchr(part, '=', size);
    const size_t name_size = (size_t)(equals - part);
    const struct shape_key *key = NULL;
    int64_t number = 0;
    size_t i;

    for (i = 0; i < N_KEYS && !key; i++)
        if (strlen(shape_keys[i].name) == name_size &&
            memcmp(shape_keys[i].name, part, name_size) == 0)
            key = &shape_keys[i];
    if (!key)
        return fail_part(path, part, name_size, "not a key", error);
    if (*given >> (i - 1) & 1)
        return fail_part(path, part, name_size, "given twice", error);
    *given |= UINT32_C(1) << (i - 1);
    if (!read_number(equals + 1, size - name_size - 1, key->maximum, &number))
        return fail_part(path, part, size, "not a key with a whole number", error);
    if (number < key->minimum || number > key->maximum)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "%s: %s is %.*s, outside %" PRId64 " to %" PRId64, path, key->name,
                        (int)(size - name_size - 1), equals + 1, key->minimum, key->maximum);
    memcpy((char *)shape + key->offset, &number, sizeof(number));
    return GPUSERVE_OK;
}

static bool is_given(uint32_t given, const char *name)
{
    for (size_t i = 0; i < N_KEYS; i++)
        if (strcmp(shape_keys[i].name, name) == 0)
            return (given >> i & 1) != 0;
    return false;
}

/* Set what follows from the width, and check that the heads divide it. */
static gpuserve_status complete(struct gsv_random_shape *shape, const char *path, uint32_t given,
                                gpuserve_error *error)
{
    gpuserve_status st;

    if (!is_given(given, "intermediate"))
        shape->intermediate = shape->hidden * 4;
    if (shape->intermediate > MAX_WIDTH)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "%s: intermediate is 4 * hidden = %" PRId64 ", the limit is %d", path,
                        shape->intermediate, MAX_WIDTH);
    if (is_given(given, "hidden") && !is_given(given, "heads"))
        shape->heads = shape->hidden > HEAD_SIZE ? shape->hidden / HEAD_SIZE : 1;
    if (shape->hidden % shape->heads == 0)
        return GPUSERVE_OK;
    st = gsv_fail(error, GPUSERVE_E_INVALID,
                  "%s: heads is %" PRId64 ", which does not divide hidden, %" PRId64, path,
                  shape->heads, shape->hidden);
    return gsv_hint(error, st, "give heads=N so that hidden is a multiple of it");
}

gpuserve_status gsv_random_parse(struct gsv_random_shape *shape, const char *path,
                                 gpuserve_error *error)
{
    const char *part = path + strlen(GSV_RANDOM_PREFIX);
    uint32_t given = 0;
    gpuserve_status st = GPUSERVE_OK;

    *shape = (struct gsv_random_shape){ .vocab = 30522, .positions = 512 };
    if (strlen(path) > MAX_PATH_BYTES)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%.40s...: the shape is longer than %d bytes",
                        path, MAX_PATH_BYTES);
    (void)read_name(shape, path, "bert-base", strlen("bert-base"), NULL);
    for (bool is_first = true; st == GPUSERVE_OK; is_first = false) {
        const size_t size = strcspn(part, ",");

        if (memchr(part, '=', size))
            st = read_key(shape, path, part, size, &given, error);
        else if (is_first)
            st = read_name(shape, path, part, size, error);
        else
            st = fail_part(path, part, size, "not KEY=N", error);
        part += size;
        if (*part++ == '\0')
            break;
    }
    return st == GPUSERVE_OK ? complete(shape, path, given, error) : st;
}

/* ---------------------------------------------------------------------------------------- files */

static void write_config(struct gsv_buffer *to, const struct gsv_random_shape *shape)
{
    gsv_buffer_format(
        to,
        "{\n  \"architectures\": [\"BertModel\"],\n  \"hidden_act\": \"gelu\",\n"
        "  \"hidden_size\": %" PRId64 ",\n  \"initializer_range\": 0.02,\n"
        "  \"intermediate_size\": %" PRId64 ",\n  \"layer_norm_eps\": 1e-12,\n"
        "  \"max_position_embeddings\": %" PRId64 ",\n  \"model_type\": \"bert\",\n"
        "  \"num_attention_heads\": %" PRId64 ",\n  \"num_hidden_layers\": %" PRId64 ",\n"
        "  \"pad_token_id\": 0,\n  \"type_vocab_size\": 2,\n  \"vocab_size\": %" PRId64 "\n}\n",
        shape->hidden, shape->intermediate, shape->positions, shape->heads, shape->layers,
        shape->vocab);
}

/* Add a token, unless the vocabulary is full. */
static void add_token(struct gsv_buffer *to, int64_t *left, const char *prefix, const char *token)
{
    if (*left <= 0)
        return;
    gsv_buffer_format(to, "%s%s\n", prefix, token);
    (*left)--;
}

/* All groups of `n` letters, at the start of a word and inside it. */
static void add_groups(struct gsv_buffer *to, int64_t *left, int n)
{
    const int last = n == 2 ? 26 * 26 : 26 * 26 * 26;

    for (int i = 0; i<last && * left> 0; i++) {
        char token[4] = "";

        for (int k = n - 1, rest = i; k >= 0; k--, rest /= 26)
            token[k] = (char)('a' + rest % 26);
        add_token(to, left, "", token);
        add_token(to, left, "##", token);
    }
}

static void write_vocabulary(struct gsv_buffer *to, const struct gsv_random_shape *shape)
{
    static const char *const special[] = { "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]" };
    int64_t left = shape->vocab;

    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
        add_token(to, &left, "", special[i]);
    for (char c = 'z'; c > ' '; c--) { /* letters first; the text is lowercase */
        const char token[2] = { c, '\0' };
        const bool is_inner = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');

        if (c >= 'A' && c <= 'Z')
            continue;
        add_token(to, &left, "", token);
        if (is_inner)
            add_token(to, &left, "##", token);
    }
    for (char c = '{'; c <= '~'; c++)
        add_token(to, &left, "", (const char[]){ c, '\0' });
    add_groups(to, &left, 2);
    add_groups(to, &left, 3);
}

static void write_tokenizer(struct gsv_buffer *to, const struct gsv_random_shape *shape)
{
    gsv_buffer_format(to,
                      "{\n  \"do_lower_case\": true,\n  \"model_max_length\": %" PRId64
                      ",\n  \"tokenizer_class\": \"BertTokenizer\"\n}\n",
                      shape->positions);
}

gpuserve_status gsv_model_dir_open(struct gsv_dir **dir, const char *path, gpuserve_error *error)
{
    static const struct {
        const char *name;
        void (*write)(struct gsv_buffer *to, const struct gsv_random_shape *shape);
    } files[] = { { "config.json", write_config },
                  { "vocab.txt", write_vocabulary },
                  { "tokenizer_config.json", write_tokenizer } };
    struct gsv_random_shape shape;
    gpuserve_status st;

    *dir = NULL;
    if (!gsv_is_random(path))
        return gsv_dir_open(dir, path, error);
    st = gsv_random_parse(&shape, path, error);
    if (st == GPUSERVE_OK)
        st = gsv_dir_create(dir, path, error);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && st == GPUSERVE_OK; i++) {
        struct gsv_buffer text = { .bytes = NULL };

        files[i].write(&text, &shape);
        if (text.failed)
            gsv_buffer_reset(&text);
        st = gsv_dir_add(*dir, files[i].name, text.bytes, text.size, error);
    }
    if (st != GPUSERVE_OK)
        gsv_dir_close(dir);
    return st;
}
