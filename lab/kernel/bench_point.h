/* SPDX-License-Identifier: MIT
 * bench_point.h - shared parts of bench: one problem, and its entrants. */
#ifndef BS_LAB_KERNEL_BENCH_POINT_H
#define BS_LAB_KERNEL_BENCH_POINT_H
#include <string.h>

#include "lab/kernel/bench.h"

/* One provider, or a peer (PyTorch, the baseline), of one problem. */
enum { BS_KERNEL_PEERS = 2 };

typedef struct bs_entrant {
  char name[160];     /* "cpu:online", "torch"; "": no provider was named and none serves */
  char knobs[256];    /* the settings given to it */
  char vary[16];      /* "" or how its problem differs: "f32" of "cpu@f32" */
  char label[440];    /* all of it, "cpu:online{keys=64}@f32": of rows and records */
  char stored_id[80]; /* build of the tuning file's choice; "": not known */
  bs_kernel_setup setup;
  bs_kernel_arm *arm;   /* NULL: a peer, or no arm could be made */
  bs_kernel_peer *peer; /* the bench's; NULL: a provider of this process */
  uint32_t baseline;    /* 1: the peer is the baseline */
  uint32_t broken;      /* 1: a call of the peer has failed; `cause` says how */
  bs_kernel_problem problem;
  bs_kernel_seeds *seeds; /* the point's, or own */
  bs_kernel_seeds own;    /* of a problem that differs */
  json_t *record, *gates;
  int32_t failed;   /* enum bs_rule_stage of the stage that failed; -1: none */
  char cause[300];  /* of it */
  uint32_t ran;     /* gates that passed or failed */
  uint32_t unknown; /* gates that could not be judged */
  double *calls;    /* seconds of single calls */
  size_t n_calls;
  bs_look look; /* of them */
  double launch_s;
  int32_t paired;            /* which arm of the sampling; -1: none */
  char same[BS_KERNEL_SAME]; /* the code that it runs; "": not known */
} bs_entrant;

typedef struct bs_point {
  const bs_kernel_bench *bench;
  const bs_rules *rules;
  const bs_kernel_problem *problem;
  char text[BS_KERNEL_TEXT];
  bs_kernel_seeds seeds;
  bs_entrant of[BS_KERNEL_PROVIDERS + BS_KERNEL_PEERS];
  uint32_t n;
  bs_sampled *sampling; /* NULL: nothing was paired */
} bs_point;

static inline int bs_entrant_runs(const bs_entrant *e) {
  return e->failed < 0 && (e->arm != NULL || e->peer != NULL);
}

/* They do the same: one is judged by the other's speed. */
static inline int bs_entrant_alike(const bs_entrant *a, const bs_entrant *b) {
  return memcmp(&a->problem, &b->problem, sizeof a->problem) == 0;
}
/* The code of a failed entrant: BS_UNAVAILABLE (it does not serve the problem), BS_PERF or BS_NUMERIC. */
int32_t bs_entrant_code(const bs_entrant *entrant);
/* bench_build.c: sets build.unshown_knobs to 1 if an earlier entrant has another value of a knob that selects
 * a binary, but reports the same build. */
int32_t bs_entrant_check_build(const bs_point *point, bs_entrant *entrant, bs_error *err);
/* Adds an entrant, by the text of --provider; NULL: no memory. */
bs_entrant *bs_point_add(bs_point *point, const char *text);
/* Judges one stage by the gates. */
int32_t bs_entrant_judge(const bs_point *point, bs_entrant *entrant, uint32_t stage, bs_error *err);
static inline void bs_bench_tell(const bs_kernel_bench *bench, const char *text) {
  if (bench->note != NULL) bench->note(bench->user, text);
}

/* bench_peers.c: the peer takes no further part; the command ends in BS_UNAVAILABLE when all else is done. */
int32_t bs_entrant_peer_failed(bs_entrant *entrant, uint32_t stage, const char *cause, bs_error *err);
/* The processes of a bench; NULL: none. */
typedef struct bs_bench_peers {
  bs_kernel_peer *torch, *baseline;
} bs_bench_peers;
int32_t bs_bench_peers_start(const bs_kernel_bench *bench, bs_bench_peers *out, bs_error *err);
void bs_bench_peers_close(bs_bench_peers *peers);
/* Judges the peers' numbers, and adds them to the entrants. */
int32_t bs_point_add_peers(bs_point *point, const bs_bench_peers *peers, bs_error *err);
/* bench_time.c: single calls, pairs, and the object `performance` of every record. */
int32_t bs_point_time(bs_point *point, bs_error *err);
/* bench_rows.c: the row of a table, and the fields that every record of the point has. */
int32_t bs_entrant_row(const bs_point *point, const bs_entrant *entrant, json_t *rows, bs_error *err);
int32_t bs_point_keep(bs_point *point, json_t *runs, bs_error *err);
/* bench_named.c: the implementations of a plugin that serve the point's problem, as malloc'd lines
 * "cpu:online" (NULL: none). out_why: why one does not serve, or that the plugin has none. */
int32_t bs_kernel_named(const bs_point *point, const char *plugin, char **out_lines, char out_why[300],
                        bs_error *err);
#endif
