/*
 * test_nomem.c - the CUDA backend releases what it holds also when host memory is short, on the
 * emulator.
 */
#include "kernels/kernels.h"
#include "tests/base/failing_malloc.h"
#include "tests/cudaemu/emu.h"

#include <criterion/criterion.h>
#include <dlfcn.h>

static const struct gpuserve_backend *cuda(void)
{
    static const struct gpuserve_host host = { sizeof(host), GPUSERVE_BACKEND_ABI, NULL, NULL };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const struct gpuserve_backend *backend;
    void *library = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);

    cr_assert_not_null(library, "%s", dlerror());
    backend = ((gpuserve_backend_entry_fn)dlsym(library, GPUSERVE_BACKEND_ENTRY))(&host, &error);
    cr_assert_not_null(backend, "%s", error.message);
    return backend;
}

Test(cuda_nomem, memory_is_freed_without_memory)
{
    const struct gpuserve_backend *backend = cuda();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gpuserve_device *device;

    cr_assert_eq(backend->device_open(&device, 0, &error), GPUSERVE_OK, "%s", error.message);
    for (int forever = 0; forever < 2; forever++) {
        struct gsv_emu_counters before, after;
        void *memory;

        gsv_emu_get_counters(&before);
        cr_assert_eq(backend->memory_alloc(device, &memory, 1 << 20, &error), GPUSERVE_OK, "%s",
                     error.message);
        failing_malloc_arm(1, forever);
        backend->memory_free(device, memory);
        cr_expect(failing_malloc_fired());
        failing_malloc_arm(0, false);
        gsv_emu_get_counters(&after);
        cr_expect_eq(after.live_bytes, before.live_bytes);
        cr_expect_eq(after.live_allocations, before.live_allocations);
    }
    backend->device_close(&device);
}
