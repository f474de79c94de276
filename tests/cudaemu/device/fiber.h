/*
 * fiber.h - a fiber: a stack with a saved context (coroutine); fiber.cpp describes the switch.
 */
#ifndef GSV_EMU_FIBER_H
#define GSV_EMU_FIBER_H

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

/** One fiber, or without a stack the OS thread that runs them. Owned by its user. */
struct gsv_emu_fiber {
#if defined(__x86_64__)
    void *stack_pointer;
#else
    ucontext_t context;
#endif
    char *stack; /**< with a guard page below; NULL for the OS thread */
    size_t stack_size;
    const void *asan_bottom;
    size_t asan_size;
    void *asan_fake;
    void *tsan;
    void (*entry)(void *user);
    void *user;
};

/** Allocates a stack with an unmapped page below. False if out of memory. */
bool gsv_emu_fiber_create(gsv_emu_fiber *fiber, unsigned number);
void gsv_emu_fiber_destroy(gsv_emu_fiber *fiber);

/** The next switch to `fiber` calls entry(user), whatever it did before. entry never returns: it
 * ends with a switch with `ends`. */
void gsv_emu_fiber_start(gsv_emu_fiber *fiber, void (*entry)(void *), void *user);

/** Call before the first switch: `fiber` represents the running OS thread. */
void gsv_emu_fiber_adopt(gsv_emu_fiber *fiber);

/** Switches from `from`, the running fiber, to `to`. With `ends`, `from` is never resumed. */
void gsv_emu_fiber_switch(gsv_emu_fiber *from, gsv_emu_fiber *to, bool ends);

#endif
