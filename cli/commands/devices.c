/*
 * devices.c - `gpuserve devices`: the available compute devices.
 *
 * The library returns one JSON object (gpuserve_device_report); --json prints it, otherwise it is
 * printed as a table. --select resolves a device selector, for scripts.
 */
#include "cli/io/output.h"
#include "cli/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEVICES 65

/* ------------------------------------------------------------------------------------- cells */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static void put_bytes(char *cell, size_t size, double bytes)
{
    if (bytes >= 10e9)
        snprintf(cell, size, "%.0f GiB", bytes / (1 << 30));
    else if (bytes >= 1 << 30)
        snprintf(cell, size, "%.1f GiB", bytes / (1 << 30));
    else
        snprintf(cell, size, "%.0f MiB", bytes / (1 << 20));
}

/* A number with its unit; "-" if it is null or missing. */
static void put_number(char *cell, size_t size, const json_t *object, const char *key, double scale,
                       const char *unit)
{
    const json_t *value = json_object_get(object, key);

    if (json_is_number(value))
        snprintf(cell, size, "%.0f%s", json_number_value(value) / scale, unit);
    else
        snprintf(cell, size, "-");
}

/* ------------------------------------------------------------------------------------- table */

static void print_device(const json_t *device)
{
    char free_bytes[24], all[24], held[24], load[16], heat[16], power[16];
    const json_t *processes = json_object_get(device, "processes");
    const char *limit = text_of(device, "limit");

    put_bytes(free_bytes, sizeof(free_bytes),
              json_number_value(json_object_get(device, "memory_free_bytes")));
    put_bytes(all, sizeof(all), json_number_value(json_object_get(device, "memory_bytes")));
    put_bytes(held, sizeof(held), json_number_value(json_object_get(device, "held_bytes")));
    put_number(load, sizeof(load), device, "load_percent", 1, "%");
    put_number(heat, sizeof(heat), device, "temperature_celsius", 1, " C");
    put_number(power, sizeof(power), device, "power_milliwatts", 1000, " W");
    printf("%-8s %9s %9s %6s %6s %7s %9s  %s%s%s%s\n", text_of(device, "selector"), free_bytes, all,
           load, heat, power, held, text_of(device, "name"), limit[0] ? " (" : "", limit,
           limit[0] ? ")" : "");
    if (text_of(device, "uuid")[0])
        printf("%-8s %s, %s, bus %s\n", "", text_of(device, "uuid"), text_of(device, "isa"),
               text_of(device, "bus_id")[0] ? text_of(device, "bus_id") : "-");
    for (size_t i = 0; i < json_array_size(processes); i++) {
        const json_t *process = json_array_get(processes, i);
        const char *name = text_of(process, "name");

        put_bytes(held, sizeof(held), json_number_value(json_object_get(process, "memory_bytes")));
        printf("%-8s process %lld %s, %s%s\n", "",
               (long long)json_integer_value(json_object_get(process, "pid")),
               name[0] ? name : "(outside this PID namespace)", held,
               json_is_true(json_object_get(process, "gpuserve")) ? ", with gpuserve" : "");
    }
}

/* GPUs that the driver reports but CUDA does not list. */
static void print_hidden(const json_t *driver)
{
    const json_t *gpus = json_object_get(driver, "gpus");

    if (!json_is_true(json_object_get(driver, "works")))
        printf("\nno NVIDIA GPU: %s\n", text_of(driver, "reason"));
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        const json_t *gpu = json_array_get(gpus, i);

        if (json_is_null(json_object_get(gpu, "cuda")))
            printf("\nnot shown: GPU %lld %s %s: %s\n",
                   (long long)json_integer_value(json_object_get(gpu, "index")),
                   text_of(gpu, "name"), text_of(gpu, "uuid"), text_of(gpu, "hidden_by"));
    }
}

static void print_peers(const json_t *peers)
{
    if (json_array_size(peers) > 0)
        puts("\nbetween devices (* with access to each other's memory)");
    for (size_t i = 0; i < json_array_size(peers); i++) {
        const json_t *peer = json_array_get(peers, i);
        const long long from = json_integer_value(json_object_get(peer, "from"));
        const long long to = json_integer_value(json_object_get(peer, "to"));

        if (i == 0 ||
            json_integer_value(json_object_get(json_array_get(peers, i - 1), "from")) != from)
            printf("%scuda:%lld", i ? "\n" : "", from);
        printf("  %lld:%s%s", to, text_of(peer, "link"),
               json_is_true(json_object_get(peer, "access")) ? "*" : "");
    }
    if (json_array_size(peers) > 0)
        putchar('\n');
}

