/*
 * files.c - limits the files that the server may open: models, packed weights, keys, logs, system
 * libraries.
 *
 * Landlock applies to one thread and the threads it starts. So the limit is set before the models
 * are opened, after a check that the process has a single thread. The kernel resolves a path when a
 * rule is added. A reload may find a new file under the old name: a link to a model may point to
 * another directory, a key file may be replaced. For these paths the parent directory is allowed as
 * well.
 *
 * With a GPU no limit is set, because the driver opens files of its own.
 */
#include "cli/serve/serve.h"

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

/* Directories that hold unrelated files: not allowed as a parent directory. */
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

/* Resolved path of the parent directory; owned, NULL if it does not exist. */
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

/* Allows a file that is read again on reload and may have been replaced by then. */
static int allow_file(struct cli_landlock *landlock, const char *path)
{
    char *real = path ? realpath(path, NULL) : NULL;
    int result = 0;

    if (path && (cli_landlock_allow(landlock, path, CLI_READ) != 0 ||
                 allow_around(landlock, path, CLI_READ) != 0))
        result = -1;
    /* A symbolic link, as certbot creates: its next target is in the same directory. */
    if (result == 0 && real)
        result = allow_around(landlock, real, CLI_READ);
    free(real);
    return result;
}

/* --------------------------------------------------------------------------------------- models */

/* A snapshot in the hub's cache is links into its repository folder: allow the whole folder. */
static void cut_to_repository(char *real)
{
    char *snapshots = strstr(real, "/snapshots/"), *models = strstr(real, "/models--");

    if (models && snapshots && models < snapshots && strchr(models + 1, '/') == snapshots)
        *snapshots = '\0';
}

static int allow_model(struct cli_landlock *landlock, const char *path, const char *cache_dir,
                       bool is_base);

/* The base of a LoRA adapter, if `folder` is one. */
static int allow_base(struct cli_landlock *landlock, const char *folder, const char *cache_dir)
{
    char *name = NULL, *revision = NULL;
    int result = 0;

    cli_pull_read_base(folder, &name, &revision);
    if (name)
        result = allow_model(landlock, name, cache_dir, true);
    free(name);
    free(revision);
    return result;
}

/* A name that is not a path is a model in the cache or in the user's own model folder. */
static int allow_name(struct cli_landlock *landlock, const char *name, const char *cache_dir,
                      bool is_base)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    struct pull_cache cache;
    const char *at = strchr(name, '@');
    char *own = NULL, *without_revision = cli_copy(name, strcspn(name, "@")), *snapshot;
    int result = cli_cache_init(&cache, without_revision, cache_dir);

    free(without_revision);
    if (result != CLI_OK)
        return 0; /* the library will not find it either */
    result = cli_landlock_allow(landlock, cache.folder, CLI_READ);
    snapshot = is_base ? NULL : cli_cache_snapshot(&cache, at ? at + 1 : "main", NULL);
    if (snapshot && result == 0)
        result = allow_base(landlock, snapshot, cache_dir);
    free(snapshot);
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

/* The base of a base is not followed: the library refuses it. */
static int allow_model(struct cli_landlock *landlock, const char *path, const char *cache_dir,
                       bool is_base)
{
    char *real = realpath(path, NULL);
    int number, count, result;

    if (strncmp(path, "random:", 7) == 0) {
        free(real);
        return 0; /* no files */
    }
    if (!real)
        return allow_name(landlock, path, cache_dir, is_base);
    if (cli_pull_gguf_part(
            path, &number,
            &count)) { /* allow the folder: it holds the other parts of a split file */
        free(real);
        real = directory_of(path);
        if (!real)
            return -1;
    }
    result = is_base ? 0 : allow_base(landlock, real, cache_dir);
    cut_to_repository(real);
    if (result == 0)
        result = cli_landlock_allow(landlock, real, CLI_READ);
    free(real);
    if (result == 0 && is_link(path))
        result = allow_around(landlock, path, CLI_READ);
    return result;
}

/* Creates a folder and its parents for this user; a failure shows when the folder is used. */
static void make_private_folder(const char *path)
{
    char *copy = cli_copy(path, strlen(path));

    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(copy, 0700);
        *slash = '/';
    }
    (void)mkdir(copy, 0700);
    free(copy);
}

