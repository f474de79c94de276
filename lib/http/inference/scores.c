/*
 * scores.c - sorts scores with qsort() and writes labels as JSON.
 */
#include "lib/http/inference/tasks.h"

#include "lib/http/models/model_registry.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *left, const void *right)
{
    const struct gsv_ranked *a = left, *b = right;

    if (isnan(a->score) != isnan(b->score))
        return isnan(a->score) ? 1 : -1;
    if (a->score != b->score && !isnan(a->score))
        return a->score > b->score ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

void gsv_rank(struct gsv_ranked *ranked, size_t n)
{
    qsort(ranked, n, sizeof(*ranked), compare);
}

struct gsv_ranked *gsv_rank_labels(struct gsv_exchange *exchange, const float *row, size_t n)
{
    struct gsv_ranked *ranked = gsv_exchange_alloc(exchange, n, sizeof(*ranked));

    for (size_t i = 0; i < n && ranked; i++)
        ranked[i] = (struct gsv_ranked){ i, row[i] };
    if (ranked)
        gsv_rank(ranked, n);
    return ranked;
}

/* `labels` of a head, or NULL: of the model's classifier. */
static void put_labels(struct gsv_exchange *exchange, const float *row, size_t n, size_t max_labels,
                       const json_t *labels)
{
    const struct gsv_ranked *ranked = gsv_rank_labels(exchange, row, n);
    struct gsv_buffer *to = &exchange->reply;

    if (!ranked) {
        to->failed = true;
        return;
    }
    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < n && (max_labels == 0 || i < max_labels); i++) {
        const size_t index = ranked[i].index;

        gsv_buffer_text(to, i > 0 ? ",{\"score\":" : "{\"score\":");
        gsv_put_float(to, ranked[i].score);
        gsv_buffer_text(to, ",\"label\":");
        gsv_put_text(to, labels ? json_string_value(json_array_get(labels, index))
                                : gsv_served_label(exchange->served, index));
        gsv_buffer_text(to, "}");
    }
    gsv_buffer_text(to, "]");
}

void gsv_put_labels(struct gsv_exchange *exchange, const float *row, size_t max_labels)
{
    put_labels(exchange, row, exchange->served->n_labels, max_labels, NULL);
}

void gsv_put_head_labels(struct gsv_exchange *exchange, const float *row, const json_t *labels)
{
    put_labels(exchange, row, json_array_size(labels), 0, labels);
}
