/*
 * rotary.c - reads rotary positions (RoPE, Su et al. 2021) and the types of layers.
 *
 * Frequencies follow transformers' modeling_rope_utils: kinds default, linear, dynamic, yarn,
 * longrope and llama3, and the NTK scaling of GTE. They are float32 there too.
 */
#include "lib/model/families/config.h"

#include "lib/base/error.h"

#include <math.h>
#include <string.h>

#define FILE_NAME GSV_CONFIG_NAME
#define PI 3.14159265358979323846

/* Settings of one kind of scaling, from "rope_parameters" or "rope_scaling". */
struct rope {
    const struct gsv_json_value *json; /* the object, or NULL */
    const char *kind;
    double theta, factor, fraction;
    double original; /* maximum positions before scaling */
    double maximum;  /* maximum positions of the model */
    int32_t dims;
};

static bool is_object(const struct gsv_json_value *value)
{
    return gsv_json_is(value, GSV_JSON_OBJECT);
}

/* The object with the settings of a type of layer, in the new or the old form; NULL if none. The
 * old form has one object for all types; in Gemma 3 it is that of the global layers. */
static const struct gsv_json_value *
find_settings(const struct gsv_config *config, const struct gsv_json_value *json, const char *type)
{
    const struct gsv_json_value *found = gsv_json_member(json, "rope_parameters");

    if (!is_object(found))
        found = gsv_json_member(json, "rope_scaling");
    if (!is_object(found))
        return NULL;
    if (type && is_object(gsv_json_member(found, type)))
        return gsv_json_member(found, type);
    if (type && config->family->scales_global_only && strcmp(type, "full_attention") != 0)
        return NULL;
    return found;
}

