/*
 * convert.c - writes a model's directory with weights of another type, and measures the change.
 *
 *   input: probes -> output under a temporary name: files, weights, Dense modules -> its probes
 *   -> report -> rename
 *
 * The models are open one after the other, so the peak of memory is one model in float32.
 */
#define _GNU_SOURCE
#include "lib/runtime/convert/convert.h"
#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/model/formats/checkpoint_writer.h"
#include "lib/model/formats/formats.h"
#include "lib/model/formats/lora.h"
#include "lib/model/modules/modules.h"
#include "lib/runtime/core/context.h"
#include "lib/runtime/plan/load_plan.h"
#include "lib/runtime/plan/model_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_FILE_BYTES ((uint64_t)5000000000u)

/* A conversion in progress. */
struct conversion {
    gpuserve_context *context;
    gpuserve_convert_options options;
    gpuserve_convert_report report;
    char *input; /* directory; owned */
    struct gsv_dir *dir;
    struct gsv_modules modules;
    const char *folders[2 + GSV_MAX_STEPS]; /* of weights; borrowed from `modules` */
    int32_t n_folders;
    struct gsv_checkpoint weights[2 + GSV_MAX_STEPS];
    struct gsv_output_dir output;
    struct gsv_pruning pruning;
    uint64_t done, total; /* bytes of tensors */
};

static gpuserve_status read_options(struct conversion *c, const gpuserve_convert_options *given,
                                    gpuserve_error *error)
{
    gpuserve_convert_options *options = &c->options;
    const gpuserve_status st =
        gsv_read_struct(options, sizeof(*options), given, "gpuserve_convert_options", error);

    if (st != GPUSERVE_OK)
        return st;
    if (options->dtype != GPUSERVE_DTYPE_FLOAT32 && options->dtype != GPUSERVE_DTYPE_FLOAT16 &&
        options->dtype != GPUSERVE_DTYPE_BFLOAT16 && options->dtype != GPUSERVE_DTYPE_INT8)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "dtype is %s: weights are float32, float16, bfloat16 or int8",
                        gsv_dtype_name(options->dtype));
    if (options->force > 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "force is %u, neither 0 nor 1", options->force);
    if (options->prune > GSV_PRUNE_MAX_PERCENT && options->prune != GPUSERVE_PRUNE_2_4)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "prune is %u: it is a percentage from 1 to %d, or GPUSERVE_PRUNE_2_4",
                        options->prune, GSV_PRUNE_MAX_PERCENT);
    if (options->max_file_bytes == 0)
        options->max_file_bytes = DEFAULT_FILE_BYTES;
    return GPUSERVE_OK;
}

/* ---------------------------------------------------------------------------------------- input */

/* The transformer's folder is the first one. */
static void list_folders(struct conversion *c)
{
    c->folders[c->n_folders++] = c->modules.transformer;
    if (c->modules.layer_weights.folder)
        c->folders[c->n_folders++] = c->modules.layer_weights.folder;
    if (c->modules.words.folder)
        c->folders[c->n_folders++] = c->modules.words.folder;
    for (int32_t i = 0; i < c->modules.n_steps; i++)
        if (c->modules.steps[i].folder)
            c->folders[c->n_folders++] = c->modules.steps[i].folder;
}

static gpuserve_status fail_no_config(const struct conversion *c, gpuserve_error *error)
{
    const char *folder = c->modules.transformer;
    const gpuserve_status st =
        gsv_fail(error, GPUSERVE_E_NOT_FOUND,
                 "%s/%s%sconfig.json: no such file; the output needs a copy of it", c->input,
                 folder, *folder ? "/" : "");

    return gsv_hint(error, st, "convert reads the directory of a model: " GSV_MODEL_DIRECTORY_HINT);
}

/* The output of a GGUF file would lack what is only in its key-values. */
static gpuserve_status fail_gguf(const struct conversion *c, gpuserve_error *error)
{
    const gpuserve_status st =
        gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                 "%s: the model is a GGUF file, without the config.json and the tokenizer that the "
                 "output needs",
                 c->input);

    return gsv_hint(error, st, "convert the directory that the GGUF file was made from");
}

/* The output would have the class of the base in config.json. */
static gpuserve_status fail_class(const struct conversion *c, gpuserve_error *error)
{
    const gpuserve_status st =
        gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                 "%s: convert does not support the LoRA adapter of a classifier", c->input);

    return gsv_hint(error, st, "use PEFT's merge_and_unload(), and save the result");
}

