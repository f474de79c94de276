/*
 * accuracy.c - the vectors of a model directory on the built-in probe texts, to compare two
 * directories.
 *
 *   open in float32 on the CPU -> probe texts as token ids -> embeddings, sparse or token vectors
 *                                                          -> scores, if texts have labels
 *
 * The probes are those of int8 models: ordinary, short, odd and repeated texts.
 */
#include "lib/runtime/convert/convert.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/int8/int8.h"
#include "lib/runtime/models/handle.h"
#include "lib/runtime/models/load_steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The probes as token ids with the offsets of a job. */
struct probes {
    struct gsv_calibration ids;
    size_t *offsets; /* [n + 1] */
    size_t n, n_tokens;
};

static gpuserve_status make_probes(struct probes *probes, gpuserve_model *handle,
                                   gpuserve_error *error)
{
    struct gsv_model *model;
    gpuserve_status st = gsv_handle_pin(handle, &model, error);

    if (st != GPUSERVE_OK)
        return st;
    st = gsv_calibration_make_probes(&probes->ids, &model->plan, error);
    gsv_handle_unpin(handle, &model);
    if (st != GPUSERVE_OK)
        return st;
    probes->n = (size_t)probes->ids.batch.n_sequences;
    probes->n_tokens = (size_t)probes->ids.batch.n_tokens;
    probes->offsets = gsv_alloc_array(probes->n + 1, sizeof(*probes->offsets));
    if (!probes->offsets)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the probe texts");
    for (size_t i = 0; i <= probes->n; i++)
        probes->offsets[i] = (size_t)probes->ids.batch.cu_seqlens[i];
    return GPUSERVE_OK;
}

static gpuserve_job job_of(const struct probes *probes, uint32_t task)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.task = task;
    job.n_items = probes->n;
    job.ids = probes->ids.batch.ids;
    job.id_offsets = probes->offsets;
    job.cache = GPUSERVE_CACHE_OFF;
    return job;
}

/* The task whose vectors are compared, and their columns. */
static uint32_t choose_task(const gpuserve_model *model, size_t *columns)
{
    const gpuserve_model_properties *properties = &atomic_load(&model->info)->properties;

    *columns = properties->dim;
    if (*columns > 0)
        return GPUSERVE_TASK_EMBED;
    *columns = properties->sparse_dim;
    if (*columns > 0)
        return GPUSERVE_TASK_SPARSE;
    *columns = properties->token_dim;
    return GPUSERVE_TASK_TOKEN_VECTORS;
}

static gpuserve_status run_vectors(struct gsv_probe_results *results, gpuserve_model *model,
                                   const struct probes *probes, gpuserve_error *error)
{
    gpuserve_job job;
    size_t columns, rows;

    results->n = probes->n;
    results->task = choose_task(model, &columns);
    rows = results->task == GPUSERVE_TASK_TOKEN_VECTORS ? probes->n_tokens : probes->n;
    if (!gsv_mul_size(rows, columns, &rows))
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "the vectors of the probe texts are too large");
    job = job_of(probes, results->task);
    results->vectors = gsv_alloc_array(rows, sizeof(float));
    results->offsets = gsv_alloc_array(probes->n + 1, sizeof(*results->offsets));
    if (!results->vectors || !results->offsets)
        return gsv_fail(error, GPUSERVE_E_NOMEM,
                        "out of memory for the vectors of the probe texts");
    for (size_t i = 0; i <= probes->n; i++)
        results->offsets[i] =
            columns * (results->task == GPUSERVE_TASK_TOKEN_VECTORS ? probes->offsets[i] : i);
    job.output = results->vectors;
    job.output_capacity = rows;
    return gpuserve_run(model, &job, error);
}

static gpuserve_status run_scores(struct gsv_probe_results *results, gpuserve_model *model,
                                  const struct probes *probes, gpuserve_error *error)
{
    gpuserve_job job = job_of(probes, GPUSERVE_TASK_CLASSIFY);
    struct gsv_model *pinned;
    gpuserve_status st = gsv_handle_pin(model, &pinned, error);

    if (st != GPUSERVE_OK)
        return st;
    results->n_labels = gsv_classifies(pinned->plan.facts) ? pinned->plan.facts->n_labels : 0;
    gsv_handle_unpin(model, &pinned);
    if (results->n_labels == 0)
        return GPUSERVE_OK;
    results->scores = gsv_alloc_array(probes->n * results->n_labels, sizeof(float));
    if (!results->scores)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the scores of the probe texts");
    job.output = results->scores;
    job.output_capacity = probes->n * results->n_labels;
    return gpuserve_run(model, &job, error);
}

gpuserve_status gsv_probe_results_make(struct gsv_probe_results *results, gpuserve_context *context,
                                       const char *path, const char *name,
                                       const gpuserve_convert_options *options,
                                       gpuserve_error *error)
{
    gpuserve_model_options how = GPUSERVE_MODEL_OPTIONS_INIT;
    struct probes probes = { .offsets = NULL };
    gpuserve_model *model = NULL;
    gpuserve_status st;

    memset(results, 0, sizeof(*results));
    how.device = "cpu";
    how.dtype = GPUSERVE_DTYPE_FLOAT32;
    how.warmup = GPUSERVE_WARMUP_OFF;
    how.name = name;
    how.version = path; /* the pair is unique in the context */
    how.progress = options->progress;
    how.progress_user = options->progress_user;
    st = gpuserve_model_open(&model, context, path, &how, error);
    if (st == GPUSERVE_OK)
        st = make_probes(&probes, model, error);
    if (st == GPUSERVE_OK)
        st = run_vectors(results, model, &probes, error);
    if (st == GPUSERVE_OK)
        st = run_scores(results, model, &probes, error);
    free(probes.offsets);
    gsv_calibration_reset(&probes.ids);
    gpuserve_model_close(&model);
    if (st != GPUSERVE_OK)
        gsv_probe_results_reset(results);
    return st;
}

void gsv_probe_results_reset(struct gsv_probe_results *results)
{
    free(results->vectors);
    free(results->offsets);
    free(results->scores);
    memset(results, 0, sizeof(*results));
}

gpuserve_status gsv_probe_results_compare(const struct gsv_probe_results *a,
                                          const struct gsv_probe_results *b,
                                          gpuserve_convert_report *report, gpuserve_error *error)
{
    double sum = 0.0, min = 1.0, difference = 0.0;

    if (a->task != b->task || a->n != b->n || a->n == 0 || a->offsets[a->n] != b->offsets[b->n] ||
        a->n_labels != b->n_labels)
        return gsv_fail(error, GPUSERVE_E_INTERNAL, "the converted model has another shape");
    for (size_t i = 0; i < a->n; i++) {
        const size_t begin = a->offsets[i];
        const double cosine = (double)gsv_vector_cosine(a->vectors + begin, b->vectors + begin,
                                                        a->offsets[i + 1] - begin);

        sum += cosine;
        min = fmin(min, cosine);
    }
    for (size_t i = 0; i < a->n * a->n_labels; i++)
        difference = fmax(difference, fabs((double)a->scores[i] - (double)b->scores[i]));
    report->task = a->task;
    report->n_probes = (uint32_t)a->n;
    report->cosine_mean = fmin(1.0, sum / (double)a->n);
    report->cosine_min = min;
    report->score_difference = difference;
    return GPUSERVE_OK;
}
