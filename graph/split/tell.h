/* SPDX-License-Identifier: MIT
 * tell.h - sessions over a world whose ranks are processes. Each process opens the same session. Rank 0's
 * front (front.c) tells the other ranks what each call is, then its inputs. They serve its calls in
 * bs_session_follow (follow.c). All of it travels by collectives with BS_COLL_CONTROL, which are counted for
 * no method. After each call all ranks know how it ended on each (gtell_outcome). */
#ifndef BS_GRAPH_SPLIT_TELL_H
#define BS_GRAPH_SPLIT_TELL_H
#include "graph/split/echo.h"
#include "graph/split/front.h"

/* Calls that rank 0 tells. */
enum gtold_call {
  GTOLD_NONE = 0, /* all processes make it of themselves: open */
  GTOLD_BIND = 1, /* then sizes: of each symbol of the model, GTOLD_SAME for those that stay */
  GTOLD_RUN = 2,  /* then the inputs, as with the next two */
  GTOLD_CHECK = 3,
  GTOLD_TRACE = 4,
  GTOLD_COPY = 5,
  GTOLD_CLOSE = 6 /* no outcome follows */
};
#define GTOLD_SAME INT64_MIN

/* A call of rank 0. Fields that it does not use are zero. */
typedef struct gtold {
  uint32_t call, compares;  /* RUN: the outputs of the ranks are compared */
  int64_t length, slot;     /* of rank 0's member before the call */
  int64_t from, to, tokens; /* COPY */
  int64_t unused[2];
} gtold;

/* Sums of all that processes must have in common. */
enum gsame_what { GSAME_METHOD = 0, GSAME_OPTIONS = 1, GSAME_SIZES = 2, GSAME_MODEL = 3, GSAME_COUNT = 4 };
typedef struct gsame {
  uint64_t sums[GSAME_COUNT];
} gsame;

struct gfront {
  bs_world *world;
  uint32_t size, first; /* ranks of the world; the first of this process */
  uint32_t processes;   /* 1: ranks are processes, and `first` is the only one here */
  uint32_t opened;      /* 1: on all ranks */
  uint32_t compares;    /* 1: runs compare the outputs of the ranks */
  bs_session **members; /* of each rank; NULL: of another process, or not open */
  gecho **echoes;       /* of ranks without values, which follow the first; NULL: each has a member */
  glead lead;           /* what it tells these */
  int32_t *codes;       /* of the newest call */
  bs_error *errors;
  gtold told;     /* processes: the newest call; the following, too */
  int64_t *sizes; /* of each symbol, and one more */
  void **inputs;  /* of a rank above 0: memory of each input, from rank 0; n_inputs */
  uint64_t *input_bytes;
  uint32_t n_inputs;
};

/* 1: the call ended in order, or with an error of what was asked or given, which all ranks meet alike: the
 * world goes on. */
int gfront_goes_on(const bs_rank *rank, int32_t code);

/* same.c: the sums of what this process opens. Of constants of more than 64 MiB together, 64 pieces count
 * and the begin of each one. */
int32_t gsame_make(const gmodel *model, const bs_session_options *options, gsame *out_same, bs_error *err);

/* A run of a member. compares: then every rank compares its outputs with the others'. */
int32_t gfront_run_member(bs_session *member, uint32_t compares, bs_error *err);

/* tell.c. Each is called by all ranks in the same order, within a run of the world. */
/* BS_MISMATCH, BS-GRAPH-SAME, on every rank: one opens something else than rank 0, and what. */
int32_t gtell_same(bs_rank *rank, const gsame *mine, bs_error *err);
/* Rank 0's front->told with what follows it; the other ranks get it, set their member's cache and slot, and
 * have the inputs set. */
int32_t gtell_call(gfront *front, bs_rank *rank, bs_error *err);
/* How the call ended on each rank, in front->codes, with the error of the first rank that has one. */
int32_t gtell_outcome(gfront *front, bs_rank *rank, bs_error *err);
#endif
