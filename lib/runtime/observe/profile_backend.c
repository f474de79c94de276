/*
 * profile_backend.c - wraps every slot of a backend's table: times it or leaves it out.
 *
 * lib/model tells the stage of the operations that follow (gsv_profiler_observer()). Their kind and
 * order say too little: adapters, experts and projected embeddings have products of their own.
 *
 * Wrapped devices and streams hold the inner object and the profiler; slots unwrap and forward.
 */
#include "lib/runtime/observe/profile_backend.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

/* Passed as the backend's device and stream; the library handles only pointers to them. */
struct wrapped_device {
    struct gsv_profiler *profiler;
    struct gpuserve_device *inner;
};
struct wrapped_stream {
    struct gsv_profiler *profiler;
    struct gpuserve_stream *inner;
};

static struct wrapped_device *device_of(struct gpuserve_device *device)
{
    return (struct wrapped_device *)(void *)device;
}

static struct wrapped_stream *stream_of(struct gpuserve_stream *stream)
{
    return (struct wrapped_stream *)(void *)stream;
}

/* ------------------------------------------------------------------------------------- device */

gpuserve_status gsv_profiler_open(struct gsv_profiler *profiler, struct gpuserve_device **device,
                                  int32_t index, gpuserve_error *error)
{
    struct wrapped_device *wrapped = gsv_alloc_array(1, sizeof(*wrapped));
    gpuserve_status st;

    *device = NULL;
    if (!wrapped)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for profiling");
    wrapped->profiler = profiler;
    st = profiler->inner->device_open(&wrapped->inner, index, error);
    if (st == GPUSERVE_OK)
        *device = (struct gpuserve_device *)(void *)wrapped;
    else
        free(wrapped);
    return st;
}

static void device_close(struct gpuserve_device **device)
{
    struct wrapped_device *wrapped = device_of(*device);

    if (!wrapped)
        return;
    wrapped->profiler->inner->device_close(&wrapped->inner);
    free(wrapped);
    *device = NULL;
}

static gpuserve_status memory_alloc(struct gpuserve_device *device, void **memory, size_t size,
                                    gpuserve_error *error)
{
    const struct wrapped_device *d = device_of(device);

    return d->profiler->inner->memory_alloc(d->inner, memory, size, error);
}

static void memory_free(struct gpuserve_device *device, void *memory)
{
    const struct wrapped_device *d = device_of(device);

    d->profiler->inner->memory_free(d->inner, memory);
}

static gpuserve_status memory_write(struct gpuserve_device *device, void *to, const void *from,
                                    size_t size, gpuserve_error *error)
{
    const struct wrapped_device *d = device_of(device);

    return d->profiler->inner->memory_write(d->inner, to, from, size, error);
}

static gpuserve_status memory_read(struct gpuserve_device *device, void *to, const void *from,
                                   size_t size, gpuserve_error *error)
{
    const struct wrapped_device *d = device_of(device);

    return d->profiler->inner->memory_read(d->inner, to, from, size, error);
}

static gpuserve_status memory_write_floats(struct gpuserve_device *device, void *to,
                                           const float *from, size_t count, uint32_t dtype,
                                           gpuserve_error *error)
{
    const struct wrapped_device *d = device_of(device);

    return d->profiler->inner->memory_write_floats(d->inner, to, from, count, dtype, error);
}

static gpuserve_status memory_write_table(struct gpuserve_device *device, void *to,
                                          const float *from, size_t count, uint32_t dtype,
                                          gpuserve_error *error)
{
    const struct wrapped_device *d = device_of(device);

    return d->profiler->inner->memory_write_table(d->inner, to, from, count, dtype, error);
}

static gpuserve_status host_alloc(struct gpuserve_device *device, void **memory, size_t size,
                                  uint32_t kind, gpuserve_error *error)
{
    const struct wrapped_device *d = device_of(device);

    return d->profiler->inner->host_alloc(d->inner, memory, size, kind, error);
}

static void host_free(struct gpuserve_device *device, void *memory, uint32_t kind)
{
    const struct wrapped_device *d = device_of(device);

    d->profiler->inner->host_free(d->inner, memory, kind);
}

static gpuserve_status transfer(struct gpuserve_device *device, struct gpuserve_op_transfer *op,
                                gpuserve_error *error)
{
    const struct wrapped_device *d = device_of(device);

    return d->profiler->inner->transfer(d->inner, op, error);
}

static void int8_scales(struct gpuserve_device *device, const struct gpuserve_linear_source *source,
                        float *scales)
{
    const struct wrapped_device *d = device_of(device);

    d->profiler->inner->int8_scales(d->inner, source, scales);
}

