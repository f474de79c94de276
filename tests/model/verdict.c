/*
 * verdict.c - reports for each file or folder in a folder whether gpuserve accepts it.
 *
 * Usage: verdict safetensors|torch|tokenizer|model DIR < NAMES
 *
 * Prints a line per name: "1" and the result, or "0 STATUS MESSAGE". The result of a tokenizer is
 * the ids of each line of DIR/texts, that of weights the tensors; a model has none. Used
 * by differential_safetensors.py, differential_tokenizer.py, hostile_torch.py, torch_mutants.py and
 * mutants.py, which compare with the reference implementations. Exit code 3 if memory grew more
 * than files of this size may need (safety: T2).
 */
#include "lib/model/formats/formats.h"
#include "lib/model/formats/torch/torch_file.h"
#include "lib/text/tokenizer.h"

#include <gpuserve/gpuserve.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { NAME_BYTES = 256, MAX_TEXTS = 16, MAX_TEXT = 1024, MAX_GROWTH_KIB = 64 * 1024 };

static char texts[MAX_TEXTS][MAX_TEXT];
static size_t n_texts;

/* Prints the number of tensors, then NAME:OFFSET:BYTES of each. Each must be found by its name and
 * lie inside the file. */
static void print_tensors(const struct gsv_weight_file *file)
{
    struct gsv_tensor tensor, found;
    size_t n = 0;

    while (gsv_weight_file_at(file, n, &tensor))
        n++;
    printf("1 %zu", n);
    for (size_t i = 0; gsv_weight_file_at(file, i, &tensor); i++) {
        if (!gsv_weight_file_find(file, tensor.name, &found) || found.offset != tensor.offset ||
            tensor.offset > file->size_bytes ||
            tensor.size_bytes > file->size_bytes - tensor.offset)
            abort();
        putchar(' ');
        for (const char *at = tensor.name; *at; at++) /* a verdict is one line */
            putchar(*at == '\n' ? '?' : *at);
        printf(":%llu:%llu", (unsigned long long)tensor.offset,
               (unsigned long long)tensor.size_bytes);
    }
}

static gpuserve_status try_weights(const struct gsv_dir *dir, const char *name, bool is_torch,
                                   gpuserve_error *error)
{
    struct gsv_weight_file *file = NULL;
    const gpuserve_status status = is_torch ? gsv_torch_file_open(&file, dir, name, error)
                                            : gsv_safetensors_open(&file, dir, name, error);

    if (status == GPUSERVE_OK)
        print_tensors(file);
    gsv_weight_file_close(&file);
    return status;
}

/* As a single text, then as a pair with itself. */
static void print_ids(const struct gsv_tokenizer *tokenizer, const char *text)
{
    const struct gsv_encode_options options = { 0 };
    struct gsv_encoding encoding = { 0 };

    for (int pair = 0; pair < 2; pair++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        const size_t size = strlen(text);

        if (gsv_tokenizer_encode(tokenizer, &encoding, text, size, pair ? text : NULL,
                                 pair ? size : 0, &options, &error) != GPUSERVE_OK)
            printf(" refused");
        for (size_t i = 0; i < encoding.n; i++)
            printf(" %d", encoding.ids[i]);
        printf(" ;");
        gsv_encoding_reset(&encoding);
    }
}

static gpuserve_status try_tokenizer(const char *path, gpuserve_error *error)
{
    struct gsv_tokenizer *tokenizer = NULL;
    struct gsv_dir *dir = NULL;
    gpuserve_status status = gsv_dir_open(&dir, path, error);

    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_load(&tokenizer, dir, NULL, error);
    if (status == GPUSERVE_OK) {
        printf("1");
        for (size_t i = 0; i < n_texts; i++)
            print_ids(tokenizer, texts[i]);
    }
    gsv_tokenizer_free(&tokenizer);
    gsv_dir_close(&dir);
    return status;
}

static gpuserve_status try_model(gpuserve_context *context, const char *path, gpuserve_error *error)
{
    gpuserve_model *model = NULL;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_status status;

    options.device = "cpu";
    status = gpuserve_model_open(&model, context, path, &options, error);

    if (status == GPUSERVE_OK)
        printf("1");
    gpuserve_model_close(&model);
    return status;
}

/* A message may quote bytes of the file: escapes them. */
static void print_error(gpuserve_status status, char *text)
{
    for (char *p = text; *p; p++)
        if (*p == '\n' || *p == '\r')
            *p = ' ';
    printf("0 %d %s", (int)status, text);
}

static void read_texts(const char *folder)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof(path), "%s/texts", folder);
    file = fopen(path, "r");
    if (!file)
        return;
    while (n_texts < MAX_TEXTS && fgets(texts[n_texts], MAX_TEXT, file)) {
        texts[n_texts][strcspn(texts[n_texts], "\n")] = '\0';
        n_texts++;
    }
    fclose(file);
}

static long peak_kib(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

int main(int argc, char **argv)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_context *context = NULL;
    struct gsv_dir *dir = NULL;
    char name[NAME_BYTES], path[4096];
    long before;

    options.n_threads = 1;
    if (argc != 3 || gsv_dir_open(&dir, argv[2], NULL) != GPUSERVE_OK ||
        gpuserve_context_create(&context, &options, NULL) != GPUSERVE_OK)
        return 2;
    read_texts(argv[2]);
    before = peak_kib();
    while (fgets(name, sizeof(name), stdin)) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_status status;

        name[strcspn(name, "\n")] = '\0';
        snprintf(path, sizeof(path), "%s/%s", argv[2], name);
        if (strcmp(argv[1], "safetensors") == 0 || strcmp(argv[1], "torch") == 0)
            status = try_weights(dir, name, argv[1][0] == 't', &error);
        else if (strcmp(argv[1], "tokenizer") == 0)
            status = try_tokenizer(path, &error);
        else
            status = try_model(context, path, &error);
        if (status != GPUSERVE_OK)
            print_error(status, error.message);
        putchar('\n');
    }
    gpuserve_context_unref(&context);
    gsv_dir_close(&dir);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0; /* sanitizers delay frees and use extra memory */
#endif
    return peak_kib() - before > MAX_GROWTH_KIB ? 3 : 0;
}
