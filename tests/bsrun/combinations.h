/* SPDX-License-Identifier: MIT
 * combinations.h - the configuration files that the original harness has, run in its order. */
#ifndef TESTS_BSRUN_COMBINATIONS_H
#define TESTS_BSRUN_COMBINATIONS_H
#include "tests/spawn.h"

static const char *const phases[] = {"phase0_correctness", "phase1_forward"};
static const char *const methods[] = {"dense_single", "dense_tp", "masked_split_dense", "block_shock_2gpu"};
static const char *const masks[] = {"complement_1100_0011", "complement_1010_0101", "complement_1001_0110"};
static const char *const workloads[] = {"gaussian", "fixed_seed"};
static const char *const hardware[] = {"local_2gpu", "slurm_cluster"};

/* In `dir`: each file of a group at least once with each method, as `--config` files in the original's order.
 */
static inline void run_combinations(const char *configs) {
  for (int i = 0; i < 8; i++) {
    char base[1200], phase[1200], method[1200], mask[1200], workload[1200], hw[1200];
    snprintf(base, sizeof base, "%s/base.yaml", configs);
    snprintf(phase, sizeof phase, "%s/phases/%s.yaml", configs, phases[i / 4]);
    snprintf(method, sizeof method, "%s/methods/%s.yaml", configs, methods[i % 4]);
    snprintf(mask, sizeof mask, "%s/masks/%s.yaml", configs, masks[i % 3]);
    snprintf(workload, sizeof workload, "%s/workloads/%s.yaml", configs, workloads[i % 2]);
    snprintf(hw, sizeof hw, "%s/hardware/%s.yaml", configs, hardware[(i / 2) % 2]);
    ran r = bsrun(dir, "--plugin", "cpu", "--config", base, "--config", mask, "--phase", phase, "--method",
                  method, "--workload", workload, "--hardware", hw, SMALL, NULL);
    must_be(&r, 0);
    ck_assert_msg(strstr(r.out, phases[i / 4]) != NULL, "%s", r.out);
    ck_assert_msg(strstr(r.out, phases[1 - i / 4]) == NULL, "both phases ran: %s", r.out);
    ck_assert(strstr(r.err, "hardware.backend nccl") != NULL);
    ck_assert((strstr(r.err, "runs on 1 rank") != NULL) == (i % 4 == 0)); /* dense_single is single rank */
    ran_free(&r);
  }
}

#endif
