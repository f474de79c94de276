/*
 * emu.h - controls and observes the CUDA emulator from a test.
 *
 * The emulator is one shared object, libgsv-cudaemu.so, linked by both the test and the emulated
 * plugin, so settings made here apply to the plugin. All functions are thread-safe; the state is
 * per process. Nothing here is part of CUDA; the CUDA API is in include/.
 *
 * Copies cost no time but that of their memcpy(). GSV_EMU_COPY_NS=A,B,C,D in the environment makes
 * a cudaMemcpyAsync() last so many nanoseconds for each KiB: to the device from pageable and from
 * pinned memory, from the device to pageable and to pinned memory.
 *
 * A fault in a kernel (misaligned access, write past the end of memory, lanes that wait for a lane
 * that has returned) ends the kernel, and makes the device fail with CUDA's sticky error.
 * gsv_emu_report() returns a description.
 */
#ifndef GSV_EMU_H
#define GSV_EMU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GSV_EMU_API __attribute__((visibility("default")))

/** Counted since the last gsv_emu_reset(); the last group is current values. */
struct gsv_emu_counters {
    uint64_t calls;       /**< calls of functions that can fail */
    uint64_t launches;    /**< kernels and matrix products, including those in graphs */
    uint64_t products;    /**< of them matrix products (cuBLASLt) */
    uint64_t overlapping; /**< of them launches that may overlap the previous kernel */
    uint64_t graph_launches;
    uint64_t copies_in; /**< host to device, completed */
    uint64_t copies_out;
    uint64_t copies_inside;
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t fills;
    uint64_t allocations; /**< device memory */
    uint64_t host_allocations;
    uint64_t synchronizations;
    uint64_t peak_bytes; /**< max device memory in use at once */

    uint64_t live_bytes;
    uint64_t live_host_bytes;
    uint64_t live_allocations; /**< device and pinned together */
    uint64_t live_objects;     /**< streams, events, graphs, handles, descriptors */
    uint64_t waiting_streams;  /**< streams with pending operations */
};

/** Kinds of actions of a stream. */
enum gsv_emu_did {
    GSV_EMU_DID_KERNEL, /**< or a matrix product */
    GSV_EMU_DID_COPY_IN,
    GSV_EMU_DID_COPY_OUT,
    GSV_EMU_DID_OTHER
};

struct gsv_emu_deed {
    int stream; /**< 1, 2, ... in order of creation; 0: default stream */
    enum gsv_emu_did did;
};

/** Actions of all streams since the last reset, in execution order: the first `most`, at most 4096.
 * Returns their number. */
GSV_EMU_API size_t gsv_emu_history(struct gsv_emu_deed *deeds, size_t most);

/** Resets to the initial state: no planned fault, no pending error, counters 0. Live allocations
 * stay, and stay counted as live. */
GSV_EMU_API void gsv_emu_reset(void);

/** 0: threads and blocks run in order. Otherwise the seed for shuffling the order of lanes, warps
 * and blocks of a kernel. */
GSV_EMU_API void gsv_emu_seed(uint64_t seed);

/** Nonzero: streams run late. An operation runs not at its call, but when a call waits for it; then
 * the runnable streams run in an order shuffled by the seed. */
GSV_EMU_API void gsv_emu_set_late(int late);

/** Sets the device memory in bytes; 0: the initial 16 GiB. */
GSV_EMU_API void gsv_emu_set_memory(uint64_t bytes);

/** Sets the number of devices, 0 to 8; with `error` (35: no driver, 100: no device) counting them
 * fails. */
GSV_EMU_API void gsv_emu_set_devices(int count, int error);

/** Sets the compute capability of all devices; initially 9.0, like an H100. */
GSV_EMU_API void gsv_emu_set_capability(int major, int minor);

/** Sets the driver's CUDA version, such as 12080. If it is below the runtime's version, which is
 * the initial value, counting devices fails with 35. */
GSV_EMU_API void gsv_emu_set_driver(int version);

/** The n-th call from now on (1: the next) of a function that can fail returns `cuda_error` without
 * doing its work; functions that release memory still do. 700, 710 to 719, 214 and 999 are sticky:
 * every later call for the same device fails too: the one that the call names, else the thread's.
 * 0 plans nothing. */
GSV_EMU_API void gsv_emu_fail_call(uint64_t n, int cuda_error);
/** Name of the function in which the planned failure happened. NULL: not yet. */
GSV_EMU_API const char *gsv_emu_failed_call(void);

/** Selects matrix products that cuBLASLt rejects with CUBLAS_STATUS_NOT_SUPPORTED, without a CUDA
 * error. One in `one_in` of the products with a number of columns in [columns_from, columns_to],
 * or, with `alignment`, with an operand not aligned to that many bytes. 1: all. 0: none, the
 * initial value. */
struct gsv_emu_refusal {
    int in_check; /**< cublasLtMatmulAlgoCheck rejects too; else only the call */
    int64_t columns_from, columns_to;
    int alignment; /**< bytes; 0: any */
    uint32_t one_in;
    uint32_t seed; /**< for the random choice if one_in > 1 */
};
GSV_EMU_API void gsv_emu_refuse_products(const struct gsv_emu_refusal *refusal);
/** Makes products with `columns` or more columns sum in the other order of k, like an algorithm
 * that depends on the size; 0: none, the initial value. */
GSV_EMU_API void gsv_emu_reverse_products(int64_t columns);
/** Number of rejections since then, checks and calls. */
GSV_EMU_API uint64_t gsv_emu_refused_products(void);

/** 1: no stream makes progress until the value is 0; waits block. 2: no call returns either, like a
 * driver that hangs. */
GSV_EMU_API void gsv_emu_hang(int hang);

GSV_EMU_API void gsv_emu_get_counters(struct gsv_emu_counters *counters);

/** Description of the last fault of a kernel; "" if none since the last reset. */
GSV_EMU_API const char *gsv_emu_report(void);

#ifdef __cplusplus
}
#endif

#endif
