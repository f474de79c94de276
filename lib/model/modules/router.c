/*
 * router.c - reads a Router (formerly Asym) module: steps for the texts of one route, "query" or
 * "document".
 *
 *   router_config.json   "structure": the folders of each route's modules, in order; "types": their
 *                        classes; "parameters": the default route
 *
 * The routes may differ in the steps on pooled vectors. Routes with encoders of their own are
 * separate models.
 */
#include "lib/model/modules/modules.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"

#include <stdio.h>
#include <string.h>

#define ROUTER "Router"

static gpuserve_status fail_encoder(const struct gsv_module_reader *r, const char *type)
{
    const gpuserve_status st = gsv_fail(
        r->error, GPUSERVE_E_UNSUPPORTED,
        ROUTER ": module '%.128s' of a route is not supported, or not at this position", type);

    return gsv_hint(r->error, st,
                    "routes may hold Dense, LayerNorm, Normalize and Dropout after Pooling; save a "
                    "route with an encoder of its own as a model of its own");
}

static gpuserve_status add_route_module(const struct gsv_module_reader *r, const char *folder,
                                        const char *name, const struct gsv_json_value *types,
                                        int32_t route)
{
    const char *type = NULL;
    char path[GSV_FILE_NAME_BYTES];
    bool known = false;
    gpuserve_status st = gsv_json_string(types, name, ROUTER, &type, r->error);

    if (st != GPUSERVE_OK)
        return st;
    if (!type)
        return gsv_fail(r->error, GPUSERVE_E_FORMAT, ROUTER ": \"types\" has no '%.64s'", name);
    if (snprintf(path, sizeof(path), "%s%s%s", folder, *folder ? "/" : "", name) >=
        (int)sizeof(path))
        return gsv_fail(r->error, GPUSERVE_E_FORMAT, ROUTER ": the path of '%.64s' is too long",
                        name);
    if (strncmp(type, "sentence_transformers.", 22) == 0 && r->modules->n_poolings > 0)
        st = gsv_step_add(r, gsv_class_name(type), false, path, route, &known);
    return st != GPUSERVE_OK || known ? st : fail_encoder(r, type);
}

static gpuserve_status add_route(const struct gsv_module_reader *r, const char *folder,
                                 const struct gsv_json_value *list,
                                 const struct gsv_json_value *types)
{
    struct gsv_modules *modules = r->modules;
    const int32_t route = modules->n_routes;
    gpuserve_status st = GPUSERVE_OK;

    if (!gsv_json_is(list, GSV_JSON_ARRAY))
        return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                        ROUTER ": route '%.64s' is not a list of modules", list->key);
    if (route == GSV_MAX_ROUTES)
        return gsv_fail(r->error, GPUSERVE_E_UNSUPPORTED, ROUTER ": more than %d routes",
                        GSV_MAX_ROUTES);
    modules->routes[route] = gsv_copy_text(list->key, strlen(list->key));
    if (!modules->routes[route])
        return gsv_modules_nomem(r->dir, r->error);
    modules->n_routes++;
    for (size_t i = 0; i < gsv_json_count(list) && st == GPUSERVE_OK; i++) {
        const char *name = gsv_json_get_string(gsv_json_at(list, i));

        st = name ? add_route_module(r, folder, name, types, route)
                  : gsv_fail(r->error, GPUSERVE_E_FORMAT,
                             ROUTER ": a module of route '%.64s' is not a string", list->key);
    }
    return st;
}

/* Without a default route, the first one is it, unless "allow_empty_key" is false. */
static gpuserve_status set_default(const struct gsv_module_reader *r,
                                   const struct gsv_json_value *parameters)
{
    const struct gsv_json_value *mappings = gsv_json_member(parameters, "route_mappings");
    const char *name = NULL;
    bool is_first = true;
    gpuserve_status st = gsv_json_string(parameters, "default_route", ROUTER, &name, r->error);

    if (st == GPUSERVE_OK)
        st = gsv_json_bool(parameters, "allow_empty_key", ROUTER, &is_first, r->error);
    if (st != GPUSERVE_OK)
        return st;
    if (mappings && gsv_json_is(mappings, GSV_JSON_OBJECT) && mappings->n > 0)
        return gsv_fail(r->error, GPUSERVE_E_UNSUPPORTED,
                        ROUTER ": \"route_mappings\" is not supported");
    r->modules->default_route = is_first ? 0 : -1;
    for (int32_t i = 0; name && i < r->modules->n_routes; i++) {
        if (strcmp(r->modules->routes[i], name) == 0) {
            r->modules->default_route = i;
            return GPUSERVE_OK;
        }
    }
    return name ? gsv_fail(r->error, GPUSERVE_E_FORMAT,
                           ROUTER ": default_route '%.64s' is not one of the %d routes", name,
                           r->modules->n_routes)
                : GPUSERVE_OK;
}

static gpuserve_status add_routes(const struct gsv_module_reader *r, const char *folder,
                                  const struct gsv_json_value *json)
{
    const struct gsv_json_value *structure = gsv_json_member(json, "structure");
    const struct gsv_json_value *types = gsv_json_member(json, "types");
    gpuserve_status st = GPUSERVE_OK;

    if (r->modules->n_routes > 0)
        return gsv_fail(r->error, GPUSERVE_E_UNSUPPORTED,
                        ROUTER ": a second Router module is not supported");
    if (!structure || !gsv_json_is(structure, GSV_JSON_OBJECT) || structure->n == 0)
        return gsv_fail(r->error, GPUSERVE_E_FORMAT,
                        ROUTER ": \"structure\" is missing or has no routes");
    for (size_t i = 0; i < structure->n && st == GPUSERVE_OK; i++)
        st = add_route(r, folder, structure->is.fields[i], types);
    return st == GPUSERVE_OK ? set_default(r, gsv_json_member(json, "parameters")) : st;
}

gpuserve_status gsv_router_add(const struct gsv_module_reader *r, const char *folder,
                               const char *config_name)
{
    struct gsv_json_value *json;
    gpuserve_status st = gsv_read_json(&json, r->dir, folder, config_name, r->error);

    if (st != GPUSERVE_OK)
        return st;
    st = add_routes(r, folder, json);
    gsv_json_free(&json);
    return st == GPUSERVE_OK ? st
                             : gsv_fail_in(r->error, st, "%s/%s", gsv_dir_path(r->dir), folder);
}