/* The folder of packed weights, as the library finds it (GPUSERVE_WEIGHTS_CACHE is set from the
 * options). Files there are written, replaced and removed. */
static int allow_weights_cache(struct cli_landlock *landlock)
{
    const char *given = secure_getenv("GPUSERVE_WEIGHTS_CACHE");
    const char *xdg = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    char *folder = NULL;
    int result;

    if (given)
        folder = *given == '/' ? cli_copy(given, strlen(given)) : NULL;
    else if (xdg && *xdg == '/')
        folder = cli_format("%s/gpuserve/weights", xdg);
    else if (home && *home == '/')
        folder = cli_format("%s/.cache/gpuserve/weights", home);
    if (!folder)
        return 0;
    make_private_folder(folder);
    result = cli_landlock_allow(landlock, folder, CLI_READ | CLI_WRITE | CLI_CREATE | CLI_REPLACE);
    free(folder);
    return result;
}

/* --------------------------------------------------------------------------------------- system */

/* Libraries loaded later (libgcc_s, plugins) are in the directories of the loaded libraries. */
static int allow_library(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    return strchr(info->dlpi_name, '/') ? allow_around(user, info->dlpi_name, CLI_READ) : 0;
}

static int allow_system(struct cli_landlock *landlock)
{
    /* /proc and /sys are information on the host; Landlock itself denies the inspection
     * of processes outside its domain. */
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

/* Creates the log file if it is missing: later its directory may be denied. The server reports
 * errors when it opens the file. */
static bool make_log(const char *path, struct stat *st)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640);
    const bool exists = stat(path, st) == 0;

    if (fd >= 0)
        close(fd);
    return exists;
}

/* A log is created again after rotation; a special file such as /dev/stderr only needs writing. */
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

/* The socket's directory is always needed, so a common directory is allowed too. */
static int allow_socket(struct cli_landlock *landlock, const char *path)
{
    char *directory = path ? directory_of(path) : NULL;
    const int result = directory ? cli_landlock_allow(landlock, directory, CLI_SOCKET) : 0;

    free(directory);
    return result;
}

/* Made here if it is missing: its parent directory may be denied later. The server reports errors
 * when it opens it. */
static int allow_batches(struct cli_landlock *landlock, const char *path)
{
    if (!path)
        return 0;
    mkdir(path, 0700);
    return cli_landlock_allow(landlock, path, CLI_STORE);
}

/* The collector's name is looked up at each export. */
static int allow_resolver(struct cli_landlock *landlock)
{
    static const char *const files[] = { "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf",
                                         "/etc/host.conf", "/etc/gai.conf" };
    int result = 0;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && result == 0; i++)
        result = cli_landlock_allow(landlock, files[i], CLI_READ);
    return result;
}

static int allow_all(struct cli_landlock *landlock, const struct cli_args *args,
                     const gpuserve_http_options *options)
{
    int result = allow_system(landlock);

    for (size_t i = 0; i < options->n_models && result == 0; i++)
        result = allow_model(landlock, options->models[i].path, args->cache_dir, false);
    for (size_t i = 0; i < args->adapters.n && result == 0; i++)
        if (strchr(args->adapters.items[i], '='))
            result = allow_model(landlock, strchr(args->adapters.items[i], '=') + 1,
                                 args->cache_dir, true);
    if (result == 0)
        result = allow_weights_cache(landlock);
    for (size_t i = 0; i < args->heads.n && result == 0; i++) {
        const char *equals = strchr(args->heads.items[i], '=');

        result = allow_file(landlock, equals ? equals + 1 : args->heads.items[i]);
    }
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
    if (result == 0)
        result = allow_batches(landlock, options->batch_dir);
    if (result == 0 && options->otlp_traces_endpoint)
        result = allow_resolver(landlock);
    if (result == 0)
        result = allow_file(landlock, options->otlp_certificate_file);
    return result ? result : allow_log(landlock, options->access_log);
}

/* ---------------------------------------------------------------------------------------- limit */

/* Number of threads of this process; 0 if it cannot be determined. */
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

/* Waits up to 1 s: a thread of a driver query may not have exited yet. */
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

/* True if a GPU may be used: CUDA opens devices, its cache and driver files at any time. */
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