static gpuserve_status open_input(struct conversion *c, gpuserve_error *error)
{
    const char *class_end = NULL;
    gpuserve_status st = gsv_hub_open(c->context->hub, &c->dir, c->input, error);

    if (st == GPUSERVE_OK && gsv_dir_gguf(c->dir))
        st = fail_gguf(c, error);
    if (st == GPUSERVE_OK)
        st = gsv_lora_class(&class_end, c->dir, error);
    if (class_end)
        st = fail_class(c, error);
    if (st == GPUSERVE_OK)
        st = gsv_modules_read(&c->modules, c->dir, error);
    if (st == GPUSERVE_OK && !c->modules.is_static && !c->modules.words.present &&
        !gsv_dir_has_in(c->dir, c->modules.transformer, "config.json"))
        st = fail_no_config(c, error);
    if (st == GPUSERVE_OK && c->modules.n_routes > 0)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      "%s: convert does not support the folders of a Router module", c->input);
    if (st == GPUSERVE_OK)
        list_folders(c);
    for (int32_t i = 0; i < c->n_folders && st == GPUSERVE_OK; i++) {
        uint64_t bytes = 0;

        st = gsv_checkpoint_open(&c->weights[i], c->dir, c->folders[i], error);
        if (st == GPUSERVE_OK)
            st = gsv_checkpoint_bytes(&c->weights[i], &bytes, error);
        c->total += bytes;
    }
    return st;
}

/* --------------------------------------------------------------------------------------- output */

static int32_t count(void *user, uint64_t bytes)
{
    struct conversion *c = user;

    c->done += bytes;
    if (!c->options.progress)
        return 0;
    return c->options.progress(c->options.progress_user, GPUSERVE_STAGE_CONVERT, c->done, c->total);
}

/* Weights 0 are the transformer's, the others those of other modules, which work on the
 * final vectors: they are never int8. */
static enum gsv_tensor_type type_of(const struct conversion *c, int32_t i)
{
    switch (c->options.dtype) {
    case GPUSERVE_DTYPE_FLOAT16:
        return GSV_TENSOR_F16;
    case GPUSERVE_DTYPE_BFLOAT16:
        return GSV_TENSOR_BF16;
    case GPUSERVE_DTYPE_INT8:
        return i == 0 ? GSV_TENSOR_I8_ROWS : GSV_TENSOR_F32;
    default:
        return GSV_TENSOR_F32;
    }
}

static gpuserve_status write_weights(struct conversion *c, gpuserve_error *error)
{
    struct gsv_pruning *const pruning = c->options.prune > 0 ? &c->pruning : NULL;
    struct gsv_write_facts facts = { 0 };
    gpuserve_status st = GPUSERVE_OK;

    if (pruning) {
        pruning->percent = c->options.prune == GPUSERVE_PRUNE_2_4 ? 0 : c->options.prune;
        pruning->counts = gsv_alloc_array(GSV_PRUNE_BUCKETS, sizeof(*pruning->counts));
        if (!pruning->counts)
            return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for pruning");
    }

    for (int32_t i = 0; i < c->n_folders && st == GPUSERVE_OK; i++) {
        const struct gsv_write_options options = { .type = type_of(c, i),
                                                   .max_file_bytes = c->options.max_file_bytes,
                                                   .pruning = i == 0 ? pruning : NULL,
                                                   .progress = count,
                                                   .progress_user = c };
        char shown[GSV_FILE_NAME_BYTES];
        int fd = -1;

        snprintf(shown, sizeof(shown), "%s/%s", c->output.path, c->folders[i]);
        st = gsv_output_folder(&c->output, c->folders[i], &fd, error);
        if (st == GPUSERVE_OK)
            st = gsv_checkpoint_write(&c->weights[i], fd, *c->folders[i] ? shown : c->output.path,
                                      &options, &facts, error);
        if (fd >= 0)
            close(fd);
    }
    c->report.bytes_before = facts.bytes_before;
    c->report.bytes_after = facts.bytes_after;
    c->report.n_tensors = facts.n_tensors;
    c->report.n_quantized = facts.n_quantized;
    c->report.n_pruned = c->pruning.n_matrices;
    c->report.pruned_values = c->pruning.n_values;
    c->report.zero_values = c->pruning.n_zeros;
    return st;
}

/* --------------------------------------------------------------------------------------- report */

static const char *task_name(uint32_t task)
{
    return task == GPUSERVE_TASK_EMBED    ? "embeddings"
           : task == GPUSERVE_TASK_SPARSE ? "sparse vectors"
                                          : "token vectors";
}

/* jansson writes reals with a point in every locale. */
static char *report_text(const struct conversion *c)
{
    const gpuserve_convert_report *r = &c->report;
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I}", "format",
        "gpuserve-convert-1", "dtype", gsv_dtype_name(r->dtype), "compared", task_name(r->task),
        "probes", (int)r->n_probes, "cosine_mean", r->cosine_mean, "cosine_min", r->cosine_min,
        "score_difference", r->score_difference, "bytes_before", (json_int_t)r->bytes_before,
        "bytes_after", (json_int_t)r->bytes_after, "tensors", (json_int_t)r->n_tensors,
        "tensors_int8", (json_int_t)r->n_quantized, "seconds", r->seconds, "tensors_pruned",
        (json_int_t)r->n_pruned, "pruned_values", (json_int_t)r->pruned_values, "zero_values",
        (json_int_t)r->zero_values);
    char *text = gsv_json_dump(json, JSON_INDENT(2) | JSON_REAL_PRECISION(9));

    json_decref(json);
    return text;
}

