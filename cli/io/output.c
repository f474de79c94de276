/*
 * output.c - results to standard output or a file, floats as JSON text, .npy files.
 *
 * A regular file is written as .NAME.XXXXXX in the same folder, synced and renamed at the end. The
 * temporary file is registered for removal by the signal handler (util.c). Pipes and devices are
 * written directly.
 */
#include "cli/io/output.h"

#include "lib/base/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NPY_HEADER_BYTES 128

static int open_temporary(struct cli_output *output, const char *path)
{
    const char *slash = strrchr(path, '/');
    const int folder = slash ? (int)(slash - path) + 1 : 0;
    mode_t mask;
    int fd;

    output->temporary = cli_format("%.*s.%s.XXXXXX", folder, path, path + folder);
    /* Before the file exists: a signal may come as soon as it does. mkstemp() writes the name
     * there. */
    cli_partial_file(output->temporary);
    fd = mkstemp(output->temporary);
    if (fd < 0) {
        cli_fail("%s: %s", path, strerror(errno));
        cli_partial_file(NULL);
        free(output->temporary);
        output->temporary = NULL;
        return CLI_FAILED;
    }
    mask = umask(0);
    umask(mask);
    if (fchmod(fd, 0666 & ~mask) == 0)
        output->stream = fdopen(fd, "w+b");
    if (output->stream)
        return CLI_OK;
    cli_fail("%s: %s", path, strerror(errno));
    close(fd);
    cli_output_abandon(output);
    return CLI_FAILED;
}

/* `list` is words with single spaces between. */
static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    const char *at = list;

    while (strncmp(at, word, n) != 0 || (at[n] != ' ' && at[n] != '\0')) {
        at = strchr(at, ' ');
        if (!at)
            return false;
        at++;
    }
    return true;
}

int cli_output_suffix(const struct cli_args *args, const char *command, const char *written)
{
    static const char data[] = ".npy .txt .tsv .csv .json .jsonl .parquet .arrow .feather .h5 "
                               ".hdf5 .npz .pkl .pt .xlsx .safetensors";
    const char *const dot = args->output ? strrchr(args->output, '.') : NULL;

    if (!dot || args->format || !has_word(data, dot) || has_word(written, dot))
        return CLI_OK;
    return cli_usage("--output %s: %s writes %s", args->output, command, written);
}

int cli_output_open(struct cli_output *output, const char *path)
{
    struct stat st;

    memset(output, 0, sizeof(*output));
    if (!path || strcmp(path, "-") == 0) {
        output->name = "standard output";
        output->stream = stdout;
        return CLI_OK;
    }
    output->name = path;
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode))
        return open_temporary(output, path);
    output->stream = fopen(path, "wb"); /* a pipe or a device: no temporary file */
    return output->stream ? CLI_OK : cli_fail("%s: %s", path, strerror(errno));
}

int cli_output_check(const struct cli_output *output)
{
    if (ferror(output->stream))
        return cli_fail("cannot write %s: %s", output->name, strerror(errno));
    return CLI_OK;
}

int cli_output_finish(struct cli_output *output)
{
    FILE *stream = output->stream;
    int result = CLI_OK;

    if (stream == stdout) {
        if (fflush(stream) || ferror(stream))
            result = cli_fail("cannot write %s: %s", output->name, strerror(errno));
        output->stream = NULL;
        return result;
    }
    output->stream = NULL;
    if (fflush(stream) || ferror(stream) || (output->temporary && fsync(fileno(stream))))
        result = cli_fail("cannot write %s: %s", output->name, strerror(errno));
    if (fclose(stream) && result == CLI_OK)
        result = cli_fail("cannot write %s: %s", output->name, strerror(errno));
    if (result == CLI_OK && output->temporary && rename(output->temporary, output->name))
        result = cli_fail("%s: %s", output->name, strerror(errno));
    if (result == CLI_OK)
        cli_partial_file(NULL);
    else
        cli_remove_partial_file();
    free(output->temporary);
    output->temporary = NULL;
    return result;
}

void cli_output_abandon(struct cli_output *output)
{
    if (output->stream && output->stream != stdout)
        fclose(output->stream);
    if (output->temporary)
        cli_remove_partial_file();
    free(output->temporary);
    memset(output, 0, sizeof(*output));
}

void cli_output_floats(struct cli_output *output, const float *values, size_t n,
                       const char *separator)
{
    char text[GSV_FLOAT_BYTES];

    for (size_t i = 0; i < n; i++) {
        if (i)
            fputs_unlocked(separator, output->stream);
        fwrite_unlocked(text, 1, gsv_float_text(values[i], text), output->stream);
    }
}

/* ---------------------------------------------------------------------------------------- .npy */

static int npy_header(struct cli_output *output, const char *type, size_t n, size_t columns)
{
    char header[NPY_HEADER_BYTES + 1];
    const char magic[10] = { '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, NPY_HEADER_BYTES - 10, 0 };
    int size;

    memcpy(header, magic, sizeof(magic));
    size = snprintf(header + 10, sizeof(header) - 10,
                    "{'descr': '%s', 'fortran_order': False, 'shape': (%zu, %zu), }", type, n,
                    columns);
    /* The format requires padding by spaces and a newline to a multiple of 64 bytes. */
    memset(header + 10 + size, ' ', NPY_HEADER_BYTES - 10 - (size_t)size);
    header[NPY_HEADER_BYTES - 1] = '\n';
    if (fwrite(header, 1, NPY_HEADER_BYTES, output->stream) != NPY_HEADER_BYTES)
        return cli_output_check(output);
    return CLI_OK;
}

int cli_npy_begin(struct cli_output *output, const char *type, size_t columns)
{
    if (!output->temporary) {
        cli_fail("%s: cannot write a .npy file to a stream: the row count is written last",
                 output->name);
        cli_hint("set a file with --output");
        return CLI_FAILED;
    }
    return npy_header(output, type, 0, columns);
}

int cli_npy_rows(struct cli_output *output, const void *rows, size_t bytes)
{
    /* native byte order: all supported machines are little-endian */
    fwrite(rows, 1, bytes, output->stream);
    return cli_output_check(output);
}

int cli_npy_end(struct cli_output *output, const char *type, size_t n, size_t columns)
{
    if (fseek(output->stream, 0, SEEK_SET))
        return cli_fail("%s: %s", output->name, strerror(errno));
    return npy_header(output, type, n, columns);
}
