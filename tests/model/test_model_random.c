/*
 * test_model_random.c - random models: shapes that are refused, files in memory, and weights that
 * do not depend on how they are read.
 */
#include "lib/base/philox.h"
#include "lib/model/formats/checkpoint.h"
#include "lib/model/formats/formats.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static gpuserve_error error;

static void begin(void)
{
    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
}

static struct gsv_random_shape parse(const char *path)
{
    struct gsv_random_shape shape;

    cr_assert_eq(gsv_random_parse(&shape, path, &error), GPUSERVE_OK, "%s", error.message);
    return shape;
}

Test(model_random, names_and_keys_make_shapes, .init = begin)
{
    struct gsv_random_shape shape = parse("random:bert-large,seed=9223372036854775807");

    cr_expect(shape.layers == 24 && shape.hidden == 1024 && shape.heads == 16 &&
              shape.intermediate == 4096 && shape.vocab == 30522 && shape.positions == 512 &&
              shape.seed == INT64_MAX);
    shape = parse("random:bert-base,hidden=256");
    cr_expect(shape.layers == 12 && shape.heads == 4 && shape.intermediate == 1024);
    shape = parse("random:hidden=48,heads=6,layers=1,intermediate=20,vocab=16,positions=8");
    cr_expect(shape.hidden == 48 && shape.heads == 6 && shape.intermediate == 20 &&
              shape.vocab == 16 && shape.positions == 8 && shape.seed == 0);
    cr_expect_eq(parse("random:minilm-l6").heads, 12);
    cr_expect_eq(parse("random:hidden=32").heads, 1);
    parse("random:layers=512,hidden=65536,intermediate=65536,vocab=16777216,positions=1048576");
}

Test(model_random, impossible_shapes_are_named_with_their_limits, .init = begin)
{
    static const struct {
        const char *path, *says;
    } bad[] = {
        { "random:", "\"\" is not the name of a shape" },
        { "random:bert-huge", "\"bert-huge\" is not the name of a shape" },
        { "random:bert-base,", "\"\" is not KEY=N" },
        { "random:bert-base,tiny", "\"tiny\" is not KEY=N" },
        { "random:depth=3", "\"depth\" is not a key" },
        { "random:=3", "\"\" is not a key" },
        { "random:layers=", "\"layers=\" is not a key with a whole number" },
        { "random:layers=-1", "is not a key with a whole number" },
        { "random:layers=1e3", "is not a key with a whole number" },
        { "random:layers=2,layers=3", "\"layers\" is given twice" },
        { "random:layers=0", "layers is 0, outside 1 to 512" },
        { "random:layers=513", "layers is 513, outside 1 to 512" },
        { "random:layers=18446744073709551617",
          "layers is 18446744073709551617, outside 1 to 512" },
        { "random:seed=9223372036854775808", "is not a key with a whole number" },
        { "random:hidden=65537", "outside 1 to 65536" },
        { "random:hidden=20000", "intermediate is 4 * hidden = 80000, the limit is 65536" },
        { "random:vocab=15", "outside 16 to 16777216" },
        { "random:positions=7", "outside 8 to 1048576" },
        { "random:heads=7", "heads is 7, which does not divide hidden, 768" },
        { "random:hidden=100,heads=3", "heads is 3, which does not divide hidden, 100" },
        { "random:hidden=4,heads=8", "heads is 8, which does not divide hidden, 4" },
    };
    struct gsv_random_shape shape;
    char long_path[400];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_expect_eq(gsv_random_parse(&shape, bad[i].path, &error), GPUSERVE_E_INVALID, "%s",
                     bad[i].path);
        cr_expect(strstr(error.message, bad[i].says), "%s: %s", bad[i].path, error.message);
        cr_expect(strstr(error.message, bad[i].path), "%s", error.message);
    }
    memset(long_path, 'x', sizeof(long_path) - 1);
    memcpy(long_path, "random:", 7);
    long_path[sizeof(long_path) - 1] = '\0';
    cr_expect_eq(gsv_random_parse(&shape, long_path, &error), GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "longer than 256 bytes"), "%s", error.message);
}