static gpuserve_status write_report(const struct conversion *c, gpuserve_error *error)
{
    char *text = report_text(c);
    int fd = -1;
    gpuserve_status st;

    if (!text)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory for the report",
                        c->output.path);
    st = gsv_create_file(&fd, c->output.fd, GSV_CONVERT_REPORT_NAME, c->output.path, error);
    if (st == GPUSERVE_OK)
        st = gsv_fd_write(fd, text, strlen(text), 0, c->output.path, error);
    if (st == GPUSERVE_OK)
        st = gsv_fd_write(fd, "\n", 1, strlen(text), c->output.path, error);
    free(text);
    return gsv_finish_file(fd, st, c->output.path, GSV_CONVERT_REPORT_NAME, error);
}

/* ----------------------------------------------------------------------------------------- call */

static gpuserve_status convert(struct conversion *c, const char *output, gpuserve_error *error)
{
    const uint64_t began = gsv_now_ns();
    struct gsv_probe_results before, after = { 0 };
    gpuserve_status st =
        gsv_probe_results_make(&before, c->context, c->input, "convert: input", &c->options, error);

    if (st != GPUSERVE_OK)
        return st;
    st = gsv_output_begin(&c->output, output, c->options.force == 1, error);
    if (st == GPUSERVE_OK)
        st = gsv_copy_files(c->dir, &c->output, error);
    if (st == GPUSERVE_OK)
        st = write_weights(c, error);
    if (st == GPUSERVE_OK)
        st = gsv_probe_results_make(&after, c->context, c->output.temporary, "convert: output",
                                    &c->options, error);
    if (st == GPUSERVE_OK)
        st = gsv_probe_results_compare(&before, &after, &c->report, error);
    c->report.dtype = c->options.dtype;
    c->report.seconds = (double)(gsv_now_ns() - began) * 1e-9;
    if (st == GPUSERVE_OK)
        st = write_report(c, error);
    if (st == GPUSERVE_OK && count(c, 0) != 0) /* a last chance to cancel */
        st =
            gsv_fail(error, GPUSERVE_E_CANCELLED, "the progress callback cancelled the conversion");
    if (st == GPUSERVE_OK)
        st = gsv_output_end(&c->output, error);
    gsv_probe_results_reset(&before);
    gsv_probe_results_reset(&after);
    return st;
}

static void conversion_reset(struct conversion *c)
{
    gsv_output_abandon(&c->output);
    free(c->pruning.counts);
    for (size_t i = 0; i < sizeof(c->weights) / sizeof(c->weights[0]); i++)
        gsv_checkpoint_close(&c->weights[i]);
    gsv_modules_reset(&c->modules);
    gsv_dir_close(&c->dir);
    free(c->input);
    gpuserve_context_unref(&c->context);
}

/* The caller's context with a reference, or a private one. */
static gpuserve_status take_context(struct conversion *c, gpuserve_context *context,
                                    gpuserve_error *error)
{
    gpuserve_status st;

    if (!context)
        return gpuserve_context_create(&c->context, NULL, error);
    st = gsv_context_check(context, error);
    if (st == GPUSERVE_OK)
        c->context = gpuserve_context_ref(context);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_convert(gpuserve_context *context, const char *model,
                                              const char *output,
                                              const gpuserve_convert_options *options,
                                              gpuserve_convert_report *report,
                                              gpuserve_error *error)
{
    struct conversion c = { .output = { .fd = -1 } };
    gpuserve_status st = read_options(&c, options, error);

    if (st == GPUSERVE_OK && report)
        st = gsv_check_struct(report, sizeof(*report), "gpuserve_convert_report", error);
    if (st == GPUSERVE_OK)
        st = take_context(&c, context, error);
    if (st == GPUSERVE_OK)
        st = gsv_hub_find(c.context->hub, model, &c.input, error);
    if (st == GPUSERVE_OK)
        st = gsv_output_check(output, c.input, c.options.force == 1, error);
    if (st == GPUSERVE_OK)
        st = open_input(&c, error);
    if (st == GPUSERVE_OK)
        st = convert(&c, output, error);
    if (st == GPUSERVE_OK && report) {
        c.report.struct_size = report->struct_size;
        memcpy(report, &c.report, sizeof(c.report));
    }
    conversion_reset(&c);
    return st;
}
