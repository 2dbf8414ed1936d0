/* SPDX-License-Identifier: MIT
 * gates.c - see gates.h. */
#include "graph/split/gates.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/split/method.h"

ggates_counts ggates_now(const gbinding *b) {
  return (ggates_counts){.collectives = bs_rank_counter(b->rank->rank, BS_COUNT_COLLECTIVES),
                         .payload_bytes = bs_rank_counter(b->rank->rank, BS_COUNT_PAYLOAD_BYTES),
                         .flops = bs_rank_counter(b->rank->rank, BS_COUNT_FLOPS)};
}

int32_t ggates_counters(const gbinding *b, ggates_counts before, bs_error *err) {
  const ggates_counts after = ggates_now(b);
  uint64_t collectives = 0, payload = 0;
  for (uint32_t i = 0; i < b->n_steps; i++) {
    bs_proposal p;
    if (b->steps[i].layer == NULL) continue;
    const int32_t rc = glayer_propose(b, &b->steps[i], &p, err);
    if (rc != BS_OK) return rc;
    collectives += p.n_collectives;
    for (uint32_t k = 0; k < p.n_collectives; k++) payload += p.coll_payload[k];
  }
  if (after.collectives - before.collectives == collectives &&
      after.payload_bytes - before.payload_bytes == payload)
    return BS_OK;
  return bs_error_set(err, BS_NUMERIC, "BS-GRAPH-COUNTERS",
                      "a run made %" PRIu64 " collectives of %" PRIu64 " bytes, the methods proposed %" PRIu64
                      " of %" PRIu64,
                      after.collectives - before.collectives, after.payload_bytes - before.payload_bytes,
                      collectives, payload);
}

static uint64_t hash_bytes(uint64_t hash, const unsigned char *data, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) hash = (hash ^ data[i]) * UINT64_C(1099511628211);
  return hash;
}

/* The sign and the payload of a NaN depend on the order of the operands: each NaN counts as the same. */
static uint64_t hash_value(uint64_t hash, const gvalue *v, const unsigned char *data) {
  const uint32_t size = BS_DTYPE_BYTES(v->dtype);
  if (!bs_dtype_is_float(v->dtype)) return hash_bytes(hash, data, graph_bytes(v));
  for (int64_t i = 0; i < graph_count(v); i++)
    hash = isnan(bs_load_f64(v->dtype, data, i)) ? hash_bytes(hash, (const unsigned char *)"NaN", 3)
                                                 : hash_bytes(hash, data + (uint64_t)i * size, size);
  return hash;
}

/* The hash of the outputs' bytes. */
static int32_t hash_outputs(const gbinding *b, uint64_t *out_hash, bs_error *err) {
  uint64_t hash = UINT64_C(14695981039346656037);
  for (uint32_t i = 0; i < b->g->n_outputs; i++) {
    const uint32_t value = b->g->outputs[i].value;
    const uint64_t size = graph_bytes(&b->g->values[value]);
    unsigned char *bytes = malloc((size_t)size + 1u);
    if (bytes == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a check");
    const int32_t rc = gports_read(b, value, bytes, err);
    if (rc == BS_OK) hash = hash_value(hash, &b->g->values[value], bytes);
    free(bytes);
    if (rc != BS_OK) return rc;
  }
  *out_hash = hash;
  return BS_OK;
}

/* The hash of each rank; *out_other: the first rank whose hash is not that of rank 0; 0: none. Where a rank
 * has none (`has` 0) nothing is compared. */
static int32_t exchange(const grank *r, uint64_t hash, int has, uint32_t *out_other, bs_error *err) {
  const uint32_t ranks = r->api->world_size(r->rank);
  const uint64_t mine[2] = {hash, (uint64_t)has};
  int all_have = 1;
  *out_other = 0;
  const bs_collective gather = {.struct_size = (uint32_t)sizeof gather,
                                .kind = BS_COLL_ALL_GATHER,
                                .dtype_in = BS_I64,
                                .dtype_out = BS_I64,
                                .rows = 1,
                                .count = 2,
                                .site = "split.outputs",
                                .flags = BS_COLL_CONTROL};
  uint64_t *all = calloc(ranks, sizeof mine);
  int32_t rc =
      all == NULL ? bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a check") : BS_OK;
  if (rc == BS_OK) rc = bs_rank_collective_host(r->rank, &gather, mine, 2, all, 2 * ranks, err);
  for (uint32_t k = 0; rc == BS_OK && k < ranks; k++) all_have &= all[2 * k + 1] != 0;
  for (uint32_t k = ranks; rc == BS_OK && all_have && k-- > 1;)
    if (all[2 * k] != all[0]) *out_other = k;
  free(all);
  return rc;
}

int32_t ggates_outputs(const gbinding *b, int32_t ran, bs_error *err) {
  uint32_t other = 0;
  uint64_t hash = 0;
  const int32_t read = ran == BS_OK ? hash_outputs(b, &hash, err) : ran;
  int32_t rc = exchange(b->rank, hash, read == BS_OK, &other, read == BS_OK ? err : NULL);
  if (rc == BS_OK && other > 0) {
    rc = bs_error_set(err, BS_NUMERIC, "BS-GRAPH-RANKS",
                      "the outputs of rank %u have other bits than those of rank 0", other);
    bs_error_hint(err,
                  "run it again: what differs in each run is of a method, a kernel or a communicator; "
                  "what differs once may be of the machine's memory or links");
  }
  return ran == BS_OK && read != BS_OK ? read : rc;
}

static int is_proposed(ggates_counts before, ggates_counts after, const bs_proposal *p) {
  uint64_t payload = 0;
  for (uint32_t k = 0; k < p->n_collectives; k++) payload += p->coll_payload[k];
  return after.collectives - before.collectives == p->n_collectives &&
         after.payload_bytes - before.payload_bytes == payload && after.flops - before.flops == p->flops;
}

int32_t ggates_layer(const gbinding *b, const gstep *step, const bs_tensor *y, ggates_counts before,
                     ggates_finding *out, bs_error *err) {
  const gnode *n = &b->g->nodes[step->node];
  const uint32_t value = n->out[0];
  const ggates_counts after = ggates_now(b);
  bs_proposal p;
  uint32_t other = 0;
  *out = (ggates_finding){0};
  int32_t rc = glayer_propose(b, step, &p, err);
  if (rc != BS_OK) return rc;
  if (!is_proposed(before, after, &p))
    *out = (ggates_finding){"BS-GRAPH-COUNTERS",
                            "its collectives, payload or arithmetic are not what its method proposed"};
  if (b->g->splits[n->layer - 1].role == GNODE_F) return BS_OK;
  rc = exchange(b->rank, hash_value(UINT64_C(14695981039346656037), &b->g->values[value], y->data), 1, &other,
                err);
  if (other > 0) *out = (ggates_finding){"BS-GRAPH-RANKS", "its output has other bits on another rank"};
  return rc;
}
