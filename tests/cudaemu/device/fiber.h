/* fiber.h - a stack of its own that can be left and entered again; see fiber.cpp. */
#ifndef GSV_EMU_FIBER_H
#define GSV_EMU_FIBER_H

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

/** One fiber, or with no stack of its own the OS thread that runs them. Owned by its user. */
struct gsv_emu_fiber {
#if defined(__x86_64__)
    void *stack_pointer;
#else
    ucontext_t context;
#endif
    char *stack; /**< with its guard page below; NULL for the OS thread */
    size_t stack_size;
    const void *asan_bottom;
    size_t asan_size;
    void *asan_fake;
    void *tsan;
    void (*entry)(void *user);
    void *user;
};

/** A stack with an unmapped page below. False without memory. */
bool gsv_emu_fiber_create(gsv_emu_fiber *fiber, unsigned number);
void gsv_emu_fiber_destroy(gsv_emu_fiber *fiber);

/** Let the next switch to `fiber` call entry(user), whatever it was doing before. entry never
 *  returns: its last act is a switch with `ends`. */
void gsv_emu_fiber_start(gsv_emu_fiber *fiber, void (*entry)(void *), void *user);

/** Before the first switch away from it: `fiber` stands for the running OS thread. */
void gsv_emu_fiber_adopt(gsv_emu_fiber *fiber);

/** Leave `from`, the running one, for `to`. With `ends` nobody will come back to it. */
void gsv_emu_fiber_switch(gsv_emu_fiber *from, gsv_emu_fiber *to, bool ends);

#endif
