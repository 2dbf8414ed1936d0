/* SPDX-License-Identifier: MIT
 *
 * state.c - the parallel state of a rank: its tensor group and its data group. The active state is found by
 * the rank (bs_rank_data), which does not own it. The state lives until it is destroyed and the last layer or
 * mapping that was made of it is freed.
 */
#include "tp/state.h"

#include <stdlib.h>
#include <string.h>

/* The key of the state at a rank: the address counts. */
static const char state_key = 0;

tp_state *tp_state_active(const bs_rank *rank) {
  return rank != NULL ? bs_rank_data(rank, &state_key) : NULL;
}

int32_t tp_null(const char *function, const char *needed, bs_error *err) {
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-NULL", "%s was given NULL; it needs %s", function,
                      needed);
}

int32_t tp_size(const char *name, uint32_t struct_size, size_t least, bs_error *err) {
  if (struct_size >= least) return BS_OK;
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-STRUCT", "struct_size of %s is %u", name, struct_size);
}

int32_t tp_state_of(const bs_rank *rank, tp_state **out_state, bs_error *err) {
  if (rank == NULL) return tp_null("a function of a rank", "rank", err);
  tp_state *state = tp_state_active(rank);
  if (state == NULL) {
    bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-STATE", "rank %u has no parallel state",
                 bs_rank_get_api()->rank(rank));
    bs_error_hint(err, "call bs_tp_initialize first, on every rank");
    return BS_INVALID_ARGUMENT;
  }
  *out_state = state;
  return BS_OK;
}

static uint32_t group_size(const bs_tp_place *p, uint32_t group) {
  return group == BS_TP_TENSOR ? p->tensor_size : p->data_size;
}

/* The i-th rank of a group: tensor groups are runs, data groups have a stride of a tensor group. */
static uint32_t group_member(const bs_tp_place *p, uint32_t group, uint32_t i) {
  return group == BS_TP_TENSOR ? p->tensor_first + i : p->data_first + i * p->tensor_size;
}

/* The world itself needs no group. */
static int32_t open_group(tp_state *state, uint32_t group, bs_group **out_group, bs_error *err) {
  const bs_tp_place *p = &state->place;
  const uint32_t n = group_size(p, group);
  *out_group = NULL;
  if (n == p->world_size) return BS_OK;
  uint32_t *ranks = calloc(n, sizeof *ranks);
  if (ranks == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-TP-MEMORY", "no memory for a group");
  for (uint32_t i = 0; i < n; ++i) ranks[i] = group_member(p, group, i);
  const int32_t rc = bs_rank_get_api()->group_open(state->rank, ranks, n, out_group, err);
  free(ranks);
  return rc;
}

static void fill_place(bs_tp_place *p, const bs_rank *rank, uint32_t tensor_size) {
  const bs_rank_api *api = bs_rank_get_api();
  p->struct_size = (uint32_t)sizeof *p;
  p->world_rank = api->rank(rank);
  p->world_size = api->world_size(rank);
  p->tensor_size = tensor_size;
  p->tensor_rank = p->world_rank % tensor_size;
  p->tensor_first = p->world_rank - p->tensor_rank;
  p->data_size = p->world_size / tensor_size;
  p->data_rank = p->world_rank / tensor_size;
  p->data_first = p->tensor_rank;
}

int32_t bs_tp_initialize(bs_rank *rank, uint32_t tensor_size, bs_error *err) {
  if (rank == NULL) return tp_null("bs_tp_initialize", "rank", err);
  const uint32_t world = bs_rank_get_api()->world_size(rank);
  const uint32_t size = tensor_size != 0 ? tensor_size : world;
  if (tp_state_active(rank) != NULL) {
    bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-STATE", "rank %u is initialized already",
                 bs_rank_get_api()->rank(rank));
    bs_error_hint(err, "call bs_tp_destroy before it is initialized again");
    return BS_INVALID_ARGUMENT;
  }
  if (size > world || world % size != 0) {
    bs_error_set(err, BS_CONFIG, "BS-TP-SIZE", "tensor groups of %u ranks in a world of %u", size, world);
    bs_error_hint(err, "the size of a tensor group divides the world size");
    return BS_CONFIG;
  }
  tp_state *state = calloc(1, sizeof *state);
  if (state == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-TP-MEMORY", "no memory for a parallel state");
  state->rank = rank;
  state->users = 1;
  fill_place(&state->place, rank, size);
  int32_t rc = open_group(state, BS_TP_TENSOR, &state->place.tensor_group, err);
  if (rc == BS_OK) rc = open_group(state, BS_TP_DATA, &state->place.data_group, err);
  if (rc == BS_OK) rc = bs_rank_set_data(rank, &state_key, state, err);
  if (rc != BS_OK) tp_state_release(state);
  return rc;
}

void tp_state_release(tp_state *state) {
  if (--state->users > 0) return;
  const bs_rank_api *api = bs_rank_get_api();
  (void)tp_await_all(state, NULL);
  api->group_close(state->place.tensor_group);
  api->group_close(state->place.data_group);
  while (state->unused != NULL) {
    tp_pending *p = state->unused;
    state->unused = p->next;
    free(p);
  }
  free(state);
}

void bs_tp_destroy(bs_rank *rank) {
  tp_state *state = tp_state_active(rank);
  if (state == NULL) return;
  (void)tp_await_all(state, NULL);
  (void)bs_rank_set_data(rank, &state_key, NULL, NULL);
  tp_state_release(state);
}

uint32_t bs_tp_initialized(const bs_rank *rank) {
  return tp_state_active(rank) != NULL;
}

int32_t bs_tp_get_place(const bs_rank *rank, bs_tp_place *out_place, bs_error *err) {
  tp_state *state;
  const int32_t rc = tp_state_of(rank, &state, err);
  if (rc != BS_OK) return rc;
  if (out_place == NULL) return tp_null("bs_tp_get_place", "out_place", err);
  bs_tp_place place = state->place;
  const uint32_t size = out_place->struct_size;
  if (tp_size("bs_tp_place", size, offsetof(bs_tp_place, world_size), err) != BS_OK)
    return BS_INVALID_ARGUMENT;
  memcpy(out_place, &place, size < sizeof place ? size : sizeof place);
  out_place->struct_size = size;
  return BS_OK;
}

int32_t bs_tp_get_ranks(const bs_rank *rank, uint32_t group, uint32_t *out_ranks, uint32_t max,
                        uint32_t *out_count, bs_error *err) {
  tp_state *state;
  const int32_t rc = tp_state_of(rank, &state, err);
  if (rc != BS_OK) return rc;
  if (out_count == NULL || (out_ranks == NULL && max > 0))
    return tp_null("bs_tp_get_ranks", "out_count, and out_ranks of max entries", err);
  if (group != BS_TP_TENSOR && group != BS_TP_DATA)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-GROUP", "no group has the number %u", group);
  const uint32_t n = group_size(&state->place, group);
  for (uint32_t i = 0; i < n && i < max; ++i) out_ranks[i] = group_member(&state->place, group, i);
  *out_count = n;
  return BS_OK;
}
