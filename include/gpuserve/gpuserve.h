/*
 * gpuserve/gpuserve.h - text to vectors, labels and scores, inside your process.
 *
 *   gpuserve_model *model = NULL;
 *   gpuserve_model_open(&model, NULL, "sentence-transformers/all-MiniLM-L6-v2", NULL, &err);
 *   gpuserve_embed(model, texts, n, vectors, n * gpuserve_model_dim(model), NULL, &err);
 *   gpuserve_model_close(&model);
 *
 * The nouns
 *   context   threads, budgets and logging; everything in a process can share one, nothing is
 *             global. A NULL context gives a model a private one.
 *   device    found by listing, or by a selector string ("auto", "cpu", "cuda:0").
 *   model     tokenizer, encoder, pooling, heads. Thread-safe. It changes only by a swap, which
 *             exchanges it whole.
 *   request   one asynchronous submission; completed exactly once.
 *   error     the caller's memory, optional everywhere.
 *
 * Three words for memory: *owned* (the caller ends it with the matching function), *borrowed*
 * (used until the call returns, or until the request completes), *lent* (the result of an
 * accessor, good as long as its parent lives).
 *
 * On failure outputs are untouched, handles are NULL, and the error says what, where and the
 * limit. The library never prints, exits, aborts, or changes the environment, the locale or
 * signal handlers. After fork() the child gets GPUSERVE_E_FORKED from every handle of its parent
 * except in the functions that end one.
 */
#ifndef GPUSERVE_GPUSERVE_H
#define GPUSERVE_GPUSERVE_H
#include <gpuserve/compute.h>
#include <gpuserve/context.h>
#include <gpuserve/devices.h>
#include <gpuserve/model.h>
#include <gpuserve/retrieval.h>
#include <gpuserve/run.h>
#include <gpuserve/types.h>

#define GPUSERVE_VERSION_MAJOR 0
#define GPUSERVE_VERSION_MINOR 1
#define GPUSERVE_VERSION_PATCH 0

#endif /* GPUSERVE_GPUSERVE_H */
