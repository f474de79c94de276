/*
 * progress.h - progress line on the terminal for long operations.
 *
 * Prints nothing if standard error is not a terminal, or with --quiet.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "cli/cli.h"

struct cli_progress {
    bool shown;
    const char *unit; /* "texts"; "bytes" are printed as kB, MB, GB */
    double began, printed;
};

void cli_progress_begin(struct cli_progress *progress, const char *unit, bool quiet);
/* `share` is the completed fraction, 0 to 1; negative if unknown. */
void cli_progress_update(struct cli_progress *progress, double done, double share);
void cli_progress_end(struct cli_progress *progress);

#endif
