/*
 * budgets.cpp - the shared memory that the launches of the product's kernels may ask for, from the
 * table that tests/cuda_static/check_kernels.py computes their occupancy with: what that table
 * supposes is what happens.
 */
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "state.h"

namespace
{

/* Kernel and threads of a block -> bytes. */
typedef std::map<std::pair<std::string, unsigned>, size_t> table;

table read_table()
{
    std::ifstream file(GSV_EMU_BUDGETS);
    std::string line, source, kernel;
    table read;

    while (std::getline(file, line)) {
        std::istringstream words(line);
        unsigned threads, registers;
        size_t shared;

        if (line[0] != '#' && words >> source >> kernel >> threads >> registers >> shared)
            read[{ kernel, threads }] = std::max(read[{ kernel, threads }], shared);
    }
    return read;
}

/* "(gemm_mma<Math, Shape, true>)" to "gemm_mma". */
std::string plain(const std::string &name)
{
    const size_t begin = name[0] == '(';
    const size_t end = name.find_first_of("<)", begin);

    return name.substr(begin, end == std::string::npos ? end : end - begin);
}

} // namespace

std::string gsv_emu_over_budget(const std::string &name, unsigned threads, size_t shared)
{
    static const table budgets = read_table();
    const std::string kernel = plain(name);
    const auto found = budgets.find({ kernel, threads });
    const auto other = budgets.lower_bound({ kernel, 0 });

    if (found == budgets.end()) /* a kernel of a test's own has no line at all */
        return other == budgets.end() || other->first.first != kernel
                   ? ""
                   : "blocks of " + std::to_string(threads) +
                         " threads have no line in tests/cuda_static/budgets.txt";
    if (shared <= found->second)
        return "";
    return std::to_string(shared) + " bytes of shared memory for " + std::to_string(threads) +
           " threads, tests/cuda_static/budgets.txt has " + std::to_string(found->second);
}
