/*
 * test_adapters.c - LoRA adapters in directories of their own on the emulated GPU.
 */
#include "tests/kernels_cuda/harness.h"
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static struct gsv_run embed_run(const struct loaded *model, int32_t adapter)
{
    return (struct gsv_run){ .task = GPUSERVE_TASK_EMBED,
                             .dimensions = gsv_spec_facts(model->spec)->dim,
                             .adapter = adapter };
}

/* Texts of the base and of both adapters in one batch, directly and after a recording of another
 * batch of the same shape, have the vectors of each alone. */
Test(cuda_adapters, several_in_one_batch)
{
    enum { N_TEXTS = 4 };
    static const int32_t of[2][N_TEXTS] = { { 0, 1, 1, 2 }, { 1, 2, 2, 2 } };
    static const struct {
        uint32_t dtype;
        double largest;
    } bounds[] = {
        { GPUSERVE_DTYPE_FLOAT32, 1e-5 },
        { GPUSERVE_DTYPE_FLOAT16, 1e-2 },
        { GPUSERVE_DTYPE_INT8, 5e-2 },
    };
    struct texts texts = read_texts(test_data("models/bert/reference.safetensors"));
    struct gsv_adapter_dirs adapters = { .n = 0 };
    char path[1024];

    snprintf(path, sizeof(path), "%s", test_data("models/bert"));
    add_adapter(&adapters, "attention");
    add_adapter(&adapters, "words");
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        const struct load_options options = { .backend = cuda_backend(),
                                              .dtype = bounds[i].dtype,
                                              .max_tokens = 256,
                                              .adapters = &adapters };
        struct loaded model;

        load_model(&model, path, &options);
        for (size_t m = 0; m < 2; m++) {
            struct gsv_run run = embed_run(&model, 0);
            const size_t columns = (size_t)run.dimensions;
            float *got = calloc(N_TEXTS * columns, sizeof(*got));
            float *want = calloc(columns, sizeof(*want));

            run.output = got;
            for (int n = 0; n < 2 && m == 0; n++) /* the second one is recorded */
                run_texts(&model, &texts, 0, N_TEXTS, &run);
            run.adapters = of[m];
            run_texts(&model, &texts, 0, N_TEXTS, &run);
            run.adapters = NULL;
            run.output = want;
            for (size_t text = 0; text < N_TEXTS; text++) {
                run.adapter = of[m][text];
                run_texts(&model, &texts, text, 1, &run);
                cr_expect_leq(distance(got + text * columns, want, columns), bounds[i].largest,
                              "dtype %u, text %zu, adapter %d: %g", bounds[i].dtype, text,
                              run.adapter, distance(got + text * columns, want, columns));
            }
            free(got);
            free(want);
        }
        unload_model(&model);
    }
    close_adapters(&adapters);
    free_texts(&texts);
}

/* The CPU merges; the GPU has two adapters next to the base and runs the second. */
Test(cuda_adapters, by_request_equals_merged)
{
    static const struct {
        uint32_t dtype;
        double cosine, largest;
    } bounds[] = {
        { GPUSERVE_DTYPE_FLOAT32, 0.9999999, 1e-4 },
        { GPUSERVE_DTYPE_FLOAT16, 0.9995, 1.0 },
        { GPUSERVE_DTYPE_INT8, 0.99, 1.0 },
    };
    struct texts texts = read_texts(test_data("models/bert/reference.safetensors"));
    struct gsv_adapter_dirs adapters = { .n = 0 };
    char path[1024], lora[1024];
    struct loaded merged;
    size_t columns;
    double *want;
    float *sum;

    snprintf(path, sizeof(path), "%s", test_data("models/bert"));
    snprintf(lora, sizeof(lora), "%s", test_data("lora/words"));
    add_adapter(&adapters, "attention");
    add_adapter(&adapters, "words");
    load_model(&merged, path, &(struct load_options){ .max_tokens = 256, .lora = lora });
    columns = (size_t)gsv_spec_facts(merged.spec)->dim;
    sum = run_all(&merged, &texts, embed_run(&merged, 0));
    want = calloc(texts.n * columns, sizeof(*want));
    for (size_t i = 0; i < texts.n * columns; i++)
        want[i] = sum[i];
    unload_model(&merged);
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        const struct load_options options = { .backend = cuda_backend(),
                                              .dtype = bounds[i].dtype,
                                              .max_tokens = 256,
                                              .adapters = &adapters };
        struct loaded model;
        struct difference d;
        float *got;

        load_model(&model, path, &options);
        got = run_all(&model, &texts, embed_run(&model, 2));
        d = compare_rows(got, want, texts.n, columns);
        cr_expect(d.min_cosine >= bounds[i].cosine, "dtype %u: cosine %.9f", bounds[i].dtype,
                  d.min_cosine);
        cr_expect(d.largest <= bounds[i].largest, "dtype %u: difference %g", bounds[i].dtype,
                  d.largest);
        free(got);
        unload_model(&model);
    }
    free(sum);
    free(want);
    close_adapters(&adapters);
    free_texts(&texts);
}
