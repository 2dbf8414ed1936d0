/* SPDX-License-Identifier: MIT
 * ladder.h - all ways to split one layer that a configuration leaves open (method, mask, kernel, slices,
 * placements, overlap, reduce dtype), as rungs. Each is predicted from the machine's constants, and the best
 * are measured in one sampling, to choose one or to compare all. On a simulated machine each is simulated and
 * nothing is measured. Used by `--method auto` and `bsrun ladder`; docs/compare.md. */
#ifndef BS_LAB_LADDER_LADDER_H
#define BS_LAB_LADDER_LADDER_H
#include "lab/lab.h"
#include "lab/measure/arm_work.h"
#include "lab/measure/predict.h"
#include "lab/measure/stats.h"
#include "lab/phase/simulated.h"

enum { BS_RUNG_SETTINGS = 10, BS_RUNG_NAME = 160, BS_RUNGS_MAX = 256 };

typedef struct bs_rung {
  char name[BS_RUNG_NAME]; /* "blockshock interleave overlap=4", "dense on 1 thread" */
  char settings[BS_RUNG_SETTINGS][64];
  uint32_t n_settings; /* "method.name=blockshock": in the form of --set */
  bs_experiment e;     /* the configuration with them; config NULL: not made */
  bs_subject subject;
  uint32_t opened;
  bs_case c;                                /* points into the two above */
  bs_text same;                             /* rungs of one text are the same configuration */
  bs_error refused;                         /* code not BS_OK: it cannot run, and why */
  uint64_t flops, weight_bytes, wire_bytes; /* of rank 0: for one forward; wire_bytes: sent in one pass */
  double wire_error;
  char collectives[64]; /* of one pass: "all_reduce all_gather" */
  bs_kernel kernel;
  bs_predicted predicted; /* of one pass */
  uint32_t is_predicted, measured, is_simulated;
  bs_simulated sim;      /* one pass, if the clock is virtual */
  double seconds;        /* median of the samples */
  bs_comparison against; /* the first rung measured is the subject; of it all zero */
  uint32_t place;        /* from 1: measured rungs by their time, then the others by prediction; 0: refused */
  uint32_t
      unasked; /* 1: 2:4 values that no setting names: predicted only if the constants have their rates */
} bs_rung;

typedef struct bs_ladder {
  uint32_t pass; /* enum bs_arm_work */
  uint32_t n;
  uint32_t simulated; /* 1: the clock of the communicator is virtual */
  bs_rung *rungs;     /* in the order in which they were thought of */
  uint32_t beside;    /* the last so many rungs are the dense layer that options->dense requests */
  bs_machine machine;
  struct bs_sampled *sampling; /* of bs_ladder_measure: arms by the names of their rungs; NULL: none */
} bs_ladder;

typedef struct bs_ladder_options {
  uint32_t pass;
  uint32_t in_order; /* 1: sampled in the order of the lists, the first is the subject; 0: the best predicted
                        first */
  uint32_t
      dense; /* 1: the dense layer on all cores, on one rank's and on one are rungs too, to compare with */
  const char *const *vary; /* "KEY=V1,V2": copies each rung whose method has the key, once for each value */
  size_t n_vary;
  /* "KEY=VALUE KEY=VALUE": each is a separate rung, instead of the lists auto.*; n_specs 0: none */
  const char *const *specs;
  size_t n_specs;
  double seconds;          /* of bs_ladder_measure; for a short time rates of kernels are measured for less
                            * time too */
  const char *quiet_dir;   /* as in bs_experiment_make */
  const json_t *constants; /* of the machine; NULL: measured */
  struct bs_peers
      *peers; /* the processes whose ranks are measured: always as many ranks; NULL: this one's threads */
  bs_progress_fn progress; /* may be NULL */
  void *progress_user;
} bs_ladder_options;

/* Makes every useful combination of the lists auto.* (docs/compare.md) from a composed configuration, gets
 * its proposal and predicts one pass. BS_CONFIG: none can run; the error has the first reason. The caller
 * frees the ladder also after an error. */
