/*
 * budgets.cpp - limits the shared memory of kernel launches to the values in
 * tests/cuda_static/budgets.txt.
 *
 * tests/cuda_static/check_kernels.py computes the kernels' occupancy from the same table, so this
 * check ensures that the table is right.
 */
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "state.h"

namespace
{

/* Kernel and threads per block -> bytes. */
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

/* Converts "(gemm_mma<Math, Shape, true>)" to "gemm_mma". */
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

    if (found == budgets.end()) /* a test's own kernel has no line */
        return other == budgets.end() || other->first.first != kernel
                   ? ""
                   : "blocks of " + std::to_string(threads) +
                         " threads have no line in tests/cuda_static/budgets.txt";
    if (shared <= found->second)
        return "";
    return std::to_string(shared) + " bytes of shared memory for " + std::to_string(threads) +
           " threads, tests/cuda_static/budgets.txt has " + std::to_string(found->second);
}
