/*
 * peak.h - measured peak rate of the arithmetic units: the reference of bench_kernels.
 */
#ifndef GSV_BENCH_PEAK_H
#define GSV_BENCH_PEAK_H

/* Operations per second on one thread with the instructions of `isa`, a name that GPUSERVE_MAX_ISA
 * has and the processor supports: a multiply-add counts two. Float32; int8, by vpmaddubsw where
 * there is no VNNI; bfloat16. AMX tiles have no probe: the rates of avx512_amx are those of
 * vectors. 0 where there is no such instruction or no probe. */
double peak_float_ops(const char *isa);
double peak_byte_ops(const char *isa);
double peak_bf16_ops(const char *isa);

double seconds_now(void);
/* CPU time of this thread: independent of other processes' load. */
double thread_seconds(void);

#endif
