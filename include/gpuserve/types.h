/*
 * gpuserve/types.h - the words every other header uses: status codes, errors, data types.
 *
 * Valid as C11 and as C++11. Every struct that crosses the library's border begins with
 * `uint32_t struct_size`, set by its _INIT macro to the size the caller was compiled with: the
 * library reads and writes no byte past it, so a program built against an older header keeps
 * working. The few without are small parts of arrays, and say that their layout is fixed for ever.
 * A field that is zero means "the default". No unions, no bit-fields, and no struct is passed by
 * value, so any foreign function interface can bind it.
 */
#ifndef GPUSERVE_TYPES_H
#define GPUSERVE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What the functions work on; each header says how its own are made and ended. */
typedef struct gpuserve_context gpuserve_context;
typedef struct gpuserve_model   gpuserve_model;
typedef struct gpuserve_request gpuserve_request;

#if defined(GPUSERVE_BUILDING) && defined(__GNUC__)
#define GPUSERVE_API __attribute__((visibility("default")))
#else
#define GPUSERVE_API
#endif

#if defined(__GNUC__)
#define GPUSERVE_MUST_USE __attribute__((warn_unused_result))
#define GPUSERVE_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))
#else
#define GPUSERVE_MUST_USE
#define GPUSERVE_PRINTF(text, first)
#endif

/**
 * What became of a call. Values never change meaning; new ones may be added at the end, so treat
 * an unknown one as a failure. gpuserve_status_name() gives the name.
 */
typedef enum gpuserve_status {
    GPUSERVE_OK = 0,            /**< done */
    GPUSERVE_E_INVALID = 1,     /**< an argument or a text is wrong: mend the call */
    GPUSERVE_E_NOT_FOUND = 2,   /**< no such file, model, tensor, label or device */
    GPUSERVE_E_FORMAT = 3,      /**< a file is corrupt or contradicts another: get it anew */
    GPUSERVE_E_UNSUPPORTED = 4, /**< understood, but this version cannot do it; the message names it */
    GPUSERVE_E_NOMEM = 5,       /**< the host is out of memory; nothing was lost, try again later */
    GPUSERVE_E_TOO_LARGE = 6,   /**< over a limit or budget named in the message: send less or raise it */
    GPUSERVE_E_BUSY = 7,        /**< the queue is full: try again after error->retry_after_ms */
    GPUSERVE_E_DEVICE = 8,      /**< the device is missing or failed: see the hint, close the model */
    GPUSERVE_E_IO = 9,          /**< the operating system could not read or write a file */
    GPUSERVE_E_CANCELLED = 10,  /**< the request was cancelled before it ran */
    GPUSERVE_E_EXPIRED = 11,    /**< the deadline passed before the request ran */
    GPUSERVE_E_TIMEOUT = 12,    /**< a wait ended; the request itself goes on */
    GPUSERVE_E_FORKED = 13,     /**< used in a child after fork(): open the model in the child */
    GPUSERVE_E_NUMERIC = 14,    /**< this item's result is NaN or infinite; the others are good */
    GPUSERVE_E_INTERNAL = 15,   /**< a fault of gpuserve itself: please report it */
    GPUSERVE_E_MISMATCH = 16    /**< the model's fingerprint is not the one that was expected */
} gpuserve_status;

/** Room in gpuserve_error for each of its texts, the closing NUL included. */
#define GPUSERVE_ERROR_TEXT_BYTES 512

/**
 * Why a call failed, in words. The caller's memory; every function that takes one accepts NULL
 * and writes to it on failure only. Both texts are always NUL-terminated UTF-8, cut if too long.
 */
typedef struct gpuserve_error {
    uint32_t struct_size;                    /**< sizeof(gpuserve_error) */
    int32_t  status;                         /**< the gpuserve_status that was returned */
    uint32_t retry_after_ms;                 /**< with GPUSERVE_E_BUSY: when to try again */
    uint32_t reserved;                       /**< zero */
    char     message[GPUSERVE_ERROR_TEXT_BYTES]; /**< what, where, and both numbers */
    char     hint[GPUSERVE_ERROR_TEXT_BYTES];    /**< what to do about it; may be empty */
} gpuserve_error;

