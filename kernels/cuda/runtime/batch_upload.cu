/*
 * batch_upload.cu - shape of a batch, and its packing for the upload.
 *
 * A batch is uploaded in one copy of int32 words:
 *
 *     ids[n_rows] type_ids[n_rows] positions[n_rows] cu_seqlens[n_sequences + 1]
 *     key_counts[n_sequences] tiles[n_tiles][4]
 *
 * Each part is 16-byte aligned, so the addresses depend on the shape alone and stay valid for a
 * captured graph. Shapes are rounded up (rows by an eighth at most) to limit their number: padding
 * rows have id 0, padding sequences have no tokens, padding tiles have no rows.
 */
#include "kernels/cuda/runtime/stream.cuh"

#include <string.h>

/* --------------------------------------------------------------------------------- the shape */

/* Rounds n up to one of eight steps per power of two; at least `min_step`, at most `max`. */
static int32_t round_count(int32_t n, int32_t min_step, int32_t max)
{
    int32_t step = min_step;

    while (step < n / 8)
        step *= 2;
    n = (n + step - 1) / step * step;
    return n < max ? n : max;
}

/* Rounds up to a power of two: empty sequences cost little. */
static int32_t round_sequences(int32_t n, int32_t max)
{
    int32_t rounded = 1;

    while (rounded < n)
        rounded *= 2;
    return rounded < max ? rounded : max;
}

/* Upper bound over all length distributions: each sequence adds at most one partial work item, and
 * so do the padding rows. */
static int32_t max_tiles(int32_t n_rows, int32_t n_sequences, int32_t height)
{
    return n_rows / height + n_sequences + 1;
}

/* Work items of the sequences and of the padding rows. */
static int32_t count_tiles(const struct gpuserve_host_batch *host, int32_t n_rows, int32_t height)
{
    int32_t n = (n_rows - host->n_tokens + height - 1) / height;

    for (int32_t i = 0; i < host->n_sequences; i++)
        n += (host->cu_seqlens[i + 1] - host->cu_seqlens[i] + height - 1) / height;
    return n;
}

/* The highest tile that still occupies every multiprocessor. The bits do not depend on it. */
static int32_t tile_height(const struct gpuserve_stream *stream, int32_t n_rows, int32_t max_seqlen)
{
    int32_t height = 64;

    while (height > 16 &&
           (max_seqlen <= height / 2 ||
            static_cast<int64_t>(n_rows) / height * stream->n_heads < stream->device->n_processors))
        height /= 2;
    return height;
}

struct gsv_shape gsv_shape_of(const struct gpuserve_stream *stream,
                              const struct gpuserve_host_batch *host)
{
    const bool captured = host->n_tokens <= GSV_GRAPH_MAX_ROWS;
    struct gsv_shape shape;

    if (captured) {
        shape.n_rows = round_count(host->n_tokens, 16, stream->max_tokens);
        shape.n_sequences = round_sequences(host->n_sequences, stream->max_sequences);
    } else {
        shape.n_rows = (host->n_tokens + 15) / 16 * 16;
        shape.n_rows = shape.n_rows < stream->max_tokens ? shape.n_rows : stream->max_tokens;
        shape.n_sequences = host->n_sequences;
    }
    shape.tile_height = tile_height(stream, shape.n_rows, host->max_seqlen);
    shape.n_tiles = captured ? max_tiles(shape.n_rows, shape.n_sequences, shape.tile_height)
                             : count_tiles(host, shape.n_rows, shape.tile_height);
    shape.short_texts = host->max_seqlen <= GSV_ATTENTION_KEYS;
    return shape;
}

/* ---------------------------------------------------------------------------- the copy going up */

struct gsv_upload gsv_upload_of(const struct gsv_shape *shape)
{
    const size_t row_bytes = gsv_round_up(sizeof(int32_t) * shape->n_rows, 16);
    struct gsv_upload parts;

