/*
 * launch.cpp - kernel launches: checks what a device would reject, copies the arguments, runs the
 * grid, and checks the memory guards afterwards.
 */
#include <cstdio>
#include <cstring>

#include <emu_kernel.h>

#include "state.h"

namespace
{

const size_t default_shared = 48 << 10;
thread_local const char *next_name;

/* Memory of kernel arguments, aligned as the strictest one, a CUtensorMap. */
struct alignas(64) argument_bytes {
    unsigned char at[64];
};

struct kernel_launch {
    const void *kernel;
    std::string name;
    void (*invoke)(const void *, void *const *);
    std::vector<std::vector<argument_bytes>> arguments;
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    bool overlap;
    bool cooperative;
    bool cluster;
};

size_t shared_limit(const void *kernel)
{
    const auto found = gsv_emu.shared_limits.find(kernel);
    return found == gsv_emu.shared_limits.end() ? default_shared
                                                : static_cast<size_t>(found->second);
}

/* Concurrent blocks of a kernel per multiprocessor. */
int blocks_at_once(int block_size, size_t shared_bytes)
{
    const int by_threads = 2048 / block_size;
    const int by_shared = static_cast<int>((228u << 10) / (shared_bytes + 1024));
    return by_threads < by_shared ? by_threads : by_shared;
}

/* The same for the device. */
unsigned long long resident_blocks(unsigned block_size, size_t shared_bytes)
{
    return 1ull * GSV_EMU_PROCESSORS *
           static_cast<unsigned>(blocks_at_once(static_cast<int>(block_size), shared_bytes));
}

/* A cluster is all blocks along z, at most 8. */
bool has_cluster(const cudaLaunchConfig_t &config)
{
    for (unsigned i = 0; i < config.numAttrs; i++)
        if (config.attrs[i].id == cudaLaunchAttributeClusterDimension)
            return true;
    return false;
}

bool is_wrong_cluster(const cudaLaunchConfig_t &config)
{
    for (unsigned i = 0; i < config.numAttrs; i++) {
        const auto &size = config.attrs[i].val.clusterDim;

        if (config.attrs[i].id == cudaLaunchAttributeClusterDimension &&
            (size.x != 1 || size.y != 1 || size.z != config.gridDim.z || size.z > 8))
            return true;
    }
    return false;
}

cudaError_t check(const cudaLaunchConfig_t &config, const kernel_launch &launch)
{
    const dim3 &g = config.gridDim, &b = config.blockDim;

    if (!g.x || !g.y || !g.z || !b.x || !b.y || !b.z || g.x > 2147483647u || g.y > 65535 ||
        g.z > 65535 || b.x > 1024 || b.y > 1024 || b.z > 64 || b.x * b.y * b.z > 1024)
        return cudaErrorInvalidConfiguration;
    if (config.dynamicSmemBytes > shared_limit(launch.kernel)) {
        gsv_emu.report = "kernel " + launch.name + ": " + std::to_string(config.dynamicSmemBytes) +
                         " bytes of shared memory, allowed are " +
                         std::to_string(shared_limit(launch.kernel));
        return cudaErrorInvalidValue;
    }
    if (is_wrong_cluster(config)) {
        gsv_emu.report = "kernel " + launch.name + ": a cluster is 1 x 1 x the grid's z, at most 8";
        return cudaErrorInvalidConfiguration;
    }
    if (launch.cooperative) {
        const unsigned long long blocks = 1ull * g.x * g.y * g.z;
        if (blocks > resident_blocks(b.x * b.y * b.z, config.dynamicSmemBytes)) {
            gsv_emu.report = "kernel " + launch.name + ": " + std::to_string(blocks) +
                             " blocks do not all fit at once, as a cooperative launch needs";
            return cudaErrorCooperativeLaunchTooLarge;
        }
    }
    const std::string over = gsv_emu_over_budget(launch.name, b.x * b.y * b.z, launch.shared_bytes);
    if (!over.empty()) {
        gsv_emu.report = "kernel " + launch.name + ": " + over;
        fprintf(stderr, "CUDA emulator: %s\n", gsv_emu.report.c_str());
        return cudaErrorInvalidConfiguration;
    }
    return cudaSuccess;
}

cudaError_t run_launch(const kernel_launch &launch)
{
    std::vector<void *> addresses;
    gsv_emu_grid grid = {};

    for (const auto &argument : launch.arguments)
        addresses.push_back(const_cast<argument_bytes *>(argument.data()));
    grid.kernel = launch.kernel;
    grid.name = launch.name.c_str();
    grid.invoke = launch.invoke;
    grid.arguments = addresses.data();
    grid.grid = launch.grid;
    grid.block = launch.block;
    grid.shared_bytes = launch.shared_bytes;
    grid.overlap = launch.overlap;
    grid.cooperative = launch.cooperative;
    grid.cluster = launch.cluster;
    gsv_emu.counters.overlapping += launch.overlap ? 1 : 0;
    cudaError_t error = gsv_emu_run_grid(
        grid, gsv_emu.seed ? gsv_emu_random(&gsv_emu.random) | 1 : 0, &gsv_emu.report);
    if (error == cudaSuccess) {
        const std::string broken = gsv_emu_check_guards();
        if (!broken.empty()) {
            gsv_emu.report = "kernel " + launch.name + ": " + broken;
            error = cudaErrorIllegalAddress;
        }
    }
    if (error != cudaSuccess)
        fprintf(stderr, "CUDA emulator: %s\n", gsv_emu.report.c_str());
    return error;
}

bool overlaps(const cudaLaunchConfig_t &config)
{
    for (unsigned i = 0; i < config.numAttrs; i++)
        if (config.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
            return config.attrs[i].val.programmaticStreamSerializationAllowed != 0;
    return false;
}

bool cooperates(const cudaLaunchConfig_t &config)
{
    for (unsigned i = 0; i < config.numAttrs; i++)
        if (config.attrs[i].id == cudaLaunchAttributeCooperative)
            return config.attrs[i].val.cooperative != 0;
    return false;
}

} // namespace

extern "C" {

__attribute__((visibility("default"))) void gsv_emu_name_next(const char *name)
{
    next_name = name;
}

cudaError_t gsv_emu_launch(const cudaLaunchConfig_t *config, const struct gsv_emu_kernel *kernel)
{
    gsv_emu_entry entry("cudaLaunchKernelExC");
    const auto launch = std::make_shared<kernel_launch>();
    gsv_emu_operation operation = { gsv_emu_work::kernel, 0, nullptr, nullptr, {} };

    launch->name = next_name ? next_name : "?";
    next_name = nullptr;
    if (entry.failed())
        return entry.error();
    launch->kernel = kernel->kernel;
    launch->invoke = kernel->invoke;
    launch->grid = config->gridDim;
    launch->block = config->blockDim;
    launch->shared_bytes = config->dynamicSmemBytes;
    launch->overlap = overlaps(*config);
    launch->cooperative = cooperates(*config);
    launch->cluster = has_cluster(*config);
    for (size_t i = 0; i < kernel->n_arguments; i++) {
        launch->arguments.emplace_back((kernel->sizes[i] + sizeof(argument_bytes) - 1) /
                                       sizeof(argument_bytes));
        memcpy(launch->arguments.back().data(), kernel->arguments[i], kernel->sizes[i]);
    }
    const cudaError_t error = check(*config, *launch);
    if (error != cudaSuccess)
        return entry.finish(error);
    operation.run = [launch] { return run_launch(*launch); };
    return entry.finish(gsv_emu_enqueue(gsv_emu_stream(config->stream), std::move(operation)));
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    gsv_emu_entry entry("cudaFuncSetAttribute");

    if (entry.failed())
        return entry.error();
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return entry.finish(cudaSuccess);
    if (value < 0 || static_cast<size_t>(value) > gsv_emu_shared_optin())
        return entry.finish(cudaErrorInvalidValue);
    gsv_emu.shared_limits[kernel] = value;
    return entry.finish(cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
    gsv_emu_entry entry("cudaFuncGetAttributes");

    if (entry.failed())
        return entry.error();
    memset(attributes, 0, sizeof(*attributes));
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 64;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(shared_limit(kernel));
    return entry.finish(cudaSuccess);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int block_size,
                                                          size_t shared_bytes)
{
    gsv_emu_entry entry("cudaOccupancyMaxActiveBlocksPerMultiprocessor");

    if (entry.failed())
        return entry.error();
    if (block_size < 1 || block_size > 1024)
        return entry.finish(cudaErrorInvalidValue);
    *blocks = blocks_at_once(block_size, shared_bytes);
    return entry.finish(cudaSuccess);
}

} // extern "C"
