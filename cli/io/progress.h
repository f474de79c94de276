/*
 * progress.h - one line on the terminal that tells how far a long work is. Nothing is printed when
 * standard error is no terminal, or with --quiet.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "cli/cli.h"

struct cli_progress {
    bool shown;
    const char *unit; /* "texts"; "bytes" are written as kB, MB, GB */
    double began, printed;
};

void cli_progress_begin(struct cli_progress *progress, const char *unit, bool quiet);
/* `share` of the whole from 0 to 1, or negative when it is not known. */
void cli_progress_update(struct cli_progress *progress, double done, double share);
void cli_progress_end(struct cli_progress *progress);

#endif
