/* SPDX-License-Identifier: MIT
 *
 * generate.h - tokens from a language model, by token ids: several sequences at once, sampling, prefixes that
 * are computed once, and drafts. text.h makes ids of texts, and texts of ids.
 *
 *   bs_graph_open("models/qwen3", {.slots = 4, ..}, &graph, &err)
 *   bs_generator_open(context, graph, NULL, &generator, &err)
 *     bs_generator_prompt(generator, 0, ids, n, &sampling, &err)
 *     bs_generator_step(generator, tokens, room, &n, &err)          until there is enough
 *     bs_generator_end(generator, 0)
 *   bs_generator_close(generator)
 *
 * Slots. A slot is a sequence of tokens with its part of the key-value cache, counted from 0; the graph says
 * how many there are (bs_graph_options.slots). A slot lives from bs_generator_prompt to bs_generator_end, or
 * until its part of the cache is full. A step runs all live slots at once, so that weights are read once.
 * Prefixes. An ended slot keeps its cache until the next prompt in it. A prompt takes over the longest run of
 * first tokens that the prompt of any slot had, too, and computes the rest. Tokens that were generated are
 * computed again, so that results keep their bits.
 * Bits. The tokens of a slot depend on the model, the prompt, the sampling and the number of the slot. They
 * do not depend on other slots, on drafts, on what was kept, nor, with the backend cpu, on the threads.
 *
 * Threads: a generator takes one call at a time. The context and the graph outlive it, and it is the only
 * session of the graph that runs.
 * Ownership: arguments belong to the caller and are read during the call.
 * Errors: as in graph.h. After BS_OVERFLOW, BS_INPUT, BS_INVALID_ARGUMENT and BS_ABORTED a generator goes on;
 * after other errors of a step its slots are ended.
 * Units: lengths are counted in tokens, times in seconds.
 */
#ifndef BLOCKSHOCK_GENERATE_H
#define BLOCKSHOCK_GENERATE_H

#include "graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* (bs_generator of tensor.h describes generated weights and is something else.) */
typedef struct bs_token_generator bs_token_generator;

/* The most drafted tokens of a step. */
#define BS_DRAFT_MOST 7u

/* How a generator is opened. The struct is read during the call of bs_generator_open. */
typedef struct bs_generator_options {
  uint32_t struct_size;
  uint32_t chunk; /* tokens of a prompt in one run, at least 32; 0: 512 */
  /* How the generator opens its session; NULL: the defaults. `dims`, `share` and `f64` are not read.
   * `tokenwise` is BS_BITS_BATCH, or BS_BITS_TOKENS where that is asked. */
  const bs_session_options *session;
  /* Asked between the runs of a prompt; not 0: bs_generator_prompt ends with BS_ABORTED. NULL: not asked. */
  int32_t (*stop)(void *user);
  void *stop_user;
} bs_generator_options;

/* How a token is chosen from the logits. The steps, in this order: (1) the logit of each token that the last
 * `repetition_tokens` tokens have is divided by `repetition` where it is positive, else multiplied; (2)
 * logits are divided by `temperature`, and become probabilities; (3) tokens are ordered by falling
 * probability, of equal ones the lower id first; (4) the first top_k stay; (5) of these the fewest first ones
 * whose sum is at least top_p of the sum of all; (6) of these, those of at least min_p times the first one's
 * probability; (7) the first one whose running sum exceeds u times the sum of those that stay. u has 53 bits:
 * words 2i and 2i+1 of Philox4x32-10 of (seed, stream 16 + slot), where i is the token's place in its
 * sequence. Sums are f64 in that order; without (4) to (6) the sum of all runs over ids. */
typedef struct bs_sampling {
  uint32_t struct_size;
  uint32_t top_k;             /* 0: all */
  uint32_t repetition_tokens; /* 0: all tokens of the sequence */
  uint32_t draft;             /* tokens that are guessed from the sequence and checked in one run: 0 to 7 */
  double temperature;         /* 0: the token of the largest logit, of equal ones the lowest id */
  double top_p;               /* above 0, at most 1; 0: 1 */
  double min_p;               /* 0 to 1 */
  double repetition;          /* 1: none; 0: 1 */
  uint64_t seed;
} bs_sampling;

/* Values of bs_token.flags. */
enum bs_token_flag {
  BS_TOKEN_DRAFTED = 1, /* it was guessed before it was computed */
  BS_TOKEN_LAST = 2     /* the slot's cache is full, and the slot is ended */
};

/* A token that a step has made. */
typedef struct bs_token {
  uint32_t struct_size;
  uint32_t slot;
  int64_t id;
  uint32_t flags; /* enum bs_token_flag */
  uint32_t reserved;
  /* The natural logarithm of its probability after step (2) above; 0 with a temperature of 0. */
  double logprob;
} bs_token;

/* Counts since the generator was opened. */
typedef struct bs_generator_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t prompt_tokens;     /* of all prompts */
  uint64_t kept_tokens;       /* of these: taken over from a cache */
  uint64_t tokens;            /* that steps have returned */
  uint64_t runs;              /* of steps; each reads the weights once */
  uint64_t drafted, accepted; /* tokens that were guessed; of these, right ones */
  double prompt_seconds, step_seconds;
  /* Nodes of the generator's plan that `ref` serves for another backend. */
  uint64_t fallback_nodes;
} bs_generator_stats;

/* Opens a generator over a graph with slots; packs the weights. options may be NULL. BS_UNSUPPORTED: the
 * graph has no slots (BS-GEN-MODEL). */
BS_API int32_t bs_generator_open(bs_context *context, bs_graph *graph, const bs_generator_options *options,
                                 bs_token_generator **out_generator, bs_error *err);
/* Begins a sequence in a slot, which ends the one that is there: computes ids[0..n), and chooses the first
 * token, which the next step returns. sampling NULL: greedy. BS_INPUT, BS-MODEL-IDS: an id that the
 * vocabulary has not. BS_OVERFLOW, BS-GEN-CACHE: the cache has no room for the prompt. BS_UNSUPPORTED,
 * BS-GEN-DRAFT: a node cannot serve drafts, and which. */
BS_API int32_t bs_generator_prompt(bs_token_generator *generator, uint32_t slot, const int64_t *ids,
                                   uint64_t n, const bs_sampling *sampling, bs_error *err);
/* Makes the next token of every live slot, in one run. out: an array of `room` entries whose first has
 * struct_size set; room for one token a live slot and, for drafts, 7 more each. *out_n: how many were filled,
 * slot by slot, tokens of a slot in their order; 0: no slot lives. A caller that stops at a token drops the
 * slot's later ones. */
BS_API int32_t bs_generator_step(bs_token_generator *generator, bs_token *out, uint32_t room, uint32_t *out_n,
                                 bs_error *err);
/* Ends a slot; its cache may serve later prompts. */
BS_API void bs_generator_end(bs_token_generator *generator, uint32_t slot);
/* The tokens that a slot holds at most, the prompt among them; the last token is not in the cache. */
BS_API int64_t bs_generator_limit(const bs_token_generator *generator);
BS_API int32_t bs_generator_stats_get(const bs_token_generator *generator, bs_generator_stats *out_stats,
                                      bs_error *err);
/* Since 0.15, of a session over a world whose ranks are processes. Every process opens the same generator;
 * ranks above 0 call this in the place of the functions above, as they call bs_session_follow. */
BS_API int32_t bs_generator_follow(bs_token_generator *generator, bs_error *err);
/* Closes a generator. NULL is allowed. */
BS_API void bs_generator_close(bs_token_generator *generator);

#ifdef __cplusplus
}
#endif
#endif
