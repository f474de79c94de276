/*
 * max_sim: late interaction: the sum over the rows of a text's query of the largest dot product
 * with a row of the text. One float per text leaves the device, not its token vectors.
 *
 *   One block per text. Tiles of query rows (outer loop) and text rows pass through shared memory
 *   in float32, some columns at a time; a thread multiplies QUERIES by ROWS rows of them and keeps
 *   the maxima of its query rows. The lanes that share query rows then exchange maxima, and one
 *   thread adds these up in the order of the query. A dot product is summed by one thread in the
 *   order of the columns, so the bits depend on the two rows alone. The lengths of text rows are
 *   sums of the same columns.
 *
 *       grid = sequences, shared = the two tiles, then a maximum for each query row of a tile
 *
 *   Needs:  any dim, any alignment.
 *   Oracle: kernels/ref/max_sim.c.
 */
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/runtime/types.cuh"

namespace
{

const int THREADS = 128;
const int ACROSS = 16; /* threads along the rows of the text: half a warp */
const int DOWN = THREADS / ACROSS;
const int QUERIES = 4; /* rows of each side that a thread multiplies */
const int ROWS = 4;
const int TILE_QUERIES = QUERIES * DOWN;
const int TILE_ROWS = ROWS * ACROSS;
const int COLUMNS = 32;     /* of a tile: a lane copies one of them */
const int LD = COLUMNS + 4; /* rows of a tile start at different banks, aligned to 16 bytes */
const size_t SHARED = sizeof(float) * ((TILE_QUERIES + TILE_ROWS) * LD + TILE_QUERIES);
const float MIN_LENGTH = 1e-12f;

struct max_sim_args {
    const void *in;
    const float *query;
    const struct gpuserve_max_sim_text *texts;
    const int32_t *rows;
    float *out;
    int32_t dim;
    int32_t normalize;
};

/* The sums of a thread: products of its rows, and the squares of its text rows. */
struct max_sim_sums {
    float product[QUERIES][ROWS];
    float square[ROWS];
};

__device__ __forceinline__ float4 read_4(const float *from)
{
    return *reinterpret_cast<const float4 *>(from);
}

__device__ __forceinline__ float dot_4(const float4 &a, const float4 &b, float sum)
{
    sum = fmaf(a.x, b.x, sum);
    sum = fmaf(a.y, b.y, sum);
    sum = fmaf(a.z, b.z, sum);
    return fmaf(a.w, b.w, sum);
}

/* Copies columns [column, column + COLUMNS) of `n` rows, a warp for each in turn, with zeros past
 * the rows and columns. `numbers` has the rows' numbers, or is NULL: consecutive. */
template <typename T, int tile_rows>
__device__ __forceinline__ void copy_tile(float *to, const T *from, const int32_t *numbers, int n,
                                          int column, int dim)
{
    const int lane = static_cast<int>(threadIdx.x) % GSV_WARP;

#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x) / GSV_WARP; i < tile_rows; i += THREADS / GSV_WARP) {
        float x = 0.f;

        if (i < n && column + lane < dim) {
            const size_t row = static_cast<size_t>(numbers ? numbers[i] : i);

            x = gsv_to_float(from[row * dim + column + lane]);
        }
        to[i * LD + lane] = x;
    }
}

/* Adds the products of the columns in the tiles to the sums. */
__device__ __forceinline__ void add_columns(const float *queries, const float *rows, bool normalize,
                                            struct max_sim_sums *sums)
{
    const int across = static_cast<int>(threadIdx.x) % ACROSS;
    const int down = static_cast<int>(threadIdx.x) / ACROSS;

#pragma unroll 2
    for (int c = 0; c < COLUMNS; c += 4) {
        float4 b[ROWS];

#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            b[j] = read_4(rows + (across + j * ACROSS) * LD + c);
            if (normalize)
                sums->square[j] = dot_4(b[j], b[j], sums->square[j]);
        }
#pragma unroll
        for (int i = 0; i < QUERIES; i++) {
            const float4 a = read_4(queries + (down + i * DOWN) * LD + c);

#pragma unroll
            for (int j = 0; j < ROWS; j++)
                sums->product[i][j] = dot_4(a, b[j], sums->product[i][j]);
        }
    }
}

