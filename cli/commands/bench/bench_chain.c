/*
 * bench_chain.c - `gpuserve bench --chain`: a list of elementwise operations over 1 million
 * numbers, fused in one pass, compared with one pass for each operation.
 *
 *   gpuserve       gpuserve_chain()
 *   numpy          one call for each operation, in place
 *   jax            compiled
 *   Python loop    2,000 numbers, scaled
 *
 * All have the same numbers (INPUT). The time is that of the fastest run.
 *
 * On a CPU, a list of sines and cosines is compared with the time of its multiply-adds alone, at
 * the rate of a large matrix product.
 */
#include "cli/commands/bench/bench.h"
#include "cli/cli.h"
#include "cli/io/output.h"
#include "cli/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS 1000000
#define STEPS 500
#define RUNS 5
#define DEFAULT_OPERATIONS "sin,cos"
#define MATRIX 512 /* side of the product that measures the rate of multiply-adds */
#define MATRIX_RUNS 32
#define SIN_MULTIPLY_ADDS 6 /* instructions of a vector in [-1, 1]: kernels/cpu/compute */
#define COS_MULTIPLY_ADDS 5
#define PUBLISHED "published, on another machine: 7.8 s unfused, 0.15 s fused (52x)"

static const struct operation {
    const char *name;
    uint32_t kind;
    bool in_python; /* a function of one argument in `math` and in numpy */
} operations[] = {
    { "sin", GPUSERVE_CHAIN_SIN, true },
    { "cos", GPUSERVE_CHAIN_COS, true },
    { "exp", GPUSERVE_CHAIN_EXP, true },
    { "log", GPUSERVE_CHAIN_LOG, true },
    { "sqrt", GPUSERVE_CHAIN_SQRT, true },
    { "tanh", GPUSERVE_CHAIN_TANH, true },
    { "erf", GPUSERVE_CHAIN_ERF, false },
    { "sigmoid", GPUSERVE_CHAIN_SIGMOID, false },
    { "gelu", GPUSERVE_CHAIN_GELU, false },
    { "relu", GPUSERVE_CHAIN_RELU, false },
    { "absolute", GPUSERVE_CHAIN_ABSOLUTE, false },
    { "reciprocal", GPUSERVE_CHAIN_RECIPROCAL, false },
};
#define N_OPERATIONS (sizeof(operations) / sizeof(operations[0]))

struct chain_bench {
    const char *list;
    gpuserve_chain_step steps[STEPS];
    size_t n_names; /* of the list, which repeats */
    bool in_python;
    float *in, *out;
    double seconds;      /* of the fastest run */
    double multiply_add; /* float32 multiply-adds a second of a matrix product; 0: not measured */
    char device[64];
};

static const struct operation *find(const char *name, size_t size)
{
    for (size_t i = 0; i < N_OPERATIONS; i++)
        if (strlen(operations[i].name) == size && memcmp(operations[i].name, name, size) == 0)
            return &operations[i];
    return NULL;
}

static int fail_operation(const char *name, size_t size, size_t number)
{
    char known[256] = "";

    for (size_t i = 0; i < N_OPERATIONS; i++)
        snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", i ? ", " : "",
                 operations[i].name);
    cli_usage("--operations: operation %zu, \"%.*s\", is unknown", number, (int)size, name);
    cli_hint("known operations: %s", known);
    return CLI_USAGE;
}

/* Reads the list, "sin,cos", and repeats it up to STEPS. */
static int read_list(struct chain_bench *chain, const char *list)
{
    const char *at = list;

    chain->list = list;
    chain->in_python = true;
    for (;;) {
        const size_t size = strcspn(at, ",");
        const struct operation *found = find(at, size);

        if (*list == '\0')
            return cli_usage("--operations: the list has no operations");
        if (!found)
            return fail_operation(at, size, chain->n_names + 1);
        if (chain->n_names == STEPS)
            return cli_usage("--operations: the list has more than %d operations", STEPS);
        chain->in_python = chain->in_python && found->in_python;
        chain->steps[chain->n_names++].kind = found->kind;
        if (at[size] == '\0')
            break;
        at += size + 1;
    }
    for (size_t i = chain->n_names; i < STEPS; i++)
        chain->steps[i] = chain->steps[i - chain->n_names];
    return CLI_OK;
}

/* Multiply-add instructions of the list for each vector of values; 0 if it has other operations. */
static int multiply_adds(const struct chain_bench *chain)
{
    int n = 0;

    for (size_t i = 0; i < STEPS; i++) {
        const uint32_t kind = chain->steps[i].kind;

        if (kind != GPUSERVE_CHAIN_SIN && kind != GPUSERVE_CHAIN_COS)
            return 0;
        n += kind == GPUSERVE_CHAIN_SIN ? SIN_MULTIPLY_ADDS : COS_MULTIPLY_ADDS;
    }
    return n;
}

