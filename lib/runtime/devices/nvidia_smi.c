/*
 * nvidia_smi.c - queries the driver through nvidia-smi, if its library cannot be loaded.
 *
 * The program is searched in PATH. It is killed after 3 seconds or 1 MiB of output. Its lines are
 * comma-separated; a value that a GPU lacks is a word in brackets.
 */
#define _GNU_SOURCE
#include "lib/runtime/devices/gpu_inventory.h"

#include "lib/base/clock.h"
#include "lib/base/error.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "nvidia-smi"
#define TIMEOUT_MS 3000
#define MAX_ANSWER_BYTES (1u << 20)
#define MAX_FIELDS 16
#define FORMAT "--format=csv,noheader,nounits"

extern char **environ;

/* ------------------------------------------------------------------------------------ running */

static int64_t now_ms(void)
{
    return (int64_t)(gsv_now_ns() / 1000000);
}

/* Read to the end of the stream; false if that takes too long or exceeds the buffer. */
static bool read_answer(int fd, char *text, int64_t deadline)
{
    size_t length = 0;

    for (;;) {
        struct pollfd one = { .fd = fd, .events = POLLIN };
        const int64_t left = deadline - now_ms();
        ssize_t got;
        int ready;

        if (left <= 0 || length == MAX_ANSWER_BYTES - 1)
            return false;
        ready = poll(&one, 1, (int)left);
        if (ready == 0)
            return false;
        if (ready < 0)
            continue; /* interrupted: the deadline still applies */
        got = read(fd, text + length, MAX_ANSWER_BYTES - 1 - length);
        if (got < 0)
            continue;
        length += (size_t)got;
        text[length] = '\0';
        if (got == 0)
            return true;
    }
}

