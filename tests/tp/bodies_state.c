/* SPDX-License-Identifier: MIT
 *
 * bodies_state.c - T1, the parallel state, and T4, how a spawn ends.
 */
#include <sched.h>
#include <unistd.h>

#include "core/base/error.h"
#include "tests/tp/bodies.h"

static int is_error(int32_t rc, const bs_error *e, const char *id) {
  return rc != BS_OK && strcmp(e->id, id) == 0;
}

/* Everything that needs a state says so. */
static int32_t without_state(bs_rank *rank, bs_error *err) {
  bs_error e = BS_ERROR_INIT;
  bs_tp_place place = {.struct_size = sizeof place};
  bs_tensor t = {.struct_size = sizeof t};
  uint32_t ranks[4], n = 7;
  double value = 0.0;
  char text[8];
  MUST(bs_tp_initialized(rank) == 0, "initialized");
  MUST(is_error(bs_tp_get_place(rank, &place, &e), &e, "BS-TP-STATE"), "place: %s", e.id);
  MUST(strstr(e.hint, "bs_tp_initialize") != NULL, "hint: %s", e.hint);
  MUST(is_error(bs_tp_get_ranks(rank, BS_TP_TENSOR, ranks, 4, &n, &e), &e, "BS-TP-STATE") && n == 7, "ranks");
  MUST(is_error(bs_tp_drain(rank, &e), &e, "BS-TP-STATE"), "drain: %s", e.id);
  MUST(is_error(bs_tp_copy_out(rank, &t, text, &e), &e, "BS-TP-STATE"), "copy_out: %s", e.id);
  MUST(bs_tp_pending(rank) == 0, "pending");
  t.rank = 2;
  t.dtype = BS_F32;
  t.dims[0] = t.dims[1] = 1;
  MUST(is_error(bs_tp_copy_in(rank, text, &t, &e), &e, "BS-TP-STATE"), "copy_in: %s", e.id);
  MUST(is_error(bs_tp_get(rank, &t, 0, 0, &value, &e), &e, "BS-TP-STATE"), "get: %s", e.id);
  bs_tp_destroy(rank); /* does nothing */
  return BS_OK;
}

static int32_t two_groups(bs_rank *rank, uint32_t me, bs_error *err) {
  bs_tp_place p = {.struct_size = sizeof p};
  uint32_t ranks[4] = {9, 9, 9, 9}, n = 0;
  double sum = 0.0;
  TRY(bs_tp_get_place(rank, &p, err));
  MUST(p.world_rank == me && p.world_size == 4, "world %u of %u", p.world_rank, p.world_size);
  MUST(p.tensor_rank == me % 2 && p.tensor_size == 2 && p.tensor_first == me / 2 * 2,
       "tensor %u of %u from %u", p.tensor_rank, p.tensor_size, p.tensor_first);
  MUST(p.data_rank == me / 2 && p.data_size == 2 && p.data_first == me % 2, "data %u of %u from %u",
       p.data_rank, p.data_size, p.data_first);
  TRY(bs_tp_get_ranks(rank, BS_TP_TENSOR, ranks, 4, &n, err));
  MUST(n == 2 && ranks[0] == me / 2 * 2 && ranks[1] == ranks[0] + 1 && ranks[2] == 9, "tensor ranks");
  TRY(bs_tp_get_ranks(rank, BS_TP_DATA, ranks, 1, &n, err));
  MUST(n == 2 && ranks[0] == me % 2 && ranks[1] == p.tensor_first + 1, "data ranks, cut at one");
  TRY(body_sum(rank, p.tensor_group, me, &sum, err));
  MUST(sum == (me < 2 ? 1.0 : 5.0), "the tensor group sums to %g", sum);
  TRY(body_sum(rank, p.data_group, me, &sum, err));
  MUST(sum == (me % 2 == 0 ? 2.0 : 4.0), "the data group sums to %g", sum);
  return BS_OK;
}

