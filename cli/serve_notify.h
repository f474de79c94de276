/*
 * serve_notify.h - telling systemd how the server is; see serve_notify.c.
 */
#ifndef CLI_SERVE_NOTIFY_H
#define CLI_SERVE_NOTIFY_H

#include "cli.h"

/* "READY=1", "STOPPING=1", "WATCHDOG=1" */
void cli_notify(const char *state);
void cli_notify_reloading(void);
/* How often the watchdog wants to hear of us; 0: there is none. */
uint64_t cli_watchdog_us(void);
/* serve_alive.c: the server at the address answers within the time; one that wants certificates of
 * clients by missing ours. */
bool cli_is_alive(const char *address, bool wants_certificates, uint64_t limit_us);

#endif
