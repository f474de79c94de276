/*
 * safetensors_verdict.c - says of each file in a folder whether gpuserve accepts it.
 *
 * Usage: safetensors_verdict DIR < NAMES    prints "1" or "0 MESSAGE" a line
 *
 * For differential_safetensors.py, which asks the reference implementation the same.
 */
#include "lib/model/safetensors.h"

#include <stdio.h>
#include <string.h>

/* A message may quote what it found. */
static char *one_line(char *text)
{
    for (char *p = text; *p; p++)
        if (*p == '\n' || *p == '\r')
            *p = ' ';
    return text;
}

int main(int argc, char **argv)
{
    struct gsv_dir *dir = NULL;
    char name[256];

    if (argc != 2 || gsv_dir_open(&dir, argv[1], NULL) != GPUSERVE_OK)
        return 2;
    while (fgets(name, sizeof(name), stdin)) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_safetensors *file = NULL;

        name[strcspn(name, "\n")] = '\0';
        if (gsv_safetensors_open(&file, dir, name, &error) == GPUSERVE_OK)
            puts("1");
        else
            printf("0 %s\n", one_line(error.message));
        gsv_safetensors_close(&file);
    }
    gsv_dir_close(&dir);
    return 0;
}
