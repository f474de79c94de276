/*
 * pickle_machine.h - what the parts of the pickle interpreter share.
 *
 * Private to pickle.c, pickle_opcodes.c and pickle_objects.c.
 */
#ifndef GSV_MODEL_PICKLE_MACHINE_H
#define GSV_MODEL_PICKLE_MACHINE_H

#include "lib/model/formats/torch/pickle.h"

/* Stack and memo (pickle.c). */

/* "FILE: PART byte N: ..." at the opcode in progress. */
gpuserve_status gsv_pickle_fail(const struct gsv_pickle *pickle, gpuserve_status status,
                                gpuserve_error *error, const char *format, ...)
    GPUSERVE_PRINTF(4, 5);
/* Grow an array to `needed` elements; over `maximum` or without memory, an error that names `what`.
 */
gpuserve_status gsv_pickle_grow(const struct gsv_pickle *pickle, void **array, size_t *capacity,
                                size_t needed, size_t element_size, unsigned maximum,
                                const char *what, gpuserve_error *error);
/* A new empty container. */
gpuserve_status gsv_pickle_new(struct gsv_pickle *pickle, enum gsv_pickle_kind kind,
                               struct gsv_pickle_value *value, gpuserve_error *error);
/* The bytes that the current frame, or the pickle, has left. */
static inline size_t gsv_pickle_left(const struct gsv_pickle *pickle)
{
    return (pickle->at < pickle->frame ? pickle->frame : pickle->size) - pickle->at;
}

/* The next n bytes of the pickle. */
gpuserve_status gsv_pickle_take(struct gsv_pickle *pickle, uint64_t n, const unsigned char **bytes,
                                gpuserve_error *error);
/* A little-endian number of n <= 8 bytes. */
gpuserve_status gsv_pickle_take_number(struct gsv_pickle *pickle, unsigned n, uint64_t *number,
                                       gpuserve_error *error);
gpuserve_status gsv_pickle_push(struct gsv_pickle *pickle, struct gsv_pickle_value value,
                                gpuserve_error *error);
gpuserve_status gsv_pickle_push_new(struct gsv_pickle *pickle, enum gsv_pickle_kind kind,
                                    gpuserve_error *error);
gpuserve_status gsv_pickle_push_tuple(struct gsv_pickle *pickle,
                                      const struct gsv_pickle_value *values, size_t n,
                                      gpuserve_error *error);
/* Remove the n values on top of the stack, or the last mark and the n values above it. *values is
 * valid until the next push. */
gpuserve_status gsv_pickle_pop(struct gsv_pickle *pickle, size_t n,
                               const struct gsv_pickle_value **values, gpuserve_error *error);
gpuserve_status gsv_pickle_pop_mark(struct gsv_pickle *pickle,
                                    const struct gsv_pickle_value **values, size_t *n,
                                    gpuserve_error *error);
/* Append values to the list or dict on top of the stack. */
gpuserve_status gsv_pickle_append(struct gsv_pickle *pickle, enum gsv_pickle_kind kind,
                                  const struct gsv_pickle_value *values, size_t n,
                                  gpuserve_error *error);
/* Copy the top of the stack to an entry of the memo; push an entry. */
gpuserve_status gsv_pickle_memo_put(struct gsv_pickle *pickle, uint64_t index,
                                    gpuserve_error *error);
gpuserve_status gsv_pickle_memo_get(struct gsv_pickle *pickle, uint64_t index,
                                    gpuserve_error *error);

/* Run the opcode `code`, whose arguments are next (pickle_opcodes.c). */
gpuserve_status gsv_pickle_step(struct gsv_pickle *pickle, unsigned char code,
                                gpuserve_error *error);

/* Objects of PyTorch (pickle_objects.c): a name, a call of a name, a reference to a storage, and
 * the state of an object. */
gpuserve_status gsv_pickle_global(struct gsv_pickle *pickle, const char *module, size_t module_size,
                                  const char *name, size_t name_size,
                                  struct gsv_pickle_value *value, gpuserve_error *error);
gpuserve_status gsv_pickle_call(struct gsv_pickle *pickle, const struct gsv_pickle_value *callee,
                                const struct gsv_pickle_value *arguments,
                                struct gsv_pickle_value *result, gpuserve_error *error);
gpuserve_status gsv_pickle_persistent(struct gsv_pickle *pickle, const struct gsv_pickle_value *id,
                                      struct gsv_pickle_value *result, gpuserve_error *error);
gpuserve_status gsv_pickle_build(struct gsv_pickle *pickle, const struct gsv_pickle_value *object,
                                 const struct gsv_pickle_value *state, gpuserve_error *error);

#endif
