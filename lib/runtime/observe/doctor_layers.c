/*
 * doctor_layers.c - examines one root: collects the facts, lets each layer judge, writes the JSON.
 *
 * With `root` the environment is that of its first process (/proc/1/environ) and empty without it:
 * the variables of this process describe another machine.
 */
#define _GNU_SOURCE
#include "lib/runtime/observe/doctor_layers.h"

#include "lib/base/error.h"
#include "lib/runtime/devices/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENVIRONMENT_BYTES 131072

static const char *const layer_names[GSV_N_LAYERS] = {
    "program", "library", "plugin",        "cuBLASLt",     "cuDNN",   "cuRAND",    "NVRTC",
    "cudart",  "libcuda", "kernel module", "device files", "devices", "processor", "memory",
};

static bool is_gpu_layer(enum gsv_layer_id id)
{
    return id >= GSV_LAYER_PLUGIN && id <= GSV_LAYER_DEVICES;
}

/* ------------------------------------------------------------------------------------- findings */

/* Copies bytes of a foreign file or variable: control characters, which a terminal would obey,
 * become question marks. */
static void make_printable(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        if (*c < 0x20 || *c == 0x7f)
            *c = '?';
    }
}

void gsv_layer_find(struct gsv_machine *machine, enum gsv_layer_id id, enum gsv_verdict verdict,
                    const char *remedy, const char *format, ...)
{
    struct gsv_stack_layer *const layer = &machine->layers[id];
    struct gsv_finding *finding;
    va_list args;

    if (layer->n_findings == GSV_MAX_FINDINGS ||
        (is_gpu_layer(id) && !machine->wants_gpu && verdict > GSV_VERDICT_ABSENT))
        return;
    finding = &layer->findings[layer->n_findings++];
    finding->verdict = verdict;
    va_start(args, format);
    vsnprintf(finding->text, sizeof(finding->text), format, args);
    va_end(args);
    snprintf(finding->remedy, sizeof(finding->remedy), "%s", remedy ? remedy : "");
    make_printable(finding->text);
    make_printable(finding->remedy);
}

void gsv_layer_found(struct gsv_machine *machine, enum gsv_layer_id id, const char *path,
                     const char *version)
{
    struct gsv_stack_layer *const layer = &machine->layers[id];

    layer->is_found = true;
    snprintf(layer->path, sizeof(layer->path), "%s", path);
    snprintf(layer->version, sizeof(layer->version), "%s", version);
    make_printable(layer->path);
    make_printable(layer->version);
}

static enum gsv_verdict verdict_of(const struct gsv_stack_layer *layer)
{
    enum gsv_verdict worst = layer->is_found ? GSV_VERDICT_OK : GSV_VERDICT_ABSENT;

    for (int32_t i = 0; i < layer->n_findings; i++) {
        if (layer->findings[i].verdict > worst)
            worst = layer->findings[i].verdict;
    }
    return worst;
}

bool gsv_layer_is_broken(const struct gsv_machine *machine, enum gsv_layer_id id)
{
    return verdict_of(&machine->layers[id]) == GSV_VERDICT_BROKEN;
}

static const struct gsv_finding *first_broken(const struct gsv_machine *machine, int32_t *layer)
{
    for (*layer = 0; *layer < GSV_N_LAYERS; ++*layer) {
        for (int32_t i = 0; i < machine->layers[*layer].n_findings; i++) {
            if (machine->layers[*layer].findings[i].verdict == GSV_VERDICT_BROKEN)
                return &machine->layers[*layer].findings[i];
        }
    }
    return NULL;
}

int gsv_compare_versions(const char *a, const char *b)
{
    while (*a || *b) {
        char *a_end, *b_end;
        const unsigned long left = strtoul(a, &a_end, 10), right = strtoul(b, &b_end, 10);

        if (left != right)
            return left < right ? -1 : 1;
        if (a_end == a && b_end == b)
            return 0;
        a = a_end + (*a_end == '.');
        b = b_end + (*b_end == '.');
    }
    return 0;
}

/* ---------------------------------------------------------------------------------- environment */

