/*
 * test_profile_backend.c - the events of a batch that has more operations than the table has room.
 */
#include "lib/runtime/observe/profile_backend.h"

#include <criterion/criterion.h>
#include <string.h>

static gpuserve_status do_attention(struct gpuserve_stream *stream,
                                    const struct gpuserve_op_attention *op)
{
    (void)stream;
    (void)op;
    return GPUSERVE_OK;
}

static gpuserve_status do_linear(struct gpuserve_stream *stream,
                                 const struct gpuserve_op_linear *op)
{
    (void)stream;
    (void)op;
    return GPUSERVE_OK;
}

static gpuserve_status make_stream(struct gpuserve_device *device, struct gpuserve_stream **stream,
                                   const struct gpuserve_stream_options *options,
                                   gpuserve_error *error)
{
    (void)device;
    (void)options;
    (void)error;
    *stream = NULL;
    return GPUSERVE_OK;
}

static void end_stream(struct gpuserve_stream **stream)
{
    *stream = NULL;
}

static gpuserve_status open_device(struct gpuserve_device **device, int32_t index,
                                   gpuserve_error *error)
{
    (void)index;
    (void)error;
    *device = NULL;
    return GPUSERVE_OK;
}

static void close_device(struct gpuserve_device **device)
{
    *device = NULL;
}

/* The last event has room, the product after it has none: the event stays as it is. */
Test(profile_backend, a_full_table_keeps_its_last_event)
{
    static const struct gpuserve_backend inner = { .device_open = open_device,
                                                   .device_close = close_device,
                                                   .stream_create = make_stream,
                                                   .stream_destroy = end_stream,
                                                   .linear = do_linear,
                                                   .attention = do_attention };
    static struct gsv_profiler profiler;
    const struct gpuserve_op_attention attention = { .n_heads = 1, .head_size = 1 };
    const struct gpuserve_op_linear linear = { .rows = 7 };
    struct gpuserve_device *device;
    struct gpuserve_stream *stream;
    struct gsv_profile_event last;

    gsv_profiler_init(&profiler, &inner);
    cr_assert_eq(gsv_profiler_open(&profiler, &device, 0, NULL), GPUSERVE_OK);
    cr_assert_eq(profiler.table.stream_create(device, &stream, NULL, NULL), GPUSERVE_OK);
    profiler.attended = 1;
    for (int i = 0; i < GSV_PROFILE_EVENTS; i++)
        cr_assert_eq(profiler.table.attention(stream, &attention), GPUSERVE_OK);
    cr_assert_eq(profiler.n_events, (size_t)GSV_PROFILE_EVENTS);
    last = profiler.events[GSV_PROFILE_EVENTS - 1];
    cr_expect_eq(last.flops, 4);
    cr_assert_eq(profiler.table.linear(stream, &linear), GPUSERVE_OK);
    cr_expect_eq(memcmp(&last, &profiler.events[GSV_PROFILE_EVENTS - 1], sizeof(last)), 0);
    profiler.table.stream_destroy(&stream);
    profiler.table.device_close(&device);
    gsv_profiler_reset(&profiler);
}
