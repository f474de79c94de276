/*
 * bench_plot.h - an SVG plot of utilization and latency against the number of models.
 */
#ifndef CLI_BENCH_PLOT_H
#define CLI_BENCH_PLOT_H

#define CLI_PLOT_POINTS 64

struct cli_plot {
    struct cli_plot_point {
        double models, percent, p50, p99;
    } points[CLI_PLOT_POINTS];
    int n;
};

void cli_plot_add(struct cli_plot *plot, double models, double percent, double p50, double p99);
/* Writes FILE, which is renamed into place when complete. */
int cli_plot_write(const struct cli_plot *plot, const char *path);

#endif
