/*
 * dispatch.c - selects the instruction set: the best one that the processor supports, limited by
 * GPUSERVE_MAX_ISA.
 */
#include "kernels/cpu/runtime/isa.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

extern const struct gsv_cpu_isa gsv_cpu_isa_generic;
extern const struct gsv_cpu_isa gsv_cpu_isa_portable;

#if defined(__x86_64__)
extern const struct gsv_cpu_isa gsv_cpu_isa_avx2;
extern const struct gsv_cpu_isa gsv_cpu_isa_avx2_vnni;
extern const struct gsv_cpu_isa gsv_cpu_isa_avx512;
extern const struct gsv_cpu_isa gsv_cpu_isa_avx512_vnni;
extern const struct gsv_cpu_isa gsv_cpu_isa_avx512_bf16;
extern const struct gsv_cpu_isa gsv_cpu_isa_avx512_amx;

/* CPUID leaf 1, ECX bit 29. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

/* Older compilers have no name for AVX-VNNI: CPUID leaf 7, subleaf 1, EAX bit 4. */
static bool has_avx2_vnni(void)
{
    unsigned a, b, c, d;

    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static bool has_avx512_vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

/* CPUID leaf 7, subleaf 1, EAX bit 5. */
static bool has_avx512_bf16(void)
{
    unsigned a, b, c, d;

    return has_avx512_vnni() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

/* Intel's processors after Cooper Lake have the products in bfloat16 in AMX, and vdpbf16ps is slow:
 * on Sapphire Rapids it multiplies and adds at half the rate of float32. There avx512_vnni is
 * faster in every dtype if AMX cannot be used. CPUID leaf 1, EAX: Cooper Lake is family 6, model
 * 85. */
static bool has_slow_bf16(void)
{
    unsigned signature, b, c, d;

    if (!__get_cpuid(0, &signature, &b, &c, &d) || b != signature_INTEL_ebx ||
        c != signature_INTEL_ecx || d != signature_INTEL_edx ||
        !__get_cpuid(1, &signature, &b, &c, &d))
        return false;
    return (signature >> 8 & 0xF) != 6 || ((signature >> 4 & 0xF) | (signature >> 12 & 0xF0)) != 85;
}

static bool detect_amx(void)
{
    const struct gsv_amx_facts facts = gsv_amx_read_facts();

    return gsv_amx_is_present(&facts) && gsv_amx_request_permission();
}

/* Detected once: a permission that Linux refuses at first and grants later must not change the
 * instruction set within a process. */
static bool has_avx512_amx(void)
{
    enum { UNKNOWN, ABSENT, PRESENT };
    static atomic_int state = UNKNOWN;
    int known = atomic_load(&state);

    if (known == UNKNOWN) {
        int before = UNKNOWN;

        known = has_avx512_bf16() && detect_amx() ? PRESENT : ABSENT;
        if (!atomic_compare_exchange_strong(&state, &before, known))
            known = before;
    }
    return known == PRESENT;
}
#elif defined(__aarch64__)
extern const struct gsv_cpu_isa gsv_cpu_isa_neon;
extern const struct gsv_cpu_isa gsv_cpu_isa_neon_dotprod;
extern const struct gsv_cpu_isa gsv_cpu_isa_neon_i8mm;
extern const struct gsv_cpu_isa gsv_cpu_isa_neon_bf16;

/* The kernel reports the instructions that it lets programs use. */
static bool has_dotprod(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}

static bool has_i8mm(void)
{
    return has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM);
}

static bool has_bf16(void)
{
    return has_i8mm() && (getauxval(AT_HWCAP2) & HWCAP2_BF16);
}
#endif

static bool always(void)
{
    return true;
}

/* In ascending order of preference. */
static const struct choice {
    const struct gsv_cpu_isa *isa;
    bool (*supported)(void);
    bool (*slow)(void); /* the one before is faster; NULL: never */
} choices[] = {
    { &gsv_cpu_isa_generic, always, NULL },
#if defined(__x86_64__)
    { &gsv_cpu_isa_avx2, has_avx2, NULL },
    { &gsv_cpu_isa_avx2_vnni, has_avx2_vnni, NULL },
    { &gsv_cpu_isa_avx512, has_avx512, NULL },
    { &gsv_cpu_isa_avx512_vnni, has_avx512_vnni, NULL },
    { &gsv_cpu_isa_avx512_bf16, has_avx512_bf16, has_slow_bf16 },
    { &gsv_cpu_isa_avx512_amx, has_avx512_amx, NULL },
#elif defined(__aarch64__)
    { &gsv_cpu_isa_neon, always, NULL }, /* part of the architecture */
    { &gsv_cpu_isa_neon_dotprod, has_dotprod, NULL },
    { &gsv_cpu_isa_neon_i8mm, has_i8mm, NULL },
    { &gsv_cpu_isa_neon_bf16, has_bf16, NULL },
#endif
};

#define N_CHOICES (sizeof(choices) / sizeof(choices[0]))

/* Index one past the choice named `limit`; an unknown name sets no limit. */
static size_t end_of(const char *limit)
{
    for (size_t i = 0; limit && i < N_CHOICES; i++) {
        if (strcmp(limit, choices[i].isa->name) == 0)
            return i + 1;
    }
    return N_CHOICES;
}

static bool is_slow(const struct choice *choice)
{
    return choice->slow && choice->slow();
}

/* A slow one only if the limit names it. */
static size_t best_choice(void)
{
    const size_t end = end_of(getenv("GPUSERVE_MAX_ISA"));
    size_t i = end;

    while (i > 1 && (!choices[i - 1].supported() || (i < end && is_slow(&choices[i - 1]))))
        i--;
    return i - 1;
}

const struct gsv_cpu_isa *gsv_cpu_choose_isa(void)
{
    return choices[best_choice()].isa;
}

/*
 * Portable bits: the tables without what differs between instruction sets. bfloat16 and int16
 * products do, and so do int8 weights: all are those that fit the sums of s8_sums.h. What is left
 * has the same bits everywhere (vec.h).
 */

static struct gsv_cpu_isa portable[N_CHOICES];
static char portable_names[N_CHOICES][32];

static void make_portable(void)
{
    for (size_t i = 0; i < N_CHOICES; i++) {
        portable[i] = i == 0 ? gsv_cpu_isa_portable : *choices[i].isa;
        if (i > 0)
            snprintf(portable_names[i], sizeof(portable_names[i]), "portable_%s", portable[i].name);
        portable[i].name = i > 0 ? portable_names[i] : portable[i].name;
        portable[i].adds_sums = true;
        portable[i].adds_pairs = false;
        portable[i].gemm_s16 = NULL;
        portable[i].quantize_s16 = NULL;
        portable[i].pairs_bf16 = false;
        portable[i].gemm_bf16 = NULL;
        portable[i].round_bf16 = NULL;
        portable[i].attention_16bit = NULL;
    }
}

const struct gsv_cpu_isa *gsv_cpu_choose_portable_isa(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_portable);
    return &portable[best_choice()];
}

