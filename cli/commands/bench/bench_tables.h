/*
 * bench_tables.h - the tables of `gpuserve bench`: compute types, batch sizes, models that share a
 * device. Each prints its table, or JSON with --json.
 */
#ifndef CLI_BENCH_TABLES_H
#define CLI_BENCH_TABLES_H

#include "cli/options/options.h"

int cli_bench_dtypes(const struct cli_args *args);
int cli_bench_batches(const struct cli_args *args);
int cli_bench_share(const struct cli_args *args);

#endif
