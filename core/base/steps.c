/* SPDX-License-Identifier: MIT
 * steps.c - see steps.h. */
#include "core/base/steps.h"

#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"

enum { LOOK_AT_CLOCK = 64 }; /* steps between two looks */

typedef struct taking {
  const bs_steps_call *call;
  int32_t (*each)(void *user, const bs_coll_step *step);
  void *user;
  uint64_t seen, most;
  double end_s; /* by bs_clock_s */
  int32_t answer;
  bs_error *err, why; /* why: what err said of the answer, before the schedule went on */
} taking;

static double seconds_of(const bs_steps_call *call) {
  return call->timeout_ns > 0 ? (double)call->timeout_ns * 1e-9 : BS_STEPS_SECONDS;
}

uint64_t bs_steps_most(const bs_algorithm *algorithm, const bs_coll_shape *shape) {
  enum { LEAST = 1 << 20, MOST = 1 << 23, EACH = 16, COUNT = 1024 };
  const uint64_t p = shape->world_size, cap = MOST + 4 * p;
  uint64_t chunks = 1;
  for (uint32_t i = 0; algorithm->params != NULL && shape->options != NULL && i < BS_ALGORITHM_MAX_OPTIONS &&
                       algorithm->params[i] != NULL;
       ++i) {
    const bs_value *v = &shape->options[i];
    if (algorithm->params[i]->type == BS_PARAM_INT && v->i > 0 && (uint64_t)v->i > chunks)
      chunks = (uint64_t)v->i;
  }
  if (chunks > MOST || shape->count / COUNT > MOST) return cap;
  const uint64_t most = LEAST + EACH * p * (1 + chunks) + shape->count / COUNT;
  return most < cap ? most : cap;
}

static int32_t refuse(const taking *t, int32_t code, const char *id, const char *what, double number) {
  const bs_steps_call *c = t->call;
  bs_error_set(t->err, code, id, "algorithm %s, rank %u of %u, step %llu: %s (%.10g)", c->algorithm->name,
               c->rank, c->shape->world_size, (unsigned long long)t->seen, what, number);
  bs_error_hint(t->err, "schedule emits a rank's steps and ends by itself");
  return code;
}

/* Checks struct_size, the number of steps and the time limit, and copies the step. Its fields are checked
 * later. */
static int32_t admit(taking *t, const bs_coll_step *given, bs_coll_step *out_step) {
  const size_t whole = offsetof(bs_coll_step, from_first) + sizeof given->from_first; /* since 0.8 */
  t->seen++;
  if (given == NULL) return refuse(t, BS_PLUGIN, "BS-ALG-STEP", "no step is given", 0);
  if (given->struct_size < whole)
    return refuse(t, BS_PLUGIN, "BS-ALG-STEP", "struct_size leaves out fields of bs_coll_step",
                  given->struct_size);
  if (t->seen > t->most)
    return refuse(t, BS_PLUGIN, "BS-ALG-STEPS", "a rank has more steps than any use of them",
                  (double)t->most);
  if (t->seen % LOOK_AT_CLOCK == 0 && bs_clock_s() > t->end_s)
    return refuse(t, BS_DEADLINE, "BS-ALG-STEPS", "schedule has not ended within so many seconds",
                  seconds_of(t->call));
  memset(out_step, 0, sizeof *out_step);
  memcpy(out_step, given, given->struct_size < sizeof *out_step ? given->struct_size : sizeof *out_step);
  return BS_OK;
}

static int32_t emit(void *user, const bs_coll_step *given) {
  taking *t = user;
  bs_coll_step step;
  if (t->answer != BS_OK) return t->answer;
  t->answer = admit(t, given, &step);
  if (t->answer == BS_OK) t->answer = t->each(t->user, &step);
  if (t->answer != BS_OK && t->err != NULL) t->why = *t->err;
  return t->answer;
}

int32_t bs_steps_each(const bs_steps_call *call, int32_t (*each)(void *user, const bs_coll_step *step),
                      void *user, bs_error *err) {
  taking t = {.call = call,
              .each = each,
              .user = user,
              .most = bs_steps_most(call->algorithm, call->shape),
              .end_s = bs_clock_s() + seconds_of(call),
              .err = err};
  const int32_t rc = call->algorithm->schedule(call->state, call->shape, call->rank, emit, &t, err);
  if (t.answer == BS_OK) return rc;
  if (err != NULL) *err = t.why;
  return t.answer;
}
