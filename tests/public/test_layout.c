/*
 * test_layout.c - the ABI of version 0.2: sizes, field offsets, enum values.
 *
 * All lines are as of the 0.2 release. None may change while the soname ends in 0. New fields are
 * added at the end of a struct, and their lines after the old ones. (64-bit targets.)
 */
#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <stdio.h>

#define SIZE(type, bytes) _Static_assert(sizeof(type) >= (bytes), #type " has shrunk")
#define FIELD(type, field, bytes) \
    _Static_assert(offsetof(type, field) == (bytes), #type "." #field " has moved")
#define NUMBER(name, value) _Static_assert(name == (value), #name " has another number")

/* clang-format off */

SIZE(gpuserve_error, 1040);
FIELD(gpuserve_error, struct_size, 0);
FIELD(gpuserve_error, status, 4);
FIELD(gpuserve_error, retry_after_ms, 8);
FIELD(gpuserve_error, reserved, 12);
FIELD(gpuserve_error, message, 16);
FIELD(gpuserve_error, hint, 528);

SIZE(gpuserve_context_options, 64);
FIELD(gpuserve_context_options, struct_size, 0);
FIELD(gpuserve_context_options, n_threads, 4);
FIELD(gpuserve_context_options, memory_budget_bytes, 8);
FIELD(gpuserve_context_options, log, 16);
FIELD(gpuserve_context_options, log_user, 24);
FIELD(gpuserve_context_options, log_level, 32);
FIELD(gpuserve_context_options, reserved, 36);
FIELD(gpuserve_context_options, plugin_dir, 40);
FIELD(gpuserve_context_options, cache_dir, 48);
FIELD(gpuserve_context_options, memory_policy, 56);
FIELD(gpuserve_context_options, memory_wait_ms, 60);

SIZE(gpuserve_stats, 272);
FIELD(gpuserve_stats, struct_size, 0);
FIELD(gpuserve_stats, n_models, 4);
FIELD(gpuserve_stats, requests, 8);
FIELD(gpuserve_stats, requests_ok, 16);
FIELD(gpuserve_stats, requests_busy, 24);
FIELD(gpuserve_stats, requests_cancelled, 32);
FIELD(gpuserve_stats, requests_expired, 40);
FIELD(gpuserve_stats, requests_failed, 48);
FIELD(gpuserve_stats, items, 56);
FIELD(gpuserve_stats, items_truncated, 64);
FIELD(gpuserve_stats, tokens, 72);
FIELD(gpuserve_stats, batches, 80);
FIELD(gpuserve_stats, padding_tokens_saved, 88);
FIELD(gpuserve_stats, queued_requests, 96);
FIELD(gpuserve_stats, queued_tokens, 104);
FIELD(gpuserve_stats, tokenize_ns, 112);
FIELD(gpuserve_stats, compute_ns, 120);
FIELD(gpuserve_stats, queue_ns, 128);
FIELD(gpuserve_stats, request_ns, 136);
FIELD(gpuserve_stats, request_p50_us, 144);
FIELD(gpuserve_stats, request_p95_us, 152);
FIELD(gpuserve_stats, request_p99_us, 160);
FIELD(gpuserve_stats, queue_p50_us, 168);
FIELD(gpuserve_stats, queue_p95_us, 176);
FIELD(gpuserve_stats, queue_p99_us, 184);
FIELD(gpuserve_stats, weights_bytes, 192);
FIELD(gpuserve_stats, workspace_bytes, 200);
FIELD(gpuserve_stats, stream_bytes, 208);
FIELD(gpuserve_stats, host_bytes, 216);
FIELD(gpuserve_stats, queued_bytes, 224);
FIELD(gpuserve_stats, items_shared, 232);
FIELD(gpuserve_stats, cache_hits, 240);
FIELD(gpuserve_stats, cache_misses, 248);
FIELD(gpuserve_stats, cache_bytes, 256);
FIELD(gpuserve_stats, n_suspended, 264);

SIZE(gpuserve_device_info, 480);
FIELD(gpuserve_device_info, struct_size, 0);
FIELD(gpuserve_device_info, index, 4);
FIELD(gpuserve_device_info, selector, 8);
FIELD(gpuserve_device_info, name, 72);
FIELD(gpuserve_device_info, uuid, 200);
FIELD(gpuserve_device_info, isa, 264);
FIELD(gpuserve_device_info, memory_bytes, 328);
FIELD(gpuserve_device_info, memory_free_bytes, 336);
FIELD(gpuserve_device_info, n_cores, 344);
FIELD(gpuserve_device_info, reserved, 348);
FIELD(gpuserve_device_info, held_bytes, 352);
FIELD(gpuserve_device_info, driver_index, 360);
FIELD(gpuserve_device_info, load_percent, 364);
FIELD(gpuserve_device_info, temperature_celsius, 368);
FIELD(gpuserve_device_info, power_milliwatts, 372);
FIELD(gpuserve_device_info, n_processes, 376);
FIELD(gpuserve_device_info, flags, 380);
FIELD(gpuserve_device_info, bus_id, 384);
FIELD(gpuserve_device_info, limit, 416);

SIZE(gpuserve_model_options, 144);
FIELD(gpuserve_model_options, struct_size, 0);
FIELD(gpuserve_model_options, dtype, 4);
FIELD(gpuserve_model_options, device, 8);
FIELD(gpuserve_model_options, head, 16);
FIELD(gpuserve_model_options, max_tokens, 24);
FIELD(gpuserve_model_options, max_batch_tokens, 28);
FIELD(gpuserve_model_options, n_threads, 32);
FIELD(gpuserve_model_options, pooling, 36);
FIELD(gpuserve_model_options, use_mmap, 40);
FIELD(gpuserve_model_options, max_queue_tokens, 44);
FIELD(gpuserve_model_options, warmup, 48);
FIELD(gpuserve_model_options, on_device_lost, 52);
FIELD(gpuserve_model_options, progress, 56);
FIELD(gpuserve_model_options, progress_user, 64);
FIELD(gpuserve_model_options, max_queue_bytes, 72);
FIELD(gpuserve_model_options, cache_bytes, 80);
FIELD(gpuserve_model_options, memory_budget_bytes, 88);
FIELD(gpuserve_model_options, name, 96);
FIELD(gpuserve_model_options, version, 104);
FIELD(gpuserve_model_options, keep, 112);
FIELD(gpuserve_model_options, when_suspended, 116);
FIELD(gpuserve_model_options, lost, 120);
FIELD(gpuserve_model_options, lost_user, 128);
FIELD(gpuserve_model_options, max_wait_us, 136);
FIELD(gpuserve_model_options, max_queue_ms, 140);
FIELD(gpuserve_model_options, adapters, 176);
FIELD(gpuserve_model_options, heads, 184);
FIELD(gpuserve_model_options, portable_bits, 192);
FIELD(gpuserve_model_options, stream_weights, 196);

SIZE(gpuserve_model_properties, 160);
FIELD(gpuserve_model_properties, struct_size, 0);
FIELD(gpuserve_model_properties, tasks, 4);
FIELD(gpuserve_model_properties, dim, 8);
FIELD(gpuserve_model_properties, token_dim, 16);
FIELD(gpuserve_model_properties, first_vector, 24);
FIELD(gpuserve_model_properties, sparse_dim, 32);
FIELD(gpuserve_model_properties, max_tokens, 40);
FIELD(gpuserve_model_properties, query_tokens, 48);
FIELD(gpuserve_model_properties, document_tokens, 56);
FIELD(gpuserve_model_properties, expanded_tokens, 64);
FIELD(gpuserve_model_properties, vocab_size, 72);
FIELD(gpuserve_model_properties, n_labels, 80);
FIELD(gpuserve_model_properties, n_heads, 88);
FIELD(gpuserve_model_properties, entailment_label, 96);
FIELD(gpuserve_model_properties, rerank_method, 100);
FIELD(gpuserve_model_properties, dtype, 104);
FIELD(gpuserve_model_properties, finds_entities, 108);
FIELD(gpuserve_model_properties, takes_instruction, 112);
FIELD(gpuserve_model_properties, reserved, 116);
FIELD(gpuserve_model_properties, fingerprint, 120);

SIZE(gpuserve_head, 32);
FIELD(gpuserve_head, struct_size, 0);
FIELD(gpuserve_head, score, 4);
FIELD(gpuserve_head, name, 8);
FIELD(gpuserve_head, labels, 16);
FIELD(gpuserve_head, n_labels, 24);

SIZE(gpuserve_swap_options, 16);
FIELD(gpuserve_swap_options, struct_size, 0);
FIELD(gpuserve_swap_options, allow, 4);
FIELD(gpuserve_swap_options, fingerprint, 8);

SIZE(gpuserve_footprint, 64);
FIELD(gpuserve_footprint, struct_size, 0);
FIELD(gpuserve_footprint, fits, 4);
FIELD(gpuserve_footprint, weights_bytes, 8);
FIELD(gpuserve_footprint, workspace_bytes, 16);
FIELD(gpuserve_footprint, stream_bytes, 24);
FIELD(gpuserve_footprint, host_bytes, 32);
FIELD(gpuserve_footprint, total_bytes, 40);
FIELD(gpuserve_footprint, available_bytes, 48);
FIELD(gpuserve_footprint, max_batch_tokens, 56);
FIELD(gpuserve_footprint, n_streams, 60);

SIZE(gpuserve_span, 8);
FIELD(gpuserve_span, begin, 0);
FIELD(gpuserve_span, end, 4);

SIZE(gpuserve_tokenize_options, 16);
FIELD(gpuserve_tokenize_options, struct_size, 0);
FIELD(gpuserve_tokenize_options, no_special, 4);
FIELD(gpuserve_tokenize_options, max_tokens, 8);
FIELD(gpuserve_tokenize_options, truncation, 12);

SIZE(gpuserve_tokenizer_input, 40);
FIELD(gpuserve_tokenizer_input, text, 8);
FIELD(gpuserve_tokenizer_input, size, 16);
FIELD(gpuserve_tokenizer_input, pair, 24);
FIELD(gpuserve_tokenizer_input, pair_size, 32);

SIZE(gpuserve_convert_options, 40);
FIELD(gpuserve_convert_options, dtype, 4);
FIELD(gpuserve_convert_options, force, 8);
FIELD(gpuserve_convert_options, prune, 12);
FIELD(gpuserve_convert_options, max_file_bytes, 16);
FIELD(gpuserve_convert_options, progress, 24);
FIELD(gpuserve_convert_options, progress_user, 32);

SIZE(gpuserve_convert_report, 104);
FIELD(gpuserve_convert_report, dtype, 4);
FIELD(gpuserve_convert_report, task, 8);
FIELD(gpuserve_convert_report, n_probes, 12);
FIELD(gpuserve_convert_report, cosine_mean, 16);
FIELD(gpuserve_convert_report, cosine_min, 24);
FIELD(gpuserve_convert_report, score_difference, 32);
FIELD(gpuserve_convert_report, bytes_before, 40);
FIELD(gpuserve_convert_report, bytes_after, 48);
FIELD(gpuserve_convert_report, n_tensors, 56);
FIELD(gpuserve_convert_report, n_quantized, 64);
FIELD(gpuserve_convert_report, seconds, 72);
FIELD(gpuserve_convert_report, n_pruned, 80);
FIELD(gpuserve_convert_report, pruned_values, 88);
FIELD(gpuserve_convert_report, zero_values, 96);

SIZE(gpuserve_tokenizer_output, 40);
FIELD(gpuserve_tokenizer_output, capacity, 8);
FIELD(gpuserve_tokenizer_output, ids, 16);
FIELD(gpuserve_tokenizer_output, type_ids, 24);
FIELD(gpuserve_tokenizer_output, spans, 32);

SIZE(gpuserve_item, 32);
FIELD(gpuserve_item, status, 0);
FIELD(gpuserve_item, n_tokens, 4);
FIELD(gpuserve_item, truncated, 8);
FIELD(gpuserve_item, cached, 12);
FIELD(gpuserve_item, reserved, 16);

SIZE(gpuserve_result, 168);
FIELD(gpuserve_result, struct_size, 0);
FIELD(gpuserve_result, dtype, 4);
FIELD(gpuserve_result, n_tokens, 8);
FIELD(gpuserve_result, n_truncated, 16);
FIELD(gpuserve_result, n_cached, 24);
FIELD(gpuserve_result, tokenize_us, 32);
FIELD(gpuserve_result, queue_us, 40);
FIELD(gpuserve_result, compute_us, 48);
FIELD(gpuserve_result, total_us, 56);
FIELD(gpuserve_result, device, 64);
FIELD(gpuserve_result, fingerprint, 128);

SIZE(gpuserve_output, 32);
FIELD(gpuserve_output, task, 0);
FIELD(gpuserve_output, reserved, 4);
FIELD(gpuserve_output, rows, 8);
FIELD(gpuserve_output, capacity, 16);
FIELD(gpuserve_output, stride, 24);

SIZE(gpuserve_job, 200);
FIELD(gpuserve_job, struct_size, 0);
FIELD(gpuserve_job, task, 4);
FIELD(gpuserve_job, n_items, 8);
FIELD(gpuserve_job, texts, 16);
FIELD(gpuserve_job, text_sizes, 24);
FIELD(gpuserve_job, pairs, 32);
FIELD(gpuserve_job, pair_sizes, 40);
FIELD(gpuserve_job, ids, 48);
FIELD(gpuserve_job, id_offsets, 56);
FIELD(gpuserve_job, prompt_name, 64);
FIELD(gpuserve_job, prompt, 72);
FIELD(gpuserve_job, dimensions, 80);
FIELD(gpuserve_job, truncation, 84);
FIELD(gpuserve_job, normalize, 88);
FIELD(gpuserve_job, score, 92);
FIELD(gpuserve_job, output, 96);
FIELD(gpuserve_job, output_capacity, 104);
FIELD(gpuserve_job, output_stride, 112);
FIELD(gpuserve_job, items, 120);
FIELD(gpuserve_job, token_offsets, 128);
FIELD(gpuserve_job, deadline_us, 136);
FIELD(gpuserve_job, priority, 144);
FIELD(gpuserve_job, cache, 148);
FIELD(gpuserve_job, expected_fingerprint, 152);
FIELD(gpuserve_job, result, 160);
FIELD(gpuserve_job, client, 168);
FIELD(gpuserve_job, prompt_in_ids, 176);
FIELD(gpuserve_job, role, 180);
FIELD(gpuserve_job, more, 184);
FIELD(gpuserve_job, n_more, 192);
FIELD(gpuserve_job, trace, 200);
FIELD(gpuserve_job, heads, 208);
FIELD(gpuserve_job, query_vectors, 216);
FIELD(gpuserve_job, n_query_vectors, 224);
FIELD(gpuserve_job, precision, 232);
FIELD(gpuserve_job, reserved, 236);
FIELD(gpuserve_job, ranges, 240);

SIZE(gpuserve_long_options, 64);
FIELD(gpuserve_long_options, struct_size, 0);
FIELD(gpuserve_long_options, method, 4);
FIELD(gpuserve_long_options, window_tokens, 8);
FIELD(gpuserve_long_options, stride, 12);
FIELD(gpuserve_long_options, chunk_by, 16);
FIELD(gpuserve_long_options, chunk_tokens, 20);
FIELD(gpuserve_long_options, dimensions, 24);
FIELD(gpuserve_long_options, normalize, 28);
FIELD(gpuserve_long_options, prompt_name, 32);
FIELD(gpuserve_long_options, prompt, 40);
FIELD(gpuserve_long_options, spans, 48);
FIELD(gpuserve_long_options, span_offsets, 56);

SIZE(gpuserve_chunk, 24);
FIELD(gpuserve_chunk, text, 0);
FIELD(gpuserve_chunk, row, 4);
FIELD(gpuserve_chunk, begin, 8);
FIELD(gpuserve_chunk, end, 12);
FIELD(gpuserve_chunk, n_tokens, 16);
FIELD(gpuserve_chunk, reserved, 20);

SIZE(gpuserve_long_result, 48);
FIELD(gpuserve_long_result, struct_size, 0);
FIELD(gpuserve_long_result, reserved, 4);
FIELD(gpuserve_long_result, chunks, 8);
FIELD(gpuserve_long_result, n_chunks, 16);
FIELD(gpuserve_long_result, vectors, 24);
FIELD(gpuserve_long_result, n_vectors, 32);
FIELD(gpuserve_long_result, dim, 40);

SIZE(gpuserve_entity_request, 72);
FIELD(gpuserve_entity_request, struct_size, 0);
FIELD(gpuserve_entity_request, threshold, 4);
FIELD(gpuserve_entity_request, texts, 8);
FIELD(gpuserve_entity_request, text_sizes, 16);
FIELD(gpuserve_entity_request, n_texts, 24);
FIELD(gpuserve_entity_request, labels, 32);
FIELD(gpuserve_entity_request, n_labels, 40);
FIELD(gpuserve_entity_request, label_offsets, 48);
FIELD(gpuserve_entity_request, overlap, 56);
FIELD(gpuserve_entity_request, multi_label, 60);
FIELD(gpuserve_entity_request, truncation, 64);
FIELD(gpuserve_entity_request, reserved, 68);

SIZE(gpuserve_found_entity, 16);
FIELD(gpuserve_found_entity, begin, 0);
FIELD(gpuserve_found_entity, end, 4);
FIELD(gpuserve_found_entity, label, 8);
FIELD(gpuserve_found_entity, score, 12);

SIZE(gpuserve_rerank_options, 56);
FIELD(gpuserve_rerank_options, struct_size, 0);
FIELD(gpuserve_rerank_options, method, 4);
FIELD(gpuserve_rerank_options, score, 8);
FIELD(gpuserve_rerank_options, reserved, 12);
FIELD(gpuserve_rerank_options, top_n, 16);
FIELD(gpuserve_rerank_options, query_size, 24);
FIELD(gpuserve_rerank_options, document_sizes, 32);
FIELD(gpuserve_rerank_options, query_prompt, 40);
FIELD(gpuserve_rerank_options, document_prompt, 48);

NUMBER(GPUSERVE_OVERLAP_FLAT, 0);
NUMBER(GPUSERVE_OVERLAP_NESTED, 1);
NUMBER(GPUSERVE_RERANK_DEFAULT, 0);
NUMBER(GPUSERVE_RERANK_CROSS_ENCODER, 1);
NUMBER(GPUSERVE_RERANK_COSINE, 2);
NUMBER(GPUSERVE_OK, 0);
NUMBER(GPUSERVE_E_INVALID, 1);
NUMBER(GPUSERVE_E_NOT_FOUND, 2);
NUMBER(GPUSERVE_E_FORMAT, 3);
NUMBER(GPUSERVE_E_UNSUPPORTED, 4);
NUMBER(GPUSERVE_E_NOMEM, 5);
NUMBER(GPUSERVE_E_TOO_LARGE, 6);
NUMBER(GPUSERVE_E_BUSY, 7);
NUMBER(GPUSERVE_E_DEVICE, 8);
NUMBER(GPUSERVE_E_IO, 9);
NUMBER(GPUSERVE_E_CANCELLED, 10);
NUMBER(GPUSERVE_E_EXPIRED, 11);
NUMBER(GPUSERVE_E_TIMEOUT, 12);
NUMBER(GPUSERVE_E_FORKED, 13);
NUMBER(GPUSERVE_E_NUMERIC, 14);
NUMBER(GPUSERVE_E_INTERNAL, 15);
NUMBER(GPUSERVE_E_MISMATCH, 16);
NUMBER(GPUSERVE_DTYPE_DEFAULT, 0);
NUMBER(GPUSERVE_DTYPE_FLOAT32, 1);
NUMBER(GPUSERVE_DTYPE_FLOAT16, 2);
NUMBER(GPUSERVE_DTYPE_BFLOAT16, 3);
NUMBER(GPUSERVE_DTYPE_TF32, 4);
NUMBER(GPUSERVE_DTYPE_INT8, 5);
NUMBER(GPUSERVE_LOG_ERROR, 1);
NUMBER(GPUSERVE_LOG_WARNING, 2);
NUMBER(GPUSERVE_LOG_INFO, 3);
NUMBER(GPUSERVE_LOG_DEBUG, 4);
NUMBER(GPUSERVE_LOST_FAIL, 0);
NUMBER(GPUSERVE_LOST_CPU, 1);
NUMBER(GPUSERVE_LOST_GPU, 2);
NUMBER(GPUSERVE_LOST_GPU_OR_CPU, 3);
NUMBER(GPUSERVE_POOLING_DEFAULT, 0);
NUMBER(GPUSERVE_POOLING_CLS, 1);
NUMBER(GPUSERVE_POOLING_MEAN, 2);
NUMBER(GPUSERVE_POOLING_MAX, 3);
NUMBER(GPUSERVE_POOLING_MEAN_SQRT_LEN, 4);
NUMBER(GPUSERVE_POOLING_WEIGHTED_MEAN, 5);
NUMBER(GPUSERVE_POOLING_LAST, 6);
NUMBER(GPUSERVE_TRUNCATE_DEFAULT, 0);
NUMBER(GPUSERVE_TRUNCATE_RIGHT, 1);
NUMBER(GPUSERVE_TRUNCATE_LEFT, 2);
NUMBER(GPUSERVE_TRUNCATE_STRICT, 3);
NUMBER(GPUSERVE_DEVICE_MIG, 1);
NUMBER(GPUSERVE_DEVICE_VIRTUAL, 2);
NUMBER(GPUSERVE_TASK_EMBED, 0);
NUMBER(GPUSERVE_TASK_CLASSIFY, 1);
NUMBER(GPUSERVE_TASK_TOKEN_VECTORS, 2);
NUMBER(GPUSERVE_TASK_SPARSE, 3);
NUMBER(GPUSERVE_TASK_TOKEN_LABELS, 4);
NUMBER(GPUSERVE_TASK_MAX_SIM, 5);
NUMBER(GPUSERVE_PRIORITY_NORMAL, 0);
NUMBER(GPUSERVE_PRIORITY_HIGH, 1);
NUMBER(GPUSERVE_PRIORITY_LOW, 2);
NUMBER(GPUSERVE_CACHE_DEFAULT, 0);
NUMBER(GPUSERVE_CACHE_ON, 1);
NUMBER(GPUSERVE_CACHE_OFF, 2);
NUMBER(GPUSERVE_NORMALIZE_DEFAULT, 0);
NUMBER(GPUSERVE_NORMALIZE_YES, 1);
NUMBER(GPUSERVE_NORMALIZE_NO, 2);
NUMBER(GPUSERVE_NORMALIZE_WHOLE, 3);
NUMBER(GPUSERVE_CHANGE_FINGERPRINT, 1);
NUMBER(GPUSERVE_CHANGE_DIM, 2);
NUMBER(GPUSERVE_CHANGE_LABELS, 4);
NUMBER(GPUSERVE_CHANGE_MAX_TOKENS, 8);
NUMBER(GPUSERVE_STAGE_WARMUP, 1);
NUMBER(GPUSERVE_STAGE_WEIGHTS, 2);
NUMBER(GPUSERVE_MEMORY_REFUSE, 0);
NUMBER(GPUSERVE_MEMORY_WAIT, 1);
NUMBER(GPUSERVE_MEMORY_EVICT, 2);
NUMBER(GPUSERVE_SUSPENDED_RESUME, 0);
NUMBER(GPUSERVE_SUSPENDED_REFUSE, 1);
NUMBER(GPUSERVE_WARMUP_GPU, 0xfffffffd);
NUMBER(GPUSERVE_WARMUP_OFF, 0xfffffffe);
NUMBER(GPUSERVE_WARMUP_AUTO, 0xffffffff);
NUMBER(GPUSERVE_SCORE_DEFAULT, 0);
NUMBER(GPUSERVE_SCORE_RAW, 1);
NUMBER(GPUSERVE_SCORE_SOFTMAX, 2);
NUMBER(GPUSERVE_SCORE_SIGMOID, 3);
/* clang-format on */

/* The checks above are at compile time; this one checks the linked library. */
Test(layout, the_library_is_of_the_headers_version)
{
    char version[32];

    snprintf(version, sizeof(version), "%d.%d.%d", GPUSERVE_VERSION_MAJOR, GPUSERVE_VERSION_MINOR,
             GPUSERVE_VERSION_PATCH);
    cr_expect_str_eq(gpuserve_version(), version);
    cr_expect_eq(gpuserve_abi_version(), 0);
}
