/* SPDX-License-Identifier: MIT
 * generator.h - inside of bs_token_generator. generator.c opens, runs and closes; prompt.c begins sequences;
 * step.c goes on with them; sample.c chooses tokens. */
#ifndef BS_GENERATE_GENERATOR_H
#define BS_GENERATE_GENERATOR_H
#include "blockshock/generate.h"

/* Attention of up to 8 queries is computed token by token, of more by tiles: other bits. A prompt's runs are
 * longer, so that its rows of the cache are the same however it is cut. */
enum { GEN_PROMPT_LEAST = 9, GEN_CHUNK = 512, GEN_CHUNK_LEAST = 32, GEN_STREAM = 16 };

typedef struct gen_slot {
  int64_t *ids; /* [limit + 1]: the sequence */
  int64_t n;    /* its tokens */
  int64_t held; /* of these, the first ones that are in the cache */
  int64_t
      kept; /* of these, the first ones that a prompt's run has computed: what another prompt may take over */
  int live;
  int ready; /* the last token was chosen by a prompt and is not returned yet */
  double logprob;
  bs_sampling sampling;
  int64_t draft[BS_DRAFT_MOST];
  int64_t drafts;
} gen_slot;

/* Room for a choice. */
typedef struct gen_room {
  double *p;           /* [words] */
  int64_t *order;      /* [words] */
  unsigned char *seen; /* [words], 0 between choices */
} gen_room;

struct bs_token_generator {
  bs_session *session;
  bs_graph *graph;
  gen_slot *slots;
  int64_t n_slots, limit, words, chunk;
  int64_t *ids, *lengths, *rows;   /* the inputs of a run */
  int64_t batch, sequence, wanted; /* that are bound */
  int64_t first;
  uint32_t draft_checked;
  int32_t (*stop)(void *user);
  void *stop_user;
  gen_room room;
  bs_tensor logits; /* [wanted, words] of the last run */
  bs_generator_stats stats;
};

/* Runs `batch` rows of `sequence` tokens from slot `first` on, with the logits of `wanted` rows: the inputs
 * are filled in already. */
int32_t gen_run(bs_token_generator *g, int64_t first, int64_t batch, int64_t sequence, int64_t wanted,
                bs_error *err);
/* sample.c: chooses the token behind slot->ids[0..n) from row `row` of the logits, and appends it. */
int32_t gen_choose(bs_token_generator *g, gen_slot *slot, int64_t row, bs_error *err);
int32_t gen_no_memory(bs_error *err);
#endif