static gpuserve_status read_numbers(struct rope *rope, const struct gsv_config *config,
                                    gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    rope->maximum = rope->original = config->max_positions;
    rope->factor = 1.0;
    if (!rope->json)
        return st;
    st = gsv_json_double(rope->json, "rope_theta", FILE_NAME, 1.0, 1e12, &rope->theta, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_double(rope->json, "factor", FILE_NAME, 1e-3, 1e6, &rope->factor, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_double(rope->json, "partial_rotary_factor", FILE_NAME, 1e-3, 1.0,
                             &rope->fraction, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_double(rope->json, "original_max_position_embeddings", FILE_NAME, 1, 1e9,
                             &rope->original, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_string(rope->json, "type", FILE_NAME, &rope->kind, error);
    return st == GPUSERVE_OK
               ? gsv_json_string(rope->json, "rope_type", FILE_NAME, &rope->kind, error)
               : st;
}

static float frequency_of(double theta, int32_t i, int32_t dims)
{
    return 1.0f / powf((float)theta, (float)(2 * i) / (float)dims);
}

/* ----------------------------------------------------------------------------- kinds of scaling */

typedef gpuserve_status (*scale_fn)(struct gsv_rotary *rotary, const struct rope *rope,
                                    gpuserve_error *error);

static gpuserve_status scale_default(struct gsv_rotary *rotary, const struct rope *rope,
                                     gpuserve_error *error)
{
    (void)rotary;
    (void)rope;
    (void)error;
    return GPUSERVE_OK;
}

static gpuserve_status scale_linear(struct gsv_rotary *rotary, const struct rope *rope,
                                    gpuserve_error *error)
{
    (void)error;
    for (int32_t i = 0; i < rope->dims / 2; i++)
        rotary->frequency[i] /= (float)rope->factor;
    return GPUSERVE_OK;
}

/* GTE's NTKScalingRotaryEmbedding with fixed scaling: the base grows by the factor, and the
 * frequencies shrink so that the lowest is divided by it. "mixed_b" is another formula. */
static gpuserve_status scale_ntk(struct gsv_rotary *rotary, const struct rope *rope,
                                 gpuserve_error *error)
{
    const gpuserve_status st = gsv_config_refuse(rope->json, "mixed_b", error);
    const double exponent = 2.0 / rope->dims;

    if (st != GPUSERVE_OK)
        return st;
    for (int32_t i = 0; i < rope->dims / 2; i++)
        rotary->frequency[i] = frequency_of(rope->theta * rope->factor, i, rope->dims) /
                               (float)pow(rope->factor, exponent);
    return GPUSERVE_OK;
}

/* YaRN (Peng et al. 2023): low frequencies are divided by the factor, high ones stay, those between
 * are mixed. */
static gpuserve_status scale_yarn(struct gsv_rotary *rotary, const struct rope *rope,
                                  gpuserve_error *error)
{
    double fast = 32, slow = 1, magnitude = 0, mscale = 0, mscale_all = 0, low, high;
    bool truncate = true;
    gpuserve_status st =
        gsv_json_double(rope->json, "beta_fast", FILE_NAME, 1e-6, 1e6, &fast, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_double(rope->json, "beta_slow", FILE_NAME, 1e-6, 1e6, &slow, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_double(rope->json, "attention_factor", FILE_NAME, 0, 1e6, &magnitude, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_double(rope->json, "mscale", FILE_NAME, 0, 1e6, &mscale, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_double(rope->json, "mscale_all_dim", FILE_NAME, 0, 1e6, &mscale_all, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(rope->json, "truncate", FILE_NAME, &truncate, error);
    if (st != GPUSERVE_OK)
        return st;
    if (magnitude == 0 && rope->factor > 1)
        magnitude = (0.1 * (mscale > 0 && mscale_all > 0 ? mscale : 1) * log(rope->factor) + 1) /
                    (mscale > 0 && mscale_all > 0 ? 0.1 * mscale_all * log(rope->factor) + 1 : 1);
    rotary->scale = magnitude > 0 ? (float)magnitude : 1.0f;
    low = rope->dims * log(rope->original / (fast * 2 * PI)) / (2 * log(rope->theta));
    high = rope->dims * log(rope->original / (slow * 2 * PI)) / (2 * log(rope->theta));
    low = fmax(truncate ? floor(low) : low, 0);
    high = fmin(truncate ? ceil(high) : high, rope->dims - 1);
    high += low == high ? 0.001 : 0;
    for (int32_t i = 0; i < rope->dims / 2; i++) {
        const float ramp = (float)fmin(fmax((i - low) / (high - low), 0), 1);
        const float f = rotary->frequency[i];

        rotary->frequency[i] = f / (float)rope->factor * ramp + f * (1.0f - ramp);
    }
    return GPUSERVE_OK;
}

/* Llama 3.1: long wavelengths are divided by the factor, short ones stay, those between are mixed.
 */
static gpuserve_status scale_llama3(struct gsv_rotary *rotary, const struct rope *rope,
                                    gpuserve_error *error)
{
    double low = 1, high = 4;
    gpuserve_status st =
        gsv_json_double(rope->json, "low_freq_factor", FILE_NAME, 1e-6, 1e6, &low, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_double(rope->json, "high_freq_factor", FILE_NAME, 1e-6, 1e6, &high, error);
    if (st != GPUSERVE_OK)
        return st;
    if (high <= low)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        FILE_NAME ": high_freq_factor %g is not above low_freq_factor %g", high,
                        low);
    for (int32_t i = 0; i < rope->dims / 2; i++) {
        const float f = rotary->frequency[i];
        const double wavelength = 2 * PI / (double)f;
        const float smooth = (float)((rope->original / wavelength - low) / (high - low));

        if (wavelength > rope->original / low)
            rotary->frequency[i] = f / (float)rope->factor;
        else if (wavelength >= rope->original / high)
            rotary->frequency[i] = (1 - smooth) * f / (float)rope->factor + smooth * f;
    }
    return GPUSERVE_OK;
}

/* The frequencies divided by the numbers of an array. */
static gpuserve_status divide_frequencies(float *frequency, const struct rope *rope,
                                          const char *key, gpuserve_error *error)
{
    const struct gsv_json_value *factors = gsv_json_member(rope->json, key);

    if (gsv_json_count(factors) != (size_t)(rope->dims / 2))
        return gsv_fail(error, GPUSERVE_E_FORMAT, FILE_NAME ": %s has %zu numbers, expected %d",
                        key, gsv_json_count(factors), rope->dims / 2);
    for (int32_t i = 0; i < rope->dims / 2; i++) {
        const struct gsv_json_value *value = gsv_json_at(factors, (size_t)i);
        const double number = gsv_json_is(value, GSV_JSON_INT)      ? (double)value->is.whole
                              : gsv_json_is(value, GSV_JSON_NUMBER) ? value->is.real
                                                                    : 0;

        if (number <= 0)
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            FILE_NAME ": %s: element %d is not a positive number", key, i);
        frequency[i] =
            1.0f / ((float)number * powf((float)rope->theta, (float)(2 * i) / (float)rope->dims));
    }
    return GPUSERVE_OK;
}

/* LongRoPE (Ding et al. 2024): a factor for each frequency, others for texts over the original
 * length. In transformers the longest text of a batch decides; here each text does. */
static gpuserve_status scale_longrope(struct gsv_rotary *rotary, const struct rope *rope,
                                      gpuserve_error *error)
{
    double magnitude = 0, factor = rope->maximum / rope->original;
    gpuserve_status st =
        gsv_json_double(rope->json, "attention_factor", FILE_NAME, 0, 1e6, &magnitude, error);

    if (st == GPUSERVE_OK)
        st = divide_frequencies(rotary->frequency, rope, "short_factor", error);
    if (st == GPUSERVE_OK)
        st = divide_frequencies(rotary->long_frequency, rope, "long_factor", error);
    if (st != GPUSERVE_OK)
        return st;
    if (gsv_json_member(rope->json, "factor"))
        factor = rope->factor;
    if (magnitude == 0)
        magnitude = factor > 1 ? sqrt(1 + log(factor) / log(rope->original)) : 1;
    rotary->scale = (float)magnitude;
    rotary->long_from = rope->original < rope->maximum ? (int32_t)rope->original : 0;
    return GPUSERVE_OK;
}

static const struct {
    const char *kind;
    scale_fn scale;
} kinds[] = {
    { "default", scale_default }, { "linear", scale_linear },
    { "dynamic", scale_default }, /* unchanged up to max_position_embeddings, our limit */
    { "ntk", scale_ntk },         { "yarn", scale_yarn },
    { "llama3", scale_llama3 },   { "longrope", scale_longrope },
    { "su", scale_longrope },
};

gpuserve_status gsv_rotary_read(struct gsv_rotary *rotary, const struct gsv_config *config,
                                const struct gsv_json_value *json, const char *type,
                                const char *theta_key, double theta, gpuserve_error *error)
{
    struct rope rope = { .kind = "default", .theta = theta, .fraction = 1.0 };
    gpuserve_status st =
        gsv_json_double(json, "partial_rotary_factor", FILE_NAME, 1e-3, 1.0, &rope.fraction, error);

    rope.json = find_settings(config, json, type);
    if (st == GPUSERVE_OK)
        st = gsv_json_double(json, theta_key, FILE_NAME, 1.0, 1e12, &rope.theta, error);
    if (st == GPUSERVE_OK)
        st = read_numbers(&rope, config, error);
    if (st != GPUSERVE_OK)
        return st;
    rope.dims = (int32_t)(config->head_size * rope.fraction);
    if (rope.dims < 2 || rope.dims % 2 != 0 || rope.dims > GSV_MAX_ROTARY)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": rotary positions of %d of %d dimensions of a head; the number "
                                  "is even, from 2 to %d",
                        rope.dims, config->head_size, GSV_MAX_ROTARY);
    rotary->dims = rope.dims;
    rotary->scale = 1.0f;
    for (int32_t i = 0; i < rope.dims / 2; i++)
        rotary->frequency[i] = frequency_of(rope.theta, i, rope.dims);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].kind, rope.kind) == 0)
            return kinds[i].scale(rotary, &rope, error);
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, FILE_NAME ": rope_type '%.64s' is not supported",
                    rope.kind);
}

/* ------------------------------------------------------------------------------ types of layers */

gpuserve_status gsv_layer_types_read(struct gsv_config *config, const struct gsv_json_value *json,
                                     int32_t every, int32_t offset, gpuserve_error *error)
{
    const struct gsv_json_value *types = gsv_json_member(json, "layer_types");
    const bool given = types && !gsv_json_is(types, GSV_JSON_NULL);

    if (given && gsv_json_count(types) != (size_t)config->n_layers)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        FILE_NAME ": layer_types has %zu elements for %d layers",
                        gsv_json_count(types), config->n_layers);
    for (int32_t i = 0; i < config->n_layers; i++) {
        const char *name = gsv_json_get_string(gsv_json_at(types, (size_t)i));
        bool is_local = every > 0 && (i + offset) % every != 0;

        if (given && (!name || (strcmp(name, "full_attention") != 0 &&
                                strcmp(name, "sliding_attention") != 0)))
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            FILE_NAME ": layer_types: '%.64s' of layer %d is not supported",
                            name ? name : "(not a string)", i);
        if (given)
            is_local = strcmp(name, "sliding_attention") == 0;
        if (is_local)
            config->local[i / 64] |= UINT64_C(1) << i % 64;
    }
    return GPUSERVE_OK;
}
