/*
 * test_cublaslt_missing.cpp - a device without cuBLASLt: one warning in a process, with the
 * searched folders, and the device opens.
 *
 * The real loader is compiled, not that of the emulator. The search finds nothing.
 */
#undef GSV_CUDA_EMU
#include "kernels/cuda/runtime/cublaslt_loader.cu"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <string>
#include <vector>

static std::vector<std::pair<int, std::string>> logged;

void gsv_cuda_log(int32_t level, const char *format, ...)
{
    char line[512];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    logged.emplace_back(level, line);
}

void *gsv_cuda_open_library(const char *name)
{
    (void)name;
    return NULL;
}

void gsv_cuda_tell_missing(const char *name, char *text, size_t size)
{
    snprintf(text, size, "%s is not in the loader's path, /usr/local/cuda/lib64", name);
}

void gsv_lt_free_choices(struct gsv_lt_choice *choices)
{
    (void)choices;
}

Test(cublaslt_missing, the_first_device_alone_logs_a_warning)
{
    unsetenv("GPUSERVE_CUBLASLT");
    for (int i = 0; i < 3; i++)
        cr_expect_null(gsv_lt_open());
    cr_assert_eq(logged.size(), 3);
    cr_expect_eq(logged[0].first, GPUSERVE_LOG_WARNING);
    cr_expect(logged[0].second.find("libcublasLt.so.13") != std::string::npos, "%s",
              logged[0].second.c_str());
    cr_expect(logged[0].second.find("/usr/local/cuda/lib64") != std::string::npos);
    cr_expect_gt(logged[1].first, GPUSERVE_LOG_WARNING);
    cr_expect_gt(logged[2].first, GPUSERVE_LOG_WARNING);
}

Test(cublaslt_missing, a_user_who_turned_it_off_is_not_warned)
{
    setenv("GPUSERVE_CUBLASLT", "0", 1);
    cr_expect_null(gsv_lt_open());
    cr_expect(logged.empty());
}