const char *gsv_machine_variable(const struct gsv_machine *machine, const char *name)
{
    const size_t length = strlen(name);
    const char *at = machine->environment;

    if (machine->is_live)
        return secure_getenv(name);
    while (at && at < machine->environment + machine->environment_bytes) {
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return at + length + 1;
        at += strlen(at) + 1;
    }
    return NULL;
}

static bool read_environment(struct gsv_machine *machine)
{
    machine->environment = gsv_alloc_array(ENVIRONMENT_BYTES, 1);
    if (!machine->environment)
        return false;
    machine->environment_bytes = gsv_rootfs_read(&machine->rootfs, "/proc/1/environ",
                                                 machine->environment, ENVIRONMENT_BYTES);
    return true;
}

static bool is_container(const struct gsv_machine *machine)
{
    return gsv_rootfs_find(&machine->rootfs, "/.dockerenv", NULL, NULL) ||
           gsv_rootfs_find(&machine->rootfs, "/run/.containerenv", NULL, NULL) ||
           gsv_machine_variable(machine, "container") ||
           gsv_machine_variable(machine, "KUBERNETES_SERVICE_HOST");
}

/* ------------------------------------------------------------------------------- is a GPU wanted
 */

static bool wants_cpu(const struct gsv_machine *machine)
{
    return machine->asked && strcmp(machine->asked, "cpu") == 0;
}

/* NVIDIA_VISIBLE_DEVICES asks the container runtime for GPUs. */
static bool container_asks(const struct gsv_machine *machine)
{
    const char *const wanted = gsv_machine_variable(machine, "NVIDIA_VISIBLE_DEVICES");

    return wanted && *wanted && strcmp(wanted, "void") != 0 && strcmp(wanted, "none") != 0;
}

/*
 * A user asks for a GPU by a selector. Otherwise a GPU is wanted where someone set one up: a loaded
 * kernel module, a driver library or device files. A container sees the module of its host, so
 * there the runtime must have been asked for GPUs, or have mounted something.
 */
static bool wants_gpu(const struct gsv_machine *machine)
{
    const char *const asked = machine->asked;
    const bool has_library = machine->libcuda.path[0] != '\0' && !machine->is_baked;

    if (wants_cpu(machine))
        return false;
    if (asked && strncmp(asked, "auto", 4) != 0)
        return true;
    if (machine->n_device_files > 0 || has_library || machine->is_wsl ||
        (machine->driver_answers && machine->gpus->n > 0))
        return true;
    if (machine->in_container)
        return container_asks(machine) && (machine->module[0] || machine->gpu_address[0]);
    return machine->module[0] != '\0';
}

/* ------------------------------------------------------------------------------------ this machine
 */

/* What really works outweighs what the files suggest. */
static void accept_working_gpu(struct gsv_machine *machine)
{
    for (int32_t id = GSV_LAYER_PLUGIN; id <= GSV_LAYER_DEVICES; id++) {
        struct gsv_stack_layer *const layer = &machine->layers[id];

        for (int32_t i = 0; i < layer->n_findings; i++) {
            if (layer->findings[i].verdict == GSV_VERDICT_BROKEN)
                layer->findings[i].verdict = GSV_VERDICT_WARNING;
        }
        if (id >= GSV_LAYER_CUDART)
            layer->is_found = true;
    }
}

static void check_selector(struct gsv_machine *machine, gpuserve_context *context)
{
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    struct gsv_device_choice choice;

    if (machine->asked && gsv_device_choose(context, machine->asked, &choice, &why) != GPUSERVE_OK)
        gsv_layer_find(machine, GSV_LAYER_DEVICES, GSV_VERDICT_BROKEN, why.hint, "%s", why.message);
}

/* Result of the device count by the CUDA backend of this process. */
struct backend_answer {
    gpuserve_status status;
    const struct gpuserve_backend *backend; /* NULL if the plugin could not be loaded */
    int32_t n_devices;
    gpuserve_error why;
};

