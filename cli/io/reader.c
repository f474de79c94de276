/*
 * reader.c - reads a file into a growable window.
 *
 * Skips a UTF-8 byte order mark. The unread bytes move to the buffer's begin when the window is
 * empty or at the buffer's end; the buffer grows only if one record does not fit. A record over
 * CLI_RECORD_BYTES is an error.
 */
#include "cli/io/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES ((size_t)256 << 10)

static int skip_byte_order_mark(struct cli_reader *reader)
{
    int result = CLI_OK;

    while (result == CLI_OK && !reader->at_end && reader->end < 3) {
        /* Do not block for three bytes if the first byte is not part of a byte order mark. */
        if (reader->end > 0 && reader->bytes[0] != '\xEF')
            break;
        result = cli_reader_fill(reader);
    }
    if (reader->end >= 3 && memcmp(reader->bytes, "\xEF\xBB\xBF", 3) == 0)
        reader->begin = 3;
    return result;
}

int cli_reader_open(struct cli_reader *reader, const char *path)
{
    struct stat st;
    int result;

    memset(reader, 0, sizeof(*reader));
    reader->line = 1;
    reader->name = path;
    if (strcmp(path, "-") == 0) {
        reader->name = "standard input";
        reader->fd = STDIN_FILENO;
    } else {
        reader->fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (reader->fd < 0)
        return cli_fail("%s: %s", path, strerror(errno));
    if (fstat(reader->fd, &st) == 0 && S_ISREG(st.st_mode))
        reader->file_size = (uint64_t)st.st_size;
    result = skip_byte_order_mark(reader);
    if (result != CLI_OK)
        cli_reader_close(reader);
    return result;
}

void cli_reader_close(struct cli_reader *reader)
{
    if (reader->fd > STDIN_FILENO)
        close(reader->fd);
    free(reader->bytes);
    memset(reader, 0, sizeof(*reader));
}

int cli_reader_fill(struct cli_reader *reader)
{
    ssize_t n;

    if (reader->begin > 0 && (reader->begin == reader->end || reader->end == reader->capacity)) {
        memmove(reader->bytes, reader->bytes + reader->begin, reader->end - reader->begin);
        reader->end -= reader->begin;
        reader->begin = 0;
    }
    if (reader->end - reader->begin > CLI_RECORD_BYTES)
        return cli_fail("%s: line %llu: the line exceeds %zu bytes", reader->name,
                        (unsigned long long)reader->line, CLI_RECORD_BYTES);
    if (reader->end == reader->capacity)
        reader->bytes = cli_grow(reader->bytes, &reader->capacity, reader->end + READ_BYTES, 1);
    do {
        n = read(reader->fd, reader->bytes + reader->end, reader->capacity - reader->end);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return cli_fail("%s: %s", reader->name, strerror(errno));
    reader->at_end = n == 0;
    reader->end += (size_t)n;
    reader->n_read += (uint64_t)n;
    return CLI_OK;
}

double cli_reader_share(const struct cli_reader *reader)
{
    const uint64_t returned = reader->n_read - (uint64_t)(reader->end - reader->begin);

    return reader->file_size ? (double)returned / (double)reader->file_size : -1.0;
}

bool cli_reader_would_wait(const struct cli_reader *reader)
{
    struct pollfd p = { .fd = reader->fd, .events = POLLIN };

    if (reader->at_end || reader->file_size)
        return false;
    if (reader->end > reader->begin &&
        memchr(reader->bytes + reader->begin, '\n', reader->end - reader->begin))
        return false;
    return poll(&p, 1, 0) == 0;
}

int cli_reader_line(struct cli_reader *reader, char **line, size_t *size, uint64_t *number)
{
    size_t looked = 0;
    char *end = NULL;

    for (;;) {
        const size_t have = reader->end - reader->begin;

        if (have > looked)
            end = memchr(reader->bytes + reader->begin + looked, '\n', have - looked);
        looked = have;
        if (end || reader->at_end)
            break;
        if (cli_reader_fill(reader) != CLI_OK)
            return -1;
    }
    if (!end && looked == 0)
        return 0;
    *line = reader->bytes + reader->begin;
    *size = end ? (size_t)(end - *line) : looked;
    *number = reader->line++;
    reader->begin += *size + (end != NULL);
    if (*size && (*line)[*size - 1] == '\r')
        --*size;
    return 1;
}
