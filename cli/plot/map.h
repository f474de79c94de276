/*
 * map.h - `gpuserve embed --plot`: a page with a two-dimensional map of the texts.
 *
 *   rows of vectors -> cli_map_add() -> layout.c: plane, clusters, neighbours -> map.html with the
 *                                       data, one file without references to others
 */
#ifndef CLI_PLOT_MAP_H
#define CLI_PLOT_MAP_H

#include "cli/cli.h"

#include <gpuserve/gpuserve.h>

#include <stddef.h>
#include <stdint.h>

#define CLI_MAP_MIN_TEXTS 3
#define CLI_MAP_MAX_TEXTS 20000
#define CLI_MAP_NEIGHBOURS 5
#define CLI_MAP_MAX_CLUSTERS 12

/* The vectors, [n, dim], and where they are on the map. All arrays are owned. */
struct cli_map {
    size_t n, dim;
    float *vectors; /* scaled to unit length by cli_map_lay_out() */
    size_t vectors_capacity;
    char **texts; /* [n] NUL-terminated beginnings of the texts */
    size_t texts_capacity;
    /* Set by cli_map_lay_out(). */
    double *x, *y;       /* [n] first and second principal component */
    double explained[2]; /* share of the variance that each has */
    uint32_t *cluster;   /* [n] */
    size_t n_clusters;
    uint32_t middle[CLI_MAP_MAX_CLUSTERS]; /* the text next to a cluster's centroid */
    size_t n_neighbours;                   /* at most CLI_MAP_NEIGHBOURS */
    uint32_t *neighbours;                  /* [n, n_neighbours] most similar first */
    float *similarity;                     /* [n, n_neighbours] cosine */
};

/* Copies a row and the beginning of its text. CLI_FAILED after a message: too many texts. */
int cli_map_add(struct cli_map *map, const float *row, size_t dim, const char *text, size_t size);

/* Computes plane, clusters and neighbours; the same vectors give the same map. layout.c */
int cli_map_lay_out(struct cli_map *map);

/* Writes the page to `path`; `model` is its title. */
int cli_map_write(struct cli_map *map, const char *path, const char *model);

void cli_map_reset(struct cli_map *map);

#endif
