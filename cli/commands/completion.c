/*
 * completion.c - `gpuserve completion`: completion scripts for bash, zsh and fish.
 *
 * Generated from the tables of commands and options, so they always match the program.
 */
#include "cli/options/options.h"

#include <stdio.h>
#include <string.h>

static bool names_file(const struct cli_option *option)
{
    return option->argument && strcmp(option->argument, "FILE") == 0;
}

static bool names_folder(const struct cli_option *option)
{
    return option->argument &&
           (strcmp(option->argument, "DIR") == 0 || strcmp(option->argument, "MODEL") == 0);
}

static void print_options(const struct cli_command *command, const char *before)
{
    for (size_t i = 0; i < cli_n_options; i++) {
        if (cli_option_of(&cli_options[i], command))
            printf("%s--%s", before, cli_options[i].name);
    }
}

/* ---------------------------------------------------------------------------------------- bash */

static void bash_values(void)
{
    for (size_t i = 0; i < cli_n_options; i++) {
        const struct cli_option *option = &cli_options[i];

        if (option->kind == OPTION_CHOICE) {
            printf("    --%s) COMPREPLY=($(compgen -W \"", option->name);
            for (const struct cli_choice *c = option->choices; c->name; c++)
                printf("%s ", c->name);
            puts("\" -- \"$word\")); return ;;");
        } else if (names_folder(option)) {
            printf("    --%s) COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n", option->name);
        } else if (names_file(option)) {
            printf("    --%s) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", option->name);
        }
    }
}

static void complete_bash(void)
{
    puts("_gpuserve()\n{\n"
         "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} names\n"
         "    COMPREPLY=()\n"
         "    case $before in\n"
         "    -m) before=--model ;;\n    -i) before=--input ;;\n    -o) before=--output ;;\n"
         "    -d) before=--device ;;\n    esac\n"
         "    case $before in");
    bash_values();
    puts("    esac\n    case ${COMP_WORDS[1]} in");
    for (size_t i = 0; i < cli_n_commands; i++) {
        printf("    %s) names=\"", cli_commands[i].name);
        print_options(&cli_commands[i], " ");
        puts("\" ;;");
    }
    fputs("    esac\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        COMPREPLY=($(compgen -W \"",
          stdout);
    for (size_t i = 0; i < cli_n_commands; i++)
        printf("%s ", cli_commands[i].name);
    puts("--help --version\" -- \"$word\"))\n"
         "    elif [[ $word == -* ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$names\" -- \"$word\"))\n"
         "    else\n"
         "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "    fi\n}\n"
         "complete -o filenames -F _gpuserve gpuserve");
}

/* ----------------------------------------------------------------------------------------- zsh */

/* Text inside '...[...]...' of _arguments: escapes quotes, brackets and colons. */
static void print_zsh_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (*text == '[' || *text == ']' || *text == ':')
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void zsh_option(const struct cli_option *option)
{
    printf(" \\\n            '*--%s%s[", option->name, option->kind == OPTION_FLAG ? "" : "=");
    print_zsh_text(option->help);
    putchar(']');
    if (option->kind == OPTION_CHOICE) {
        fputs(":value:(", stdout);
        for (const struct cli_choice *c = option->choices; c->name; c++)
            printf("%s%s", c == option->choices ? "" : " ", c->name);
        putchar(')');
    } else if (names_folder(option)) {
        fputs(":folder:_files -/", stdout);
    } else if (names_file(option)) {
        fputs(":file:_files", stdout);
    } else if (option->kind != OPTION_FLAG) {
        fputs(":value:", stdout);
    }
    putchar('\'');
}

static void complete_zsh(void)
{
    puts("#compdef gpuserve\n_gpuserve()\n{\n"
         "    if (( CURRENT == 2 )); then\n        local -a commands=(");
    for (size_t i = 0; i < cli_n_commands; i++) {
        printf("            '%s:", cli_commands[i].name);
        print_zsh_text(cli_commands[i].summary);
        puts("'");
    }
    puts("        )\n        _describe command commands\n        return\n    fi\n"
         "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n"
         "    case $command in");
    for (size_t i = 0; i < cli_n_commands; i++) {
        printf("    %s)\n        _arguments", cli_commands[i].name);
        for (size_t j = 0; j < cli_n_options; j++) {
            if (cli_option_of(&cli_options[j], &cli_commands[i]))
                zsh_option(&cli_options[j]);
        }
        puts(" \\\n            '*:file:_files' ;;");
    }
    puts("    esac\n}\n"
         "if [ \"$funcstack[1]\" = _gpuserve ]; then\n    _gpuserve \"$@\"\n"
         "else\n    compdef _gpuserve gpuserve\nfi");
}

/* ---------------------------------------------------------------------------------------- fish */

static void print_fish_text(const char *text)
{
    putchar('\'');
    for (; *text; text++)
        printf(*text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
    putchar('\'');
}

static void complete_fish(void)
{
    for (size_t i = 0; i < cli_n_commands; i++) {
        const struct cli_command *command = &cli_commands[i];

        printf("complete -c gpuserve -n __fish_use_subcommand -a %s -d ", command->name);
        print_fish_text(command->summary);
        putchar('\n');
        for (size_t j = 0; j < cli_n_options; j++) {
            const struct cli_option *option = &cli_options[j];

            if (!cli_option_of(option, command))
                continue;
            printf("complete -c gpuserve -n '__fish_seen_subcommand_from %s' -l %s", command->name,
                   option->name);
            if (option->letter)
                printf(" -s %c", option->letter);
            if (option->kind != OPTION_FLAG)
                fputs(" -r", stdout);
            if (option->kind == OPTION_CHOICE) {
                fputs(" -f -a '", stdout);
                for (const struct cli_choice *c = option->choices; c->name; c++)
                    printf("%s ", c->name);
                putchar('\'');
            }
            fputs(" -d ", stdout);
            print_fish_text(option->help);
            putchar('\n');
        }
    }
}

int cli_completion(const struct cli_args *args)
{
    if (args->n_rest == 1 && strcmp(args->rest[0], "bash") == 0)
        complete_bash();
    else if (args->n_rest == 1 && strcmp(args->rest[0], "zsh") == 0)
        complete_zsh();
    else if (args->n_rest == 1 && strcmp(args->rest[0], "fish") == 0)
        complete_fish();
    else
        return cli_usage("completion needs one argument: bash, zsh or fish");
    return CLI_OK;
}
