/*
 * chain_source.cu - generates CUDA source for a list of operations.
 *
 *   sin fma sin fma sin fma relu   ->   loop of 3 over { sin fma }, relu
 *
 * A repeating run of operations becomes a loop, since compile time grows with the length of the
 * source: 500 sines in sequence took minutes, a loop takes 0.2 s. For the same reason operations of
 * many instructions become function calls if the source has more than MAX_INLINED of them.
 */
#include "kernels/cuda/compute/chain_source.cuh"

#include "kernels/cuda/compute/chain_ops.cuh"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const gsv_chain_options[GSV_CHAIN_N_OPTIONS] = {
    "--std=c++17", "--fmad=true", "--define-macro=GSV_NOINLINE=__noinline__"
};

namespace
{

const size_t LONGEST_PERIOD = 64;
const size_t MIN_REPEATS = 3;
const size_t MAX_INLINED = 16; /* four copies each */
const int N_KINDS = GPUSERVE_CHAIN_GELU + 1;

struct operation {
    const char *name;
    bool is_long;
    const char *value;
};

#define SOURCE(...) #__VA_ARGS__ "\n"
#define OPERATION(kind, name, is_long, ...) { #name, is_long, #__VA_ARGS__ },

const char *const functions = GSV_CHAIN_FUNCTIONS(SOURCE);
/* Indexed by kind; the first kind is 1. */
const struct operation operations[N_KINDS] = { { "", false, "" }, GSV_CHAIN_OPERATIONS(OPERATION) };

/* `period` operations from `first` on, `repeats` times. */
struct segment {
    size_t first;
    size_t period;
    size_t repeats;
};

struct chain_source_plan {
    struct segment segments[GSV_CHAIN_MAX_STATEMENTS];
    size_t n_segments;
    size_t n_statements;
    size_t n_long;
    bool used[N_KINDS];
};

struct writer {
    char *text;
    size_t length;
    bool failed;
};

void write(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

void write(struct writer *w, const char *format, ...)
{
    const size_t left = GSV_CHAIN_MAX_SOURCE - w->length;
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(w->text + w->length, left, format, args);
    va_end(args);
    if (length < 0 || static_cast<size_t>(length) >= left)
        w->failed = true;
    else
        w->length += static_cast<size_t>(length);
}

/* Number of consecutive repeats of the `period` operations at `first`. */
size_t count_repeats(const gpuserve_chain_step *steps, size_t n_steps, size_t first, size_t period)
{
    size_t same = 0;

    while (first + period + same < n_steps &&
           steps[first + same].kind == steps[first + period + same].kind)
        same++;
    return 1 + same / period;
}

/* The period whose loop covers the most operations from `first` on; the shortest of those. */
struct segment next_segment(const gpuserve_chain_step *steps, size_t n_steps, size_t first)
{
    struct segment best = { first, 1, 1 };

    for (size_t period = 1; period <= LONGEST_PERIOD && first + period < n_steps; period++) {
        const size_t repeats = count_repeats(steps, n_steps, first, period);

        if (repeats >= MIN_REPEATS && repeats * period > best.repeats * best.period)
            best = { first, period, repeats };
    }
    return best;
}

bool make_plan(struct chain_source_plan *plan, const gpuserve_chain_step *steps, size_t n_steps)
{
    for (size_t at = 0; at < n_steps;) {
        const struct segment next = next_segment(steps, n_steps, at);

        plan->n_statements += next.period;
        if (plan->n_statements > GSV_CHAIN_MAX_STATEMENTS)
            return false;
        plan->segments[plan->n_segments++] = next;
        for (size_t i = at; i < at + next.period; i++) {
            plan->used[steps[i].kind] = true;
            plan->n_long += operations[steps[i].kind].is_long;
        }
        at += next.period * next.repeats;
    }
    return true;
}

void write_functions(struct writer *w, const struct chain_source_plan *plan)
{
    const bool calls = plan->n_long > MAX_INLINED;

    write(w, "struct gsv_chain_numbers { unsigned kind; float a; float b; };\n");
    if (plan->used[GPUSERVE_CHAIN_SIN] || plan->used[GPUSERVE_CHAIN_COS])
        write(w, "%s", functions);
    for (int kind = 1; kind < N_KINDS; kind++) {
        const struct operation *const o = &operations[kind];

        if (plan->used[kind])
            write(w,
                  "static __device__ %s float gsv_chain_%s(const float x, const float a, const "
                  "float b) { return %s; }\n",
                  o->is_long && calls ? "GSV_NOINLINE" : "__forceinline__", o->name, o->value);
    }
    write(w, "#define STEP(f) { const float a = s->a, b = s->b; x0 = f(x0, a, b); "
             "x1 = f(x1, a, b); x2 = f(x2, a, b); x3 = f(x3, a, b); s++; }\n");
}

void write_begin(struct writer *w)
{
    write(w,
          "extern \"C\" __global__ void __launch_bounds__(%d) %s(const float *const in, float "
          "*const out, const unsigned long long n, const struct gsv_chain_numbers *const steps, "
          "const int aligned)\n{\n"
          "const struct gsv_chain_numbers *s = steps;\n"
          "const unsigned long long at = (blockIdx.x * %dull + threadIdx.x) * %dull;\n"
          "float x0 = 0.f, x1 = 0.f, x2 = 0.f, x3 = 0.f;\n"
          "if (at >= n)\nreturn;\n"
          "const bool four = aligned && n - at >= 4;\n"
          "if (four) {\nconst float4 x = *reinterpret_cast<const float4 *>(in + at);\n"
          "x0 = x.x; x1 = x.y; x2 = x.z; x3 = x.w;\n} else {\nx0 = in[at];\n"
          "if (n - at > 1) x1 = in[at + 1];\nif (n - at > 2) x2 = in[at + 2];\n"
          "if (n - at > 3) x3 = in[at + 3];\n}\n",
          GSV_CHAIN_THREADS, GSV_CHAIN_KERNEL, GSV_CHAIN_THREADS, GSV_CHAIN_WIDTH);
}

void write_steps(struct writer *w, const struct chain_source_plan *plan,
                 const gpuserve_chain_step *steps)
{
    for (size_t i = 0; i < plan->n_segments; i++) {
        const struct segment *const of = &plan->segments[i];

        if (of->repeats > 1)
            write(w, "#pragma unroll 1\nfor (int i = 0; i < %zu; i++) {\n", of->repeats);
        for (size_t at = of->first; at < of->first + of->period; at++)
            write(w, "STEP(gsv_chain_%s)\n", operations[steps[at].kind].name);
        if (of->repeats > 1)
            write(w, "}\n");
    }
}

void write_end(struct writer *w)
{
    write(w, "if (four) {\n"
             "*reinterpret_cast<float4 *>(out + at) = make_float4(x0, x1, x2, x3);\nreturn;\n}\n"
             "out[at] = x0;\nif (n - at > 1) out[at + 1] = x1;\n"
             "if (n - at > 2) out[at + 2] = x2;\nif (n - at > 3) out[at + 3] = x3;\n}\n");
}

} /* namespace */

char *gsv_chain_write_source(const gpuserve_chain_step *steps, size_t n_steps)
{
    struct chain_source_plan *const plan =
        static_cast<struct chain_source_plan *>(calloc(1, sizeof(*plan)));
    struct writer w = { static_cast<char *>(malloc(GSV_CHAIN_MAX_SOURCE)), 0, false };

    if (plan && w.text && make_plan(plan, steps, n_steps)) {
        write_functions(&w, plan);
        write_begin(&w);
        write_steps(&w, plan, steps);
        write_end(&w);
    } else {
        w.failed = true;
    }
    free(plan);
    if (!w.failed)
        return w.text;
    free(w.text);
    return NULL;
}
