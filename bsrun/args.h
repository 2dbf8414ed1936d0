/* SPDX-License-Identifier: MIT
 * args.h - a strict GNU-style parser: --name value, --name=value, -x value, -xvalue. Unknown options and
 * missing values are errors with the nearest spelling; an option given twice is one unless it may repeat. A
 * file to be written that is stdout (-) has it for itself: what else is printed goes to stderr. */
#ifndef BSRUN_ARGS_H
#define BSRUN_ARGS_H
#include <stddef.h>

#include "blockshock/blockshock.h"
#include "bsrun/options.h"

/* A row of a verb's table. A verb that takes words of an option (options.h) has a row for each after it. */
typedef struct args_option {
  int id;           /* enum args_id; OPT_END: the table ends */
  const char *more; /* a meaning that the option has in this verb only; NULL: none */
  int flags;        /* enum args_flag */
} args_option;

enum args_flag {
  ARGS_FOLDER = 1, /* its path is a folder, not a file */
  ARGS_STORE = 2,  /* --out: the verb reads there, so `off` is not valid */
  ARGS_HIDDEN = 4, /* used by bsrun itself; no help lists it */
  ARGS_PAIRS = 8   /* --samples: the most pairs of a comparison, phase.pairs_max */
};

/* Rows of tables of options. Every table ends with ARGS_HELP. */
#define ARGS_TABLE                                                    \
  {OPT_OUTPUT, "table, md, csv, json or jsonl; default: table", 0}, { \
    OPT_WIDE, NULL, 0                                                 \
  }
/* The layer of a verb that makes one. */
#define ARGS_SHAPE                                                                                \
  {OPT_B, "default: 64", 0}, {OPT_N, "default: 4096", 0}, {OPT_K, NULL, 0}, {OPT_DTYPE, NULL, 0}, \
      {OPT_BIAS, "default: on", 0}, {                                                             \
    OPT_ACTIVATION, "default: none", 0                                                            \
  }
#define ARGS_HELP        \
  {OPT_HELP, NULL, 0}, { \
    OPT_END, NULL, 0     \
  }

typedef struct args {
  const args_option *options; /* the last is OPT_END */
  size_t n_options;
  size_t n_given;
  struct {
    size_t option;
    const char *value; /* points into argv; "" for a flag */
  } * given;
  size_t n_words;
  const char **words; /* what is not an option */
  size_t n_own;
  char **own; /* texts of words of options, to be freed */
} args;

/* The meaning of an option, which is the same in every verb. */
const args_meaning *args_is(const args_option *option);
const char *args_name(const args_option *option);
/* Number i of those that were given, as it is typed: "--to" and "trace=FILE" (NULL: it has no value; else the
 * caller's to free), or an empty name where there is no memory. */
void args_typed(const args *a, size_t i, char out_name[64], char **out_value);
/* How an option of the verb, or a word of one, is typed: "--activation", "--with bias". */
const char *args_shown(const args *a, const char *name, char out[64]);
/* The row of the i-th option that was given. */
const args_option *args_given(const args *a, size_t i);

/* argv without the program and the verbs. The caller frees in every case. */
int32_t args_parse(int argc, char **argv, const args_option *options, args *out, bs_error *err);
void args_free(args *a);
int args_has(const args *a, const char *name);
const char *args_value(const args *a, const char *name); /* NULL: not given */
/* `a` without the options of these names (NULL at the end) and without words. Only out->given is the caller's
 * to free: the rest is that of `a`. */
int32_t args_without(const args *a, const char *const *names, args *out, bs_error *err);
/* All values of a repeatable option; the array is the caller's to free. */
int32_t args_values(const args *a, const char *name, const char ***out_values, size_t *out_count,
                    bs_error *err);
/* The parts between commas of all values of an option; the array, with its texts, is the caller's to free. */
int32_t args_list(const args *a, const char *name, const char ***out_parts, size_t *out_count, bs_error *err);
/* A number in [low, high]; `fallback` when not given. */
int32_t args_real(const args *a, const char *name, double low, double high, double fallback, double *out,
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
