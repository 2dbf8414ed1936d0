/* SPDX-License-Identifier: MIT
 * args.h - a strict GNU-style parser: --name value, --name=value, -x value, -xvalue. Unknown options and
 * missing values are errors with the nearest spelling; an option given twice is one unless it may repeat. A
 * file to be written that is stdout (-) has it for itself: what else is printed goes to stderr. */
#ifndef BSRUN_ARGS_H
#define BSRUN_ARGS_H
#include <stddef.h>

#include "blockshock/blockshock.h"

typedef struct args_option {
  const char *name;  /* without the dashes */
  char letter;       /* 0: none */
  const char *value; /* name of its value in the help; NULL: a flag */
  int repeat;        /* may be given more than once */
  const char *doc;   /* one line of help; NULL: of bsrun itself, in no help */
} args_option;

/* Rows of tables of options. Every table ends with ARGS_HELP. */
#define ARGS_TABLE                                                 \
  {"output", 'o', "FORMAT", 0, "table, md, csv, json or jsonl"}, { \
    "wide", 0, NULL, 0, "a table of all columns, however wide"     \
  }
#define ARGS_HELP                        \
  {"help", 'h', NULL, 0, "this help"}, { \
    NULL, 0, NULL, 0, NULL               \
  }

typedef struct args {
  const args_option *options; /* the last has no name */
  size_t n_options;
  size_t n_given;
  struct {
    size_t option;
    const char *value; /* points into argv; "" for a flag */
  } * given;
  size_t n_words;
  const char **words; /* what is not an option */
} args;

/* argv without the program and the verbs. The caller frees in every case. */
int32_t args_parse(int argc, char **argv, const args_option *options, args *out, bs_error *err);
void args_free(args *a);
int args_has(const args *a, const char *name);
const char *args_value(const args *a, const char *name); /* NULL: not given */
/* As if it had not been given. */
void args_drop(args *a, const char *name);
/* All values of a repeatable option; the array is the caller's to free. */
int32_t args_values(const args *a, const char *name, const char ***out_values, size_t *out_count,
                    bs_error *err);
/* A whole number in [low, high]; `fallback` when not given. */
int32_t args_integer(const args *a, const char *name, int64_t low, int64_t high, int64_t fallback,
                     int64_t *out, bs_error *err);
/* A word of a table of names.h, one of only[0..n) (NULL: of any number). Not given: *inout_number stays. */
int32_t args_word(const args *a, const char *name, uint32_t table, const uint32_t *only, size_t n,
                  uint32_t *inout_number, bs_error *err);
/* The option lines of a help text. */
void args_print_options(const args_option *options);
#endif
