/*
 * sanitized.h - which sanitizer a test is built with.
 *
 * Sanitizers are ten to thirty times slower. They look for overruns and races on the ways that are
 * taken, and a way taken a second time shows nothing new: such tests compute fewer numbers there.
 * GSV_COMPUTE_SANITIZER: a build for compute-sanitizer, which changes the machine code of kernels.
 */
#ifndef GSV_TESTS_BASE_SANITIZED_H
#define GSV_TESTS_BASE_SANITIZED_H

#if defined(__SANITIZE_THREAD__) || defined(GSV_COMPUTE_SANITIZER)
enum { FOR_RACES = 1 };
#else
enum { FOR_RACES = 0 };
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(GSV_COMPUTE_SANITIZER)
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

#endif