static gpuserve_status measure_product(struct chain_bench *chain, gpuserve_compute *compute,
                                       gpuserve_error *error)
{
    const size_t n = (size_t)MATRIX * MATRIX;
    float *product = cli_alloc(n, sizeof(*product));
    gpuserve_matmul_job job = GPUSERVE_MATMUL_JOB_INIT;
    gpuserve_compute_result result = GPUSERVE_COMPUTE_RESULT_INIT;
    gpuserve_status st = GPUSERVE_OK;

    job.dtype = GPUSERVE_DTYPE_FLOAT32;
    job.m = job.n = job.k = MATRIX;
    job.a = job.b = chain->in; /* NUMBERS is more than it needs */
    job.c = product;
    job.c_capacity = n;
    for (int run = 0; run < MATRIX_RUNS && st == GPUSERVE_OK; run++) {
        st = gpuserve_matmul(compute, &job, &result, error);
        if (st == GPUSERVE_OK && result.kernel_seconds > 0)
            chain->multiply_add =
                fmax(chain->multiply_add, (double)n * MATRIX / result.kernel_seconds);
    }
    free(product);
    return st;
}

static int run_chain(struct chain_bench *chain, const struct cli_args *args)
{
    gpuserve_compute_options options = GPUSERVE_COMPUTE_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    gpuserve_compute *compute = NULL;
    gpuserve_status st;

    if (cli_context(&context, args) != CLI_OK)
        return CLI_FAILED;
    options.device = args->device;
    options.n_threads = args->threads;
    st = gpuserve_compute_open(&compute, context, &options, &error);
    if (st == GPUSERVE_OK)
        snprintf(chain->device, sizeof(chain->device), "%s", gpuserve_compute_device(compute));
    for (int run = 0; run < RUNS && st == GPUSERVE_OK; run++) {
        gpuserve_compute_result result = GPUSERVE_COMPUTE_RESULT_INIT;
        const double begin = cli_now();
        double seconds;

        st = gpuserve_chain(compute, chain->steps, STEPS, chain->in, chain->out, NUMBERS, &result,
                            &error);
        seconds = cli_now() - begin;
        chain->seconds = run == 0 || seconds < chain->seconds ? seconds : chain->seconds;
    }
    if (st == GPUSERVE_OK && strncmp(chain->device, "cpu", 3) == 0 && multiply_adds(chain) > 0)
        st = measure_product(chain, compute, &error);
    gpuserve_compute_close(&compute);
    gpuserve_context_unref(&context);
    return st == GPUSERVE_OK ? CLI_OK : cli_fail_with(&error, NULL);
}

/* The list of functions as Python text: "m.sin,m.cos". */
static char *python_list(const struct chain_bench *chain, const char *module)
{
    char *text = cli_alloc(chain->n_names * 16, 1);

    for (size_t i = 0; i < chain->n_names; i++)
        for (size_t j = 0; j < N_OPERATIONS; j++)
            if (operations[j].kind == chain->steps[i].kind)
                snprintf(text + strlen(text), 16, "%s%s.%s", i ? "," : "", module,
                         operations[j].name);
    return text;
}

/* `body` defines run(); the fastest of `runs` is printed, times `factor`. */
static double python_seconds(const struct chain_bench *chain, const char *module, const char *body,
                             int runs, double factor)
{
    char *list = python_list(chain, module);
    char *script = cli_format("import time\n%s\nops=[%s]\nf=[ops[i%%len(ops)] for i in range(%d)]\n"
                              "best=1e9\nrun()\nfor _ in range(%d):\n b=time.perf_counter();run();"
                              "best=min(best,time.perf_counter()-b)\nprint(best*%g)",
                              body, list, STEPS, runs, factor);
    const double seconds = cli_python_seconds(script);

    free(script);
    free(list);
    return seconds;
}