/* Exit status; -1 if the program was killed, or the host ignores SIGCHLD and no status exists. */
static int end_program(pid_t pid, bool kill_it, int64_t deadline)
{
    int status = -1;
    pid_t got;

    if (kill_it)
        kill(pid, SIGKILL);
    /* It closed its output, so it ends soon. A process stuck in the driver may not even die. */
    while ((got = waitpid(pid, &status, WNOHANG)) == 0 && now_ms() < deadline)
        usleep(1000);
    if (got == 0)
        kill(pid, SIGKILL);
    return got == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int spawn(pid_t *pid, const char *const argv[], int out)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    int failed;

    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    failed =
        posix_spawnp(pid, PROGRAM, &files, &attributes, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return failed;
}

/* Run nvidia-smi with two arguments. *text is owned on success only. */
static gpuserve_status run(char **text, const char *what, const char *format, gpuserve_error *error)
{
    const char *const argv[] = { PROGRAM, what, format, NULL };
    const int64_t deadline = now_ms() + TIMEOUT_MS;
    int pipes[2] = { -1, -1 };
    pid_t pid = 0;
    gpuserve_status st;
    bool whole;

    *text = NULL;
    if (getauxval(AT_SECURE)) /* PATH is untrusted in a set-user-ID program */
        return gsv_fail(error, GPUSERVE_E_DEVICE,
                        "PATH is not trusted: " PROGRAM " is not started by a set-user-ID program");
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return gsv_fail(error, GPUSERVE_E_IO, PROGRAM ": cannot create a pipe");
    if (spawn(&pid, argv, pipes[1]) != 0) {
        close(pipes[0]);
        close(pipes[1]);
        return gsv_fail(error, GPUSERVE_E_DEVICE, PROGRAM " is not in PATH");
    }
    close(pipes[1]);
    *text = malloc(MAX_ANSWER_BYTES);
    if (*text)
        **text = '\0';
    whole = *text && read_answer(pipes[0], *text, deadline);
    close(pipes[0]);
    st = end_program(pid, !whole, whole ? deadline : now_ms() + 200) > 0
             ? gsv_fail(error, GPUSERVE_E_DEVICE, PROGRAM " %s failed", what)
             : GPUSERVE_OK;
    if (!whole)
        st =
            gsv_fail(error, GPUSERVE_E_TIMEOUT, PROGRAM " did not answer within %d ms", TIMEOUT_MS);
    if (st != GPUSERVE_OK) {
        free(*text);
        *text = NULL;
    }
    return st;
}

/* ------------------------------------------------------------------------------------- fields */

/* Split a line at ", " in place, into at most `max_fields` fields; the last one keeps its commas.
 */
static int split(char *line, char *fields[], int max_fields)
{
    int n = 0;

    while (n < max_fields) {
        char *comma = n + 1 < max_fields ? strstr(line, ", ") : NULL;

        fields[n++] = line;
        if (!comma)
            break;
        *comma = '\0';
        line = comma + 2;
    }
    return n;
}

/* Cut off the next line in place; NULL at the end. */
static char *next_line(char **text)
{
    char *line = *text, *end;

    if (*line == '\0')
        return NULL;
    end = line + strcspn(line, "\r\n");
    *text = end + strspn(end, "\r\n");
    *end = '\0';
    return line;
}

/* "123" or "123.45" as an integer in 1/`scale` units; -1 for "[N/A]" and the like. */
static int64_t number(const char *text, int64_t scale)
{
    int64_t value = 0;

    text += strspn(text, " ");
    if (*text < '0' || *text > '9')
        return -1;
    for (; *text >= '0' && *text <= '9' && value < INT64_MAX / 20000; text++)
        value = value * 10 + (*text - '0');
    value *= scale;
    if (*text == '.') {
        for (text++; *text >= '0' && *text <= '9' && scale >= 10; text++) {
            scale /= 10;
            value += (*text - '0') * scale;
        }
    }
    return value;
}

static int32_t small(const char *text, int64_t scale)
{
    const int64_t value = number(text, scale);

    return value > INT32_MAX ? GSV_GPU_UNKNOWN : (int32_t)value;
}

static uint64_t mebibytes(const char *text)
{
    const int64_t value = number(text, 1);

    return value > 0 && value < INT64_MAX >> 20 ? (uint64_t)value << 20 : 0;
}

/* --------------------------------------------------------------------------------------- GPUs */

enum field {
    F_INDEX,
    F_UUID,
    F_NAME,
    F_BUS,
    F_TOTAL,
    F_USED,
    F_FREE,
    F_LOAD,
    F_TEMPERATURE,
    F_POWER,
    F_POWER_LIMIT,
    F_COMPUTE,
    F_DRIVER,
    F_MIN,
    F_MIG = F_MIN,
    F_ALL
};
#define MIN_FIELDS                                                                     \
    "index,uuid,name,pci.bus_id,memory.total,memory.used,memory.free,utilization.gpu," \
    "temperature.gpu,power.draw,power.limit,compute_mode,driver_version"

static void read_gpu(struct gsv_gpus *gpus, char *line, bool *any_mig)
{
    char *fields[MAX_FIELDS] = { 0 };
    const int n = split(line, fields, F_ALL);
    struct gsv_gpu *gpu;

    if (n < F_MIN || number(fields[F_INDEX], 1) < 0)
        return;
    gpu = gsv_gpus_add(gpus, small(fields[F_INDEX], 1));
    if (!gpu)
        return;
    snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", fields[F_UUID]);
    snprintf(gpu->name, sizeof(gpu->name), "%s", fields[F_NAME]);
    snprintf(gpu->bus_id, sizeof(gpu->bus_id), "%s", fields[F_BUS]);
    snprintf(gpus->driver, sizeof(gpus->driver), "%s", fields[F_DRIVER]);
    gpu->memory_bytes = mebibytes(fields[F_TOTAL]);
    gpu->memory_used_bytes = mebibytes(fields[F_USED]);
    gpu->memory_free_bytes = mebibytes(fields[F_FREE]);
    gpu->load_percent = small(fields[F_LOAD], 1);
    gpu->temperature_celsius = small(fields[F_TEMPERATURE], 1);
    gpu->power_milliwatts = small(fields[F_POWER], 1000);
    gpu->power_limit_milliwatts = small(fields[F_POWER_LIMIT], 1000);
    gpu->compute_mode = strncmp(fields[F_COMPUTE], "Exclusive", 9) == 0     ? 3
                        : strncmp(fields[F_COMPUTE], "Prohibited", 10) == 0 ? 2
                                                                            : 0;
    if (strcasestr(fields[F_TOTAL], "lost") || strcasestr(fields[F_NAME], "lost")) {
        gpu->is_lost = true;
        snprintf(gpu->fault, sizeof(gpu->fault), "fell off the bus");
    }
    gpu->mig_mode = n > F_MIG && strncmp(fields[F_MIG], "Enabled", 7) == 0;
    *any_mig = *any_mig || gpu->mig_mode;
}

/* Parses "  MIG 3g.20gb     Device  0: (UUID: MIG-...)" below "GPU 0: NAME (UUID: GPU-...)". */
static void read_mig(struct gsv_gpus *gpus)
{
    struct gsv_gpu *parent = NULL;
    char *text, *at, *line;
    int32_t instance = 0;

    if (run(&text, "-L", NULL, NULL) != GPUSERVE_OK)
        return;
    for (at = text; (line = next_line(&at)) != NULL;) {
        char *uuid = strstr(line, "(UUID: ");
        struct gsv_gpu *gpu;

        if (!uuid)
            continue;
        uuid += strlen("(UUID: ");
        uuid[strcspn(uuid, ")")] = '\0';
        if (strncmp(line, "GPU ", 4) == 0) {
            const int32_t found = gsv_gpus_find(gpus, uuid);

            parent = found >= 0 ? &gpus->all[found] : NULL;
            instance = 0;
        } else if (parent && (gpu = gsv_gpus_add(gpus, parent->index)) != NULL) {
            line += strspn(line, " ");
            line[strcspn(line, ":")] = '\0';
            gpu->instance = instance++;
            snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", uuid);
            snprintf(gpu->name, sizeof(gpu->name), "%.60s %.*s", parent->name,
                     (int)strcspn(line + 4, " ") + 4, line);
            memcpy(gpu->bus_id, parent->bus_id, sizeof(gpu->bus_id));
        }
    }
    free(text);
}

static void read_processes(struct gsv_gpus *gpus)
{
    char *text, *at, *line;

    if (run(&text, "--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name", FORMAT,
            NULL) != GPUSERVE_OK)
        return;
    for (at = text; (line = next_line(&at)) != NULL;) {
        char *fields[MAX_FIELDS];
        int32_t gpu;

        if (split(line, fields, 4) < 4)
            continue;
        gpu = gsv_gpus_find(gpus, fields[0]);
        if (gpu < 0)
            continue;
        gpus->all[gpu].n_processes += 1 + (gpus->all[gpu].n_processes < 0);
        gsv_gpus_add_process(gpus, gpu, small(fields[1], 1), mebibytes(fields[2]), fields[3]);
    }
    free(text);
}

gpuserve_status gsv_smi_read(struct gsv_gpus *gpus, bool detail, gpuserve_error *error)
{
    bool any_mig = false;
    char *text, *at, *line;
    gpuserve_status st = run(&text, "--query-gpu=" MIN_FIELDS ",mig.mode.current", FORMAT, error);

    if (st == GPUSERVE_E_DEVICE) /* drivers older than MIG do not know the field */
        st = run(&text, "--query-gpu=" MIN_FIELDS, FORMAT, error);
    if (st != GPUSERVE_OK)
        return st;
    gpus->source = PROGRAM;
    for (at = text; (line = next_line(&at)) != NULL;)
        read_gpu(gpus, line, &any_mig);
    free(text);
    if (any_mig)
        read_mig(gpus);
    if (detail)
        read_processes(gpus);
    return gpus->n > 0 ? GPUSERVE_OK : gsv_fail(error, GPUSERVE_E_DEVICE, PROGRAM " lists no GPU");
}