/*
 * Late interaction and compact vectors, also outside of a stream.
 */

#define MAX_SIM_ROWS 32 /* query rows at a time; a multiple of the rows of a kernel's tile */

float gsv_cpu_sum_max_sim(const struct gsv_cpu_isa *isa, const struct gsv_max_sim *op)
{
    struct gsv_max_sim part = *op;
    float best[MAX_SIM_ROWS];
    double sum = 0;

    for (size_t first = 0; first < op->n_query && op->n_document > 0; first += MAX_SIM_ROWS) {
        const size_t left = op->n_query - first;

        part.query = op->query + first * op->dim;
        part.n_query = left < MAX_SIM_ROWS ? left : MAX_SIM_ROWS;
        isa->max_sim(&part, best);
        for (size_t i = 0; i < part.n_query; i++)
            sum += (double)best[i];
    }
    return (float)sum;
}

/* The best instruction set of the processor, chosen at the first call. */
static const struct gsv_cpu_isa *best_isa(void)
{
    static _Atomic(const struct gsv_cpu_isa *) chosen;
    const struct gsv_cpu_isa *isa = atomic_load(&chosen);

    if (!isa) {
        isa = gsv_cpu_choose_isa();
        atomic_store(&chosen, isa);
    }
    return isa;
}

float gsv_cpu_max_sim(const struct gsv_max_sim *op)
{
    return gsv_cpu_sum_max_sim(best_isa(), op);
}

void gsv_cpu_compact_row(const float *row, size_t n, uint32_t precision, const float *ranges,
                         uint8_t *to)
{
    best_isa()->compact(row, n, precision, ranges, to);
}
