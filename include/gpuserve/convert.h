/*
 * gpuserve/convert.h - writes a model's directory with weights of another type, and measures what
 * the change costs. <gpuserve/gpuserve.h> includes this header.
 */
#ifndef GPUSERVE_CONVERT_H
#define GPUSERVE_CONVERT_H

#include <gpuserve/model.h>
#include <gpuserve/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Value of gpuserve_convert_options.prune: of each four adjacent values of a row, the two with the
 *  smaller magnitudes become zero. The pattern that sparse tensor cores of NVIDIA GPUs accept; a matrix
 *  whose rows are no multiple of four stays dense. */
#define GPUSERVE_PRUNE_2_4 UINT32_C(0x204)

/** Options of gpuserve_convert(). Zero means the default in every field but dtype. */
typedef struct gpuserve_convert_options {
    uint32_t             struct_size;
    uint32_t             dtype;          /**< type of the weights: GPUSERVE_DTYPE_FLOAT32, FLOAT16,
                                              BFLOAT16 or INT8 (docs/converting.md) */
    uint32_t             force;          /**< 1: replace an existing output directory */
    uint32_t             prune;          /**< pruning of the matrices of the layers: percent of each one's
                                              values to set to zero, those with the smallest magnitudes, 1
                                              to 95; or GPUSERVE_PRUNE_2_4; default none */
    uint64_t             max_file_bytes; /**< max bytes of the tensors in a file, unless one tensor is
                                              larger; larger weights are sharded; default 5 GB */
    gpuserve_progress_fn progress;       /**< stage GPUSERVE_STAGE_CONVERT in bytes read; other stages
                                              while the models are loaded. A nonzero result cancels.
                                              May be NULL */
    void                *progress_user;
} gpuserve_convert_options;

/* clang-format off */
#define GPUSERVE_CONVERT_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_convert_options), 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** The outcome of a conversion. The accuracy is measured: both directories are loaded in float32 on
 *  the CPU and compute the library's built-in probe texts, short and odd ones among them. */
typedef struct gpuserve_convert_report {
    uint32_t struct_size;
    uint32_t dtype;            /**< gpuserve_dtype of the weights written */
    uint32_t task;             /**< what was compared: GPUSERVE_TASK_EMBED; SPARSE for a model with
                                    sparse vectors only; else TOKEN_VECTORS */
    uint32_t n_probes;         /**< number of texts */
    double   cosine_mean;      /**< mean over the texts of the cosine similarity of both vectors */
    double   cosine_min;       /**< the lowest one */
    double   score_difference; /**< largest difference of a label's score; 0 without labels of texts */
    uint64_t bytes_before;     /**< of the tensors read */
    uint64_t bytes_after;      /**< of the tensors written, scales included */
    uint64_t n_tensors;        /**< number of tensors written, scales not counted */
    uint64_t n_quantized;      /**< of them, tensors written as int8 */
    double   seconds;          /**< time of the call */
    uint64_t n_pruned;         /**< number of tensors pruned */
    uint64_t pruned_values;    /**< their values */
    uint64_t zero_values;      /**< of them, zeros after pruning */
} gpuserve_convert_report;

/* clang-format off */
#define GPUSERVE_CONVERT_REPORT_INIT { (uint32_t)sizeof(gpuserve_convert_report), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Convert the weights of a model. The output is an ordinary Hugging Face directory: configuration,
 * tokenizer, modules and documents are copied unchanged, the weights of the transformer and of Dense
 * modules are written as safetensors, and gpuserve-convert.json has the report. With INT8 the
 * matrices of the transformer are int8 with a scale for each row, which gpuserve reads and other
 * programs do not; everything else is float32. With options->prune weights are set to zero before they
 * are converted; the file formats stay dense, so the size and the speed do not change.
 *
 * The output directory appears at once and complete: it is written and loaded under a temporary name
 * next to it, and renamed. After any failure or cancellation nothing remains, and an existing
 * directory is unchanged. A killed process may leave a hidden directory ".NAME.partial-...".
 *
 * @param context  Loads the models for the comparison; NULL: a private one.
 * @param path     A directory or a name, as in gpuserve_model_open(): any model that it loads and that
 *                 has a config.json.
 * @param output   Path of the directory to create; its parent exists. With options->force an existing
 *                 one is replaced if it is empty or a model's directory.
 * @param report   Receives the outcome; may be NULL.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID     an invalid option; `output` exists, or is or contains the model
 *         GPUSERVE_E_FORMAT      a value is NaN, infinite, or outside the range of the type (float16:
 *                                over 65504): the message names the tensor
 *         GPUSERVE_E_IO          writing failed, for example on a full disk
 *         GPUSERVE_E_CANCELLED   by the progress callback
 *         GPUSERVE_E_TOO_LARGE   over a memory budget
 *         GPUSERVE_E_NUMERIC     the converted model computes NaN
 *         as gpuserve_model_open() for a model that cannot be loaded
 *
 * Thread-safety: safe. Not from a callback. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_convert(gpuserve_context *context, const char *path, const char *output,
                 const gpuserve_convert_options *options, gpuserve_convert_report *report,
                 gpuserve_error *error);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_CONVERT_H */
