/*
 * unreadable.c - the errors for a folder without weights that gpuserve reads and for a file in
 * place of a folder: which formats of other programs are there, and where readable ones come from.
 */
#include "lib/base/error.h"
#include "lib/model/formats/checkpoint.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_SHOWN 4 /* file names in the message */

/* What the end of a name says about its format. A folder has the name itself. */
static const struct foreign {
    const char *ending;
    const char *format;
    const char *way_out;
} foreign[] = {
#define ORIGINAL                                                                               \
    "take the PyTorch model that was exported: model.safetensors or pytorch_model.bin of its " \
    "repository"
#define REVISION "take a revision with model.safetensors or pytorch_model.bin"
#define TRANSFORMERS(option)                                                                  \
    REVISION ", or convert once with transformers 4: python -c "                              \
             "\"from transformers import AutoModel; AutoModel.from_pretrained('DIR', " option \
             "=True).save_pretrained('OUT')\""
    { ".onnx", "ONNX", ORIGINAL },
    { "onnx", "ONNX", ORIGINAL },
    { "openvino", "OpenVINO", ORIGINAL },
    { "openvino_model.xml", "OpenVINO", ORIGINAL },
    { ".tflite", "TensorFlow Lite", ORIGINAL },
    { ".mlmodel", "Core ML", ORIGINAL },
    { ".mlpackage", "Core ML", ORIGINAL },
    { "saved_model.pb", "TensorFlow", ORIGINAL },
    { ".engine", "TensorRT", ORIGINAL },
    { ".plan", "TensorRT", ORIGINAL },
    { ".h5", "TensorFlow", TRANSFORMERS("from_tf") },
    { ".ckpt.index", "TensorFlow", TRANSFORMERS("from_tf") },
    { ".msgpack", "Flax", TRANSFORMERS("from_flax") },
    { "rust_model.ot", "rust-bert", REVISION },
    { ".npz", "NumPy or MLX", REVISION },
    { ".gguf", "GGUF", "give the path of the .gguf file" },
};

/* Files that a directory may hold, too: not foreign there, but no model by themselves. */
static const struct foreign single[] = {
#define FOLDER "give its directory, which also has config.json and the tokenizer"
    { ".safetensors", "a safetensors file (weights without configuration)", FOLDER },
    { ".bin", "a file of PyTorch weights", FOLDER },
    { ".pt", "a PyTorch file", FOLDER },
    { ".pth", "a PyTorch file", FOLDER },
    { ".pb", "a TensorFlow file", ORIGINAL },
    { ".json", "a JSON file", FOLDER },
};

static const struct foreign *find_format(const struct foreign *table, size_t n_table,
                                         const char *name)
{
    const size_t n = strlen(name);

    for (size_t i = 0; i < n_table; i++) {
        const char *const ending = table[i].ending;
        const size_t m = strlen(ending);

        if (*ending == '.' ? n > m && strcasecmp(name + n - m, ending) == 0
                           : strcmp(name, ending) == 0)
            return &table[i];
    }
    return NULL;
}

static const struct foreign *format_of(const char *name)
{
    return find_format(foreign, sizeof(foreign) / sizeof(foreign[0]), name);
}

gpuserve_status gsv_fail_no_directory(const char *path, gpuserve_error *error)
{
    const char *const slash = strrchr(path, '/');
    const char *const name = slash ? slash + 1 : path;
    const struct foreign *const part =
        find_format(single, sizeof(single) / sizeof(single[0]), name);
    const struct foreign *const format = part ? part : format_of(name);
    gpuserve_status st;

    if (part)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: the path is %s, not a model directory",
                      path, part->format);
    else if (format)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      "%s: the path is a file of %s (unsupported format), not a model directory",
                      path, format->format);
    else
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      "%s: the path is a file, not a model directory", path);
    return gsv_hint(error, st, "%s",
                    format ? format->way_out
                           : "give a directory with config.json, the tokenizer and *.safetensors "
                             "or pytorch_model.bin, as on the Hugging Face hub, or a .gguf file");
}

/* Append "NAME (FORMAT)" to a list of names. */
static void append(char *list, size_t capacity, const char *name, const char *format)
{
    const size_t used = strlen(list);

    snprintf(list + used, capacity - used, "%s%.64s (%s)", used ? ", " : "", name, format);
}

gpuserve_status gsv_fail_unreadable(const struct gsv_dir *dir, const char *folder,
                                    gpuserve_error *error)
{
    const char *slash = *folder ? "/" : "";
    const struct foreign *first = NULL;
    char list[MAX_SHOWN * 96] = "";
    struct gsv_names names;
    gpuserve_status st;
    size_t n = 0;

    if (gsv_dir_list(dir, folder, &names, NULL) == GPUSERVE_OK) {
        for (size_t i = 0; i < names.n; i++) {
            const struct foreign *const format = format_of(names.names[i]);

            if (format && n++ < MAX_SHOWN)
                append(list, sizeof(list), names.names[i], format->format);
            first = first ? first : format;
        }
        gsv_names_free(&names);
    }
    if (!first) {
        st = gsv_fail(error, GPUSERVE_E_NOT_FOUND,
                      "%s/%s%smodel.safetensors: no such file, and no pytorch_model.bin",
                      gsv_dir_path(dir), folder, slash);
        return gsv_hint(error, st, GSV_MODEL_DIRECTORY_HINT);
    }
    st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                  "%s%s%s: no weights that gpuserve reads; the directory has %s%s",
                  gsv_dir_path(dir), slash, folder, list, n > MAX_SHOWN ? ", ..." : "");
    return gsv_hint(error, st, "%s", first->way_out);
}