static void compare(const struct chain_bench *chain, json_t *rows)
{
    /* As make_input(). numpy rounds each operation to float32, as C does. */
#define INPUT                                                 \
    "i=m.arange(1000000,dtype=m.uint64)*2654435761%1000003\n" \
    "x=i.astype(m.float32)/m.float32(250000)-m.float32(2)\n"
    static const char numpy[] =
        "import numpy as m\n" INPUT "def run():\n y=x.copy()\n for g in f: g(y,out=y)\n";
    static const char jax[] =
        "import numpy as m\n" INPUT "import jax,jax.numpy as m\nx=m.asarray(x)\n"
        "def once(y):\n for g in ops: y=g(y)\n return y\n"
        "j=jax.jit(lambda y:jax.lax.fori_loop(0,len(f)//len(ops),lambda i,v:once(v),y))\n"
        "def run(): j(x).block_until_ready()\n";
    static const char loop[] = "import math as m\n"
                               "x=[i*2654435761%1000003/250000-2 for i in range(2000)]\n"
                               "def run():\n for v in x:\n  for g in f: v=g(v)\n";
    const char *why = chain->in_python ? "not installed" : "no such operation";

    cli_lesson_row(rows, "numpy, one call for each operation",
                   chain->in_python ? python_seconds(chain, "m", numpy, 2, 1) : -1, why);
    cli_lesson_row(rows, "jax, compiled",
                   chain->in_python ? python_seconds(chain, "m", jax, 3, 1) : -1, why);
    cli_lesson_row(rows, "Python loop (2,000 numbers, scaled)",
                   chain->in_python ? python_seconds(chain, "m", loop, 1, NUMBERS / 2000.0) : -1,
                   why);
}

static void make_input(float *in)
{
    for (size_t i = 0; i < NUMBERS; i++)
        in[i] = (float)(i * 2654435761u % 1000003u) / 250000.0f - 2.0f;
}

/* The time of the multiply-adds alone; 0: not measured. */
static double limit_seconds(const struct chain_bench *chain)
{
    return chain->multiply_add > 0 ? (double)multiply_adds(chain) * NUMBERS / chain->multiply_add
                                   : 0;
}

static void print_limit(const struct chain_bench *chain)
{
    if (limit_seconds(chain) > 0)
        printf("\nlimit: %.1f multiply-adds for each operation and number, at %.1f G/s of a "
               "matrix product here:\n%.4f s; %.0f %% of the limit reached\n",
               (double)multiply_adds(chain) / STEPS, chain->multiply_add / 1e9,
               limit_seconds(chain), 100 * limit_seconds(chain) / chain->seconds);
}

static void print_rows(const struct chain_bench *chain, const json_t *rows)
{
    const double own = json_real_value(json_object_get(json_array_get(rows, 0), "seconds"));
    size_t i;
    json_t *row;

    printf("%d operations (%s repeated) over %d float32 numbers on %s; fastest of %d runs\n\n",
           STEPS, chain->list, NUMBERS, chain->device, RUNS);
    json_array_foreach((json_t *)rows, i, row)
    {
        const json_t *seconds = json_object_get(row, "seconds");

        printf("%-38s", json_string_value(json_object_get(row, "path")));
        if (seconds)
            printf("%10.4f s %9.1fx\n", json_real_value(seconds), json_real_value(seconds) / own);
        else
            printf("%12s\n", json_string_value(json_object_get(row, "skipped")));
    }
    print_limit(chain);
    if (strcmp(chain->list, DEFAULT_OPERATIONS) == 0)
        puts("\n" PUBLISHED);
}

static int print_json(const struct chain_bench *chain, json_t *rows)
{
    json_t *facts = json_pack("{s:s, s:s, s:i, s:i, s:O}", "device", chain->device, "operations",
                              chain->list, "steps", STEPS, "numbers", NUMBERS, "rows", rows);
    const double limit = limit_seconds(chain);

    if (limit > 0)
        json_object_set_new(facts, "limit",
                            json_pack("{s:f, s:f, s:f, s:f}", "multiply_adds_per_operation",
                                      (double)multiply_adds(chain) / STEPS,
                                      "multiply_adds_per_second", chain->multiply_add, "seconds",
                                      limit, "share", limit / chain->seconds));
    return cli_facts_print(facts, true);
}

int cli_bench_chain(const struct cli_args *args)
{
    struct chain_bench chain = { 0 };
    json_t *rows = json_array();
    int result = read_list(&chain, args->operations ? args->operations : DEFAULT_OPERATIONS);

    if (result == CLI_OK) {
        chain.in = cli_alloc(NUMBERS, sizeof(float));
        chain.out = cli_alloc(NUMBERS, sizeof(float));
        make_input(chain.in);
        result = run_chain(&chain, args);
    }
    if (result == CLI_OK) {
        cli_lesson_row(rows, "gpuserve, one pass", chain.seconds, NULL);
        compare(&chain, rows);
        if (args->json)
            result = print_json(&chain, rows);
        else
            print_rows(&chain, rows);
    }
    json_decref(rows);
    free(chain.in);
    free(chain.out);
    return result;
}
