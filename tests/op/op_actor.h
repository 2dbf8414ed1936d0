/* SPDX-License-Identifier: MIT
 * op_actor.h - implementations that answer, fail and count as they are told, for tests of the dispatcher. */
#ifndef BS_TESTS_OP_ACTOR_H
#define BS_TESTS_OP_ACTOR_H
#include "op_fixture.h"

/* One made-up implementation: `state` of its vtable, and its packed object and plan. */
typedef struct actor {
  uint32_t level, score, reason;
  const char *text;
  int32_t supports_rc, pack_rc, prepare_rc, run_rc;
  int silent; /* fail without filling the error */
  /* Of knobs: what the last supports, pack and prepare were told, "" nothing; the build that an echo names
   * ("": none); of a deaf one every plan has the standard values, whatever it was told. */
  char asked_knobs[64], pack_knobs[64], plan_knobs[64];
  const char *build;
  int deaf;
  int packs, prepares, runs, packed_frees, plan_frees, updates, reads;
} actor;

/* A vtable whose functions look at the actor registered with it. */
bs_op_impl fx_actor_impl(const char *op, const char *name, uint32_t priority);
/* The same with the knobs keys (16:256*2, standard 128), exp (exact,fast, standard auto: exact) and tile
 * (BS_KNOB_BUILD; 32,64, standard 32), and an echo. */
bs_op_impl fx_actor_knobs(const char *op, const char *name);
/* convert f32 to f16 of [4,8], and matmul of X [4,8], Y [4,6] in f32: the descriptors are below, reset by
 * each call. */
bs_op_query fx_convert_query(void);
bs_op_query fx_matmul_query(void);
extern bs_tensor_desc fx_desc_x, fx_desc_y;
/* A source of that shape whose read is never called by an actor. */
bs_source fx_source_of(int64_t rows, int64_t cols);
#endif
