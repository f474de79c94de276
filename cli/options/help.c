/*
 * help.c - prints --help, generated from the tables of commands and options.
 *
 * Two columns: option names on the left, help texts from HELP_COLUMN on, wrapped at HELP_WIDTH.
 */
#include "cli/options/options.h"

#include <stdio.h>
#include <string.h>

#define HELP_COLUMN 26
#define HELP_WIDTH 92

/* Print `text` from HELP_COLUMN on, wrapped at spaces; the cursor is at column `at`. */
static void print_wrapped(const char *text, size_t at)
{
    if (at + 2 > HELP_COLUMN) {
        putchar('\n');
        at = 0;
    }
    printf("%*s", (int)(HELP_COLUMN - at), "");
    at = HELP_COLUMN;
    while (*text) {
        const size_t word = strcspn(text, " ");

        if (at > HELP_COLUMN && at + 1 + word > HELP_WIDTH) {
            printf("\n%*s", HELP_COLUMN, "");
            at = HELP_COLUMN;
        } else if (at > HELP_COLUMN) {
            putchar(' ');
            at++;
        }
        printf("%.*s", (int)word, text);
        at += word;
        text += word;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_option(const struct cli_option *option)
{
    char left[128];
    size_t n;

    n = (size_t)snprintf(left, sizeof(left), "  %c%c%s --%s", option->letter ? '-' : ' ',
                         option->letter ? option->letter : ' ', option->letter ? "," : " ",
                         option->name);
    if (option->argument)
        n += (size_t)snprintf(left + n, sizeof(left) - n, " %s", option->argument);
    for (const struct cli_choice *c = option->choices; c && c->name && n < sizeof(left); c++)
        n += (size_t)snprintf(left + n, sizeof(left) - n, "%s%s", c == option->choices ? " " : "|",
                              c->name);
    fputs(left, stdout);
    print_wrapped(option->help, strlen(left));
}

static void help_program(void)
{
    printf("gpuserve %s: text embeddings, labels and scores\n\n"
           "usage: gpuserve COMMAND [OPTION...]\n\n",
           gpuserve_version());
    for (size_t i = 0; i < cli_n_commands; i++)
        printf("  %-12s %s\n", cli_commands[i].name, cli_commands[i].summary);
    puts(
        "\n`gpuserve COMMAND --help` describes a command; `man gpuserve` is the full reference.\n\n"
        "  gpuserve pull sentence-transformers/all-MiniLM-L6-v2\n"
        "  gpuserve embed sentence-transformers/all-MiniLM-L6-v2 \"a text\" \"another\"\n\n"
        "Exit status: 0 success, 1 failure, 2 usage error.");
}

void cli_help(const struct cli_command *command)
{
    if (!command) {
        help_program();
        return;
    }
    printf("gpuserve %s: %s\n\nusage: gpuserve %s\n\n%s\noptions:\n", command->name,
           command->summary, command->usage, command->about);
    for (size_t i = 0; i < cli_n_options; i++) {
        if (cli_option_of(&cli_options[i], command))
            print_option(&cli_options[i]);
    }
}
