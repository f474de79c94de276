/*
 * clock.h - monotonic time in nanoseconds, and deadlines of calls of several jobs.
 */
#ifndef GSV_BASE_CLOCK_H
#define GSV_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t gsv_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline double gsv_seconds_since(uint64_t begin_ns)
{
    return 1e-9 * (double)(gsv_now_ns() - begin_ns);
}

/* gpuserve_job.deadline_us of the next job of a call that began at begin_ns with `deadline_us`; -1
 * if the deadline has passed. */
static inline int64_t gsv_deadline_left_us(int64_t deadline_us, uint64_t begin_ns)
{
    const int64_t spent_us = (int64_t)((gsv_now_ns() - begin_ns) / 1000);

    if (deadline_us <= 0)
        return deadline_us;
    return deadline_us > spent_us ? deadline_us - spent_us : -1;
}

#endif