    parts.ids = 0;
    parts.type_ids = row_bytes;
    parts.positions = 2 * row_bytes;
    parts.cu_seqlens = 3 * row_bytes;
    parts.key_counts =
        parts.cu_seqlens +
        gsv_round_up(sizeof(int32_t) * (static_cast<size_t>(shape->n_sequences) + 1), 16);
    parts.tiles = parts.key_counts +
                  gsv_round_up(sizeof(int32_t) * static_cast<size_t>(shape->n_sequences), 16);
    parts.size = parts.tiles + sizeof(struct gsv_attention_tile) * shape->n_tiles;
    return parts;
}

/* Computed for the lowest tiles, which are the most. */
size_t gsv_max_upload(const struct gpuserve_stream_options *options)
{
    struct gsv_shape shape = { options->max_tokens, options->max_sequences, 0, 16, 0 };

    shape.n_tiles = max_tiles(shape.n_rows, shape.n_sequences, shape.tile_height);
    return gsv_round_up(gsv_upload_of(&shape).size, 256);
}

static void put_rows(char *to, const int32_t *from, int32_t n, int32_t n_rows)
{
    memcpy(to, from, sizeof(*from) * n);
    memset(to + sizeof(*from) * n, 0, sizeof(*from) * (n_rows - n));
}

/* Splits rows [first, end) into work items; padding rows have n_keys 0. */
static struct gsv_attention_tile *put_chunks(struct gsv_attention_tile *tile, int32_t first,
                                             int32_t end, int32_t n_keys, int32_t height)
{
    for (int32_t row = first; row < end; row += height) {
        tile->first_key = first;
        tile->n_keys = n_keys;
        tile->first_row = row;
        tile->n_rows = end - row < height ? end - row : height;
        tile++;
    }
    return tile;
}

/* Tokens of sequence i whose keys attention reads. */
static int32_t key_count(const struct gpuserve_host_batch *host, int32_t i)
{
    return host->key_counts ? host->key_counts[i] : host->cu_seqlens[i + 1] - host->cu_seqlens[i];
}

static void put_tiles(char *to, const struct gpuserve_host_batch *host,
                      const struct gsv_shape *shape)
{
    struct gsv_attention_tile *const tiles = reinterpret_cast<struct gsv_attention_tile *>(to);
    struct gsv_attention_tile *tile = tiles;

    for (int32_t i = 0; i < host->n_sequences; i++) {
        const int32_t first = host->cu_seqlens[i];
        const int32_t end = host->cu_seqlens[i + 1];

        tile = put_chunks(tile, first, end, key_count(host, i), shape->tile_height);
    }
    tile = put_chunks(tile, host->n_tokens, shape->n_rows, 0, shape->tile_height);
    memset(tile, 0, sizeof(*tile) * (shape->n_tiles - (tile - tiles)));
}

void gsv_pack(char *to, const struct gpuserve_host_batch *host, const struct gsv_shape *shape,
              const struct gsv_upload *parts)
{
    int32_t *const cu_seqlens = reinterpret_cast<int32_t *>(to + parts->cu_seqlens);
    int32_t *const key_counts = reinterpret_cast<int32_t *>(to + parts->key_counts);

    put_rows(to + parts->ids, host->ids, host->n_tokens, shape->n_rows);
    put_rows(to + parts->type_ids, host->type_ids, host->n_tokens, shape->n_rows);
    put_rows(to + parts->positions, host->positions, host->n_tokens, shape->n_rows);
    memcpy(cu_seqlens, host->cu_seqlens, sizeof(*cu_seqlens) * (host->n_sequences + 1));
    for (int32_t i = host->n_sequences + 1; i <= shape->n_sequences; i++)
        cu_seqlens[i] = host->n_tokens;
    for (int32_t i = 0; i < shape->n_sequences; i++)
        key_counts[i] = i < host->n_sequences ? key_count(host, i) : 0;
    put_tiles(to + parts->tiles, host, shape);
}
