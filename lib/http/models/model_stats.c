/*
 * model_stats.c - reads the library's batch statistics and subtracts the baseline.
 *
 * The baseline is taken once, before the model starts to serve; after that it is read-only. So any
 * thread may read the statistics.
 */
#include "lib/http/models/model_registry.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>

enum { MORE_ROWS = 8 }; /* capacity for batch sizes that appear between the two reads */

void gsv_batches_free(struct gsv_batches *batches)
{
    free(batches->rows);
    *batches = (struct gsv_batches){ 0 };
}

static gpuserve_status read_batches(struct gsv_batches *to, gpuserve_model *model,
                                    gpuserve_error *error)
{
    size_t n = 0, capacity;
    gpuserve_status st = gpuserve_model_batches(model, NULL, 0, &n, error);

    *to = (struct gsv_batches){ 0 };
    if (st != GPUSERVE_OK)
        return st;
    capacity = n + MORE_ROWS;
    to->rows = gsv_alloc_array(capacity, sizeof(to->rows[0]));
    if (!to->rows)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu sizes of batches", n);
    to->rows[0].struct_size = sizeof(to->rows[0]);
    st = gpuserve_model_batches(model, to->rows, capacity, &n, error);
    to->n = n < capacity ? n : capacity;
    if (st != GPUSERVE_OK)
        gsv_batches_free(to);
    return st;
}

gpuserve_status gsv_served_begin_stats(struct gsv_served *served, gpuserve_error *error)
{
    const gpuserve_model_counts none = GPUSERVE_MODEL_COUNTS_INIT;
    gpuserve_status st;

    served->tried = none;
    st = gpuserve_model_stats(served->model, &served->tried, error);
    return st == GPUSERVE_OK ? read_batches(&served->tried_batches, served->model, error) : st;
}

/* The row with this number of texts, or NULL. */
static const gpuserve_batch_counts *row_of(const struct gsv_batches *batches, uint32_t n_texts)
{
    for (size_t i = 0; i < batches->n; i++) {
        if (batches->rows[i].n_texts == n_texts)
            return &batches->rows[i];
    }
    return NULL;
}

/* True if a count is below its baseline: the owner has replaced the model behind the handle, which
 * resets the counts. */
static bool has_begun_anew(const struct gsv_served *served, const gpuserve_model_counts *counts,
                           const struct gsv_batches *batches)
{
    const struct gsv_batches *tried = &served->tried_batches;

    if (counts->batches < served->tried.batches || counts->items < served->tried.items)
        return true;
    for (size_t i = 0; i < tried->n; i++) {
        const gpuserve_batch_counts *was = &tried->rows[i], *is = row_of(batches, was->n_texts);

        if (!is || is->batches < was->batches || is->input_ns < was->input_ns ||
            is->infer_ns < was->infer_ns || is->output_ns < was->output_ns)
            return true;
    }
    return false;
}

/* Drops rows whose batch count becomes 0. */
static void subtract(struct gsv_batches *from, const struct gsv_batches *tried)
{
    size_t n = 0;

    for (size_t i = 0; i < from->n; i++) {
        gpuserve_batch_counts row = from->rows[i];
        const gpuserve_batch_counts *was = row_of(tried, row.n_texts);

        if (was) {
            row.batches -= was->batches;
            row.input_ns -= was->input_ns;
            row.infer_ns -= was->infer_ns;
            row.output_ns -= was->output_ns;
        }
        if (row.batches > 0)
            from->rows[n++] = row;
    }
    from->n = n;
}

gpuserve_status gsv_served_stats(const struct gsv_served *served, gpuserve_model_counts *counts,
                                 struct gsv_batches *batches, gpuserve_error *error)
{
    const gpuserve_model_counts none = GPUSERVE_MODEL_COUNTS_INIT, *tried = &served->tried;
    gpuserve_status st;

    *counts = none;
    *batches = (struct gsv_batches){ 0 };
    st = gpuserve_model_stats(served->model, counts, error);
    if (st == GPUSERVE_OK)
        st = read_batches(batches, served->model, error);
    if (st != GPUSERVE_OK || has_begun_anew(served, counts, batches))
        return st;
    counts->batches -= tried->batches;
    counts->items -= tried->items;
    subtract(batches, &served->tried_batches);
    return GPUSERVE_OK;
}
