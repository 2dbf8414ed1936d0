/* SPDX-License-Identifier: MIT
 * profile.h - the second words of `bsrun profile`: one file each, and what they share (profile.c). */
#ifndef BSRUN_PROFILE_H
#define BSRUN_PROFILE_H
#include "bsrun/bsrun.h"
#include "lab/profile/profile.h"

extern const bsrun_verb profile_layer, profile_kernel, profile_model, profile_ncu;
/* Rows of their tables of options. */
#define PROFILE_OPTIONS                                                                                     \
  {"rules", 0, "NAME", 0, "findings: a name of configs/rules, or a path; default: cpu"},                    \
      {"counters", 0, "on|off", 0, "the processor's counters by perf_event, where permitted; default: on"}, \
  {                                                                                                         \
    "timeline", 0, "FILE", 0, "the parts as Chrome trace events, for Perfetto or chrome://tracing"          \
  }
#define PROFILE_OPTIONS_END                                      \
  {"output", 'o', "FORMAT", 0, "table, md, csv, json or jsonl"}, \
      {"quiet", 'q', NULL, 0, "no notes and no progress on stderr"}, ARGS_HELP

/* Reads --counters, --timeline and --seconds. */
int32_t profile_options(const args *a, bs_profile_options *out, bs_error *err);

/* What a profile is kept as: a run folder, unless --out is off. */
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
