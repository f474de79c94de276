/*
 * fiber.cpp - fibers: stacks and context switches.
 *
 * x86-64: the switch saves the six callee-saved registers and swaps the stack pointer, in some
 * nanoseconds. Other architectures use swapcontext(), with two system calls. The sanitizers are
 * notified of each switch: the address sanitizer of the stack in use, the thread sanitizer of the
 * thread that runs, and (flag 1) that the switch is no synchronization: only barriers order CUDA
 * threads.
 */
#include "fiber.h"

#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "sanitizers.h"

namespace
{

/* Instrumented kernels need larger stacks. */
const size_t stack_bytes = GSV_EMU_ASAN ? 256u << 10 : 64u << 10;

#if GSV_EMU_ASAN
/* A finished thread leaves the frames of begin() and its entry at the top of the stack. It has
 * returned from all deeper frames, which clears their address sanitizer marks. */
const size_t left_bytes = 4096;
#endif

gsv_emu_fiber *arriving; /* the fiber that is being switched to */

size_t page_bytes()
{
    return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void finish_switch(gsv_emu_fiber *from)
{
#if GSV_EMU_ASAN
    /* Returns the bounds of the stack that was left: so the OS thread's own bounds are
     * determined. */
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(arriving->asan_fake, &bottom, &size);
    if (from && !from->stack) {
        from->asan_bottom = bottom;
        from->asan_size = size;
    }
#else
    (void)from;
#endif
}

gsv_emu_fiber *leaving; /* the fiber that was switched from, for a new one's first steps */

[[noreturn]] void begin()
{
    gsv_emu_fiber *self = arriving;
    finish_switch(leaving);
    self->entry(self->user);
    __builtin_trap();
}

} // namespace

#if defined(__x86_64__)

extern "C" void gsv_emu_swap_stacks(void **save, void *load);

asm(R"(
.text
.hidden gsv_emu_swap_stacks
.globl gsv_emu_swap_stacks
.type gsv_emu_swap_stacks, @function
gsv_emu_swap_stacks:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size gsv_emu_swap_stacks, . - gsv_emu_swap_stacks
)");

static void start_context(gsv_emu_fiber *fiber)
{
    /* Six zeroed registers, begin() as the return address, and a zero as its caller's return
     * address: 16-byte aligned as after a call. */
    uintptr_t top = reinterpret_cast<uintptr_t>(fiber->stack + fiber->stack_size);
    void **frame = reinterpret_cast<void **>(top & ~static_cast<uintptr_t>(63)) - 10;
    std::memset(frame, 0, 10 * sizeof(*frame));
    frame[6] = reinterpret_cast<void *>(&begin);
    fiber->stack_pointer = frame;
}

static void swap(gsv_emu_fiber *from, gsv_emu_fiber *to)
{
    gsv_emu_swap_stacks(&from->stack_pointer, to->stack_pointer);
}

#else

static void start_context(gsv_emu_fiber *fiber)
{
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = fiber->stack_size;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, reinterpret_cast<void (*)()>(&begin), 0);
}

static void swap(gsv_emu_fiber *from, gsv_emu_fiber *to)
{
    swapcontext(&from->context, &to->context);
}

#endif

bool gsv_emu_fiber_create(gsv_emu_fiber *fiber, unsigned number)
{
    const size_t watchdog = page_bytes();
    void *memory = mmap(nullptr, watchdog + stack_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    std::memset(fiber, 0, sizeof(*fiber));
    if (memory == MAP_FAILED)
        return false;
    mprotect(memory, watchdog, PROT_NONE);
    fiber->stack = static_cast<char *>(memory) + watchdog;
#if GSV_EMU_ASAN
    __asan_unpoison_memory_region(fiber->stack, stack_bytes);
#endif
    /* Different page offsets, because equal ones would map all stacks to a few cache lines. */
    fiber->stack_size = stack_bytes - number % 16 * 256;
    fiber->asan_bottom = fiber->stack;
    fiber->asan_size = stack_bytes;
    return true;
}

void gsv_emu_fiber_destroy(gsv_emu_fiber *fiber)
{
    const size_t watchdog = page_bytes();

    if (fiber->tsan)
        __tsan_destroy_fiber(fiber->tsan);
    if (fiber->stack)
        munmap(fiber->stack - watchdog, watchdog + stack_bytes);
    std::memset(fiber, 0, sizeof(*fiber));
}

void gsv_emu_fiber_start(gsv_emu_fiber *fiber, void (*entry)(void *), void *user)
{
#if GSV_EMU_ASAN
    __asan_unpoison_memory_region(fiber->stack + stack_bytes - left_bytes, left_bytes);
#endif
    if (gsv_emu_tsan() && !fiber->tsan)
        fiber->tsan = __tsan_create_fiber(0);
    fiber->asan_fake = nullptr;
    fiber->entry = entry;
    fiber->user = user;
    start_context(fiber);
}

void gsv_emu_fiber_adopt(gsv_emu_fiber *fiber)
{
    std::memset(fiber, 0, sizeof(*fiber));
    if (gsv_emu_tsan())
        fiber->tsan = __tsan_get_current_fiber();
}

void gsv_emu_fiber_switch(gsv_emu_fiber *from, gsv_emu_fiber *to, bool ends)
{
#if GSV_EMU_ASAN
    __sanitizer_start_switch_fiber(ends ? nullptr : &from->asan_fake, to->asan_bottom,
                                   to->asan_size);
#else
    (void)ends;
#endif
    leaving = from;
    arriving = to;
    if (gsv_emu_tsan())
        __tsan_switch_to_fiber(to->tsan, 1);
    swap(from, to);
    /* Switched back: `from` runs again, and `leaving` is the fiber that switched. */
    finish_switch(leaving);
}
