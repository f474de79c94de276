/*
 * gpuserve/gpuserve.h - text embeddings, labels and scores, in process. Includes the other headers.
 *
 *   gpuserve_model *model = NULL;
 *   gpuserve_model_open(&model, NULL, "sentence-transformers/all-MiniLM-L6-v2", NULL, &err);
 *   gpuserve_embed(model, texts, n, vectors, n * gpuserve_model_dim(model), NULL, &err);
 *   gpuserve_model_close(&model);
 *
 * Objects
 *   context   threads, memory budgets and logging, shared by its models. The library has no global
 *             state. A model opened with a NULL context has a private one.
 *   device    found by listing, or by a selector string ("auto", "cpu", "cuda:0").
 *   model     tokenizer, encoder, pooling, heads. Thread-safe. Only a swap changes it, and
 *             replaces it as a whole.
 *   tokenizer text to token ids without a model. Immutable.
 *   request   one asynchronous submission; completes exactly once.
 *   error     optional in every call; the caller's memory.
 *
 * Ownership: *owned* means that the caller releases it with the matching function. *Borrowed* has
 * a limited lifetime: an argument until the call returns, or until the request completes; the
 * result of an accessor as long as its parent lives.
 *
 * On failure outputs are unchanged, handles are NULL, and the error says what failed, where, and
 * the limit. The library never prints, exits, aborts, or changes the environment, the locale or
 * signal handlers. In a child process after fork(), every inherited handle returns
 * GPUSERVE_E_FORKED, except in the functions that release handles.
 */
#ifndef GPUSERVE_GPUSERVE_H
#define GPUSERVE_GPUSERVE_H
#include <gpuserve/compute.h>
#include <gpuserve/context.h>
#include <gpuserve/convert.h>
#include <gpuserve/devices.h>
#include <gpuserve/long_texts.h>
#include <gpuserve/entities.h>
#include <gpuserve/model.h>
#include <gpuserve/retrieval.h>
#include <gpuserve/run.h>
#include <gpuserve/tokenizer.h>
#include <gpuserve/types.h>

#define GPUSERVE_VERSION_MAJOR 0
#define GPUSERVE_VERSION_MINOR 2
#define GPUSERVE_VERSION_PATCH 0

#endif /* GPUSERVE_GPUSERVE_H */
