/* SPDX-License-Identifier: MIT
 * verify.h - translation validation: compares the outputs of a planned session with those of the graph as
 * written, which is the lowered model without any pass on `ref`, in f64. verify.c runs both, judge.c has the
 * bounds, blame.c finds the pass or the kernel. */
#ifndef BS_GRAPH_RUN_VERIFY_H
#define BS_GRAPH_RUN_VERIFY_H
#include "graph/run/session.h"

/* ---- judge.c: the numbers of one output ------------------------------------------------------- */

typedef union gnumber {
  double f;
  int64_t i; /* of an integer or bool output */
} gnumber;

/* An output: the numbers of the graph as written, and how far right runs are from them. spread and scale have
 * two numbers a row (the last dimension): one for fills of masks, one for the rest. */
typedef struct goutput {
  uint32_t dtype, is_float;
  uint64_t count, row, rows;
  gnumber *want;
  unsigned char *kinds; /* of each number: what right runs gave there (judge.c) */
  double *spread, *scale;
} goutput;

/* The number that is furthest beyond its bound. */
typedef struct gworst {
  double ratio; /* |value - expected| / bound; INFINITY: another kind of number; at most 1: within */
  uint32_t output;
  uint64_t index;
  gnumber value;
  double bound;
} gworst;

/* 1: the number is finite, and too large for the arithmetic of the dtype: a sum of so many squares of it
 * overflows. The lowest numbers of a dtype are not: they fill masks. */
int gnumber_too_large(uint32_t dtype, double number, double terms);
int32_t goutput_init(goutput *o, const bs_tensor *written, uint32_t dtype, bs_error *err);
void goutput_free(goutput *o);
/* The elements of a tensor, dense; malloc'd. */
int32_t gnumbers_read(const bs_tensor *tensor, gnumber **out_numbers, bs_error *err);
/* Learns the spread from `seen`, the numbers of a right run. */
void goutput_learn(goutput *o, const gnumber *seen);
/* Strikes numbers out of the comparison. `seen` comes from a run in which numbers that overflow in the
 * model's own dtype became NaN or others; every number that depends on them is struck. */
void goutput_strike(goutput *o, const gnumber *seen);
/* Compares numbers, raises *io_worst and counts. infinite: an intermediate value of the graph as written was
 * infinite, so that a NaN or infinity in its result proves nothing. part: the round-off of one node, relative
 * to the largest number of a row. */
typedef struct gjudging {
  double part, terms;
  int infinite;
  uint64_t compared, skipped;
} gjudging;
void goutput_judge(const goutput *o, uint32_t index, const gnumber *seen, gjudging *io, gworst *io_worst);

/* ---- verify.c -------------------------------------------------------------------------------- */

typedef struct gverify {
  bs_session *s, *wide, *own; /* the planned one; as written: in f64, in the model's own dtypes */
  bs_session *plain;          /* on the backend, without a pass; NULL: not needed so far */
  goutput *outputs;
  uint32_t n_outputs;
  double **inputs;   /* of `wide`, of each port; NULL: as the planned session has it */
  bs_session *asked; /* what was asked for: `s`, or the session over a world of which `s` is the lead */
  gjudging judging;
  int64_t length;        /* of the cache before the run */
  unsigned char *before; /* the states then, and after the planned run */
  unsigned char *after;
} gverify;

/* Opens the comparison for a session that is bound. It must be opened again after a bind. */
int32_t gverify_open(bs_session *session, gverify **out_verify, bs_error *err);
/* Runs the session and compares, as bs_session_verify says. */
int32_t gverify_run(gverify *verify, bs_verify_report *out_report, bs_error *err);
void gverify_close(gverify *verify);

/* A session of the same model on the backend with these passes off; NULL with *err. */
int32_t gverify_beside(gverify *v, uint32_t off, bs_session **out_session, bs_error *err);
/* Runs a session on the inputs of the planned one, from the cache before the run. each (may be NULL) is
 * called after each step. */
int32_t gverify_feed(gverify *v, bs_session *x, bs_error *err);
int32_t gverify_steps(gverify *v, bs_session *x, void (*each)(void *user, const gbinding *b, const gstep *s),
                      void *user, bs_error *err);
/* Compares the outputs of `x` with those of the graph as written. */
int32_t gverify_judge(gverify *v, bs_session *x, gworst *out_worst, bs_error *err);

/* ---- blame.c --------------------------------------------------------------------------------- */

/* The planned run is wrong. Fills pass, off, node of the report; BS_NUMERIC with the error line. */
int32_t gverify_blame(gverify *v, bs_verify_report *io_report, bs_error *err);
#endif
