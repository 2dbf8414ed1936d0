/* SPDX-License-Identifier: MIT
 * profile.h - the second words of `bsrun profile`: one file each, and what they share (profile.c). */
#ifndef BSRUN_PROFILE_H
#define BSRUN_PROFILE_H
#include "bsrun/bsrun.h"
#include "lab/profile/profile.h"

extern const bsrun_verb profile_layer, profile_kernel, profile_model, profile_ncu;
/* Rows of their tables of options. */
#define PROFILE_OPTIONS                                                             \
  {OPT_RULES, "default: cpu", 0}, {OPT_COUNTERS, NULL, 0}, {                        \
    OPT_TO, "the parts as Chrome trace events, for Perfetto or chrome://tracing", 0 \
  }
#define PROFILE_OPTIONS_END {OPT_OUTPUT, "table, md, csv, json or jsonl", 0}, {OPT_QUIET, NULL, 0}, ARGS_HELP

/* Reads --counters, --to and --seconds. */
int32_t profile_options(const args *a, bs_profile_options *out, bs_error *err);

/* The run folder that keeps a profile, unless --out is off. */
typedef struct profile_kept {
  bs_context *context;
  bs_node *config;   /* what was asked for */
  const char *phase; /* "profile_layer", ... */
  const char *name;  /* of the method, provider or model: made a folder's name */
} profile_kept;
/* Judges the record by --rules, keeps it, and prints parts and findings. */
int32_t profile_finish(const args *a, json_t *record, const profile_kept *kept, bs_error *err);
/* Prints record number `at` of `all`, one after another. */
int32_t profile_print(const args *a, const json_t *record, size_t at, size_t all, bs_error *err);
#endif
