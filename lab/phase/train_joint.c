/* SPDX-License-Identifier: MIT
 * train_joint.c - training by ranks that are processes: what each has kept comes to rank 0, which judges. */
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/phase/joint.h"
#include "lab/phase/train.h"

static int is_kept(const uint8_t *kept, uint64_t i) {
  return kept[i / 8] >> i % 8 & 1;
}

/* By their names, which are pointers of this process. */
static void put_regions(bs_parcel *p, const bs_train_rank *own) {
  json_t *timings = json_object();
  for (uint32_t i = 0; timings && i < own->n_regions; ++i) bs_case_add_timing(timings, &own->regions[i]);
  char *text = timings ? json_dumps(timings, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
  if (text == NULL) p->failed = 1;
  bs_parcel_put_block(p, text, text ? strlen(text) : 0);
  free(text);
  json_decref(timings);
}

static void get_regions(bs_parcel *p, bs_case_rank *out) {
  char *text = bs_parcel_get_block(p, NULL);
  json_t *timings = text ? json_loads(text, 0, NULL) : NULL;
  if (timings == NULL || json_object_update(out->timings, timings) != 0) p->failed = 1;
  json_decref(timings);
  free(text);
}

static void put_rank(bs_parcel *p, const bs_train_result *out, const bs_train_rank *own) {
  const uint64_t steps = (uint64_t)out->steps + 1;
  bs_parcel_put(p, own->counters, sizeof own->counters);
  bs_parcel_put(p, &own->moved, sizeof own->moved);
  bs_parcel_put(p, own->hash, steps * sizeof *own->hash);
  bs_parcel_put(p, own->loss, steps * sizeof *own->loss);
  put_regions(p, own);
  bs_parcel_put_block(p, out->kept, out->n_values / 8 + 1);
  for (uint64_t i = 0; i < out->n_values; ++i)
    if (is_kept(out->kept, i)) bs_parcel_put(p, &out->values[i], sizeof out->values[i]);
}

static int32_t get_rank(void *user, uint32_t r, bs_parcel *p, bs_error *err) {
  bs_train_result *out = user;
  bs_train_rank *own = &out->ranks[r];
  const uint64_t steps = (uint64_t)out->steps + 1;
  uint64_t of_kept = 0;
  bs_parcel_get(p, own->counters, sizeof own->counters);
  bs_parcel_get(p, &own->moved, sizeof own->moved);
  bs_parcel_get(p, own->hash, steps * sizeof *own->hash);
  bs_parcel_get(p, own->loss, steps * sizeof *own->loss);
  get_regions(p, &out->run.ranks[r]);
  uint8_t *kept = bs_parcel_get_block(p, &of_kept);
  if (of_kept != out->n_values / 8 + 1) p->failed = 1;
  for (uint64_t i = 0; !p->failed && i < out->n_values; ++i)
    if (is_kept(kept, i)) bs_parcel_get(p, &out->values[i], sizeof out->values[i]);
  free(kept);
  return p->failed ? bs_no_memory(err, "what the ranks kept of training") : BS_OK;
}

int32_t bs_train_collect(bs_world *world, bs_train_result *out, bs_error *err) {
  bs_parcel mine = {0};
  if (!bs_exchange_joint(world)) return BS_OK;
  put_rank(&mine, out, &out->ranks[bs_world_own_rank(world)]);
  return bs_joint_gather(world, out->run.world_size, &mine, get_rank, out, err);
}
