/* SPDX-License-Identifier: MIT
 * op_actor.c - see op_actor.h. */
#include "op_actor.h"

#include <stdio.h>

static int32_t told(const actor *a, int32_t rc, bs_error *err) {
  return rc == BS_OK || a->silent ? rc : bs_fail(err, rc, "FX-ACTOR", "the actor was told to fail");
}

static void hear(char *out, size_t size, const bs_op_query *query) {
  snprintf(out, size, "%s", query->knobs != NULL ? query->knobs : "");
}

static int32_t actor_supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  actor *a = state;
  hear(a->asked_knobs, sizeof a->asked_knobs, query);
  out_answer->level = a->level;
  out_answer->score = a->score;
  out_answer->reason = a->reason;
  snprintf(out_answer->text, sizeof out_answer->text, "%s", a->text != NULL ? a->text : "");
  return a->supports_rc;
}

static int32_t actor_pack(void *state, const bs_exec *exec, const bs_op_query *query,
                          const bs_source *weights, void **out_packed, uint64_t *out_bytes, bs_error *err) {
  (void)exec;
  (void)weights;
  actor *a = state;
  hear(a->pack_knobs, sizeof a->pack_knobs, query);
  if (a->pack_rc != BS_OK) return told(a, a->pack_rc, err);
  a->packs++;
  *out_packed = a;
  *out_bytes = 123;
  return BS_OK;
}

static int32_t actor_update(void *packed, const bs_tensor *delta, bs_error *err) {
  (void)delta;
  (void)err;
  ((actor *)packed)->updates++;
  return BS_OK;
}

static int32_t actor_read(void *packed, int64_t row, bs_tensor *out, bs_error *err) {
  (void)row, (void)out, (void)err;
  ((actor *)packed)->reads++;
  return BS_OK;
}

static void actor_packed_free(void *packed) {
  ((actor *)packed)->packed_frees++;
}

static int32_t actor_prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                             void **out_plan, bs_error *err) {
  (void)exec;
  actor *a = state;
  hear(a->plan_knobs, sizeof a->plan_knobs, query);
  ck_assert(packed == NULL || packed == a);
  if (a->prepare_rc != BS_OK) return told(a, a->prepare_rc, err);
  a->prepares++;
  *out_plan = a;
  return BS_OK;
}

static int32_t actor_run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                         bs_error *err) {
  (void)args;
  (void)nargs;
  (void)stream;
  actor *a = plan;
  a->runs++;
  return told(a, a->run_rc, err);
}

static void actor_plan_free(void *plan) {
  ((actor *)plan)->plan_frees++;
}

bs_op_impl fx_actor_impl(const char *op, const char *name, uint32_t priority) {
  const bs_op_impl impl = {.struct_size = (uint32_t)sizeof impl,
                           .priority = priority,
                           .op = op,
                           .backend = "ref",
                           .name = name,
                           .supports = actor_supports,
                           .pack = actor_pack,
                           .packed_update = actor_update,
                           .packed_read = actor_read,
                           .packed_free = actor_packed_free,
                           .prepare = actor_prepare,
                           .run = actor_run,
                           .plan_free = actor_plan_free};
  return impl;
}

static int32_t actor_echo(const void *plan, bs_op_echo *out_echo) {
  const actor *a = plan;
  const char *told = a->deaf ? NULL : a->plan_knobs;
  char exp[16];
  bs_op_echo echo;
  bs_echo_begin(&echo);
  bs_echo_int(&echo, "keys", bs_knob_int(told, "keys", 128));
  bs_echo_word(&echo, "exp", bs_knob_find(told, "exp", exp, sizeof exp) ? exp : "exact");
  bs_echo_int(&echo, "tile", bs_knob_int(told, "tile", 32));
  snprintf(echo.build, sizeof echo.build, "%s", a->build != NULL ? a->build : "");
  bs_out_copy(out_echo, &echo, sizeof echo);
  return BS_OK;
}

bs_op_impl fx_actor_knobs(const char *op, const char *name) {
  static const bs_knob keys = {sizeof keys, 0, "keys", "16:256*2", "128", "keys of a block"},
                       exp = {sizeof exp, 0, "exp", "exact,fast", "auto", "how e^x is made"},
                       tile = {sizeof tile, BS_KNOB_BUILD, "tile", "32,64", "32", "rows of a tile"};
  static const bs_knob *const knobs[] = {&keys, &exp, &tile};
  bs_op_impl impl = fx_actor_impl(op, name, 0);
  impl.n_knobs = 3;
  impl.knobs = knobs;
  impl.echo = actor_echo;
  return impl;
}

bs_tensor_desc fx_desc_x, fx_desc_y;
static const bs_tensor_desc *convert_args[2] = {&fx_desc_x, &fx_desc_y};
static const bs_tensor_desc *matmul_args[4] = {&fx_desc_x, NULL, NULL, &fx_desc_y};

bs_op_query fx_convert_query(void) {
  fx_desc_x = bs_desc_2d(BS_F32, 4, 8);
  fx_desc_y = bs_desc_2d(BS_F16, 4, 8);
  return fx_query("convert", convert_args, 2);
}

bs_op_query fx_matmul_query(void) {
  fx_desc_x = bs_desc_2d(BS_F32, 4, 8);
  fx_desc_y = bs_desc_2d(BS_F32, 4, 6);
  bs_op_query q = fx_query("matmul", matmul_args, 4);
  q.weight_dtype = BS_F32;
  return q;
}

static int32_t no_read(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                       void *out, int64_t out_stride, bs_error *err) {
  (void)ctx, (void)row, (void)nrows, (void)cols, (void)dtype, (void)out, (void)out_stride, (void)err;
  return BS_INTERNAL;
}

bs_source fx_source_of(int64_t rows, int64_t cols) {
  const bs_source s = {
      .struct_size = (uint32_t)sizeof s, .dtype = BS_F32, .rows = rows, .cols = cols, .read = no_read};
  return s;
}
