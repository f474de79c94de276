#!/usr/bin/env python3
"""Plant one fault at a time into the CUDA kernels: some test must fail on the emulator.

    kernel_faults.py [WORD...]      through `./dev limits kernels`

FAULTS has the faults: barriers and waits left out, tails and masks forgotten, operands exchanged, a term of an epilogue
lost. Each is planted into a copy of the tree below build-limits/ (cache_keys.py makes it), and the tests of its kernel
run. WORD: only faults that have one in their names. Prints a table; the last line is "N noticed, N unnoticed".
"""
import sys

from cache_keys import plant

GEMM = "kernels/cuda/ops/gemm_mma.cuh"
EPILOGUE = "kernels/cuda/ops/gemm_epilogue.cuh"
WGMMA = "kernels/cuda/ops/gemm_wgmma.cu"
WGMMA_TILES = "kernels/cuda/ops/gemm_wgmma.cuh"
ATTENTION = "kernels/cuda/attention/attention_mma.cuh"
NORM = "kernels/cuda/ops/rownorm.cuh"
POOL = "kernels/cuda/ops/pool.cu"
MAX_SIM = "kernels/cuda/ops/max_sim.cu"
COMPACT = "kernels/cuda/ops/compact.cu"
LT = "kernels/cuda/runtime/cublaslt.cu"
TUNER = "kernels/cuda/runtime/cublaslt_tuner.cu"
TESTS = {GEMM: "linear", WGMMA: "linear int8", WGMMA_TILES: "linear", EPILOGUE: "linear", ATTENTION: "attention", NORM: "rows", POOL: "rows", MAX_SIM: "rows", COMPACT: "rows", LT: "faults linear", TUNER: "faults",
         "kernels/cuda/ops/bias_act.cu": "linear", "kernels/cuda/ops/glu.cu": "gates", "kernels/cuda/ops/math.cuh": "linear",
         "kernels/cuda/ops/embed.cu": "rows", "kernels/cuda/ops/gemv.cu": "linear"}
