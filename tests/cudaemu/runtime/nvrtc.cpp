/*
 * nvrtc.cpp - NVRTC by the compiler that built the emulator, and loading of the result.
 *
 * The machine code is a shared object after a header with its size. The source is compiled
 * unchanged after emu_kernel.h, which declares what NVRTC declares itself. A source compiled before
 * in this process is not compiled again.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <map>
#include <memory>
#include <spawn.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <nvrtc.h>

#include "state.h"

extern char **environ;

struct _nvrtcProgram {
    std::string source;
    std::string code;
    std::string log;
};

struct CUlib_st {
    void *object;
    int file; /**< open while loaded: the loader identifies files by name */
};

namespace
{

const char mark[8] = { 'G', 'S', 'V', '-', 'E', 'M', 'U', '\n' };
std::map<std::string, std::string> compiled; /* code by source; protected by the runtime's lock */

nvrtcResult to_result(cudaError_t error)
{
    return error == cudaSuccess                 ? NVRTC_SUCCESS
           : error == cudaErrorMemoryAllocation ? NVRTC_ERROR_OUT_OF_MEMORY
                                                : NVRTC_ERROR_INTERNAL_ERROR;
}

bool write_file(const std::string &path, const std::string &text)
{
    FILE *const file = fopen(path.c_str(), "wb");
    const bool ok = file && fwrite(text.data(), 1, text.size(), file) == text.size();

    return file && fclose(file) == 0 && ok;
}

std::string read_file(const std::string &path)
{
    std::string text;
    char part[4096];
    FILE *const file = fopen(path.c_str(), "rb");

    for (size_t n; file && (n = fread(part, 1, sizeof(part), file)) > 0;)
        text.append(part, n);
    if (file)
        fclose(file);
    return text;
}

/* Path of this library, to link the compiled kernel with it. */
std::string own_path()
{
    Dl_info self;

    return dladdr(reinterpret_cast<const void *>(&nvrtcCreateProgram), &self) && self.dli_fname
               ? self.dli_fname
               : "";
}

std::vector<std::string> command_for(const std::string &folder)
{
    std::vector<std::string> words = { GSV_EMU_COMPILER, "-x",          "c++",
                                       "-std=c++17",     "-O1",         "-fPIC",
                                       "-shared",        "-w",          "-fsanitize=alignment",
                                       "-DGSV_CUDA_EMU", "-I",          GSV_EMU_INCLUDE,
                                       "-include",       "emu_kernel.h" };
#if defined(__SANITIZE_ADDRESS__)
    words.push_back("-fsanitize=address");
#endif
    words.insert(words.end(),
                 { "-o", folder + "/kernel.so", folder + "/kernel.cu", "-x", "none", own_path() });
    return words;
}

/* Runs a command; returns its exit status, its output goes to `log`. */
int run(const std::vector<std::string> &words, const std::string &log)
{
    std::vector<char *> arguments;
    posix_spawn_file_actions_t files;
    pid_t pid;
    int status = -1;

    for (const std::string &word : words)
        arguments.push_back(const_cast<char *>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    if (posix_spawnp(&pid, arguments[0], &files, nullptr, arguments.data(), environ) == 0)
        waitpid(pid, &status, 0);
    posix_spawn_file_actions_destroy(&files);
    return status;
}

nvrtcResult compile(nvrtcProgram program)
{
    const char *const temporary = getenv("TMPDIR");
    std::string folder = std::string(temporary ? temporary : "/tmp") + "/gsv-emu-XXXXXX";

    if (!mkdtemp(&folder[0]))
        return NVRTC_ERROR_INTERNAL_ERROR;
    if (write_file(folder + "/kernel.cu", program->source) &&
        run(command_for(folder), folder + "/log") == 0)
        program->code = read_file(folder + "/kernel.so");
    program->log = read_file(folder + "/log");
    for (const char *name : { "/kernel.cu", "/kernel.so", "/log" })
        unlink((folder + name).c_str());
    rmdir(folder.c_str());
    return program->code.empty() ? NVRTC_ERROR_COMPILATION : NVRTC_SUCCESS;
}

/* Only the target option is checked: an sm_ version that this NVRTC supports. */
bool knows_target(int n_options, const char *const *options)
{
    for (int i = 0; i < n_options; i++)
        if (strncmp(options[i], "--gpu-architecture=sm_", 22) == 0)
            return atoi(options[i] + 22) >= 75;
    return false;
}

} // namespace

extern "C" {

const char *nvrtcGetErrorString(nvrtcResult result)
{
    switch (result) {
    case NVRTC_SUCCESS:
        return "NVRTC_SUCCESS";
    case NVRTC_ERROR_OUT_OF_MEMORY:
        return "NVRTC_ERROR_OUT_OF_MEMORY";
    case NVRTC_ERROR_INVALID_OPTION:
        return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION:
        return "NVRTC_ERROR_COMPILATION";
    default:
        return "NVRTC_ERROR_INTERNAL_ERROR";
    }
}

nvrtcResult nvrtcVersion(int *major, int *minor)
{
    *major = 0; /* no real NVRTC has this version */
    *minor = 1;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *, int,
                               const char *const *, const char *const *)
{
    gsv_emu_entry entry("nvrtcCreateProgram", true);

    *program = nullptr;
    if (entry.failed())
        return to_result(entry.error());
    *program = new _nvrtcProgram{ source, "", "" };
    gsv_emu.counters.live_objects++;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program)
{
    gsv_emu_entry entry("nvrtcDestroyProgram", true);

    gsv_emu.counters.live_objects -= *program ? 1 : 0;
    delete *program;
    *program = nullptr;
    return to_result(entry.error());
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int n_options, const char *const *options)
{
    gsv_emu_entry entry("nvrtcCompileProgram", true);

    if (entry.failed())
        return NVRTC_ERROR_COMPILATION;
    if (!knows_target(n_options, options))
        return NVRTC_ERROR_INVALID_OPTION;
    const auto before = compiled.find(program->source);
    if (before != compiled.end()) {
        program->code = before->second;
        return NVRTC_SUCCESS;
    }
    const nvrtcResult result = compile(program);
    if (result == NVRTC_SUCCESS)
        compiled[program->source] = program->code;
    return result;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *size)
{
    gsv_emu_entry entry("nvrtcGetCUBINSize", true);

    *size = sizeof(mark) + sizeof(uint64_t) + program->code.size();
    return to_result(entry.error());
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *code)
{
    gsv_emu_entry entry("nvrtcGetCUBIN", true);
    const uint64_t size = program->code.size();

    memcpy(code, mark, sizeof(mark));
    memcpy(code + sizeof(mark), &size, sizeof(size));
    memcpy(code + sizeof(mark) + sizeof(size), program->code.data(), size);
    return to_result(entry.error());
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *size)
{
    gsv_emu_entry entry("nvrtcGetProgramLogSize", true);

    *size = program->log.size() + 1;
    return to_result(entry.error());
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log)
{
    gsv_emu_entry entry("nvrtcGetProgramLog", true);

    memcpy(log, program->log.c_str(), program->log.size() + 1);
    return to_result(entry.error());
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, enum cudaJitOption *,
                                void **, unsigned int, enum cudaLibraryOption *, void **,
                                unsigned int)
{
    gsv_emu_entry entry("cudaLibraryLoadData");
    const char *const bytes = static_cast<const char *>(code);
    uint64_t size;
    char path[64];

    *library = nullptr;
    if (entry.failed())
        return entry.error();
    if (memcmp(bytes, mark, sizeof(mark)) != 0)
        return entry.finish(cudaErrorInvalidValue);
    memcpy(&size, bytes + sizeof(mark), sizeof(size));
    const int file = memfd_create("kernel", MFD_CLOEXEC);
    const bool written = file >= 0 && write(file, bytes + sizeof(mark) + sizeof(size), size) ==
                                          static_cast<ssize_t>(size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    void *const object = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!object) {
        if (file >= 0)
            close(file);
        return entry.finish(cudaErrorInvalidValue);
    }
    *library = new CUlib_st{ object, file };
    gsv_emu.counters.live_objects++;
    return entry.finish(cudaSuccess);
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
    gsv_emu_entry entry("cudaLibraryGetKernel");

    *kernel = nullptr;
    if (entry.failed())
        return entry.error();
    *kernel = static_cast<cudaKernel_t>(dlsym(library->object, name));
    return entry.finish(*kernel ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    gsv_emu_entry entry("cudaLibraryUnload");

    dlclose(library->object);
    close(library->file);
    delete library;
    gsv_emu.counters.live_objects--;
    return entry.finish(cudaSuccess);
}

} // extern "C"
