/*
 * random.cu - outputs of Philox4x32-10, the generator of random models, by the kernel of philox.cuh
 * or by cuRAND.
 *
 * cuRAND's legacy order, which it guarantees for all releases, is the order of lib/base/philox.h.
 * Each call opens and closes the library and a generator: loading a model does not use them.
 */
#include "kernels/cuda/compute/philox.cuh"
#include "kernels/cuda/runtime/curand.cuh"
#include "kernels/cuda/runtime/stream.cuh"

namespace
{

/* The cuRAND library and generator of one call. All zero: none is open. */
struct generator {
    struct gsv_curand curand;
    void *made;
    const char *failed; /* the call that failed */
    int status;
};

bool passes(struct generator *g, const char *call, int status)
{
    if (status == GSV_CURAND_STATUS_SUCCESS)
        return true;
    g->failed = call;
    g->status = status;
    return false;
}

bool set_up(struct generator *g, const struct gpuserve_op_random *op, cudaStream_t queue)
{
    return passes(g, "curandCreateGenerator",
                  g->curand.create(&g->made, GSV_CURAND_RNG_PSEUDO_PHILOX4_32_10)) &&
           passes(g, "curandSetGeneratorOrdering",
                  g->curand.set_order(g->made, GSV_CURAND_ORDERING_PSEUDO_LEGACY)) &&
           passes(g, "curandSetPseudoRandomGeneratorSeed", g->curand.set_seed(g->made, op->seed)) &&
           passes(g, "curandSetGeneratorOffset", g->curand.set_offset(g->made, 4 * op->first)) &&
           passes(g, "curandSetStream", g->curand.set_stream(g->made, queue));
}

gpuserve_status tell(const struct generator *g, const struct gpuserve_device *device,
                     gpuserve_error *error)
{
    const cudaError_t last = cudaGetLastError();

    if (last != cudaSuccess)
        return gsv_cuda_fail(device->index, last, g->failed, error);
    return gsv_fail(
        error,
        g->status == GSV_CURAND_STATUS_ALLOCATION_FAILED ? GPUSERVE_E_NOMEM : GPUSERVE_E_DEVICE,
        "variant curand on %s: %s failed with status %d", device->name, g->failed, g->status);
}

gpuserve_status open(struct generator *g, const struct gpuserve_stream *stream,
                     const struct gpuserve_op_random *op, gpuserve_error *error)
{
    const gpuserve_status status = gsv_cuda_use(stream->device, error);
    char why[400];

    if (status != GPUSERVE_OK || op->variant != GPUSERVE_RANDOM_CURAND)
        return status;
    if (!gsv_curand_open(&g->curand, why, sizeof(why)))
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "variant curand: %s", why);
    return set_up(g, op, stream->queue) ? GPUSERVE_OK : tell(g, stream->device, error);
}

void close(struct generator *g)
{
    if (g->made)
        g->curand.destroy(g->made);
    gsv_curand_close(&g->curand);
}

cudaError_t generate(struct generator *g, const struct gpuserve_op_random *op, cudaStream_t queue)
{
    if (op->variant != GPUSERVE_RANDOM_CURAND)
        return gsv_cuda_philox(op->out, op->n, op->seed, op->first, queue);
    if (passes(g, "curandGenerate", g->curand.generate(g->made, op->out, op->n)))
        return cudaSuccess;
    const cudaError_t last = cudaGetLastError();
    return last == cudaSuccess ? cudaErrorUnknown : last;
}

} /* namespace */

gpuserve_status gsv_cuda_op_random(struct gpuserve_stream *stream, struct gpuserve_op_random *op,
                                   gpuserve_error *error)
{
    struct generator g = {};
    struct gsv_timer timer = {};
    gpuserve_status status = open(&g, stream, op, error);

    if (status == GPUSERVE_OK)
        status = gsv_cuda_stream_begin(stream, error);
    if (status == GPUSERVE_OK) {
        if (gsv_cuda_timer_start(&timer, stream) == GPUSERVE_OK) {
            const cudaError_t code = generate(&g, op, stream->queue);

            if (gsv_cuda_note(stream, code, g.failed ? g.failed : "the launch of philox_fill") ==
                GPUSERVE_OK)
                gsv_cuda_timer_stop(&timer, stream);
        }
        status = gsv_cuda_stream_finish(stream, error);
        op->seconds = gsv_cuda_timer_end(&timer, stream);
    }
    close(&g);
    return status;
}
