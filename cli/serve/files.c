/*
 * files.c - the files that the server may open: models, keys, its log, the system's
 * libraries.
 *
 * Landlock is set for a thread and those that it starts, so this happens before the models are
 * opened: there is one thread then, which is made sure of. Paths are followed by the kernel when a
 * rule is made; where a reload is to find something new under the old name, the directory around it
 * is allowed too: a link to a model may be pointed at its neighbour, a key file be replaced.
 */
#include "cli/serve/files.h"

#include "cli/serve/landlock.h"
#include "cli/pull/pull.h"

#include <gpuserve/devices.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------------- paths */

/* Directories whose other files are not ours in any installation. */
static bool is_common(const char *directory)
{
    static const char *const common[] = { "/",     "/etc", "/dev", "/home", "/proc",
                                          "/root", "/run", "/tmp", "/usr",  "/var" };
    const char *home = getenv("HOME");

    if (home && strcmp(directory, home) == 0)
        return true;
    for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++) {
        if (strcmp(directory, common[i]) == 0)
            return true;
    }
    return false;
}

/* The real directory that holds the last part of the path; owned, NULL when there is none. */
static char *directory_of(const char *path)
{
    size_t size = strlen(path);
    char *directory, *real;

    while (size > 1 && path[size - 1] == '/')
        size--;
    while (size > 0 && path[size - 1] != '/')
        size--;
    directory = size > 0 ? cli_copy(path, size) : cli_copy(".", 1);
    real = realpath(directory, NULL);
    free(directory);
    return real;
}

static int allow_around(struct cli_landlock *landlock, const char *path, int rights)
{
    char *directory = directory_of(path);
    int result = 0;

    if (directory && !is_common(directory))
        result = cli_landlock_allow(landlock, directory, rights);
    free(directory);
    return result;
}

static bool is_link(const char *path)
{
    char *plain = cli_copy(path, strlen(path));
    size_t size = strlen(plain);
    struct stat st;
    bool result;

    while (size > 1 && plain[size - 1] == '/')
        plain[--size] = '\0';
    result = lstat(plain, &st) == 0 && S_ISLNK(st.st_mode);
    free(plain);
    return result;
}

/* A file that is read again, and may be another one under its name then. */
static int allow_file(struct cli_landlock *landlock, const char *path)
{
    char *real = path ? realpath(path, NULL) : NULL;
    int result = 0;

    if (path && (cli_landlock_allow(landlock, path, CLI_READ) != 0 ||
                 allow_around(landlock, path, CLI_READ) != 0))
        result = -1;
    /* Of a link, such as certbot makes, the next one is beside its target. */
    if (result == 0 && real)
        result = allow_around(landlock, real, CLI_READ);
    free(real);
    return result;
}

/* --------------------------------------------------------------------------------------- models */

/* A snapshot in the hub's cache is links into the folder of its model. */
static void cut_to_repository(char *real)
{
    char *snapshots = strstr(real, "/snapshots/"), *models = strstr(real, "/models--");

    if (models && snapshots && models < snapshots && strchr(models + 1, '/') == snapshots)
        *snapshots = '\0';
}

/* What is no directory is a name in the cache, or below the user's own models. */
static int allow_name(struct cli_landlock *landlock, const char *name, const char *cache_dir)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    struct pull_cache cache;
    char *own = NULL, *without_revision = cli_copy(name, strcspn(name, "@"));
    int result = cli_cache_init(&cache, without_revision, cache_dir);

    free(without_revision);
    if (result != CLI_OK)
        return 0; /* the library will not find it either */
    result = cli_landlock_allow(landlock, cache.folder, CLI_READ);
    cli_cache_reset(&cache);
    if (xdg && *xdg)
        own = cli_format("%s/gpuserve/models", xdg);
    else if (home && *home)
        own = cli_format("%s/.cache/gpuserve/models", home);
    if (own && result == 0)
        result = cli_landlock_allow(landlock, own, CLI_READ);
    free(own);
    return result;
}

static int allow_model(struct cli_landlock *landlock, const char *path, const char *cache_dir)
{
    char *real = realpath(path, NULL);
    int result;

    if (!real)
        return allow_name(landlock, path, cache_dir);
    cut_to_repository(real);
    result = cli_landlock_allow(landlock, real, CLI_READ);
    free(real);
    if (result == 0 && is_link(path))
        result = allow_around(landlock, path, CLI_READ);
    return result;
}

/* --------------------------------------------------------------------------------------- system */

/* Where loaded libraries lie, those lie that they load later: libgcc_s, a plugin. */
static int allow_library(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    return strchr(info->dlpi_name, '/') ? allow_around(user, info->dlpi_name, CLI_READ) : 0;
}