Test(model_random, its_files_are_in_memory, .init = begin)
{
    struct gsv_dir *dir;
    struct gsv_names names;
    uint64_t size;
    char *text;
    size_t n;
    int fd;

    cr_assert_eq(gsv_model_dir_open(&dir, "random:bert-tiny,vocab=100", &error), GPUSERVE_OK);
    cr_expect(gsv_dir_has(dir, "config.json") && gsv_dir_has(dir, "vocab.txt"));
    cr_expect_not(gsv_dir_has(dir, "modules.json"));
    cr_assert_eq(gsv_dir_list(dir, "", &names, &error), GPUSERVE_OK);
    cr_expect_eq(names.n, 3);
    cr_expect_str_eq(names.names[0], "config.json");
    gsv_names_free(&names);
    cr_expect_eq(gsv_dir_list(dir, "vocab.txt", &names, &error), GPUSERVE_E_INVALID);
    cr_expect_eq(gsv_dir_list(dir, "1_Pooling", &names, &error), GPUSERVE_E_NOT_FOUND);
    cr_assert_eq(gsv_dir_read(dir, "vocab.txt", 1 << 20, &text, &n, &error), GPUSERVE_OK);
    cr_expect_eq(strstr(text, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nz\n##z\n"), text);
    cr_assert_eq(gsv_dir_open_file(dir, "vocab.txt", &fd, &size, &error), GPUSERVE_OK);
    cr_expect_eq(size, n);
    close(fd);
    free(text);
    cr_expect_eq(gsv_dir_read(dir, "vocab.txt", 10, &text, &n, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_eq(gsv_dir_read(dir, "x", 10, &text, &n, &error), GPUSERVE_E_NOT_FOUND);
    cr_expect_eq(gsv_dir_read(dir, "../x", 10, &text, &n, &error), GPUSERVE_E_INVALID);
    gsv_dir_close(&dir);
}

static void open_weights(struct gsv_checkpoint *weights, const char *path)
{
    struct gsv_dir *dir;

    cr_assert_eq(gsv_model_dir_open(&dir, path, &error), GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gsv_checkpoint_open(weights, dir, "", &error), GPUSERVE_OK, "%s", error.message);
    gsv_dir_close(&dir);
}

static struct gsv_tensor find(const struct gsv_checkpoint *weights, const char *name)
{
    struct gsv_tensor tensor;

    cr_assert(gsv_checkpoint_find(weights, name, &tensor), "%s", name);
    return tensor;
}

static float *read_values(const struct gsv_tensor *tensor, uint64_t first, size_t n)
{
    float *values = malloc(n * sizeof(*values));

    cr_assert(values);
    cr_assert_eq(gsv_tensor_fetch(tensor, first, n, values, &error), GPUSERVE_OK);
    return values;
}

Test(model_random, weights_are_the_sequence_at_the_tensors_offset, .init = begin)
{
    struct gsv_checkpoint weights;
    struct gsv_tensor tensor, *all;
    float *whole, *part;
    uint32_t words[4];
    size_t n;

    open_weights(&weights, "random:layers=3,hidden=60,heads=6,seed=5");
    cr_assert_eq(gsv_checkpoint_list(&weights, &all, &n, &error), GPUSERVE_OK);
    cr_expect_eq(n, 5 + 3 * 16);
    free(all);
    cr_expect_not(gsv_checkpoint_find(&weights, "encoder.layer.3.output.dense.weight", &tensor));
    tensor = find(&weights, "encoder.layer.1.intermediate.dense.weight");
    cr_expect(tensor.rank == 2 && tensor.shape[0] == 240 && tensor.shape[1] == 60);
    whole = read_values(&tensor, 0, (size_t)tensor.count);
    for (size_t first = 1; first < 1000; first += 333) { /* not at borders of blocks */
        part = read_values(&tensor, first, 97);
        cr_expect_arr_eq(part, whole + first, 97 * sizeof(*part));
        free(part);
    }
    gsv_philox_at(words, 5, (tensor.offset / 4 + 100) / 4);
    cr_expect_eq(whole[100],
                 gsv_philox_uniform(words[(tensor.offset / 4 + 100) % 4], 0.034641016f));
    free(whole);
    tensor = find(&weights, "embeddings.LayerNorm.weight");
    cr_expect(tensor.rank == 1 && tensor.shape[0] == 60);
    part = read_values(&tensor, 0, 60);
    cr_expect(part[0] == 1.0f && part[59] == 1.0f);
    free(part);
    tensor = find(&weights, "encoder.layer.2.output.LayerNorm.bias");
    part = read_values(&tensor, 0, 60);
    cr_expect(part[0] == 0.0f && part[59] == 0.0f);
    free(part);
    gsv_checkpoint_close(&weights);
}

Test(model_random, the_seed_changes_all_weights, .init = begin)
{
    struct gsv_checkpoint a, b;
    struct gsv_tensor tensor;
    float *x, *y;
    int n_equal = 0;

    open_weights(&a, "random:bert-tiny,seed=1");
    open_weights(&b, "random:bert-tiny,seed=4294967297"); /* differs in the upper half alone */
    tensor = find(&a, "embeddings.word_embeddings.weight");
    x = read_values(&tensor, 0, 1000);
    tensor = find(&b, "embeddings.word_embeddings.weight");
    y = read_values(&tensor, 0, 1000);
    for (int i = 0; i < 1000; i++)
        n_equal += x[i] == y[i];
    cr_expect_lt(n_equal, 3);
    free(x);
    free(y);
    gsv_checkpoint_close(&a);
    gsv_checkpoint_close(&b);
}