static int32_t int8_copies(struct gpuserve_device *device, int32_t k, int32_t *step)
{
    const struct wrapped_device *d = device_of(device);

    return d->profiler->inner->int8_copies(d->inner, k, step);
}

static gpuserve_status linear_create(struct gpuserve_device *device,
                                     struct gpuserve_linear **linear, void *memory,
                                     const struct gpuserve_linear_source *source,
                                     gpuserve_error *error)
{
    const struct wrapped_device *d = device_of(device);
    struct gsv_profiler *p = d->profiler;
    const gpuserve_status st = p->inner->linear_create(d->inner, linear, memory, source, error);

    if (st != GPUSERVE_OK)
        return st;
    pthread_mutex_lock(&p->lock);
    if (p->n_linears < GSV_PROFILE_LINEARS) {
        p->linears[p->n_linears].linear = *linear;
        p->linears[p->n_linears].n = source->n;
        p->linears[p->n_linears++].k = source->k;
    }
    pthread_mutex_unlock(&p->lock);
    return st;
}

/* -------------------------------------------------------------------------------------- stages */

static void begin_phase(void *user, enum gsv_phase phase, int32_t layer)
{
    struct gsv_profiler *p = user;

    p->stage = gsv_profile_stage_of(phase);
    p->layer = layer;
}

struct gsv_phase_observer gsv_profiler_observer(struct gsv_profiler *profiler)
{
    return (struct gsv_phase_observer){ begin_phase, profiler };
}

/* True if the next operation is to be left out. */
static bool is_left_out(const struct gsv_profiler *p)
{
    return p->leaves_out && (p->left_out == p->stage || p->left_out == GSV_PROFILE_STAGES) &&
           (p->left_out_layer < 0 || p->left_out_layer == p->layer);
}

/* The event, or NULL if the table is full. */
static struct gsv_profile_event *note(struct gsv_profiler *p, enum gsv_profile_stage stage,
                                      int32_t layer, uint64_t begin, double flops)
{
    struct gsv_profile_event *event = &p->events[p->n_events];

    if (p->n_events == GSV_PROFILE_EVENTS)
        return NULL;
    *event = (struct gsv_profile_event){
        .stage = stage, .layer = layer, .begin_ns = begin, .end_ns = gsv_now_ns(), .flops = flops
    };
    p->n_events++;
    return event;
}

static struct gsv_profile_event *note_operation(struct gsv_profiler *p, uint64_t begin,
                                                double flops)
{
    return note(p, p->stage, p->layer, begin, flops);
}

static void find_shape(struct gsv_profiler *p, const struct gpuserve_linear *linear, int32_t *n,
                       int32_t *k)
{
    *n = *k = 0;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < p->n_linears; i++) {
        if (p->linears[i].linear == linear) {
            *n = p->linears[i].n;
            *k = p->linears[i].k;
        }
    }
    pthread_mutex_unlock(&p->lock);
}

static gpuserve_status linear(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op)
{
    const struct wrapped_stream *s = stream_of(stream);
    struct gsv_profiler *p = s->profiler;
    const uint64_t begin = gsv_now_ns();
    struct gsv_profile_event *event;
    gpuserve_status st = GPUSERVE_OK;
    int32_t n, k;

    if (!is_left_out(p))
        st = p->inner->linear(s->inner, op);
    event = note_operation(p, begin, 0);
    find_shape(p, op->weight, &n, &k);
    if (event) {
        event->rows = op->rows;
        event->columns = n;
        event->inner = k;
        event->flops = 2.0 * op->rows * n * k;
    }
    return st;
}

static gpuserve_status attention(struct gpuserve_stream *stream,
                                 const struct gpuserve_op_attention *op)
{
    const struct wrapped_stream *s = stream_of(stream);
    struct gsv_profiler *p = s->profiler;
    const uint64_t begin = gsv_now_ns();
    gpuserve_status st = GPUSERVE_OK;

    if (!is_left_out(p))
        st = p->inner->attention(s->inner, op);
    note_operation(p, begin, 4.0 * p->attended * op->n_heads * op->head_size);
    return st;
}

#define WRAP_OPERATION(name, type)                                                     \
    static gpuserve_status name(struct gpuserve_stream *stream, const struct type *op) \
    {                                                                                  \
        const struct wrapped_stream *s = stream_of(stream);                            \
        struct gsv_profiler *p = s->profiler;                                          \
        const uint64_t begin = gsv_now_ns();                                           \
        gpuserve_status st = GPUSERVE_OK;                                              \
                                                                                       \
        if (!is_left_out(p))                                                           \
            st = p->inner->name(s->inner, op);                                         \
        note_operation(p, begin, 0);                                                   \
        return st;                                                                     \
    }

