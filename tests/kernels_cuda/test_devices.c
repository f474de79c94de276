/*
 * test_devices.c - which devices and which libgpuserve versions the backend accepts, and its
 * differences between devices.
 *
 * Only on the emulator, whose devices can be made older. Each test is a separate process.
 */
#include "tests/cudaemu/emu.h"
#include "tests/kernels_cuda/net.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gsv_emu_counters counters(void)
{
    struct gsv_emu_counters c;

    gsv_emu_get_counters(&c);
    return c;
}

static void expect_words(const gpuserve_error *error, const char *a, const char *b,
                         const char *hint)
{
    cr_expect_not_null(strstr(error->message, a), "%s in \"%s\"", a, error->message);
    cr_expect_not_null(strstr(error->message, b), "%s in \"%s\"", b, error->message);
    cr_expect_not_null(strstr(error->hint, hint), "%s in \"%s\"", hint, error->hint);
}

/* ---------------------------------------------------------------------------------- refusals */

Test(kernels_cuda_devices, below_compute_capability_8_is_refused)
{
    static const int old[][2] = { { 7, 5 }, { 7, 0 }, { 6, 1 } };
    const struct gpuserve_backend *cuda = cuda_backend();

    for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++) {
        struct gpuserve_device_facts facts = { .struct_size = sizeof(facts) };
        gpuserve_error open_error = GPUSERVE_ERROR_INIT, facts_error = GPUSERVE_ERROR_INIT;
        struct gpuserve_device *device = NULL;
        char version[8];

        snprintf(version, sizeof(version), "%d.%d", old[i][0], old[i][1]);
        gsv_emu_set_capability(old[i][0], old[i][1]);
        cr_expect_eq(cuda->device_open(&device, 0, &open_error), GPUSERVE_E_UNSUPPORTED);
        cr_expect_null(device);
        expect_words(&open_error, version, "8.0 or newer", "cpu");
        cr_expect_eq(cuda->device_facts(0, &facts, &facts_error), GPUSERVE_E_UNSUPPORTED);
        expect_words(&facts_error, version, "8.0 or newer", "cpu");
    }
    cr_expect_eq(counters().live_allocations, 0);
}

Test(kernels_cuda_devices, a_driver_older_than_the_toolkit_is_refused)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    int32_t count = 7;

    gsv_emu_set_driver(12080);
    cr_expect_eq(cuda_backend()->device_count(&count, &error), GPUSERVE_E_UNSUPPORTED,
                 "another build of the plugin may fit");
    cr_expect_eq(count, 0);
    expect_words(&error, "driver supports CUDA 12.8", "built with 13.", "580");
}

/* Requests the entry like another release of libgpuserve. */
Test(kernels_cuda_devices, another_abi_is_refused_with_both_numbers)
{
    const char *const folder = getenv("GPUSERVE_PLUGIN_DIR");
    struct gpuserve_host host = { sizeof(host), GPUSERVE_BACKEND_ABI + 1, NULL, NULL };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char path[1024], ours[16], theirs[32];
    gpuserve_backend_entry_fn entry;
    void *library;

    snprintf(path, sizeof(path), "%s/libgpuserve-cuda.so", folder ? folder : "");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    entry = (gpuserve_backend_entry_fn)dlsym(library, GPUSERVE_BACKEND_ENTRY);
    snprintf(ours, sizeof(ours), "ABI %u", GPUSERVE_BACKEND_ABI);
    snprintf(theirs, sizeof(theirs), "libgpuserve ABI %u", GPUSERVE_BACKEND_ABI + 1);
    cr_expect_null(entry(&host, &error));
    cr_expect_eq(error.status, GPUSERVE_E_UNSUPPORTED);
    expect_words(&error, ours, theirs, "same version");
    host.abi = GPUSERVE_BACKEND_ABI;
    host.struct_size = sizeof(host) - 1; /* an older one, with fewer services */
    cr_expect_null(entry(&host, NULL));
    cr_expect_null(entry(NULL, NULL));
}

/* The generic kernel supports head widths up to 1024 (test_attention.c); wider ones are
 * rejected. */
Test(kernels_cuda_devices, a_head_too_wide_for_any_kernel_is_refused)
{
    static const struct lengths lengths = { 1, { 3 } };
    const struct gpuserve_backend *cuda = cuda_backend();
    struct gpuserve_host_batch host = make_host_batch(&lengths, 9, 1);
    struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT16, 16, 4, 1, 0);
    struct buffer qkv = make_input(GPUSERVE_DTYPE_FLOAT16, (size_t)16 * 3 * 1025, 5, 1.0f);
    struct buffer out = make_output(GPUSERVE_DTYPE_FLOAT16, (size_t)16 * 1025);
    struct gpuserve_batch batch = begin(stream, &host);
    const struct gpuserve_op_attention op = { .batch = &batch,
                                              .qkv = qkv.device,
                                              .out = out.device,
                                              .n_heads = 1,
                                              .head_size = 1025,
                                              .scale = 0.03f };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float unused = 0;

    cr_expect_eq(cuda->attention(stream, &op), GPUSERVE_E_UNSUPPORTED);
    cr_expect_eq(cuda->batch_end(stream, &unused, out.device, sizeof(unused), &error),
                 GPUSERVE_E_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "size 1025"), "%s", error.message);
    cr_expect_not_null(strstr(error.message, "1024"), "%s", error.message);
    download(&out);
    cr_expect(isnan(out.host[0]), "something was computed");
    free_buffer(&out), free_buffer(&qkv);
    free_host_batch(&host);
    cuda->stream_destroy(&stream);
}

/* -------------------------------------------------------------------------- overlapping kernels */

