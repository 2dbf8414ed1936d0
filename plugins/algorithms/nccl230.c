/* SPDX-License-Identifier: MIT
 *
 * nccl230.c - the algorithm "nccl230": the time that NCCL 2.30's own tuning model gives an all-reduce by ring
 * or tree (NVIDIA/nccl, src/graph/tuning.cc), cost only. It ranks algorithms; as a time it is off by half in
 * published runs. The link is not read: the constants below are NCCL's, and the options say what NCCL has
 * found: channels, their rate, nodes.
 */
#include "steps.h"

enum { TREE, RING, N_ALGOS };
enum { LL, LL128, SIMPLE, N_PROTOS };
enum { NVLINK, PCI, NET, N_HOPS };
enum { OPT_NODES, OPT_CHANNELS, OPT_RATE, OPT_ALGO, OPT_PROTO, OPT_HOP };

static const bs_param_desc descs[] = {
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_INT,
     .name = "nodes",
     .default_text = "1",
     .choices = "1..1048576",
     .doc = "machines that the ranks are spread over evenly"},
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_INT,
     .name = "channels",
     .default_text = "12",
     .choices = "1..64",
     .doc = "NCCL's channels"},
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_FLOAT,
     .name = "channel_rate",
     .default_text = "30e9",
     .choices = "1..1e15",
     .unit = "B/s",
     .doc = "bytes per second of a channel"},
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_STRING,
     .name = "algo",
     .default_text = "auto",
     .choices = "auto|ring|tree",
     .doc = "NCCL's algorithm; auto: the fastest"},
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_STRING,
     .name = "proto",
     .default_text = "auto",
     .choices = "auto|LL|LL128|Simple",
     .doc = "NCCL's protocol; auto: the fastest"},
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_STRING,
     .name = "hop",
     .default_text = "NVLink",
     .choices = "NVLink|PCI",
     .doc = "what joins the devices of a machine"},
};
static const bs_param_desc *const params[] = {&descs[0], &descs[1], &descs[2], &descs[3],
                                              &descs[4], &descs[5], NULL};

/* Microseconds. */
static const double base_us[N_ALGOS][N_PROTOS] = {{6.8, 14, 8.4}, {6.6, 14, 8.4}};
static const double hop_us[N_HOPS][N_ALGOS][N_PROTOS] = {
    {{.6, 1.25, 4}, {.6, 1.9, 3.4}}, {{1, 1.9, 4}, {1, 2.5, 5.7}}, {{5, 8.5, 14}, {2.7, 4, 14}}};
/* The share of its rate that a tree reaches, for 64 B, 128 B, ... 512 MB. */
static const double tree_share[N_PROTOS][24] = {
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}};

static double least(double a, double b) {
  return a < b ? a : b;
}

static double most(double a, double b) {
  return a > b ? a : b;
}

/* GB/s of the vector, before tree_share. */
static double rate_of(const bs_coll_shape *shape, int algo, int proto) {
  const double channels = (double)shape->options[OPT_CHANNELS].i, p = shape->world_size;
  const double bus = channels * shape->options[OPT_RATE].f / 1e9;
  const int one_node = shape->options[OPT_NODES].i == 1;
  if (algo == RING) {
    double ring = bus;
    if (proto == LL) ring = one_node ? least(141, bus / 2) : bus / 2;
    if (proto == LL128) ring = least(bus * .92, 36.7 * channels);
    return ring * p / (2 * (p - 1));
  }
  double tree = least(bus * .92, 38.7 * channels);
  if (proto == LL) tree /= 3.8;
  if (proto == LL128) tree *= one_node ? 7. / 9. : 120. / 128.;
  return tree * .5;
}

static double latency_of(const bs_coll_shape *shape, int algo, int proto) {
  const double p = shape->world_size, nodes = (double)shape->options[OPT_NODES].i;
  const int hop = strcmp(shape->options[OPT_HOP].s, "PCI") == 0 ? PCI : NVLINK;
  const double overhead = nodes > 1 ? (proto == SIMPLE ? 3 : 1) : 0;
  const double intra = hop_us[hop][algo][proto];
  if (algo == TREE)
    return base_us[TREE][proto] +
           2 * ((p / nodes - 1) * intra + floor_log2((uint32_t)nodes) * hop_us[NET][TREE][proto]);
  const double inter = hop_us[NET][p > nodes ? RING : TREE][proto];
  const double between = 2 * (nodes - 1);
  return base_us[RING][proto] + (2 * (p - 1) - between) * most(intra, overhead) + between * inter;
}

static double time_us(const bs_coll_shape *shape, int algo, int proto) {
  const double bytes = cost_bytes(shape), channels = (double)shape->options[OPT_CHANNELS].i;
  double rate = rate_of(shape, algo, proto), latency = latency_of(shape, algo, proto);
  if (algo == TREE && bytes >= 64 && bytes < 64. * (1u << 24)) {
    uint32_t size = 0;
    while (bytes >= 128. * (1u << size)) ++size;
    rate *= tree_share[proto][size];
  }
  if (algo == RING && proto == SIMPLE && shape->options[OPT_NODES].i > 1 &&
      bytes / (channels * shape->world_size) >= 64)
    latency *= 1.4;
  return latency + bytes / (1000 * rate);
}

static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  static const char *const algos[N_ALGOS] = {"tree", "ring"}, *const protos[N_PROTOS] = {"LL", "LL128",
                                                                                         "Simple"};
  const int32_t rc = need_kind("nccl230", KIND(BS_COLL_ALL_REDUCE), shape, err);
  double best = -1;
  (void)state;
  (void)link;
  if (rc != BS_OK) return rc;
  if (shape->world_size % (uint64_t)shape->options[OPT_NODES].i != 0)
    return bs_fail(err, BS_UNSUPPORTED, "BS-ALG-NODES", "nccl230: %u ranks do not fill %d machines evenly",
                   shape->world_size, (int)shape->options[OPT_NODES].i);
  for (int a = 0; a < N_ALGOS; ++a)
    for (int p = 0; p < N_PROTOS; ++p) {
      const char *algo = shape->options[OPT_ALGO].s, *proto = shape->options[OPT_PROTO].s;
      if (strcmp(algo, "auto") != 0 && strcmp(algo, algos[a]) != 0) continue;
      if (strcmp(proto, "auto") != 0 && strcmp(proto, protos[p]) != 0) continue;
      const double us = shape->world_size < 2 ? 0 : time_us(shape, a, p);
      if (best < 0 || us < best) best = us;
    }
  *out_seconds = best * 1e-6;
  return BS_OK;
}

const bs_algorithm algorithm_nccl230 = {
    .struct_size = (uint32_t)sizeof(bs_algorithm),
    .name = "nccl230",
    .summary = "what NCCL 2.30's tuning model says of its ring and tree (cost only)",
    .kinds = KIND(BS_COLL_ALL_REDUCE),
    .params = params,
    .cost = cost,
};
