/*
 * graph_cache.cu - cache of captured CUDA graphs by program and batch shape, with LRU eviction.
 *
 * A linear table of GSV_MAX_GRAPHS entries in the stream; the thread that uses the stream uses it.
 */
#include "kernels/cuda/runtime/stream.cuh"

/* The number of tiles follows from rows, sequences and height: gsv_shape_of(). */
static bool same_shape(const struct gsv_shape *a, const struct gsv_shape *b)
{
    return a->n_rows == b->n_rows && a->n_sequences == b->n_sequences &&
           a->tile_height == b->tile_height && a->short_texts == b->short_texts;
}

static void forget(struct gsv_graph *graph)
{
    if (graph->exec)
        cudaGraphExecDestroy(graph->exec);
    *graph = {};
}

struct gsv_graph *gsv_graphs_find(struct gsv_graphs *graphs, uint64_t program,
                                  const struct gsv_shape *shape)
{
    struct gsv_graph *oldest = &graphs->entries[0];

    graphs->clock++;
    for (int i = 0; i < GSV_MAX_GRAPHS; i++) {
        struct gsv_graph *const graph = &graphs->entries[i];

        if (graph->last_use > 0 && graph->program == program && same_shape(&graph->shape, shape)) {
            graph->last_use = graphs->clock;
            graph->uses += graph->uses < 2;
            return graph;
        }
        if (graph->last_use < oldest->last_use)
            oldest = graph;
    }
    forget(oldest);
    oldest->program = program;
    oldest->shape = *shape;
    oldest->uses = 1;
    oldest->last_use = graphs->clock;
    return oldest;
}

void gsv_graphs_clear(struct gsv_graphs *graphs)
{
    for (int i = 0; i < GSV_MAX_GRAPHS; i++)
        forget(&graphs->entries[i]);
}