/* clang-format off */
#define GPUSERVE_ERROR_INIT { (uint32_t)sizeof(gpuserve_error), 0, 0, 0, { 0 }, { 0 } }
/* clang-format on */

/** Number formats. What a model computes in, and what its outputs are. */
typedef enum gpuserve_dtype {
    GPUSERVE_DTYPE_DEFAULT = 0,  /**< float32 on a CPU; float16 on a GPU, or bfloat16 where a model overflows */
    GPUSERVE_DTYPE_FLOAT32 = 1,
    GPUSERVE_DTYPE_FLOAT16 = 2,  /**< with float32 accumulation, LayerNorm and softmax */
    GPUSERVE_DTYPE_BFLOAT16 = 3, /**< likewise */
    GPUSERVE_DTYPE_TF32 = 4,     /**< float32 values, matrix products on TF32 tensor cores */
    GPUSERVE_DTYPE_INT8 = 5      /**< weights per channel, activations per token, the rest float32 */
} gpuserve_dtype;

/** How loud a log line is. */
typedef enum gpuserve_log_level {
    GPUSERVE_LOG_ERROR = 1,
    GPUSERVE_LOG_WARNING = 2,
    GPUSERVE_LOG_INFO = 3,
    GPUSERVE_LOG_DEBUG = 4
} gpuserve_log_level;

/**
 * Receives log lines. The library itself never prints.
 *
 * @param user     What was given beside the callback.
 * @param level    A gpuserve_log_level.
 * @param message  One line without its newline, borrowed for the call.
 *
 * Thread-safety: called from any of the library's threads, possibly at the same time.
 */
typedef void (*gpuserve_log_fn)(void *user, int32_t level, const char *message);

/** What becomes of an open model whose device is lost: an error after which CUDA answers nothing but
 *  errors (hardware failed, a kernel faulted), or a device that hangs. Batches under way fail with
 *  their cause, and the lost device is not used again by this process. Of a model on several devices
 *  only the lost replica is taken out, whatever the policy, and the others go on; batches under way
 *  there are computed once more by another unless the policy is to fail. NVIDIA promises
 *  nothing of a process's other GPUs after such an error; the CPU, or a new process, is safe. */
typedef enum gpuserve_lost_policy {
    GPUSERVE_LOST_FAIL = 0,       /**< every request fails with GPUSERVE_E_DEVICE and the cause */
    GPUSERVE_LOST_CPU = 1,        /**< the model is loaded again on the CPU and goes on there */
    GPUSERVE_LOST_GPU = 2,        /**< on another GPU that it fits on; without one it fails */
    GPUSERVE_LOST_GPU_OR_CPU = 3  /**< on another GPU, or else on the CPU */
} gpuserve_lost_policy;

/**
 * Tells of a lost device: when it is lost, and where the model moves a second time, when that has
 * ended. For programs that would rather exit and be started anew: the library never exits.
 *
 * @param user    What was given beside the callback.
 * @param status  GPUSERVE_E_BUSY: lost, the model is moving; GPUSERVE_OK: it has moved, or goes on
 *                with the devices that are left to it;
 *                GPUSERVE_E_DEVICE: lost for good, every request fails from now on.
 * @param device  With GPUSERVE_OK where the model goes on, "cpu", "cuda:1" or "cuda:1,cuda:2"; else
 *                NULL. Borrowed.
 * @param cause   What happened to the device. Borrowed.
 *
 * Thread-safety: called from a library thread, one call at a time for each model. It must not
 * block, nor close the model.
 */
typedef void (*gpuserve_lost_fn)(void *user, gpuserve_status status, const char *device,
                                 const gpuserve_error *cause);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_TYPES_H */
