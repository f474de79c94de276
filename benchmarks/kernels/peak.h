/*
 * peak.h - what the arithmetic units could do, measured: the yardstick of bench_kernels.
 */
#ifndef GSV_BENCH_PEAK_H
#define GSV_BENCH_PEAK_H

/* Float32 operations a second (an FMA counts two) and 8-bit ones (a multiply-add counts two) on
 * one thread; 0 where this program has no probe for the processor. */
double peak_float_ops(void);
double peak_byte_ops(void);

double seconds_now(void);
/* Of this thread's own computing: what others take of the processor does not count. */
double thread_seconds(void);

#endif