/* NULL where something is needed is an error, never a signal. `e` stands for the error. */
#define IS_NULL(call)                                                                                   \
  do {                                                                                                  \
    const int32_t rc_ = (call);                                                                         \
    MUST(rc_ == BS_INVALID_ARGUMENT && strcmp(e.id, "BS-TP-NULL") == 0, "%s: %d %s", #call, rc_, e.id); \
    bs_error_clear(&e);                                                                                 \
  } while (0)

/* Functions of a rank that is there. */
static int32_t nothing_beside_a_rank(bs_rank *rank, bs_error *err) {
  bs_error e = BS_ERROR_INIT;
  uint32_t n = 0;
  const bs_tp_linear_spec spec = {
      .struct_size = sizeof spec, .tokens = 1, .in_features = 2, .out_features = 2};
  const bs_tp_mlp_spec no_mlp = {0};
  const bs_tp_linear_spec no_spec = {0};
  bs_tp_place no_place = {0};
  bs_tp_linear *linear;
  bs_tp_mlp *mlp;
  bs_tensor t = {.struct_size = sizeof t};
  double value = 0;
  IS_NULL(bs_tp_get_place(rank, NULL, &e));
  MUST(is_error(bs_tp_get_place(rank, &no_place, &e), &e, "BS-TP-STRUCT"), "place: %s", e.id);
  IS_NULL(bs_tp_get_ranks(rank, BS_TP_TENSOR, NULL, 2, &n, &e));
  IS_NULL(bs_tp_get_ranks(rank, BS_TP_TENSOR, &n, 1, NULL, &e));
  TRY(bs_tp_get_ranks(rank, BS_TP_TENSOR, NULL, 0, &n, err));
  IS_NULL(bs_tp_start(rank, NULL, NULL, NULL, &e));
  IS_NULL(bs_tp_tensor_make(rank, BS_F32, 1, 1, NULL, &e));
  TRY(bs_tp_tensor_make(rank, BS_F32, 1, 1, &t, err));
  IS_NULL(bs_tp_copy_in(rank, NULL, &t, &e));
  IS_NULL(bs_tp_copy_out(rank, NULL, &value, &e));
  IS_NULL(bs_tp_copy_out(rank, &t, NULL, &e));
  IS_NULL(bs_tp_get(rank, &t, 0, 0, NULL, &e));
  IS_NULL(bs_tp_format(rank, &t, NULL, 8, &e));
  MUST(is_error(bs_tp_copy_in(rank, &value, NULL, &e), &e, "BS-TP-TENSOR"), "copy_in: %s", e.id);
  MUST(is_error(bs_tp_copy(rank, NULL, &t, &e), &e, "BS-TP-TENSOR"), "copy: %s", e.id);
  MUST(is_error(bs_tp_copy(rank, &t, NULL, &e), &e, "BS-TP-TENSOR"), "copy: %s", e.id);
  MUST(is_error(bs_tp_get(rank, NULL, 0, 0, &value, &e), &e, "BS-TP-TENSOR"), "get: %s", e.id);
  MUST(is_error(bs_tp_format(rank, NULL, NULL, 0, &e), &e, "BS-TP-TENSOR"), "format: %s", e.id);
  bs_tp_tensor_free(rank, &t);
  bs_tp_tensor_free(rank, NULL);
  bs_tp_plan_release(rank, NULL);
  IS_NULL(bs_tp_column_linear(rank, NULL, NULL, NULL, &linear, &e));
  IS_NULL(bs_tp_row_linear(rank, &spec, NULL, NULL, NULL, &e));
  MUST(is_error(bs_tp_row_linear(rank, &no_spec, NULL, NULL, &linear, &e), &e, "BS-TP-STRUCT"), "row: %s",
       e.id);
  IS_NULL(bs_tp_mapping_make(rank, BS_TP_COPY_TO, BS_F32, 1, 1, NULL, &e));
  IS_NULL(bs_tp_mlp_make(rank, NULL, NULL, NULL, NULL, NULL, &mlp, &e));
  IS_NULL(bs_tp_mlp_make(rank, &no_mlp, NULL, NULL, NULL, NULL, NULL, &e));
  MUST(is_error(bs_tp_mlp_make(rank, &no_mlp, NULL, NULL, NULL, NULL, &mlp, &e), &e, "BS-TP-STRUCT"),
       "mlp: %s", e.id);
  return BS_OK;
}

/* Functions of an object, or of a rank, that is not there. */
static int32_t nothing_at_all(bs_error *err) {
  bs_error e = BS_ERROR_INIT;
  bs_tp_place place = {.struct_size = sizeof place};
  bs_tp_linear_shape shape = {.struct_size = sizeof shape};
  const bs_step step = {.struct_size = sizeof step};
  bs_ownership own = {.struct_size = sizeof own};
  bs_tensor t = {.struct_size = sizeof t, .rank = 2, .dtype = BS_F32, .dims = {1, 1}, .strides = {1, 1}};
  bs_tensor *dw, *db;
  bs_tp_mapping *mapping;
  uint32_t n;
  int64_t begin = 7, count = 7;
  double value;
  IS_NULL(bs_tp_initialize(NULL, 1, &e));
  IS_NULL(bs_tp_get_place(NULL, &place, &e));
  IS_NULL(bs_tp_get_ranks(NULL, BS_TP_DATA, &n, 1, &n, &e));
  IS_NULL(bs_tp_start(NULL, NULL, NULL, NULL, &e));
  IS_NULL(bs_tp_drain(NULL, &e));
  IS_NULL(bs_tp_tensor_make(NULL, BS_F32, 1, 1, &t, &e));
  IS_NULL(bs_tp_copy_in(NULL, &value, &t, &e));
  IS_NULL(bs_tp_copy_out(NULL, &t, &value, &e));
  IS_NULL(bs_tp_copy(NULL, &t, &t, &e));
  IS_NULL(bs_tp_get(NULL, &t, 0, 0, &value, &e));
  IS_NULL(bs_tp_mapping_make(NULL, BS_TP_COPY_TO, BS_F32, 1, 1, &mapping, &e));
  IS_NULL(bs_tp_linear_get_shape(NULL, &shape, &e));
  IS_NULL(bs_tp_linear_forward(NULL, &t, &t, &e));
  IS_NULL(bs_tp_linear_backward(NULL, &t, &t, &t, &e));
  IS_NULL(bs_tp_linear_gradients(NULL, &dw, &db, &e));
  IS_NULL(bs_tp_linear_step(NULL, &step, &e));
  IS_NULL(bs_tp_linear_owns(NULL, &own, &e));
  IS_NULL(bs_tp_linear_read_weights(NULL, 0, &t, &e));
  IS_NULL(bs_tp_linear_gather_weights(NULL, &value, &e));
  IS_NULL(bs_tp_mapping_forward(NULL, &t, &t, &e));
  IS_NULL(bs_tp_mapping_backward(NULL, &t, &t, &e));
  IS_NULL(bs_tp_mapping_forward_start(NULL, &t, &t, &e));
  IS_NULL(bs_tp_mapping_backward_start(NULL, &t, &t, &e));
  IS_NULL(bs_tp_mlp_forward(NULL, &t, &t, &e));
  IS_NULL(bs_tp_mlp_backward(NULL, &t, &t, &t, &e));
  IS_NULL(bs_tp_mlp_step(NULL, &step, &e));
  IS_NULL(bs_tp_join(NULL, 0, &n, &e));
  MUST(bs_tp_linear_gradients(NULL, NULL, NULL, NULL) == BS_INVALID_ARGUMENT, "without an error");
  bs_tp_mapping_part(NULL, &begin, &count);
  MUST(begin == 0 && count == 0, "part: %lld %lld", (long long)begin, (long long)count);
  MUST(bs_tp_initialized(NULL) == 0 && bs_tp_pending(NULL) == 0, "numbers");
  MUST(bs_tp_linear_bias(NULL) == NULL && bs_tp_mlp_column(NULL) == NULL && bs_tp_mlp_row(NULL) == NULL,
       "pointers");
  bs_tp_destroy(NULL);
  bs_tp_tensor_free(NULL, NULL);
  bs_tp_linear_free(NULL);
  bs_tp_mapping_free(NULL);
  bs_tp_mlp_free(NULL);
  bs_tp_job_free(NULL);
  return BS_OK;
}

int32_t t1_null(bs_rank *rank, void *user, bs_error *err) {
  (void)user;
  TRY(nothing_at_all(err));
  return nothing_beside_a_rank(rank, err);
}

int32_t t1_state(bs_rank *rank, void *user, bs_error *err) {
  const uint32_t me = bs_rank_get_api()->rank(rank);
  bs_error e = BS_ERROR_INIT;
  bs_tp_place p = {.struct_size = sizeof p};
  double sum = 0.0;
  uint32_t n = 0, ranks[4];
  (void)user;
  TRY(without_state(rank, err));
  MUST(is_error(bs_tp_initialize(rank, 3, &e), &e, "BS-TP-SIZE"), "3 of 4: %s", e.id);
  MUST(is_error(bs_tp_initialize(rank, 8, &e), &e, "BS-TP-SIZE"), "8 of 4: %s", e.id);
  TRY(bs_tp_initialize(rank, 2, err));
  MUST(bs_tp_initialized(rank) == 1, "not initialized");
  TRY(two_groups(rank, me, err));
  MUST(is_error(bs_tp_initialize(rank, 2, &e), &e, "BS-TP-STATE"), "twice: %s", e.id);
  TRY(two_groups(rank, me, err)); /* as before the refusal */
  MUST(is_error(bs_tp_get_ranks(rank, 5, ranks, 4, &n, &e), &e, "BS-TP-GROUP"), "group 5: %s", e.id);
  bs_tp_destroy(rank);
  TRY(without_state(rank, err));
  TRY(bs_tp_initialize(rank, 0, err)); /* all of the world: no group of its own */
  TRY(bs_tp_get_place(rank, &p, err));
  MUST(p.tensor_size == 4 && p.tensor_rank == me && p.data_size == 1 && p.tensor_group == NULL,
       "whole world");
  TRY(body_sum(rank, p.data_group, me, &sum, err));
  MUST(sum == me, "a data group of one sums to %g", sum);
  bs_tp_destroy(rank);
  TRY(bs_tp_initialize(rank, 1, err));
  TRY(bs_tp_get_place(rank, &p, err));
  MUST(p.tensor_size == 1 && p.data_size == 4 && p.data_rank == me && p.data_group == NULL, "groups of one");
  bs_tp_destroy(rank);
  bs_tp_destroy(rank);
  return BS_OK;
}

/* The spawn has initialized it, and destroys what is left. */
int32_t t1_left(bs_rank *rank, void *user, bs_error *err) {
  (void)user;
  return two_groups(rank, bs_rank_get_api()->rank(rank), err);
}

/* ---- T4 -------------------------------------------------------------------------------------- */

/* Where `user` is given it has a count for each rank. */
int32_t t4_once(bs_rank *rank, void *user, bs_error *err) {
  uint32_t *counts = user;
  const uint32_t me = bs_rank_get_api()->rank(rank);
  if (counts != NULL) counts[me]++;
  double sum = 0.0;
  TRY(body_sum(rank, NULL, 1.0, &sum, err));
  MUST(sum == 4.0, "%g ranks", sum);
  return BS_OK;
}

/* Processes: both are here, in no call of a communicator that the other's failure would end. They meet by
 * files of the folder that they run in. */
static int32_t meet(uint32_t me, bs_error *err) {
  const char *mine = me == 1 ? "t4.1" : "t4.3", *other = me == 1 ? "t4.3" : "t4.1";
  FILE *f = fopen(mine, "w");
  MUST(f != NULL, "cannot write %s", mine);
  fclose(f);
  while (access(other, F_OK) != 0) sched_yield();
  return BS_OK;
}

/* Ranks 1 and 3 fail by themselves; the others wait for them, and echo. user: the ranks are processes. */
int32_t t4_roots(bs_rank *rank, void *user, bs_error *err) {
  const uint32_t me = bs_rank_get_api()->rank(rank);
  double sum = 0.0;
  if (user != NULL && (me == 1 || me == 3)) TRY(meet(me, err));
  if (me == 1) return bs_error_set(err, BS_CONFIG, "T4-FIRST", "the first cause");
  if (me == 3) return bs_error_set(err, BS_IO, "T4-SECOND", "the second cause");
  const int32_t rc = body_sum(rank, NULL, 1.0, &sum, err);
  MUST(rc == BS_ABORTED, "status %s, and no sibling failed", bs_status_name(rc));
  return rc;
}

int32_t t4_alike(bs_rank *rank, void *user, bs_error *err) {
  double sum = 0.0;
  (void)user;
  if (bs_rank_get_api()->rank(rank) == 1) return body_sum(rank, NULL, 1.0, &sum, err);
  return bs_error_set(err, BS_CONFIG, "T4-ALIKE", "alike");
}

int32_t t4_silent(bs_rank *rank, void *user, bs_error *err) {
  double sum = 0.0;
  (void)user;
  return bs_rank_get_api()->rank(rank) == 1 ? (int32_t)BS_IO : body_sum(rank, NULL, 1.0, &sum, err);
}
