/*
 * sanitizers.h - notifies the sanitizers of fibers; empty functions in builds without them.
 *
 * The thread sanitizer's functions are weak. The emulator itself is never instrumented by it,
 * because its bookkeeping for many fibers would be reported; kernels may be.
 */
#ifndef GSV_EMU_SANITIZERS_H
#define GSV_EMU_SANITIZERS_H

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GSV_EMU_ASAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define GSV_EMU_ASAN 1
#endif
#ifndef GSV_EMU_ASAN
#define GSV_EMU_ASAN 0
#endif

extern "C" {
void *__tsan_get_current_fiber(void) __attribute__((weak));
void *__tsan_create_fiber(unsigned flags) __attribute__((weak));
void __tsan_destroy_fiber(void *fiber) __attribute__((weak));
void __tsan_switch_to_fiber(void *fiber, unsigned flags) __attribute__((weak));
void __tsan_acquire(void *address) __attribute__((weak));
void __tsan_release(void *address) __attribute__((weak));
void __tsan_read_range(void *address, unsigned long size) __attribute__((weak));
void __tsan_write_range(void *address, unsigned long size) __attribute__((weak));

#if GSV_EMU_ASAN
void __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake_stack, const void **bottom, size_t *size);
void __asan_unpoison_memory_region(const volatile void *address, size_t size);
#endif
}

inline bool gsv_emu_tsan()
{
    return __tsan_create_fiber != nullptr;
}

inline void gsv_emu_acquire(void *address)
{
    if (gsv_emu_tsan())
        __tsan_acquire(address);
}

inline void gsv_emu_release(void *address)
{
    if (gsv_emu_tsan())
        __tsan_release(address);
}

/** Reports an access by the emulator on behalf of the running thread. */
inline void gsv_emu_note_read(const void *address, size_t size)
{
    if (gsv_emu_tsan())
        __tsan_read_range(const_cast<void *>(address), size);
}

inline void gsv_emu_note_write(void *address, size_t size)
{
    if (gsv_emu_tsan())
        __tsan_write_range(address, size);
}

#endif
