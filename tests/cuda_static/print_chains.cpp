/*
 * print_chains.cpp - writes every source that generators of this project can come to, for
 * check_generated.py: the operations alone, together, in all their ways of repeating, and at the
 * limits of what is generated at all.
 *
 *     print_chains FOLDER      NAME.cu for each; prints the options of the compiler, one a line
 */
#include "kernels/cuda/compute/chain_source.cu"

#include <vector>

typedef std::vector<gpuserve_chain_step> steps;

static const char *folder;

static void put(const char *name, const steps &list)
{
    char path[4096];
    char *const source = gsv_chain_write_source(list.data(), list.size());

    snprintf(path, sizeof(path), "%s/%s.cu", folder, name);
    FILE *const file = source ? fopen(path, "wb") : NULL;
    if (!file || fputs(source, file) < 0 || fclose(file) != 0) {
        fprintf(stderr, "%s: no source\n", path);
        exit(1);
    }
    free(source);
}

static steps repeat(const steps &body, size_t times)
{
    steps all;

    while (times-- > 0)
        all.insert(all.end(), body.begin(), body.end());
    return all;
}

/* No run of it repeats three times. */
static steps mixed(size_t n, uint32_t first, uint32_t last)
{
    uint64_t state = n;
    steps all;

    while (all.size() < n) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        all.push_back(
            { first + static_cast<uint32_t>(state >> 33) % (last - first + 1), 1.5f, .25f });
    }
    return all;
}

static steps kind(uint32_t number)
{
    return { { number, 1.5f, 0.25f } };
}

static steps of(std::initializer_list<uint32_t> numbers)
{
    steps all;

    for (const uint32_t number : numbers)
        all.push_back({ number, 1.5f, 0.25f });
    return all;
}

static void put_lists(void)
{
    const steps sine_cosine = of({ GPUSERVE_CHAIN_SIN, GPUSERVE_CHAIN_COS });
    steps all, three_parts;
    char name[64];

    for (uint32_t number = 1; number < N_KINDS; number++) {
        snprintf(name, sizeof(name), "one-%s", operations[number].name);
        put(name, kind(number));
        all.push_back(kind(number)[0]);
    }
    put("all", all);
    put("all-in-a-loop", repeat(all, 5));
    put("loop-of-1", repeat(kind(GPUSERVE_CHAIN_TANH), 500));
    put("loop-of-2", repeat(sine_cosine, 250));
    put("loop-of-64", repeat(mixed(64, 1, N_KINDS - 1), 3));
    put("most-steps", repeat(sine_cosine, GPUSERVE_CHAIN_MAX_STEPS / 2));
    three_parts = all;
    for (const gpuserve_chain_step &step : repeat(sine_cosine, 10))
        three_parts.push_back(step);
    for (const gpuserve_chain_step &step : mixed(20, 1, 6))
        three_parts.push_back(step);
    put("before-and-after-a-loop", three_parts);
    put("inlined-most", mixed(MAX_INLINED, GPUSERVE_CHAIN_EXP, GPUSERVE_CHAIN_SIGMOID));
    put("calls-least", mixed(MAX_INLINED + 1, GPUSERVE_CHAIN_EXP, GPUSERVE_CHAIN_SIGMOID));
    put("mixed-500", mixed(500, 1, N_KINDS - 1));
    put("longest", mixed(GSV_CHAIN_MAX_STATEMENTS, 1, N_KINDS - 1));
    put("longest-simple", mixed(GSV_CHAIN_MAX_STATEMENTS, 1, 6));
}

int main(int argc, char **argv)
{
    const steps too_many = mixed(GSV_CHAIN_MAX_STATEMENTS + 20, 1, N_KINDS - 1);

    if (argc != 2)
        return 2;
    folder = argv[1];
    put_lists();
    if (gsv_chain_write_source(too_many.data(), too_many.size())) {
        fprintf(stderr, "more statements than the most became a source\n");
        return 1;
    }
    for (const char *option : gsv_chain_options)
        puts(option);
    return 0;
}
