/* SPDX-License-Identifier: MIT
 * experiment.h - a resolved experiment: the request of a configuration, as plain values.
 * lab/config/experiment.h makes it. */
#ifndef BS_LAB_EXPERIMENT_H
#define BS_LAB_EXPERIMENT_H
#include <jansson.h>

#include "blockshock/blockshock.h"
#include "lab/yaml/config.h"

enum bs_phase { BS_PHASE_CORRECTNESS = 0, BS_PHASE_FORWARD = 1, BS_PHASE_BACKWARD = 2, BS_PHASE_TRAIN = 3 };

/* A resolved experiment: plain values read from `config` (which it owns), nothing measured. Strings
 * point into config. */
typedef struct bs_experiment {
  bs_node *config; /* the merged tree, run_id and config_paths included */
  const char *name;
  uint64_t seed;       /* experiment.seed */
  uint32_t dtype;      /* model.dtype */
  int64_t N, K, B;     /* 0: left to the workload; K defaults to N */
  uint32_t activation; /* enum bs_activation, of the layer's output */
  uint32_t has_bias;
  uint32_t phase; /* enum bs_phase */
  const char *phase_name;
  int64_t warmup_iters, timed_iters;
  int64_t pairs_min, pairs_max; /* phase 1 */
  double pairs_seconds;         /* phase 1: time cap */
  uint32_t record_timings;
  uint32_t sync_mode;         /* enum bs_sync_mode */
  uint32_t dense_arm;         /* phase 1: time the dense peer too */
  uint32_t cold;              /* phase 1: cold samples too, caches flushed before each forward */
  uint32_t integer_gate;      /* phase 0: run T5 */
  uint32_t fault_gate;        /* phase 0: run T6 */
  int64_t reference_features; /* phase 0: judge at most this many output features (0: all) */
  uint32_t optimizer;         /* phase 3: enum bs_optimizer */
  double lr, momentum, beta1, beta2, eps, weight_decay;
  int64_t remask;       /* phase 3: a new mask after so many steps; 0: never */
  const char *method;   /* the plugin's name, also if an alias was written */
  const char *workload; /* workload.type or name */
  uint64_t workload_seed;
  bs_mask mask;
  uint32_t mask_given;
  const char *importance; /* IMPORTANCE: weights, inputs, or a .npy of K numbers; NULL: another mask */
  const char *backend;    /* plugin id */
  const char *comm;
  const char *algorithm; /* as bs_world_options has them; NULL: none */
  const char *topology;
  uint32_t comm_given;       /* by the caller; else the backend may name its own wrapper */
  uint32_t world_size;       /* 0: the method's default */
  uint32_t threads_per_rank; /* 0: automatic */
  uint32_t oversubscribed;   /* more threads of ranks than cores of this machine */
  uint32_t bind;
  uint32_t graph; /* records forwards as graphs of the device, if possible (BS_LAYER_CAPTURE) */
  double timeout_s;
  uint32_t reduce_dtype;
  uint32_t accumulate;
  uint32_t x_placement; /* method.x_placement: enum bs_placement */
  uint32_t y_placement; /* method.y_placement: enum bs_placement */
  const char *out_dir;
  const char *run_group;  /* NULL: none */
  const char *run_id;     /* NULL until the store made one */
  const char *dump_dir;   /* NULL: no dump */
  const char *trace_file; /* the caller's, set after bs_experiment_make: of a run in virtual time; or NULL */
  const char *et_prefix;  /* in the same way: Chakra files of the run's steps; or NULL */
  /* Phase 1: stored constants of this machine (lab/measure/constants.h), the caller's; NULL: measure. Not
   * part of the configuration: set after bs_experiment_make. */
  const json_t *machine_constants;
  uint32_t only_stored; /* explain: overlap=auto measures nothing */
  /* The processes that run it together (lab/peers/peers.h), the caller's; NULL: only this one. */
  struct bs_peers *peers;
  const char
      *overlap; /* rank 0's value for overlap=auto among processes (lab/measure/chunks.h), static; or NULL */
  double tune_seconds, tune_margin; /* lab/tune/tune.h */
  int64_t tune_min_work;
  uint32_t tune_measure;
  /* The implementation that serves each product, and how it was chosen: set by bs_tuner_choose, owned by the
   * experiment. NULL: the table of defaults. */
  uint32_t n_choices;
  const char **choices;
  json_t *choice_record;
  /* Texts for the record, owned by the caller, set after bs_experiment_make. request_key:
   * lab/store/request_key.h. sweep: id of the sweep whose point number `point` this is. NULL: none. */
  const char *request_key, *sweep;
  int64_t point;
  json_t *ladder; /* of --method auto: predictions and measurements, for the record; NULL: none */
  /* method.<key> and workload.<key> settings for plugins; arrays owned by the experiment. */
  uint32_t n_method_options, n_workload_options;
  const char **method_keys, **method_values, **workload_keys, **workload_values;
} bs_experiment;
#endif
