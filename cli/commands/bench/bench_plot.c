/*
 * bench_plot.c - an SVG plot of utilization and latency against the number of models.
 *
 * Two panels, one below the other, with a common x axis: percent from 0 to 100, and milliseconds
 * from 0 to the largest p99.
 */
#include "cli/commands/bench/bench.h"

#include "cli/io/output.h"

#include <math.h>
#include <stdio.h>

#define WIDTH 520
#define HEIGHT 420
#define LEFT 60
#define RIGHT 500
#define PANEL 150 /* height of a panel */
#define TOP 40
#define LOWER (TOP + PANEL + 50)

/* A panel: its y range begins at 0. */
struct panel {
    FILE *to;
    const struct cli_plot *plot;
    int top;
    double max_y;
};

void cli_plot_add(struct cli_plot *plot, double models, double percent, double p50, double p99)
{
    if (plot->n < CLI_PLOT_POINTS)
        plot->points[plot->n++] = (struct cli_plot_point){ models, percent, p50, p99 };
}

static double x_of(const struct panel *panel, double models)
{
    const double last = panel->plot->points[panel->plot->n - 1].models;

    return last > 1 ? LEFT + (models - 1) / (last - 1) * (RIGHT - LEFT) : LEFT;
}

static double y_of(const struct panel *panel, double value)
{
    return panel->top + PANEL * (1 - fmin(value / panel->max_y, 1));
}

static void draw_axes(const struct panel *panel, const char *title)
{
    fprintf(panel->to,
            "<text x=\"%d\" y=\"%d\">%s</text>\n"
            "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#888\"/>\n",
            LEFT, panel->top - 10, title, LEFT, panel->top, panel->top + PANEL, RIGHT);
    for (int i = 0; i <= 4; i++)
        fprintf(panel->to, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n", LEFT - 6,
                y_of(panel, panel->max_y * i / 4) + 4, panel->max_y * i / 4);
    for (int i = 0; i < panel->plot->n; i++)
        fprintf(panel->to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                x_of(panel, panel->plot->points[i].models), panel->top + PANEL + 16,
                panel->plot->points[i].models);
}

/* `which`: 0 percent, 1 p50, 2 p99 */
static void draw_line(const struct panel *panel, int which, const char *color, const char *name)
{
    double last = 0;

    fprintf(panel->to, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", color);
    for (int i = 0; i < panel->plot->n; i++) {
        const struct cli_plot_point *p = &panel->plot->points[i];

        last = which == 0 ? p->percent : which == 1 ? p->p50 : p->p99;
        fprintf(panel->to, "%s%.1f,%.1f", i ? " " : "", x_of(panel, p->models), y_of(panel, last));
    }
    fprintf(panel->to,
            "\"/>\n<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"%s\">%s</text>\n", RIGHT,
            y_of(panel, last) - 5, color, name);
}

int cli_plot_write(const struct cli_plot *plot, const char *path)
{
    struct cli_output output = { .stream = NULL };
    struct panel panel = { .plot = plot, .top = TOP, .max_y = 100 };
    double max_ms = 0;
    int result = cli_output_open(&output, path);

    if (result != CLI_OK)
        return result;
    for (int i = 0; i < plot->n; i++)
        max_ms = fmax(max_ms, plot->points[i].p99);
    panel.to = output.stream;
    fprintf(output.stream,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            WIDTH, HEIGHT);
    if (plot->n > 0) {
        draw_axes(&panel, "utilization of the device in %, by number of models");
        draw_line(&panel, 0, "#1f77b4", "");
        panel.top = LOWER;
        panel.max_y = max_ms > 0 ? max_ms : 1;
        draw_axes(&panel, "latency in ms, by number of models");
        draw_line(&panel, 1, "#2ca02c", "p50");
        draw_line(&panel, 2, "#d62728", "p99");
    }
    fprintf(output.stream, "</svg>\n");
    result = cli_output_check(&output);
    if (result == CLI_OK)
        result = cli_output_finish(&output);
    cli_output_abandon(&output);
    return result;
}
