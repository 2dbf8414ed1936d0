/* SPDX-License-Identifier: MIT
 * table.c - the checks, in the order in which they run. */
#include "lab/diagnose/layer_checks.h"
#include "lab/diagnose/model_checks.h"

const bs_check bs_checks[] = {
    {"inputs", "numbers that each input may hold", NULL, diag_model_inputs, 1},
    {"fallback", "ops that a slower implementation serves", diag_layer_fallback, diag_model_fallback, 1},
    {"waits", "waits of the host, copies in a pass", diag_layer_waits, diag_model_waits, 1},
    {"staged", "collectives through the host's memory", diag_layer_staged, NULL, 1},
    {"shapes", "tokens, batch and sequence varied: plans made again", diag_layer_shapes, diag_model_shapes,
     1},
    {"capture", "passes that are not a graph of the device", diag_layer_capture, NULL, 1},
    {"epilogue", "bias, activation and residual outside of products", diag_layer_epilogue,
     diag_model_epilogue, 1},
    {"bound", "time compared with the machine's limit, ranks that differ or wait", diag_layer_bound,
     diag_model_bound, 1},
    {"threads", "threads that make a pass slower", diag_layer_threads, diag_model_threads, 1},
    {"dispatch", "work of the host in a pass other than arithmetic", diag_layer_dispatch, diag_model_dispatch,
     1},
    {"plan", "one-off costs: build, pack, plan, first pass", diag_layer_plan, diag_model_plan, 1},
    {"memory", "the most memory at one time", diag_layer_memory, diag_model_memory, 1},
    {"split", "collectives, refused pairs, ranks compared with one", NULL, diag_model_split, 1},
    {"nodes", "node by node compared with planned, time and memory", NULL, diag_model_nodes, 1},
    {"train", "backward pass and whole training steps", diag_layer_train, NULL, 0},
    {"ablate", "one setting changed at a time", diag_layer_ablate, diag_model_ablate, 0},
};
const size_t bs_n_checks = sizeof bs_checks / sizeof bs_checks[0];
