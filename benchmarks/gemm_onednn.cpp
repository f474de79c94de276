/*
 * gemm_onednn.cpp - the chain of matrix products on oneDNN, as an independent reference; 2.x and
 * 3.x.
 */
#include "benchmarks/gemm_chain.h"

#include <gpuserve/types.h>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <vector>

namespace
{
using dnnl::memory;
using seconds_clock = std::chrono::steady_clock;

struct types {
    memory::data_type source, weights, result;
};

struct product {
    dnnl::matmul run;
    memory source, weights, result;
};

double seconds_since(seconds_clock::time_point start)
{
    return std::chrono::duration<double>(seconds_clock::now() - start).count();
}

types types_of(uint32_t dtype)
{
    switch (dtype) {
    case GPUSERVE_DTYPE_INT8:
        return { memory::data_type::u8, memory::data_type::s8, memory::data_type::s32 };
    case GPUSERVE_DTYPE_BFLOAT16:
        return { memory::data_type::bf16, memory::data_type::bf16, memory::data_type::bf16 };
    default:
        return { memory::data_type::f32, memory::data_type::f32, memory::data_type::f32 };
    }
}

dnnl::matmul::primitive_desc describe(const dnnl::engine &engine, const memory::desc &source,
                                      const memory::desc &weights, const memory::desc &result)
{
#if DNNL_VERSION_MAJOR >= 3
    return { engine, source, weights, result };
#else
    return { dnnl::matmul::desc(source, weights, result), engine };
#endif
}

/* Memory filled with ones of any dtype, converted from float32. */
memory filled(const dnnl::engine &engine, dnnl::stream &stream, const memory::desc &desc,
              const memory::dims &dims)
{
    std::vector<float> ones(static_cast<size_t>(dims[0] * dims[1]), 1.0f);
    memory from({ dims, memory::data_type::f32, memory::format_tag::ab }, engine, ones.data());
    memory to(desc, engine);

    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
    return to;
}

product make_product(const dnnl::engine &engine, dnnl::stream &stream, const chain_shape &shape,
                     memory::dim rows, const types &type)
{
    const memory::dims in = { rows, shape.k }, w = { shape.k, shape.n }, out = { rows, shape.n };
    const memory::desc source(in, type.source, memory::format_tag::ab);
    const memory::desc packed(w, type.weights, memory::format_tag::any);
    const memory::desc result(out, type.result, memory::format_tag::ab);
    const auto how = describe(engine, source, packed, result);

    return { dnnl::matmul(how), filled(engine, stream, source, in),
             filled(engine, stream, how.weights_desc(), w), memory(result, engine) };
}

double best_seconds(const std::vector<product> &chain, dnnl::stream &stream, double seconds)
{
    const auto start = seconds_clock::now();
    double best = 1e9;

    while (seconds_since(start) < seconds) {
        const auto begin = seconds_clock::now();

        for (const product &p : chain)
            p.run.execute(stream, { { DNNL_ARG_SRC, p.source },
                                    { DNNL_ARG_WEIGHTS, p.weights },
                                    { DNNL_ARG_DST, p.result } });
        stream.wait();
        best = std::min(best, seconds_since(begin));
    }
    return best;
}
} // namespace

extern "C" double chain_rate_onednn(const chain_model *model, uint32_t dtype, int32_t n_threads,
                                    int32_t rows, double seconds)
{
    try {
        const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
        dnnl::stream stream(engine);
        std::vector<product> chain;
        double flops = 0.0;

        omp_set_num_threads(n_threads);
        for (int layer = 0; layer < model->n_layers; layer++) {
            for (const chain_shape &shape : model->shapes) {
                chain.push_back(make_product(engine, stream, shape, rows, types_of(dtype)));
                flops += 2.0 * rows * shape.n * shape.k;
            }
        }
        best_seconds(chain, stream, 0.1);
        return flops / best_seconds(chain, stream, seconds) / 1e9;
    } catch (const dnnl::error &) {
        return 0.0;
    }
}
