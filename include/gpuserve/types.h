/*
 * gpuserve/types.h - status codes, errors, data types and callbacks that all other headers use.
 *
 * Valid as C11 and as C++11. Every struct that crosses the library boundary begins with
 * `uint32_t struct_size`, which its _INIT macro sets to the size the caller was compiled with.
 * The library reads and writes no byte past that size, so a program built against an older header
 * keeps working. The few structs without it are small array elements; each says that its layout
 * is fixed. A field that is zero means "the default". No unions, no bit-fields, no struct passed
 * by value: any foreign function interface can bind the API.
 */
#ifndef GPUSERVE_TYPES_H
#define GPUSERVE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Opaque handles. Each header documents how its handles are created and released. */
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
 * Status of a call. Values never change meaning. New values may be added at the end, so treat an
 * unknown value as a failure. gpuserve_status_name() returns the name.
 */
typedef enum gpuserve_status {
    GPUSERVE_OK = 0,            /**< success */
    GPUSERVE_E_INVALID = 1,     /**< an argument or a text is invalid: correct the call */
    GPUSERVE_E_NOT_FOUND = 2,   /**< no such file, model, tensor, label or device */
    GPUSERVE_E_FORMAT = 3,      /**< a file is corrupt or contradicts another: download it again */
    GPUSERVE_E_UNSUPPORTED = 4, /**< valid, but not supported by this version; the message names
                                     it */
    GPUSERVE_E_NOMEM = 5,       /**< the host is out of memory; no data was lost, retry later */
    GPUSERVE_E_TOO_LARGE = 6,   /**< over a limit or budget named in the message: send less or raise
                                     it */
    GPUSERVE_E_BUSY = 7,        /**< the queue is full: retry after error->retry_after_ms */
    GPUSERVE_E_DEVICE = 8,      /**< the device is missing or failed: see the hint, close the
                                     model */
    GPUSERVE_E_IO = 9,          /**< the operating system failed to read or write a file */
    GPUSERVE_E_CANCELLED = 10,  /**< the request was cancelled before it ran */
    GPUSERVE_E_EXPIRED = 11,    /**< the deadline passed before the request ran */
    GPUSERVE_E_TIMEOUT = 12,    /**< the wait timed out; the request itself continues */
    GPUSERVE_E_FORKED = 13,     /**< used in a child process after fork(): open the model in the
                                     child */
    GPUSERVE_E_NUMERIC = 14,    /**< the result of this item is NaN or infinite; the others are
                                     valid */
    GPUSERVE_E_INTERNAL = 15,   /**< a bug in gpuserve: please report it */
    GPUSERVE_E_MISMATCH = 16    /**< the model is not the expected one: another fingerprint, or
                                      another number of labels */
} gpuserve_status;

/** Capacity of each text in gpuserve_error in bytes, including the terminating NUL. */
#define GPUSERVE_ERROR_TEXT_BYTES 512

/**
 * Why a call failed, as text. Owned by the caller. Every function with an error parameter accepts
 * NULL and writes to it on failure only. Both texts are always NUL-terminated UTF-8, truncated if
 * too long.
 */
typedef struct gpuserve_error {
    uint32_t struct_size;                    /**< sizeof(gpuserve_error) */
    int32_t  status;                         /**< the returned gpuserve_status */
    uint32_t retry_after_ms;                 /**< with GPUSERVE_E_BUSY: delay before a retry */
    uint32_t reserved;                       /**< zero */
    char     message[GPUSERVE_ERROR_TEXT_BYTES]; /**< what failed, where, the value and its limit */
    char     hint[GPUSERVE_ERROR_TEXT_BYTES];    /**< how to fix it; may be empty */
} gpuserve_error;

/* clang-format off */
#define GPUSERVE_ERROR_INIT { (uint32_t)sizeof(gpuserve_error), 0, 0, 0, { 0 }, { 0 } }
/* clang-format on */

/** Number formats: the compute format of a model and the format of its outputs. */
typedef enum gpuserve_dtype {
    GPUSERVE_DTYPE_DEFAULT = 0,  /**< float32 on a CPU; float16 on a GPU, or bfloat16 if float16
                                      overflows */
    GPUSERVE_DTYPE_FLOAT32 = 1,
    GPUSERVE_DTYPE_FLOAT16 = 2,  /**< weights and embedding tables in 16 bits; float32 accumulation,
                                      LayerNorm and softmax */
    GPUSERVE_DTYPE_BFLOAT16 = 3, /**< as FLOAT16 */
    GPUSERVE_DTYPE_TF32 = 4,     /**< float32 values, matrix products on TF32 tensor cores */
    GPUSERVE_DTYPE_INT8 = 5      /**< weights per channel, activations per token; embedding tables in
                                      float16, the rest in float32 on a CPU and float16 on a GPU */
} gpuserve_dtype;

/** Severity of a log line. */
typedef enum gpuserve_log_level {
    GPUSERVE_LOG_ERROR = 1,
    GPUSERVE_LOG_WARNING = 2,
    GPUSERVE_LOG_INFO = 3,
    GPUSERVE_LOG_DEBUG = 4
} gpuserve_log_level;

/**
 * Receives log lines. The library itself never prints.
 *
 * @param user     The user pointer set together with the callback.
 * @param level    A gpuserve_log_level.
 * @param message  One line without its newline, borrowed for the call.
 *
 * Thread-safety: called from any library thread, possibly concurrently.
 */
typedef void (*gpuserve_log_fn)(void *user, int32_t level, const char *message);

/** Failover policy: the action for an open model whose device is lost. A device is lost after an
 *  error that makes every later CUDA call fail (hardware failure, kernel fault), or when it hangs. Batches in
 *  flight fail with the cause. This process does not use the lost device again. A model on several
 *  devices loses only that replica, whatever the policy, and the others continue; they retry the
 *  failed batches unless the policy is FAIL. NVIDIA gives no guarantee for the other GPUs of a
 *  process after such an error; the CPU, or a new process, is safe. */
typedef enum gpuserve_lost_policy {
    GPUSERVE_LOST_FAIL = 0,       /**< every request fails with GPUSERVE_E_DEVICE and the cause */
    GPUSERVE_LOST_CPU = 1,        /**< the model is loaded again on the CPU and continues there */
    GPUSERVE_LOST_GPU = 2,        /**< on another GPU with enough memory; without one it fails */
    GPUSERVE_LOST_GPU_OR_CPU = 3  /**< on another GPU, else on the CPU */
} gpuserve_lost_policy;

/**
 * Reports a lost device: once at the loss, and again when a failover to another device ends. For
 * programs that prefer to exit and be restarted: the library never exits.
 *
 * @param user    The user pointer set together with the callback.
 * @param status  GPUSERVE_E_BUSY: device lost, failover in progress; GPUSERVE_OK: failover is
 *                complete, or the model continues on its remaining devices;
 *                GPUSERVE_E_DEVICE: lost permanently, every later request fails.
 * @param device  With GPUSERVE_OK the current devices, "cpu", "cuda:1" or "cuda:1,cuda:2"; else
 *                NULL. Borrowed.
 * @param cause   Why the device was lost. Borrowed.
 *
 * Thread-safety: called from a library thread, one call at a time per model. It must not block
 * and must not close the model. A swap does not wait for a call in progress: a call about the old
 * device can end after gpuserve_model_swap() has returned, so `user` must stay valid until
 * gpuserve_model_close() returns, also if the swap sets another callback.
 */
typedef void (*gpuserve_lost_fn)(void *user, gpuserve_status status, const char *device,
                                 const gpuserve_error *cause);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_TYPES_H */