/* Runs a batch `runs` times on devices of this capability; returns its counters and vectors. */
static struct gsv_emu_counters run_on(int major, int runs, float *vectors, uint64_t *overlapping,
                                      uint64_t *launches)
{
    static const struct lengths lengths = { 3, { 5, 17, 2 } };
    struct gpuserve_host_batch host = make_host_batch(&lengths, NET_VOCAB, 3);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_emu_counters before, after;
    struct net *net;

    gsv_emu_set_capability(major, 0);
    /* Few rows, so that our own kernels compute the products: cuBLASLt's do not overlap. */
    net = net_open(cuda_backend(), GPUSERVE_DTYPE_FLOAT16, 0, &error);
    cr_assert_not_null(net, "%s", error.message);
    before = counters();
    for (int i = 0; i < runs; i++)
        cr_assert_eq(net_run(net, 1, &host, vectors, NULL, &error), GPUSERVE_OK, "%s",
                     error.message);
    after = counters();
    *overlapping = after.overlapping - before.overlapping;
    *launches = after.launches - before.launches;
    net_close(&net);
    free_host_batch(&host);
    return after;
}

/* Direct run, recording and replay: from sm_90 on each kernel of a batch may overlap the one before
 * it, on older devices none; the values are the same. */
Test(kernels_cuda_devices, kernels_overlap_from_sm_90_on)
{
    float old[3 * NET_HIDDEN], new[3 * NET_HIDDEN];
    uint64_t overlapping, launches;

    (void)run_on(8, 3, old, &overlapping, &launches);
    cr_expect_eq(overlapping, 0);
    cr_expect_gt(launches, 0);
    (void)run_on(9, 3, new, &overlapping, &launches);
    cr_expect_eq(overlapping, launches, "%d of %d launches", (int)overlapping, (int)launches);
    cr_expect_arr_eq(old, new, sizeof(old));
    (void)run_on(12, 1, new, &overlapping, &launches);
    cr_expect_eq(overlapping, launches);
    cr_expect_str_empty(gsv_emu_report());
}

/* ---------------------------------------------------------------------------------- two streams */

enum { MAX_DEEDS = 1024 };

/* Index of a stream's first (`last`: last) action of a kind; -1: none. */
static int find(const struct gsv_emu_deed *deeds, size_t n, int stream, enum gsv_emu_did did,
                bool last)
{
    int found = -1;

    for (size_t i = 0; i < n; i++)
        if (deeds[i].stream == stream && deeds[i].did == did && (found < 0 || last))
            found = (int)i;
    return found;
}

/* Streams that run late and in random order: one batch's copies and kernels are not ordered with
 * the other's. So in some order batch n + 1 is uploaded while batch n is computed, and its vectors
 * are unchanged. */
Test(kernels_cuda_devices, the_next_batch_is_copied_while_one_computes)
{
    static const struct lengths lengths = { 2, { 7, 12 } };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gpuserve_host_batch hosts[2];
    struct gsv_emu_deed deeds[MAX_DEEDS];
    float want[2][2 * NET_HIDDEN], got[2][2 * NET_HIDDEN];
    struct net *nets[2];
    int streams[2], up = 0, down = 0;
    size_t n;

    for (uint32_t i = 0; i < 2; i++) {
        nets[i] =
            net_open(cuda_backend(), GPUSERVE_DTYPE_FLOAT16, GPUSERVE_STREAM_DETERMINISTIC, &error);
        cr_assert_not_null(nets[i], "%s", error.message);
        hosts[i] = make_host_batch(&lengths, NET_VOCAB, 7 + i);
        cr_assert_eq(net_run(nets[i], 1, &hosts[i], want[i], NULL, &error), GPUSERVE_OK);
    }
    for (uint64_t seed = 1; seed <= 20; seed++) {
        gsv_emu_reset();
        gsv_emu_seed(seed);
        gsv_emu_set_late(1);
        for (int i = 0; i < 2; i++)
            cr_assert_eq(net_begin(nets[i], seed, &hosts[i], got[i], NULL, &error), GPUSERVE_OK);
        for (int i = 0; i < 2; i++)
            cr_assert_eq(net_wait(nets[i], &error), GPUSERVE_OK, "%s", error.message);
        n = gsv_emu_history(deeds, MAX_DEEDS);
        cr_assert(n > 0 && n <= MAX_DEEDS);
        streams[0] = streams[1] = deeds[0].stream;
        for (size_t i = 0; i < n; i++) {
            streams[0] = deeds[i].stream < streams[0] ? deeds[i].stream : streams[0];
            streams[1] = deeds[i].stream > streams[1] ? deeds[i].stream : streams[1];
        }
        for (int i = 0; i < 2; i++) {
            const int copied = find(deeds, n, streams[1 - i], GSV_EMU_DID_COPY_IN, false);
            const int brought = find(deeds, n, streams[1 - i], GSV_EMU_DID_COPY_OUT, false);
            const int begin = find(deeds, n, streams[i], GSV_EMU_DID_KERNEL, false);
            const int end = find(deeds, n, streams[i], GSV_EMU_DID_KERNEL, true);

            up += copied > begin && copied < end;
            down += brought > begin && brought < end;
        }
        cr_expect_arr_eq(got[0], want[0], sizeof(want[0]), "seed %d", (int)seed);
        cr_expect_arr_eq(got[1], want[1], sizeof(want[1]), "seed %d", (int)seed);
    }
    cr_expect_gt(up, 0, "no batch came up while the other was computed");
    cr_expect_gt(down, 0, "no result went down while the other was computed");
    cr_expect_str_empty(gsv_emu_report());
    for (int i = 0; i < 2; i++) {
        net_close(&nets[i]);
        free_host_batch(&hosts[i]);
    }
}
