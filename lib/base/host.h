/*
 * host.h - CPU and memory the process may use: bounded by the affinity mask and the control group,
 * not by the hardware alone.
 */
#ifndef GSV_BASE_HOST_H
#define GSV_BASE_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Number of CPUs (hardware threads) of the affinity mask, bounded by the control group's CPU quota
 * (1.5 counts as 2). At least 1. */
int32_t gsv_host_cpus(void);

/* Physical memory, or the control group's limit if that is smaller. */
uint64_t gsv_host_memory_bytes(void);

/* Memory free now, including page cache that can be dropped. */
uint64_t gsv_host_memory_free_bytes(void);

/* The CPU's model name ("AMD EPYC 9555"), cut at `capacity` bytes; "CPU" if unknown. */
void gsv_host_cpu_name(char *name, uint32_t capacity);

/* Reads the start of a small file, such as a sysfs entry, NUL-terminated. False if it is missing or
 * empty. */
bool gsv_host_text(const char *path, char *text, size_t capacity);

#endif
