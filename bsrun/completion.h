/* SPDX-License-Identifier: MIT
 * completion.h - names by their kind (names.c), and what the last word of a command line may be
 * (completion_line.c). */
#ifndef BSRUN_COMPLETION_H
#define BSRUN_COMPLETION_H
#include "bsrun/bsrun.h"

/* Adds a text, once; the other one adds the first `size` bytes of a text. */
void bsrun_add_name(json_t *names, const char *text);
void bsrun_add_part(json_t *names, const char *text, size_t size);
/* The run ids below a results folder, the newest first; a root that cannot be read has none. */
void bsrun_add_runs(json_t *names, const char *root);
/* Prints the candidates for the last of the words after `bsrun`, one a line, each with its meaning after a
 * tab. ":file" or ":dir": the shell adds names of files or folders. */
int32_t completion_line(const char *const *words, size_t n, bs_error *err);
#endif