int32_t bs_ladder_make(bs_context *context, const bs_node *config, const bs_ladder_options *options,
                       bs_ladder *out_ladder, bs_error *err);
/* Samples the best `most` rungs by prediction (those reported as lossless first) alternately, for about
 * options->seconds, and ranks all. BS_SAMPLER_ARMS at most. Does nothing on a simulated machine. */
int32_t bs_ladder_measure(bs_ladder *ladder, uint32_t most, const bs_ladder_options *options, bs_error *err);
/* The counterpart of both functions in a process that is not rank 0. It runs its rank of each measured rung
 * until rank 0 has chosen or this rank fails. bs_peers_await_end then reports how the run ended. */
int32_t bs_ladder_follow(bs_context *context, const bs_node *config, const bs_ladder_options *options,
                         bs_error *err);
/* The rung to take: place 1; NULL when all are refused. */
const bs_rung *bs_ladder_best(const bs_ladder *ladder);
/* Rows for bs_report_print and the record, by place. */
json_t *bs_ladder_rows(const bs_ladder *ladder);
const char *bs_ladder_pass_name(uint32_t pass); /* "forward", "backward", "sgd", "adamw" */
void bs_ladder_free(bs_ladder *ladder);

/* candidates.c: the rungs by name and settings only. */
int32_t bs_ladder_candidates(bs_context *context, const bs_node *config, const bs_ladder_options *options,
                             bs_ladder *ladder, bs_error *err);
/* Adds a copy of the rung, unless one with the same settings exists: no rung is compared with itself. */
int32_t bs_ladder_add(bs_ladder *ladder, const bs_rung *rung, bs_error *err);
/* Like bs_ladder_add, but keeps equal rungs: both sides of a comparison may be the same. */
int32_t bs_ladder_append(bs_ladder *ladder, const bs_rung *rung, bs_error *err);
/* specs.c: the rungs of options->specs, named "A", "B", ... BS_USAGE, BS-COMPARE-SPEC. */
int32_t bs_ladder_specs(const bs_ladder_options *options, bs_ladder *ladder, bs_error *err);
/* vary.c: multiplies the rungs by options->vary, except the additional dense layer. */
int32_t bs_ladder_vary(bs_context *context, const bs_ladder_options *options, bs_ladder *ladder,
                       bs_error *err);
/* ladder.c: the rungs as layers that can be built, the same in all processes; *out_able can run. */
int32_t bs_ladder_rungs(bs_context *context, const bs_node *config, const bs_ladder_options *options,
                        bs_ladder *ladder, uint32_t *out_able, bs_error *err);
/* ladder.c: puts "a.b=c" settings into a composed configuration; a mask that they name keeps no patterns of
 * another. */
int32_t bs_rung_apply(const char (*settings)[64], uint32_t n, bs_node *tree, bs_error *err);
/* ladder.c: makes rung->same of a rung that can run. */
int32_t bs_rung_describe(bs_rung *rung, bs_error *err);
/* ladder.c: frees its contents, not the rung itself. */
void bs_rung_free(bs_rung *rung);
/* simulate.c: determines whether the rungs have a virtual clock. BS-SPAN-CLOCK: only some have one. With one,
 * a single dense layer is compared. */
int32_t bs_ladder_clock(bs_context *context, bs_ladder *ladder, bs_error *err);
/* Simulates one pass of every rung that can run. */
int32_t bs_ladder_simulate(bs_context *context, bs_ladder *ladder, const bs_ladder_options *options,
                           bs_error *err);
/* predict.c: the machine and every rung that can run, of which there is one. */
int32_t bs_ladder_predict(bs_ladder *ladder, const bs_ladder_options *options, bs_error *err);
/* The first rung with the most ranks, by which the machine is known. One can run. */
const bs_rung *bs_ladder_widest(const bs_ladder *ladder);
#endif