/* The libraries of the CUDA toolkit that the plugin uses, on a machine with a GPU. */
static void print_libraries(const json_t *libraries)
{
    const char *name;
    json_t *library;

    puts("\nlibraries of the CUDA toolkit");
    json_object_foreach((json_t *)libraries, name, library)
    {
        const char *const path = text_of(library, "path");

        printf("%-8s %-12s %s\n", name, text_of(library, "version"), path[0] ? path : "not found");
    }
}

/* The plugin that lists the GPUs. */
static void print_plugin(const json_t *plugin)
{
    const char *const reason = text_of(plugin, "reason");

    if (!plugin)
        return;
    printf("\nplugin   %s\n", text_of(plugin, "path"));
    if (reason[0])
        printf("%-8s not %s\n", "", reason);
}

static void print_table(const json_t *report)
{
    const json_t *devices = json_object_get(report, "devices");

    printf("%-8s %9s %9s %6s %6s %7s %9s  %s\n", "device", "free", "memory", "load", "heat",
           "power", "held", "name");
    for (size_t i = 0; i < json_array_size(devices); i++)
        print_device(json_array_get(devices, i));
    print_peers(json_object_get(report, "peers"));
    print_plugin(json_object_get(report, "plugin"));
    if (json_array_size(devices) > 1)
        print_libraries(json_object_get(report, "libraries"));
    print_hidden(json_object_get(report, "driver"));
    printf("\nauto: %s (%s)\n", text_of(report, "auto"), text_of(report, "reason"));
}

/* ------------------------------------------------------------------------------------- devices */

static gpuserve_status report_text(void *of, const char *name, char *text, size_t capacity,
                                   size_t *size, gpuserve_error *error)
{
    (void)name;
    return gpuserve_device_report(of, text, capacity, size, error);
}

static int report(gpuserve_context *context, const struct cli_args *args)
{
    json_t *facts = cli_facts_parse(cli_text_of(report_text, context, NULL));

    if (!facts)
        return CLI_FAILED;
    if (args->json && args->watch) { /* one line per report */
        json_dumpf(facts, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(facts);
        return CLI_OK;
    }
    if (args->json)
        return cli_facts_print(facts, true);
    print_table(facts);
    json_decref(facts);
    return CLI_OK;
}

static void wait_for(double seconds)
{
    struct timespec left = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };

    nanosleep(&left, NULL);
}

static int watch(gpuserve_context *context, const struct cli_args *args)
{
    const bool on_screen = !args->json && isatty(STDOUT_FILENO);
    int result = CLI_OK;

    for (uint32_t n = 0; result == CLI_OK && (args->looks == 0 || n < args->looks); n++) {
        if (n > 0)
            wait_for(args->interval > 0 ? args->interval : 2);
        if (on_screen)
            fputs("\033[H\033[J", stdout);
        result = report(context, args);
        if (fflush(stdout))
            return cli_fail("cannot write to standard output");
    }
    return result;
}

/* Prints each device that a selector matches, one per line. */
static int select_devices(gpuserve_context *context, const struct cli_args *args)
{
    gpuserve_device_info *devices = cli_alloc(DEVICES, sizeof(*devices));
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    json_t *list = json_array();
    size_t n = 0;

    devices[0].struct_size = sizeof(devices[0]);
    if (gpuserve_device_select(context, args->select, devices, DEVICES, &n, NULL, 0, &error) !=
        GPUSERVE_OK) {
        free(devices);
        json_decref(list);
        return cli_fail_with(&error, NULL);
    }
    for (size_t i = 0; i < n && i < DEVICES; i++) {
        if (!args->json)
            puts(devices[i].selector);
        json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "selector", devices[i].selector,
                                              "uuid", devices[i].uuid, "memory_free_bytes",
                                              (json_int_t)devices[i].memory_free_bytes));
    }
    free(devices);
    if (args->json)
        return cli_facts_print(list, true);
    json_decref(list);
    return CLI_OK;
}

int cli_devices(const struct cli_args *args)
{
    gpuserve_context *context;
    int result;

    if (args->n_rest)
        return cli_usage("devices does not accept arguments");
    if (cli_context(&context, args) != CLI_OK)
        return CLI_FAILED;
    if (args->select)
        result = select_devices(context, args);
    else
        result = args->watch ? watch(context, args) : report(context, args);
    gpuserve_context_unref(&context);
    return result;
}
