/* SPDX-License-Identifier: MIT
 * bench.h - `bsrun model bench`: how long a model's runs take, by the rules of docs/measuring.md. */
#ifndef BS_LAB_MODEL_BENCH_H
#define BS_LAB_MODEL_BENCH_H
#include "lab/model/model.h"
#include "lab/model/peer.h"
#include "lab/progress.h"

typedef struct bs_model_bench {
  double seconds;          /* of samples of each row, once 5 are there; the warm-up takes as long at most */
  uint32_t allow_fallback; /* nodes that ref serves for the backend are timed; else they are an error */
  uint32_t profile;        /* the nodes' times too, of runs of their own */
  const bs_model_peer_how *peer; /* timed in turns with ours; NULL: none */
  const struct bs_load *before;  /* of the machine before the model was opened; NULL: of the call */
  bs_progress_fn progress;       /* may be NULL */
  void *user;
} bs_model_bench;

/* Times an open model that has no session yet, and leaves it with one. A model without a key-value cache
 * reads its inputs from files and gives one row "run". A model with one gives the rows "prefill" (the prompt,
 * into an empty cache) and "decode" (one token, after the prompt). Without --input the ids are generated;
 * without --dim the prompt has 128 tokens.
 * *out: {model, backend, threads (of one rank), dims, made_inputs, made_hash (of their numbers), median_s (of
 * the first row), rows: [{work, backend, threads, threads_per_rank (the same), world_size, method, comm and
 * launch (these three over ranks alone), tokens, cache_tokens, nodes, fallback_nodes, flops, bytes, gflops,
 * tokens_per_s, low_s, high_s (95 % of the median), first_s, load_s (of the model), lower_s, pass_s, plan_s,
 * pack_s, prepare_s (of the binding for this row), and the fields of an arm and of pairs in docs/runs.md}],
 * conditions (bs_load_json), stats, profile: [{op, serves, origin, shape, each_s, share, gflops, limit
 * (simulated), ..}],
 * profile_work: the row whose nodes these are (decode, if there are two rows), memory (bench_memory.h)}. With
 * a peer each row has `peer`: {name, version, median_s, apart, speedup (its time over ours), low, high,
 * word}, the row decode also `read`: {bytes (weights and cache that a token reads), limit_Bps, share}.
 * BS_UNSUPPORTED, BS-MODEL-FALLBACK: ref serves a node. The errors of a peer: peer.h. */
int32_t bs_model_bench_run(bs_context *context, const bs_model_request *request, bs_model *model,
                           const bs_model_bench *asked, json_t **out, bs_error *err);
/* FLOPs and bytes of one run of a session, as it is bound. */
int32_t bs_model_count_work(const bs_session *session, uint64_t *out_flops, uint64_t *out_bytes,
                            bs_error *err);
/* The nodes of BS_REPORT_PROFILE by their time in a run, the slowest first: with each_s, share (of all nodes'
 * time) and gflops. A new reference; the nodes are shared. */
json_t *bs_model_by_time(const json_t *nodes);
#endif