WRAP_OPERATION(prefetch, gpuserve_op_prefetch)
WRAP_OPERATION(embed, gpuserve_op_embed)
WRAP_OPERATION(add_norm, gpuserve_op_add_norm)
WRAP_OPERATION(rotate, gpuserve_op_rotate)
WRAP_OPERATION(glu, gpuserve_op_glu)
WRAP_OPERATION(route, gpuserve_op_route)
WRAP_OPERATION(add_scaled, gpuserve_op_add_scaled)
WRAP_OPERATION(pool, gpuserve_op_pool)
WRAP_OPERATION(normalize, gpuserve_op_rows)
WRAP_OPERATION(activate, gpuserve_op_rows)
WRAP_OPERATION(max_sim, gpuserve_op_max_sim)
WRAP_OPERATION(compact, gpuserve_op_compact)

/* ------------------------------------------------------------------------------------- streams */

static gpuserve_status stream_create(struct gpuserve_device *device,
                                     struct gpuserve_stream **stream,
                                     const struct gpuserve_stream_options *options,
                                     gpuserve_error *error)
{
    const struct wrapped_device *d = device_of(device);
    struct wrapped_stream *wrapped = gsv_alloc_array(1, sizeof(*wrapped));
    gpuserve_status st;

    *stream = NULL;
    if (!wrapped)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for profiling");
    wrapped->profiler = d->profiler;
    st = d->profiler->inner->stream_create(d->inner, &wrapped->inner, options, error);
    if (st == GPUSERVE_OK)
        *stream = (struct gpuserve_stream *)(void *)wrapped;
    else
        free(wrapped);
    return st;
}

static void stream_destroy(struct gpuserve_stream **stream)
{
    struct wrapped_stream *wrapped = stream_of(*stream);

    if (!wrapped)
        return;
    wrapped->profiler->inner->stream_destroy(&wrapped->inner);
    free(wrapped);
    *stream = NULL;
}

/* A batch that leaves out operations is another program; replaying the graph of the whole batch
 * would be wrong. */
static uint64_t program_of(const struct gsv_profiler *p, uint64_t program)
{
    if (!p->leaves_out || program == GPUSERVE_PROGRAM_ONCE)
        return program;
    return program ^ (UINT64_C(1) + (uint64_t)p->left_out) << 56 ^
           (uint64_t)(uint32_t)(p->left_out_layer + 1) << 48;
}

static gpuserve_status batch_begin(struct gpuserve_stream *stream, uint64_t program,
                                   const struct gpuserve_host_batch *host,
                                   struct gpuserve_batch *batch, int32_t *replayed,
                                   gpuserve_error *error)
{
    const struct wrapped_stream *s = stream_of(stream);
    struct gsv_profiler *p = s->profiler;
    const uint64_t begin = gsv_now_ns();
    gpuserve_status st;

    p->n_events = 0;
    begin_phase(p, GSV_PHASE_EMBED, -1);
    p->attended = 0;
    for (int32_t i = 0; i < host->n_sequences; i++) {
        const double length = host->cu_seqlens[i + 1] - host->cu_seqlens[i];

        p->attended += length * length;
    }
    st = p->inner->batch_begin(s->inner, program_of(p, program), host, batch, replayed, error);
    note(p, GSV_PROFILE_UPLOAD, -1, begin, 0);
    return st;
}

static gpuserve_status batch_end(struct gpuserve_stream *stream, void *to_host, const void *from,
                                 size_t size, gpuserve_error *error)
{
    const struct wrapped_stream *s = stream_of(stream);
    const uint64_t begin = gsv_now_ns();
    const gpuserve_status st = s->profiler->inner->batch_end(s->inner, to_host, from, size, error);

    note(s->profiler, GSV_PROFILE_DOWNLOAD, -1, begin, 0);
    return st;
}

static gpuserve_status stream_wait(struct gpuserve_stream *stream, gpuserve_error *error)
{
    const struct wrapped_stream *s = stream_of(stream);
    const uint64_t begin = gsv_now_ns();
    const gpuserve_status st = s->profiler->inner->stream_wait(s->inner, error);

    note(s->profiler, GSV_PROFILE_DOWNLOAD, -1, begin, 0);
    return st;
}