/* Loads the plugin and counts devices, as opening a model does; this chooses its build. */
static void ask_backend(const struct gsv_machine *machine, gpuserve_context *context,
                        struct backend_answer *answer)
{
    *answer = (struct backend_answer){ .why = GPUSERVE_ERROR_INIT };
    if (machine->is_live && !wants_cpu(machine))
        answer->status =
            gsv_device_cuda(context, &answer->backend, &answer->n_devices, &answer->why);
}

static void judge_answer(struct gsv_machine *machine, gpuserve_context *context,
                         const struct backend_answer *answer)
{
    const gpuserve_error *const why = &answer->why;
    int32_t layer;

    if (!machine->is_live || wants_cpu(machine))
        return;
    if (answer->status == GPUSERVE_OK) {
        machine->wants_gpu = true;
        accept_working_gpu(machine);
        check_selector(machine, context);
        snprintf(machine->layers[GSV_LAYER_DEVICES].version,
                 sizeof(machine->layers[GSV_LAYER_DEVICES].version), "%d in CUDA",
                 answer->n_devices);
        return;
    }
    if (!answer->backend && machine->plugin[0])
        gsv_layer_find(machine, GSV_LAYER_PLUGIN, GSV_VERDICT_BROKEN, why->hint, "%s",
                       why->message);
    else if (machine->wants_gpu && !first_broken(machine, &layer))
        gsv_layer_find(machine, GSV_LAYER_DEVICES, GSV_VERDICT_BROKEN, why->hint, "%s",
                       why->message);
}

/* The driver's own list of GPUs replaces that of its files. */
static void read_gpus(struct gsv_machine *machine, gpuserve_context *context)
{
    struct gsv_gpus *gpus = NULL;

    if (!machine->is_live || gsv_context_gpus(context, &gpus, false, NULL) != GPUSERVE_OK)
        return;
    free(machine->gpus);
    machine->gpus = gpus;
    machine->driver_answers = true;
    if (!machine->module[0])
        snprintf(machine->module, sizeof(machine->module), "%.31s", gpus->driver);
}

/* ---------------------------------------------------------------------------------- examination */

static void list_loader_folders(struct gsv_machine *machine)
{
    gsv_loader_list_folders(&machine->loader, &machine->rootfs,
                            gsv_machine_variable(machine, "LD_LIBRARY_PATH"));
}

static void judge(struct gsv_machine *machine, gpuserve_context *context)
{
    struct backend_answer answer;

    list_loader_folders(machine);
    machine->in_container = is_container(machine);
    gsv_machine_read_driver(machine);
    read_gpus(machine, context);
    machine->wants_gpu = wants_gpu(machine);
    ask_backend(machine, context, &answer);
    gsv_machine_judge_program(machine, context);
    gsv_machine_judge_toolkit(machine);
    gsv_machine_judge_driver(machine);
    gsv_machine_judge_devices(machine);
    gsv_machine_judge_host(machine);
    judge_answer(machine, context, &answer);
}

/* *out is owned, NULL on failure. */
static gpuserve_status open_machine(struct gsv_machine **out, const char *root, const char *asked,
                                    gpuserve_error *error)
{
    struct gsv_machine *machine = gsv_alloc_array(1, sizeof(*machine));
    gpuserve_status st;

    *out = NULL;
    if (!machine)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory to examine the machine");
    machine->rootfs.root = -1;
    machine->is_live = root == NULL;
    machine->asked = asked;
    st = gsv_rootfs_open(&machine->rootfs, root, error);
    if (st == GPUSERVE_OK && root && !read_environment(machine))
        st = gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory to examine %s", root);
    if (st == GPUSERVE_OK)
        *out = machine;
    else
        gsv_machine_free(&machine);
    return st;
}

gpuserve_status gsv_machine_examine(struct gsv_machine **out, gpuserve_context *context,
                                    const char *root, const char *asked, gpuserve_error *error)
{
    const gpuserve_status st = open_machine(out, root, asked, error);

    if (st == GPUSERVE_OK)
        judge(*out, context);
    return st;
}

