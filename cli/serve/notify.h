/*
 * notify.h - reports the server's state to systemd (the sd_notify protocol).
 */
#ifndef CLI_NOTIFY_H
#define CLI_NOTIFY_H

#include "cli/cli.h"

/* Sends "READY=1", "STOPPING=1" or "WATCHDOG=1". */
void cli_notify(const char *state);
void cli_notify_reloading(void);
/* Interval between heartbeats for systemd's watchdog, in microseconds; 0: no watchdog. */
uint64_t cli_watchdog_us(void);

#endif
