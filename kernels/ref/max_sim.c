/*
 * max_sim.c - the largest dot product of each query row with any document row.
 */
#include "kernels/kernels.h"

#include <math.h>

void gsv_ref_max_sim(const struct gsv_max_sim *op, float *best)
{
    for (size_t q = 0; q < op->n_query; q++) {
        double max = -INFINITY;

        for (size_t d = 0; d < op->n_document; d++) {
            double sum = 0;

            for (size_t i = 0; i < op->dim; i++)
                sum += (double)op->query[q * op->dim + i] * (double)op->document[d * op->dim + i];
            max = isnan(sum) || sum > max ? sum : max;
        }
        best[q] = (float)max;
    }
}