/* Not used by models: forwarded, so that every slot of the table works. */
static gpuserve_status matmul_bytes(struct gpuserve_device *device, struct gpuserve_op_matmul *op,
                                    size_t *size, gpuserve_error *error)
{
    const struct wrapped_device *d = device_of(device);

    return d->profiler->inner->matmul_bytes(d->inner, op, size, error);
}

static gpuserve_status matmul(struct gpuserve_stream *stream, struct gpuserve_op_matmul *op,
                              gpuserve_error *error)
{
    const struct wrapped_stream *s = stream_of(stream);

    return s->profiler->inner->matmul(s->inner, op, error);
}

static gpuserve_status chain(struct gpuserve_stream *stream, struct gpuserve_op_chain *op,
                             gpuserve_error *error)
{
    const struct wrapped_stream *s = stream_of(stream);

    return s->profiler->inner->chain(s->inner, op, error);
}

static gpuserve_status lstm_layer_create(struct gpuserve_device *device,
                                         struct gpuserve_lstm_layer **layer, void *memory,
                                         const struct gpuserve_lstm_source *source,
                                         gpuserve_error *error)
{
    const struct wrapped_device *d = device_of(device);

    return d->profiler->inner->lstm_layer_create(d->inner, layer, memory, source, error);
}

static gpuserve_status lstm_bytes(struct gpuserve_device *device, struct gpuserve_op_lstm *op,
                                  size_t *size, gpuserve_error *error)
{
    const struct wrapped_device *d = device_of(device);

    return d->profiler->inner->lstm_bytes(d->inner, op, size, error);
}

static gpuserve_status lstm(struct gpuserve_stream *stream, struct gpuserve_op_lstm *op,
                            gpuserve_error *error)
{
    const struct wrapped_stream *s = stream_of(stream);

    return s->profiler->inner->lstm(s->inner, op, error);
}

static gpuserve_status random_numbers(struct gpuserve_stream *stream, struct gpuserve_op_random *op,
                                      gpuserve_error *error)
{
    const struct wrapped_stream *s = stream_of(stream);

    return s->profiler->inner->random(s->inner, op, error);
}

/* --------------------------------------------------------------------------------------- table */

/* A new slot of the table needs a wrapper here if it takes a device or a stream. */
_Static_assert(offsetof(struct gpuserve_backend, device_count) + 53 * sizeof(void (*)(void)) ==
                   sizeof(struct gpuserve_backend),
               "every slot of struct gpuserve_backend is thought of in gsv_profiler_init");

void gsv_profiler_init(struct gsv_profiler *profiler, const struct gpuserve_backend *inner)
{
    struct gpuserve_backend *table = &profiler->table;

    memset(profiler, 0, sizeof(*profiler));
    pthread_mutex_init(&profiler->lock, NULL);
    profiler->inner = inner;
    profiler->left_out_layer = -1;
    /* Copied unchanged, because they take no opened device and no stream: device_count,
     * device_facts, device_check, activation_size, table_size, linear_bytes, stream_bytes,
     * linear_destroy, linear_move, lstm_layer_bytes, lstm_max_bytes, lstm_layer_destroy and
     * lstm_layer_move. gsv_profiler_open() replaces device_open. */
    *table = *inner;
    table->device_close = device_close;
    table->memory_alloc = memory_alloc;
    table->memory_free = memory_free;
    table->memory_write = memory_write;
    table->memory_read = memory_read;
    table->memory_write_floats = memory_write_floats;
    table->memory_write_table = memory_write_table;
    table->host_alloc = host_alloc;
    table->host_free = host_free;
    table->transfer = transfer;
    table->int8_scales = int8_scales;
    table->int8_copies = int8_copies;
    table->linear_create = linear_create;
    table->stream_create = stream_create;
    table->stream_destroy = stream_destroy;
    table->batch_begin = batch_begin;
    table->batch_end = batch_end;
    table->stream_wait = stream_wait;
    table->prefetch = prefetch;
    table->embed = embed;
    table->linear = linear;
    table->add_norm = add_norm;
    table->rotate = rotate;
    table->glu = glu;
    table->route = route;
    table->add_scaled = add_scaled;
    table->attention = attention;
    table->pool = pool;
    table->normalize = normalize;
    table->activate = activate;
    table->max_sim = max_sim;
    table->compact = compact;
    table->matmul_bytes = matmul_bytes;
    table->matmul = matmul;
    table->chain = chain;
    table->lstm_layer_create = lstm_layer_create;
    table->lstm_bytes = lstm_bytes;
    table->lstm = lstm;
    table->random = random_numbers;
}

void gsv_profiler_reset(struct gsv_profiler *profiler)
{
    pthread_mutex_destroy(&profiler->lock);
}
