/*
 * progress.c - progress bar with amount, rate and time left, redrawn at most every PRINT_EVERY_S.
 *
 * The time left is extrapolated linearly from the completed fraction. With GPUSERVE_PROGRESS=lines
 * a line "progress: DONE TOTAL" is printed instead, for a program that draws its own bar.
 */
#include "cli/io/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BAR_CELLS 24
#define PRINT_EVERY_S 0.1

void cli_progress_begin(struct cli_progress *progress, const char *unit, bool quiet)
{
    const char *form = getenv("GPUSERVE_PROGRESS");

    progress->lines = !quiet && form && strcmp(form, "lines") == 0;
    progress->shown = progress->lines || (!quiet && isatty(STDERR_FILENO));
    progress->unit = unit;
    progress->began = cli_now();
    progress->printed = progress->began;
}

static void amount_text(char *text, size_t size, double amount, const char *unit)
{
    static const char *const larger[] = { "bytes", "kB", "MB", "GB", "TB" };
    size_t i = 0;

    if (strcmp(unit, "bytes") != 0) {
        snprintf(text, size, "%.*f %s", amount < 10 && amount != (long)amount, amount, unit);
        return;
    }
    while (amount >= 1000 && i + 1 < sizeof(larger) / sizeof(larger[0])) {
        amount /= 1000;
        i++;
    }
    snprintf(text, size, "%.*f %s", i > 0, amount, larger[i]);
}

void cli_progress_update(struct cli_progress *progress, double done, double share)
{
    const double now = cli_now(), seconds = now - progress->began;
    char bar[BAR_CELLS + 1], amount[48], rate[48];

    if (!progress->shown || now - progress->printed < PRINT_EVERY_S)
        return;
    progress->printed = now;
    if (progress->lines) {
        if (share > 0)
            fprintf(stderr, "progress: %.0f %.0f\n", done, done / share);
        return;
    }
    amount_text(amount, sizeof(amount), done, progress->unit);
    amount_text(rate, sizeof(rate), done / seconds, progress->unit);
    if (share < 0) {
        fprintf(stderr, "\r\033[K%s, %s/s", amount, rate);
        return;
    }
    if (share > 1)
        share = 1;
    for (int i = 0; i < BAR_CELLS; i++)
        bar[i] = i < (int)(share * BAR_CELLS) ? '#' : '.';
    bar[BAR_CELLS] = '\0';
    fprintf(stderr, "\r\033[K[%s] %3.0f %%  %s, %s/s", bar, share * 100, amount, rate);
    if (share > 0) {
        const long left = (long)(seconds * (1 - share) / share + 0.5);

        fprintf(stderr, ", %ld:%02ld left", left / 60, left % 60);
    }
}

void cli_progress_end(struct cli_progress *progress)
{
    if (progress->shown && !progress->lines && progress->printed > progress->began)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
