/* SPDX-License-Identifier: MIT
 *
 * plugin.c - the plugin "algorithms": collective algorithms as schedules, one file an algorithm.
 */
#include "steps.h"

#define THINGS                                                                                        \
  "algorithm:ring\nalgorithm:ring_bidir\nalgorithm:doubling\nalgorithm:recursive_doubling=doubling\n" \
  "algorithm:halving_doubling\nalgorithm:rabenseifner=halving_doubling\nalgorithm:binomial\n"         \
  "algorithm:one_shot\nalgorithm:direct=one_shot\nalgorithm:two_shot\nalgorithm:pairwise\n"           \
  "algorithm:chain\nalgorithm:double_tree\nalgorithm:hierarchical\nalgorithm:torus2d\nalgorithm:nccl230\n"

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  static const struct {
    const bs_algorithm *algorithm;
    bs_src_loc at;
  } all[] = {
      {&algorithm_ring, {"plugins/algorithms/ring.c", 1, 0}},
      {&algorithm_ring_bidir, {"plugins/algorithms/ring_bidir.c", 1, 0}},
      {&algorithm_doubling, {"plugins/algorithms/doubling.c", 1, 0}},
      {&algorithm_halving_doubling, {"plugins/algorithms/halving_doubling.c", 1, 0}},
      {&algorithm_binomial, {"plugins/algorithms/binomial.c", 1, 0}},
      {&algorithm_one_shot, {"plugins/algorithms/one_shot.c", 1, 0}},
      {&algorithm_two_shot, {"plugins/algorithms/two_shot.c", 1, 0}},
      {&algorithm_pairwise, {"plugins/algorithms/pairwise.c", 1, 0}},
      {&algorithm_chain, {"plugins/algorithms/chain.c", 1, 0}},
      {&algorithm_double_tree, {"plugins/algorithms/double_tree.c", 1, 0}},
      {&algorithm_hierarchical, {"plugins/algorithms/hierarchical.c", 1, 0}},
      {&algorithm_torus2d, {"plugins/algorithms/torus2d.c", 1, 0}},
      {&algorithm_nccl230, {"plugins/algorithms/nccl230.c", 1, 0}},
  };
  *out_state = NULL;
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i) {
    const int32_t rc =
        host->register_thing(host->ctx, self, BS_KIND_ALGORITHM, all[i].algorithm, NULL, &all[i].at, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

BS_PLUGIN_DEFINE("algorithms", BS_PLUGIN_VERSION, "collective algorithms: rings, trees, doubling, direct",
                 1u << BS_KIND_ALGORITHM, THINGS, activate, NULL)
