/*
 * cpuid_limit.c - hides instruction sets from a process: every engine in it uses what is left.
 *
 *   LD_PRELOAD=cpuid_limit.so CPUID_LIMIT=avx2 PROGRAM ...    a name that GPUSERVE_MAX_ISA has
 *
 * Engines choose their kernels by the CPUID instruction, and few have a setting that limits it.
 * With CPUID faulting (arch_prctl(ARCH_SET_CPUID), arch_prctl(2)) CPUID raises SIGSEGV; the handler
 * runs it and clears the bits of the features above the limit. Threads and forks inherit the state,
 * and a program that the process executes starts again with its own copy of this library. Needs
 * x86-64, Linux and a processor with the flag cpuid_fault in /proc/cpuinfo. Where that fails, or
 * CPUID_LIMIT is wrong, the process ends with status 3: nothing runs unlimited.
 *
 * The dynamic linker has run CPUID before, for its own string functions, which stay unlimited.
 * XGETBV still reports the state of all registers; software that reads it also asks CPUID.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012
#define BIT(n) (UINT32_C(1) << (n))
#define EXIT_UNLIMITED 3

/* From the highest: each level also lacks what the ones before it lack. */
enum level {
    LEVEL_AMX,
    LEVEL_BF16,
    LEVEL_VNNI,
    LEVEL_AVX512,
    LEVEL_AVX2_VNNI,
    LEVEL_AVX2,
    N_LEVELS
};

static const char *const level_names[N_LEVELS] = {
    "avx512_amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2_vnni", "avx2",
};

enum { EAX, EBX, ECX, EDX, N_REGISTERS };

/* Feature bits that a level lacks and the one above it has; Intel's manual, volume 2, CPUID.
 * AVX-VNNI is of processors with AMX, and of avx2_vnni. */
static const struct feature {
    uint32_t leaf, subleaf;
    int reg;
    enum level level; /* the first that lacks it */
    uint32_t bits;
} features[] = {
    /* AMX-BF16, AVX512-FP16, AMX-TILE, AMX-INT8 */
    { 7, 0, EDX, LEVEL_BF16, BIT(22) | BIT(23) | BIT(24) | BIT(25) },
    /* AMX-FP16, AVX-IFMA */
    { 7, 1, EAX, LEVEL_BF16, BIT(21) | BIT(23) },
    /* AVX-VNNI-INT8, AVX-NE-CONVERT, AMX-COMPLEX, AVX-VNNI-INT16, AVX10 */
    { 7, 1, EDX, LEVEL_BF16, BIT(4) | BIT(5) | BIT(8) | BIT(10) | BIT(19) },
    /* state and palettes of the tiles */
    { 0xd, 0, EAX, LEVEL_BF16, BIT(17) | BIT(18) },
    { 0x1d, 0, EAX, LEVEL_BF16, UINT32_MAX },
    /* AVX512-BF16 */
    { 7, 1, EAX, LEVEL_VNNI, BIT(5) },
    /* AVX512-VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ; GFNI, VAES, VPCLMULQDQ */
    { 7, 0, ECX, LEVEL_AVX512, BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14) },
    { 7, 0, ECX, LEVEL_AVX512, BIT(8) | BIT(9) | BIT(10) },
    /* AVX512-IFMA */
    { 7, 0, EBX, LEVEL_AVX512, BIT(21) },
    /* AVX512-F, DQ, CD, BW, VL */
    { 7, 0, EBX, LEVEL_AVX2_VNNI, BIT(16) | BIT(17) | BIT(28) | BIT(30) | BIT(31) },
    /* AVX512-4VNNIW, 4FMAPS, VP2INTERSECT */
    { 7, 0, EDX, LEVEL_AVX2_VNNI, BIT(2) | BIT(3) | BIT(8) },
    /* state of masks and ZMM registers */
    { 0xd, 0, EAX, LEVEL_AVX2_VNNI, BIT(5) | BIT(6) | BIT(7) },
};
#define AVX_VNNI BIT(4) /* of leaf 7, subleaf 1, EAX */

static enum level limit;

static int set_faulting(int on)
{
    return (int)syscall(SYS_arch_prctl, ARCH_SET_CPUID, on ? 0L : 1L);
}

/* dprintf: standard error may not be open as a stream yet, or in use where the signal came. */
static _Noreturn void end(const char *why)
{
    dprintf(STDERR_FILENO, "cpuid_limit: %s\n", why);
    _exit(EXIT_UNLIMITED);
}

static void hide(uint32_t leaf, uint32_t subleaf, uint32_t registers[N_REGISTERS])
{
    for (size_t i = 0; i < sizeof(features) / sizeof(*features); i++)
        if (features[i].leaf == leaf && features[i].subleaf == subleaf &&
            limit >= features[i].level)
            registers[features[i].reg] &= ~features[i].bits;
    if (leaf == 7 && subleaf == 1 && limit > LEVEL_AMX && limit != LEVEL_AVX2_VNNI)
        registers[EAX] &= ~AVX_VNNI;
}

/* SIGSEGV at a CPUID instruction: its limited result. Elsewhere: what SIGSEGV does without a
 * handler. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    greg_t *const at = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *const code = (const unsigned char *)(uintptr_t)at[REG_RIP];
    const uint32_t leaf = (uint32_t)at[REG_RAX], subleaf = (uint32_t)at[REG_RCX];
    uint32_t registers[N_REGISTERS];

    if (info->si_code != SI_KERNEL || code[0] != 0x0f || code[1] != 0xa2) {
        signal(number, SIG_DFL);
        return;
    }
    if (set_faulting(0) != 0)
        end("CPUID faulting cannot be interrupted");
    __cpuid_count(leaf, subleaf, registers[EAX], registers[EBX], registers[ECX], registers[EDX]);
    if (set_faulting(1) != 0)
        end("CPUID faulting cannot be resumed");
    hide(leaf, subleaf, registers);
    at[REG_RAX] = registers[EAX];
    at[REG_RBX] = registers[EBX];
    at[REG_RCX] = registers[ECX];
    at[REG_RDX] = registers[EDX];
    at[REG_RIP] += 2;
}

/* The value of CPUID_LIMIT; NULL: it is not set. */
static const char *limit_name(char **variables)
{
    static const char key[] = "CPUID_LIMIT=";

    for (; *variables; variables++)
        if (strncmp(*variables, key, sizeof(key) - 1) == 0)
            return *variables + sizeof(key) - 1;
    return NULL;
}

/* Linked with -z initfirst: before the initializers of all other libraries, those of the C library
 * too, so that getenv() has no variables yet. The dynamic linker passes them. */
__attribute__((constructor)) static void begin(int argc, char **arguments, char **variables)
{
    const char *name = limit_name(variables);
    struct sigaction action = { .sa_flags = SA_SIGINFO | SA_NODEFER };

    (void)argc;
    (void)arguments;
    while (limit < N_LEVELS && (!name || strcmp(name, level_names[limit]) != 0))
        limit++;
    if (limit == N_LEVELS)
        end("CPUID_LIMIT is not an instruction set with a limit");
    action.sa_sigaction = on_fault;
    if (sigaction(SIGSEGV, &action, NULL) != 0)
        end("the handler of SIGSEGV cannot be set");
    if (set_faulting(1) != 0)
        end("this processor or Linux has no CPUID faulting");
}