static int allow_system(struct cli_landlock *landlock)
{
    /* /proc and /sys are facts of the host; processes beyond the limit cannot be looked into. */
    static const char *const read[] = { "/proc",     "/sys",           "/usr/lib",
                                        "/lib",      "/lib64",         "/usr/lib64",
                                        "/dev/null", "/dev/urandom",   "/etc/ld.so.cache",
                                        "/dev/zero", "/usr/local/lib", "/etc/ssl/openssl.cnf" };
    const char *plugins = secure_getenv("GPUSERVE_PLUGIN_DIR");
    int result = dl_iterate_phdr(allow_library, landlock);

    for (size_t i = 0; i < sizeof(read) / sizeof(read[0]) && result == 0; i++)
        result = cli_landlock_allow(landlock, read[i], CLI_READ);
    if (result == 0)
        result = cli_landlock_allow(landlock, "/dev/null", CLI_READ | CLI_WRITE);
    if (result == 0 && plugins)
        result = cli_landlock_allow(landlock, plugins, CLI_READ);
    return result;
}

/* Made now where it is not there: in a directory that is not allowed it could not be made later.
 * Why it cannot be is told by the server, which opens it. */
static bool make_log(const char *path, struct stat *st)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640);
    const bool exists = stat(path, st) == 0;

    if (fd >= 0)
        close(fd);
    return exists;
}

/* A log is made anew after its rotation; what is no file, such as /dev/stderr, is only written. */
static int allow_log(struct cli_landlock *landlock, const char *path)
{
    struct stat st;
    bool exists;
    int result = 0;

    if (!path || strcmp(path, "-") == 0)
        return 0;
    exists = stat(path, &st) == 0 || make_log(path, &st);
    if (exists)
        result = cli_landlock_allow(landlock, path, CLI_WRITE);
    if (result == 0 && (!exists || S_ISREG(st.st_mode)))
        result = allow_around(landlock, path, CLI_WRITE | CLI_CREATE);
    return result;
}

/* Unlike others this directory cannot be done without, so a common one is allowed too. */
static int allow_socket(struct cli_landlock *landlock, const char *path)
{
    char *directory = path ? directory_of(path) : NULL;
    const int result = directory ? cli_landlock_allow(landlock, directory, CLI_SOCKET) : 0;

    free(directory);
    return result;
}

static int allow_all(struct cli_landlock *landlock, const struct cli_args *args,
                     const gpuserve_http_options *options)
{
    int result = allow_system(landlock);

    for (size_t i = 0; i < options->n_models && result == 0; i++)
        result = allow_model(landlock, options->models[i].path, args->cache_dir);
    if (result == 0)
        result = allow_file(landlock, args->head);
    if (result == 0)
        result = allow_file(landlock, options->api_key_file);
    if (result == 0)
        result = allow_file(landlock, options->tls_certificate_file);
    if (result == 0)
        result = allow_file(landlock, options->tls_key_file);
    if (result == 0)
        result = allow_file(landlock, options->tls_client_ca_file);
    if (result == 0)
        result = allow_file(landlock, options->tls_client_crl_file);
    if (result == 0)
        result = allow_socket(landlock, options->unix_path);
    return result ? result : allow_log(landlock, options->access_log);
}

/* ---------------------------------------------------------------------------------------- limit */

/* The threads of this process; 0 when they cannot be counted. */
static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *task;
    int n = 0;

    while (tasks && (task = readdir(tasks)))
        n += task->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return n;
}

/* The thread that asked a driver may still be on its way out. */
static bool is_alone(void)
{
    const struct timespec moment = { 0, 5000000 };

    for (int i = 0; i < 200; i++) {
        if (count_threads() == 1)
            return true;
        nanosleep(&moment, NULL);
    }
    return false;
}

/* CUDA opens devices, its cache and files of the driver at times of its own. */
static bool may_use_gpu(const struct cli_args *args, gpuserve_context *context)
{
    size_t n = 0;

    if (args->device && strcmp(args->device, "cpu") == 0)
        return false;
    return gpuserve_device_list(context, NULL, 0, &n, NULL) != GPUSERVE_OK || n > 1;
}

static void warn(const struct cli_args *args, const char *why)
{
    if (!args->quiet)
        cli_warn("file access is not restricted: %s", why);
}

void cli_limit_files(const struct cli_args *args, gpuserve_context *context,
                     const gpuserve_http_options *options)
{
    struct cli_landlock landlock;

    if (may_use_gpu(args, context)) {
        warn(args, "the server may use a GPU, whose driver opens its own files");
        return;
    }
    if (secure_getenv("NVTX_INJECTION64_PATH")) {
        warn(args, "a profiler is attached, which writes its own files");
        return;
    }
    if (cli_landlock_begin(&landlock) != 0) {
        warn(args, errno == ENOSYS       ? "this kernel has no Landlock"
                   : errno == EOPNOTSUPP ? "Landlock is switched off in this kernel"
                                         : "a seccomp filter denies Landlock");
        return;
    }
    if (!is_alone())
        warn(args, "the process already has threads, which Landlock cannot restrict");
    else if (allow_all(&landlock, args, options) != 0 || cli_landlock_enforce(&landlock) != 0)
        warn(args, strerror(errno));
    else if (!cli_landlock_is_whole(&landlock) && !args->quiet)
        cli_warn("Landlock version %d of this kernel does not prevent the truncation of files, "
                 "version 3 does",
                 landlock.version);
    cli_landlock_reset(&landlock);
}