# (name, file, text, its replacement)
FAULTS = (
    ("product: no barrier before a tile is read", GEMM,
     "        __syncthreads(); /* the tile is loaded, and no thread reads the one before it any more */\n", ""),
    ("product: no wait for the copies", GEMM, "        gsv_cp_async_wait<GSV_MMA_STAGES - 2>();\n", ""),
    ("product: a copy too many in flight", GEMM, "gsv_cp_async_wait<GSV_MMA_STAGES - 2>", "gsv_cp_async_wait<GSV_MMA_STAGES - 1>"),
    ("product: no zeros past the end of k", GEMM, "from[i], left > 0);", "from[i], true);"),
    ("product: the last tile is not copied", GEMM, "if (t >= GSV_MMA_STAGES) {", "if (t > GSV_MMA_STAGES) {"),
    ("product: two stages of three", GEMM, "at == (GSV_MMA_STAGES - 1) * Shape::stage_bytes", "at == (GSV_MMA_STAGES - 2) * Shape::stage_bytes"),
    ("product: halves of B exchanged", GEMM, "const uint32_t high[2] = { b[2], b[3] };", "const uint32_t high[2] = { b[3], b[2] };"),
    ("product: rows 8 to 15 of A are rows 0 to 7", GEMM, "a_tile + lane % 16 * Shape::row_bytes", "a_tile + lane % 8 * Shape::row_bytes"),
    ("product: tf32 is truncated", GEMM, "ra[i] = gsv_tf32(__uint_as_float(a[i]));", "ra[i] = a[i] & 0xffffe000u;"),
    ("product: columns of another warp", GEMM, "warp % Shape::warps_across * Shape::warp_columns + j * 8 +", "warp / Shape::warps_across * Shape::warp_columns + j * 8 +"),
    ("epilogue: the second column has the bias of the first", EPILOGUE, "y += both ? gemm.bias[column + 1] : 0.f;", "y += gemm.bias[column];"),
    ("epilogue: rows past the matrix are stored", EPILOGUE, "if (row >= gemm.m || column >= gemm.n)", "if (column >= gemm.n)"),
    ("epilogue: columns past the matrix are stored", EPILOGUE, "if (row >= gemm.m || column >= gemm.n)", "if (row >= gemm.m)"),
    ("epilogue: the lower half of a tile on the upper", EPILOGUE, "gsv_mma_row<Shape>(i) + half * 8;", "gsv_mma_row<Shape>(i);"),
    ("epilogue: the residual of the first column alone", EPILOGUE, "            y += gsv_to_float(more.v[1]);\n", ""),
    ("wgmma: no wait for a stage", WGMMA_TILES, "        gsv_barrier_wait(from.full + at.stage, at.phase);\n", ""),
    ("wgmma: a stage is overwritten while it is read", WGMMA_TILES, "            gsv_barrier_wait(to.empty + at.stage, at.phase);\n", ""),
    ("wgmma: a stage is free before it is multiplied", WGMMA_TILES, "gsv_wgmma_wait<1>(); /*", "gsv_wgmma_wait<2>(); /*"),
    ("wgmma: no wait for the last products", WGMMA, "        gsv_wgmma_wait<0>();\n", ""),
    ("wgmma: groups do not take turns", WGMMA, "        gsv_barrier_wait(from.turn + group, phase);\n", "        ;\n"),
    ("wgmma: the last stage is never free", WGMMA, "        if (signals)\n            gsv_barrier_arrive(from.empty + last);\n", ""),
    ("wgmma: rows past the matrix are stored", WGMMA, "if (r < 16 && row + r < gemm.m && column + c * 8 < gemm.n)", "if (r < 16 && column + c * 8 < gemm.n)"),
    ("wgmma: columns past the matrix are stored", WGMMA, "if (r < 16 && row + r < gemm.m && column + c * 8 < gemm.n)", "if (r < 16 && row + r < gemm.m)"),
    ("wgmma: every strip is the first", WGMMA, "first_row<Shape>(tile, list.across) + i * 64 +", "first_row<Shape>(tile, list.across) +"),
    ("wgmma: the lower rows have the residual of the upper", WGMMA, "own + j % 2 * 8 * Shape::row_bytes + j / 2 * 16);\n\n", "own + j / 2 * 16);\n\n"),
    ("wgmma: bytes of rows 8 to 15 with the steps of rows 0 to 7", WGMMA, "row + lane / 4 + i * 8;", "row + lane / 4;"),
    ("wgmma: bytes of every column with the scale of the first pair", WGMMA, "inside ? scales[j * 4]", "inside ? scales[0]"),
    ("wgmma: bytes without the zero point of their row", WGMMA, "            min[i] = by.rows.min[own_row];\n", ""),
    ("attention: no barrier before a tile is read", ATTENTION, "gsv_cp_async_wait<1>();\n        __syncthreads();\n        if (warp", "gsv_cp_async_wait<1>();\n        if (warp"),
    ("attention: no wait for the keys", ATTENTION, "        gsv_cp_async_wait<1>();\n        __syncthreads();\n        if (warp", "        __syncthreads();\n        if (warp"),
    ("attention: a stage is overwritten while it is read", ATTENTION, "        __syncthreads(); /* the next iteration overwrites this stage */\n", ""),
    ("attention: keys overwrite the queries", ATTENTION, "    __syncthreads(); /* Q is in registers: K[1] is free if it held Q */\n", ""),
    ("attention: the maximum of two lanes of four", ATTENTION,
     "        maximum = fmaxf(maximum, __shfl_xor_sync(GSV_ALL_LANES, maximum, 2));\n", ""),
    ("attention: the sum is not rescaled", ATTENTION, "state.sum[half] * rescale + sum;", "state.sum[half] + sum;"),
    ("attention: every second output is not rescaled", ATTENTION, "            state.out[j][2 * half + 1] *= rescale;\n", ""),
    ("attention: keys past the text count", ATTENTION, "scores[j][i] = column < n_keys ? x : -INFINITY;", "scores[j][i] = x;"),
    ("attention: the sum of two lanes of four", ATTENTION, "        sum += __shfl_xor_sync(GSV_ALL_LANES, sum, 2);\n", ""),
    ("attention: a text without tokens is not zero", ATTENTION, "if (tile.n_keys == 0)", "if (tile.n_keys < 0)"),
    ("attention: the relative bias is mirrored", ATTENTION, "min(span, key + column - query)", "min(span, query - key - column)"),
    ("attention: keys before the window count", ATTENTION, "at >= own.begin && at < own.end ? x", "at < own.end ? x"),
    ("attention: no soft cap", ATTENTION, "if (args.softcap_rate != 0.f)", "if (args.softcap_rate < 0.f)"),
    ("attention: queries read the keys of another group", ATTENTION, "head / (args.n_heads / args.n_kv_heads)", "head % args.n_kv_heads"),
    ("attention: values are not transposed", ATTENTION, "gsv_ldmatrix_x4_trans(b, from", "gsv_ldmatrix_x4(b, from"),
    ("norm: the variance is not of x - mean", NORM, "const float d = x[s * width + j] - mean;", "const float d = x[s * width + j];"),
    ("norm: slots past a row of 312 count", NORM, "        if (s * GSV_WARP + lane >= n_chunks)\n            continue;\n#pragma unroll\n        for (int j = 0; j < width; j++) {", "#pragma unroll\n        for (int j = 0; j < width; j++) {"),
    ("norm: the last rows are another block's", NORM, "    if (row >= norm.rows)\n        return;\n", ""),
    ("pooling: sums are added before they are there", POOL, "        end, partial);\n    __syncthreads();", "        end, partial);"),
    ("pooling: the first token weighs nothing", POOL, "static_cast<float>(i + 1)", "static_cast<float>(i)"),
    ("pooling: a text without tokens is divided by 0", POOL, "n > 0 ? x / total_weight(args.pooling, n) : 0.f", "x / total_weight(args.pooling, n)"),
    ("pooling: the groups but the first are lost", POOL, "for (int g = 1; g < args.n_groups; g++)", "for (int g = 1; g < 1; g++)"),
    ("max_sim: no barrier before a tile is read", MAX_SIM, "            __syncthreads();\n            add_columns", "            add_columns"),
    ("max_sim: a tile is overwritten while it is read", MAX_SIM, "            __syncthreads(); /* no thread reads the tiles before these any more */\n", ""),
    ("max_sim: rows past the text count", MAX_SIM, "        if (across + j * ACROSS >= n)\n            continue;\n", ""),
    ("max_sim: the maximum of half the lanes", MAX_SIM, "for (int distance = ACROSS / 2;", "for (int distance = ACROSS / 4;"),
    ("max_sim: rows in order, whatever their numbers", MAX_SIM, "numbers ? numbers[i] : i", "i"),
    ("max_sim: a text without rows has a score", MAX_SIM, "first < text.n_query && text.n > 0;", "first < text.n_query;"),
    ("max_sim: rows keep their length", MAX_SIM, "normalize ? sqrtf(sums.square[j]) : 1.f", "1.f"),
    ("max_sim: query rows of the first tile alone", MAX_SIM, "static_cast<size_t>(text.query + first)", "static_cast<size_t>(text.query)"),
    ("compact: bytes past the row", COMPACT, "(word ^ flip) & mask_of<Kind>(n)", "word ^ flip"),
    ("compact: a NaN is not told", COMPACT, "is_wrong = is_wrong || !(fabsf(x) < INFINITY); /* NaN too */", ""),
    ("compact: the thread's own columns are finite", COMPACT, "__syncthreads_or(is_wrong) != 0", "is_wrong"),
    ("compact: the minimum is not subtracted", COMPACT, "(x - min) / (width", "x / (width"),
    ("compact: bits in the order of columns", COMPACT, "(j / 8 * 8 + 7 - j % 8)", "j"),
    ("activation: the residual is lost", "kernels/cuda/ops/bias_act.cu", "gemm.residual ? y[j] + gsv_to_float(residual.v[j]) : y[j]", "y[j]"),
    ("gate: the value is lost", "kernels/cuda/ops/glu.cu", "y[j] * value[j]", "y[j]"),
    ("GELU: negative values as positive", "kernels/cuda/ops/math.cuh", "fmaxf(x, 0.f)", "fabsf(x)"),
    ("cuBLASLt: the residual is lost", LT, "adds ? 1.f : 0.f", "0.f"),
    ("cuBLASLt: the bias is added twice", LT, "    rest.bias = NULL; /* added by cuBLASLt */\n", ""),
    ("cuBLASLt: rows are not compared", TUNER, "memcmp(want, got, row * m) == 0", "true"),
    ("cuBLASLt: deterministic streams choose by the number of rows", LT, "    if (deterministic)\n        return &choice->fixed;\n", ""),
    ("cuBLASLt: a choice on disk of another width", TUNER, "linear->n, linear->k, linear->math, device->name", "0, linear->k, linear->math, device->name"),
    ("cuBLASLt: a choice on disk of another depth", TUNER, "linear->n, linear->k, linear->math, device->name", "linear->n, 0, linear->math, device->name"),
    ("cuBLASLt: a choice on disk of another format", TUNER, "linear->n, linear->k, linear->math, device->name", "linear->n, linear->k, 0, device->name"),
)


def faults():
    """As cache_keys.mutations() gives them."""
    for name, path, old, new in FAULTS:
        yield name, path, path, old, new, [f"kernels-cuda-{test}" for test in TESTS[path].split()]


if __name__ == "__main__":
    sys.exit(plant(faults()))
