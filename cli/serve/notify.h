/*
 * notify.h - telling systemd how the server is; see notify.c.
 */
#ifndef CLI_NOTIFY_H
#define CLI_NOTIFY_H

#include "cli/cli.h"

/* "READY=1", "STOPPING=1", "WATCHDOG=1" */
void cli_notify(const char *state);
void cli_notify_reloading(void);
/* How often the watchdog wants to hear of us; 0: there is none. */
uint64_t cli_watchdog_us(void);

#endif
