/*
 * host.h - how much of this machine the process may use: the affinity mask and the control group,
 * not what the hardware has.
 */
#ifndef GSV_BASE_HOST_H
#define GSV_BASE_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Hardware threads this process may run on, bounded by the control group's processor quota (a
 * quota of 1.5 counts as 2). At least 1. */
int32_t gsv_host_cpus(void);

/* Memory this process may have: the machine's, or the control group's limit where that is less. */
uint64_t gsv_host_memory_bytes(void);

/* How much of it is free now, page cache that can be dropped included. */
uint64_t gsv_host_memory_free_bytes(void);

/* What the processor calls itself ("AMD EPYC 9555"), cut at `capacity`; "CPU" when unknown. */
void gsv_host_cpu_name(char *name, uint32_t capacity);

/* The beginning of a small file, as sysfs has them, NUL-terminated; false when there is none. */
bool gsv_host_text(const char *path, char *text, size_t capacity);

#endif
