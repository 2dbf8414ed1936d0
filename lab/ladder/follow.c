/* SPDX-License-Identifier: MIT
 * follow.c - the ladder in a process that is not rank 0: it makes the same rungs, and runs its rank of those
 * that rank 0 measures. */
#include "core/base/error.h"
#include "core/plugin/registry.h"
#include "lab/ladder/ladder.h"
#include "lab/measure/arm.h"
#include "lab/measure/sampler.h"
#include "lab/peers/peers.h"

typedef struct follower {
  bs_ladder ladder;
  bs_arm *arm[BS_SAMPLER_ARMS];
} follower;

static int32_t unknown(const bs_told *told, bs_error *err) {
  return bs_error_set(err, BS_INTERNAL, "BS-PEERS-WORD",
                      "protocol error: rank 0 sent command %u for arm %u, candidate %llu", told->word,
                      told->arm, (unsigned long long)told->n);
}

/* A rung that cannot be built here cannot be on any rank, and is refused by all. */
static int32_t open_arm(follower *f, const bs_told *told, bs_error *err) {
  if (told->n >= f->ladder.n || f->ladder.rungs[told->n].refused.code != BS_OK || f->arm[told->arm] != NULL)
    return unknown(told, err);
  bs_rung *r = &f->ladder.rungs[told->n];
  const int32_t rc =
      bs_arm_open_work(&r->c, r->name, f->ladder.pass, told->arm, &f->arm[told->arm], &r->refused);
  return rc == BS_NO_MEMORY || rc == BS_ABORTED ? (*err = r->refused, rc) : BS_OK;
}

static int32_t obey(follower *f, const bs_told *told, bs_error *err) {
  bs_machine here = {0};
  if (told->arm >= BS_SAMPLER_ARMS) return unknown(told, err);
  bs_arm **arm = &f->arm[told->arm];
  switch (told->word) {
    case BS_WORD_EXCHANGE:
      return bs_machine_exchange(&bs_ladder_widest(&f->ladder)->c, &here, err);
    case BS_WORD_OPEN:
      return open_arm(f, told, err);
    case BS_WORD_BATCH:
      return *arm != NULL ? bs_arm_follow(*arm, told, err) : unknown(told, err);
    case BS_WORD_CLOSE: {
      bs_arm *closed = *arm;
      *arm = NULL;
      return closed != NULL ? bs_arm_close(closed, NULL, err) : BS_OK;
    }
    default:
      return unknown(told, err);
  }
}

int32_t bs_ladder_follow(bs_context *context, const bs_node *config, const bs_ladder_options *o,
                         bs_error *err) {
  follower f = {{.pass = o->pass}, {NULL}};
  bs_told told = {0};
  uint32_t able = 0;
  int32_t rc = bs_ladder_rungs(context, config, o, &f.ladder, &able, err);
  while (rc == BS_OK) {
    rc = bs_peers_hear(o->peers, &told, err);
    if (rc != BS_OK || told.word == BS_WORD_CHOSEN) break;
    rc = able > 0 ? obey(&f, &told, err) : unknown(&told, err);
  }
  for (uint32_t i = 0; i < BS_SAMPLER_ARMS; i++)
    if (f.arm[i] != NULL) bs_arm_close(f.arm[i], NULL, NULL);
  if (bs_context_stuck(context) > 0) return rc; /* a rank that has not returned may still use all of it */
  bs_ladder_free(&f.ladder);
  return rc;
}
