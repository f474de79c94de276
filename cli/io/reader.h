/*
 * reader.h - bytes of a file, a window at a time, with room for one whole record.
 *
 * The window begins at `begin` and holds `end - begin` bytes; cli_reader_fill() makes it longer.
 * A file of any size takes memory for its longest record only.
 */
#ifndef CLI_READER_H
#define CLI_READER_H

#include "cli/cli.h"

/* A text longer than this is a mistake: a binary file, a file without line ends. */
#define CLI_RECORD_BYTES ((size_t)64 << 20)

struct cli_reader {
    int fd;
    const char *name; /* for messages */
    char *bytes;
    size_t capacity, begin, end;
    bool at_end;        /* the file has no more bytes than the window */
    uint64_t line;      /* of the first byte of the window, from 1 */
    uint64_t n_read;    /* bytes of the file so far */
    uint64_t file_size; /* 0: not known (a pipe) */
};

/* "-" is standard input. The name is lent. */
int cli_reader_open(struct cli_reader *reader, const char *path);
void cli_reader_close(struct cli_reader *reader);

/* More bytes into the window: CLI_OK also at the end of the file, which at_end tells. */
int cli_reader_fill(struct cli_reader *reader);

/* The part of the file, 0 to 1, whose lines were returned; below 0 where the size is not known. */
double cli_reader_share(const struct cli_reader *reader);

/* Whether reading on would have to wait for another program. */
bool cli_reader_would_wait(const struct cli_reader *reader);

/* The next line without its end (LF or CR LF), lent until the next call. 1, 0 at the end of the
 * file, -1 after a message. *number is its line, from 1. */
int cli_reader_line(struct cli_reader *reader, char **line, size_t *size, uint64_t *number);

#endif
