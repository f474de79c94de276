/*
 * emu.h - how a test steers and watches the CUDA emulator.
 *
 * The emulator is one shared object, libgsv-cudaemu.so, that both the test and the emulated plugin
 * link, so what is set here is what the plugin meets. All functions are thread-safe; the state is
 * of the whole process. Nothing here is part of CUDA; the CUDA side is in include/.
 *
 * A fault inside a kernel (misaligned access, memory written past its end, lanes that wait for one
 * that has left) ends the kernel, makes the device fail with CUDA's own sticky error, and is told
 * in words by gsv_emu_report().
 */
#ifndef GSV_EMU_H
#define GSV_EMU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GSV_EMU_API __attribute__((visibility("default")))

/** Since the last gsv_emu_reset(); the last group is of this moment. */
struct gsv_emu_counters {
    uint64_t calls;       /**< entry points that can fail */
    uint64_t launches;    /**< kernels and matrix products run, those of graphs included */
    uint64_t products;    /**< of them matrix products, which are cuBLASLt's */
    uint64_t overlapping; /**< of them those that may begin before the one ahead has ended */
    uint64_t graph_launches;
    uint64_t copies_in; /**< host to device, run */
    uint64_t copies_out;
    uint64_t copies_inside;
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t fills;
    uint64_t allocations; /**< of device memory */
    uint64_t host_allocations;
    uint64_t synchronizations;
    uint64_t peak_bytes; /**< most device memory in use at once */

    uint64_t live_bytes;
    uint64_t live_host_bytes;
    uint64_t live_allocations; /**< device and pinned together */
    uint64_t live_objects;     /**< streams, events, graphs, handles, descriptors */
    uint64_t waiting_streams;  /**< streams with something that has not run */
};

/** What a stream did. */
enum gsv_emu_did {
    GSV_EMU_DID_KERNEL, /**< or a matrix product */
    GSV_EMU_DID_COPY_IN,
    GSV_EMU_DID_COPY_OUT,
    GSV_EMU_DID_OTHER
};

struct gsv_emu_deed {
    int stream; /**< 1, 2, ... in the order of their creation; 0: the default one */
    enum gsv_emu_did did;
};

/** What all streams did since the last reset, in the order in which it ran: the first `most` of at
 *  most 4096. How many there are. */
GSV_EMU_API size_t gsv_emu_history(struct gsv_emu_deed *deeds, size_t most);

/** Everything as at the start: no fault planned, no error pending, counters 0. What is still
 *  allocated stays so, and stays counted as live. */
GSV_EMU_API void gsv_emu_reset(void);

/** 0: threads and blocks in order. Otherwise the order in which the lanes, warps and blocks of a
 *  kernel run is shuffled by it. */
GSV_EMU_API void gsv_emu_seed(uint64_t seed);

/** Not 0: streams run late. Nothing runs at its call, only when something waits for it, and then
 *  the runnable streams take turns in an order shuffled by the seed. */
GSV_EMU_API void gsv_emu_set_late(int late);

/** Device memory in bytes, 0 for the start's 16 GiB. */
GSV_EMU_API void gsv_emu_set_memory(uint64_t bytes);

/** So many devices, 0 to 8; with `error` (35: no driver, 100: no device) counting them fails. */
GSV_EMU_API void gsv_emu_set_devices(int count, int error);

/** The compute capability of all devices; at the start 9.0, that of an H100. */
GSV_EMU_API void gsv_emu_set_capability(int major, int minor);

/** The CUDA version that the driver is for, such as 12080. With one below the runtime's own, which
 * it is at the start, counting devices fails with 35. */
GSV_EMU_API void gsv_emu_set_driver(int version);

/** The n-th call from now (1: the next) of an entry point that can fail returns `cuda_error`
 *  instead of doing its work; functions that release do it all the same. 700, 710 to 719, 214 and
 *  999 stick: every later call for the same device fails so too. 0 plans nothing. */
GSV_EMU_API void gsv_emu_fail_call(uint64_t n, int cuda_error);
/** Whether the planned failure has happened, and in which function. NULL: not yet. */
GSV_EMU_API const char *gsv_emu_failed_call(void);

/** Which matrix products cuBLASLt refuses with CUBLAS_STATUS_NOT_SUPPORTED, no CUDA error behind
 * it. One in `one_in` of those whose number of columns is in [columns_from, columns_to], or, with
 * `alignment`, of those with an operand that is not aligned to so many bytes. 1: every one. 0:
 * none, as at the start. */
struct gsv_emu_refusal {
    int in_check; /**< cublasLtMatmulAlgoCheck refuses too; else only the call */
    int64_t columns_from, columns_to;
    int alignment; /**< bytes; 0: any */
    uint32_t one_in;
    uint32_t seed; /**< of the choice, for one_in above 1 */
};
GSV_EMU_API void gsv_emu_refuse_products(const struct gsv_emu_refusal *refusal);
/** Refusals since then, checks and calls together. */
GSV_EMU_API uint64_t gsv_emu_refused_products(void);

/** 1: nothing in any stream makes progress until it is told 0; waiting blocks. 2: nor does any call
 *  come back, as with a driver that hangs. */
GSV_EMU_API void gsv_emu_hang(int hang);

GSV_EMU_API void gsv_emu_get_counters(struct gsv_emu_counters *counters);

/** What the last fault of a kernel was, "" when there was none since the last reset. */
GSV_EMU_API const char *gsv_emu_report(void);

#ifdef __cplusplus
}
#endif

#endif