/* maximum[i] = the larger of it and the products of query row i with the first `n` rows. */
__device__ __forceinline__ void keep_largest(const struct max_sim_sums &sums, int n, bool normalize,
                                             float maximum[QUERIES])
{
    const int across = static_cast<int>(threadIdx.x) % ACROSS;

#pragma unroll
    for (int j = 0; j < ROWS; j++) {
        const float length = normalize ? sqrtf(sums.square[j]) : 1.f;
        const float divisor = length < MIN_LENGTH ? MIN_LENGTH : length; /* a NaN stays */

        if (across + j * ACROSS >= n)
            continue;
#pragma unroll
        for (int i = 0; i < QUERIES; i++)
            maximum[i] = gsv_max::combine(maximum[i], sums.product[i][j] / divisor);
    }
}

/* The largest products of a tile of query rows with all rows of the text, in `largest`. */
template <typename T>
__device__ void find_largest(const struct max_sim_args &args,
                             const struct gpuserve_max_sim_text &text, int first, float *shared,
                             float *largest)
{
    float *const queries = shared;
    float *const rows = shared + TILE_QUERIES * LD;
    const float *const query = args.query + static_cast<size_t>(text.query + first) * args.dim;
    float maximum[QUERIES];

#pragma unroll
    for (int i = 0; i < QUERIES; i++)
        maximum[i] = gsv_max::identity();
    for (int row = 0; row < text.n; row += TILE_ROWS) {
        struct max_sim_sums sums = {};

        for (int column = 0; column < args.dim; column += COLUMNS) {
            __syncthreads(); /* no thread reads the tiles before these any more */
            copy_tile<float, TILE_QUERIES>(queries, query, NULL, text.n_query - first, column,
                                           args.dim);
            copy_tile<T, TILE_ROWS>(rows, static_cast<const T *>(args.in),
                                    args.rows + text.first + row, text.n - row, column, args.dim);
            __syncthreads();
            add_columns(queries, rows, args.normalize != 0, &sums);
        }
        keep_largest(sums, text.n - row, args.normalize != 0, maximum);
    }
#pragma unroll
    for (int i = 0; i < QUERIES; i++) {
#pragma unroll
        for (int distance = ACROSS / 2; distance > 0; distance /= 2)
            maximum[i] =
                gsv_max::combine(maximum[i], __shfl_xor_sync(GSV_ALL_LANES, maximum[i], distance));
        if (threadIdx.x % ACROSS == 0)
            largest[static_cast<int>(threadIdx.x) / ACROSS + i * DOWN] = maximum[i];
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS) max_sim(const struct max_sim_args args)
{
    GSV_SHARED(float, shared);
    float *const largest = shared + (TILE_QUERIES + TILE_ROWS) * LD;
    double sum = 0.0;

    gsv_grid_wait();
    gsv_grid_launch_next();
    const struct gpuserve_max_sim_text text = args.texts[blockIdx.x];
    for (int first = 0; first < text.n_query && text.n > 0; first += TILE_QUERIES) {
        find_largest<T>(args, text, first, shared, largest);
        __syncthreads();
        for (int i = 0; threadIdx.x == 0 && i < min(text.n_query - first, TILE_QUERIES); i++)
            sum += static_cast<double>(largest[i]);
        /* The barrier before the next tile's copy keeps `largest` until it is read. */
    }
    if (threadIdx.x == 0)
        args.out[blockIdx.x] = static_cast<float>(sum);
}

template <typename T>
cudaError_t launch(const struct max_sim_args &args, int n_sequences, cudaStream_t stream)
{
    return GSV_LAUNCH_OVERLAP(max_sim<T>, n_sequences, THREADS, SHARED, stream, args);
}

} /* namespace */

cudaError_t gsv_cuda_max_sim(const struct gpuserve_op_max_sim *op, enum gsv_element element,
                             cudaStream_t stream)
{
    const struct max_sim_args args = { op->in,  op->query, op->texts,    op->rows,
                                       op->out, op->dim,   op->normalize };
    const int n = op->batch->n_sequences;

    switch (element) {
    case GSV_ELEMENT_F16:
        return launch<half>(args, n, stream);
    case GSV_ELEMENT_BF16:
        return launch<__nv_bfloat16>(args, n, stream);
    default:
        return launch<float>(args, n, stream);
    }
}