gpuserve_status gsv_machine_find_toolkit(struct gsv_machine **out, gpuserve_context *context,
                                         gpuserve_error *error)
{
    struct gsv_machine *machine;
    const gpuserve_status st = open_machine(&machine, NULL, NULL, error);

    *out = machine;
    if (st != GPUSERVE_OK)
        return st;
    list_loader_folders(machine);
    gsv_machine_judge_program(machine, context);
    gsv_machine_judge_toolkit(machine);
    return GPUSERVE_OK;
}

void gsv_machine_free(struct gsv_machine **machine)
{
    if (!*machine)
        return;
    gsv_rootfs_close(&(*machine)->rootfs);
    free((*machine)->environment);
    free((*machine)->gpus);
    free(*machine);
    *machine = NULL;
}

/* ---------------------------------------------------------------------------------------- JSON */

static const char *verdict_name(enum gsv_verdict verdict)
{
    static const char *const names[] = { "ok", "absent", "warning", "broken" };

    return names[verdict];
}

static void add_known_text(struct gsv_json *json, const char *key, const char *text)
{
    gsv_json_add_string(json, key, text[0] ? text : NULL);
}

static json_t *finding_json(const struct gsv_finding *finding)
{
    struct gsv_json json = gsv_json_begin();

    gsv_json_add_string(&json, "verdict", verdict_name(finding->verdict));
    gsv_json_add_string(&json, "finding", finding->text);
    add_known_text(&json, "remedy", finding->remedy);
    return json.object;
}

static json_t *layer_json(const struct gsv_machine *machine, int32_t id)
{
    const struct gsv_stack_layer *const layer = &machine->layers[id];
    struct gsv_json json = gsv_json_begin();
    json_t *findings = json_array();

    gsv_json_add_string(&json, "layer", layer_names[id]);
    gsv_json_add_string(&json, "verdict", verdict_name(verdict_of(layer)));
    add_known_text(&json, "path", layer->path);
    add_known_text(&json, "version", layer->version);
    for (int32_t i = 0; i < layer->n_findings; i++)
        gsv_json_append(&findings, finding_json(&layer->findings[i]));
    gsv_json_add_value(&json, "findings", findings);
    return json.object;
}

/* One sentence; "no GPU" is no fault. */
static void write_verdict(const struct gsv_machine *machine, const struct gsv_finding *cause,
                          int32_t layer, char *text, size_t capacity)
{
    if (cause)
        snprintf(text, capacity, "%s: %s", layer_names[layer], cause->text);
    else if (wants_cpu(machine))
        snprintf(text, capacity, "the CPU is used, as asked");
    else if (!machine->wants_gpu)
        snprintf(text, capacity, "no GPU: the CPU is used");
    else
        snprintf(text, capacity, machine->is_live ? "the GPU can be used" : "no fault found");
}

struct gsv_json gsv_machine_json(const struct gsv_machine *machine)
{
    struct gsv_json json = gsv_json_begin();
    json_t *list = json_array();
    char text[512];
    int32_t layer;
    const struct gsv_finding *const cause = first_broken(machine, &layer);

    write_verdict(machine, cause, layer, text, sizeof(text));
    gsv_json_add_string(&json, "verdict", text);
    add_known_text(&json, "remedy", cause ? cause->remedy : "");
    gsv_json_add_string(&json, "cause", cause ? layer_names[layer] : NULL);
    gsv_json_add_number(&json, "exit_status", cause ? GSV_LAYER_EXIT_STATUS + layer : 0);
    for (int32_t i = 0; i < GSV_N_LAYERS; i++)
        gsv_json_append(&list, layer_json(machine, i));
    gsv_json_add_value(&json, "layers", list);
    return json;
}

struct gsv_json gsv_machine_libraries_json(const struct gsv_machine *machine)
{
    struct gsv_json json = gsv_json_begin();

    for (int32_t id = GSV_LAYER_CUBLASLT; id <= GSV_LAYER_NVRTC; id++) {
        const struct gsv_stack_layer *const layer = &machine->layers[id];
        struct gsv_json one = gsv_json_begin();

        add_known_text(&one, "path", layer->path);
        add_known_text(&one, "version", layer->version);
        gsv_json_add_object(&json, layer_names[id], one);
    }
    return json;
}
