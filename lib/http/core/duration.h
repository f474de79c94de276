/*
 * duration.h - durations as text: "24h", "5m", "1h30m", "300ms".
 */
#ifndef GSV_HTTP_DURATION_H
#define GSV_HTTP_DURATION_H

#include <stdbool.h>
#include <stdint.h>

/* Reads numbers with the units d, h, m, s, ms, largest first or not, or "0"; a leading '-' is
 * allowed. False: another form, or more than a hundred years. */
bool gsv_duration_read(const char *text, int64_t *ms);

#endif
