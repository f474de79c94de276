/*
 * peak.h - measured peak rate of the arithmetic units: the reference of bench_kernels.
 */
#ifndef GSV_BENCH_PEAK_H
#define GSV_BENCH_PEAK_H

/* Float32 operations per second (an FMA counts two) and 8-bit ones (a multiply-add counts two) on
 * one thread; 0 if this program has no probe for the processor. */
double peak_float_ops(void);
double peak_byte_ops(void);

double seconds_now(void);
/* CPU time of this thread: independent of other processes' load. */
double thread_seconds(void);

#endif
