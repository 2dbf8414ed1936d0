/* SPDX-License-Identifier: MIT
 * simulated.h - a layer in a world with a virtual clock (plugins/sim): one pass a run, no statistics, and the
 * parts of its time. Such a world is never used in an arm (lab/measure/arm.h): its times are equal in each
 * run, and are not measured. */
#ifndef BS_LAB_PHASE_SIMULATED_H
#define BS_LAB_PHASE_SIMULATED_H
#include "lab/case/case.h"
#include "lab/experiment.h"
#include "lab/measure/arm_work.h"
#include "lab/progress.h"
#include "lab/result.h"

/* Refuses requests that a virtual clock or a backend without values cannot fulfil: BS-SIM-VALUES,
 * BS-SIM-OVERLAP. */
int32_t bs_simulated_check(bs_context *context, const bs_experiment *experiment, bs_error *err);

/* The parts of the time; the terms of the rank that ends last add up to its time. */
enum bs_sim_term {
  BS_SIM_COMPUTE = 0,
  BS_SIM_MEMORY = 1,
  BS_SIM_LAUNCH = 2,
  BS_SIM_LATENCY = 3,
  BS_SIM_WIRE = 4,
  BS_SIM_WAIT = 5,
  BS_SIM_TERMS = 6
};
/* "compute", "memory", "launch", "wire_latency", "wire_bytes", "wait". */
extern const char *const bs_sim_term_names[BS_SIM_TERMS];

/* One pass of a layer. Times are whole picoseconds (exact below 2^53). */
typedef struct bs_simulated {
  double ps;
  double own[BS_SIM_TERMS];         /* of the rank that ends last */
  double path[BS_SIM_TERMS];        /* of the longest chain over all ranks, which has no waits */
  double compute_side, memory_side; /* the ops of that rank: each side of the roofline separately */
  uint32_t last_rank;
  uint32_t phantom;               /* 1: without values */
  double messages, message_bytes; /* of all ranks */
  double ops, ops_not_costed;
  double device_bytes; /* most of one device, the layer's building included */
  char engine[48];     /* "closed forms", "order K", ... */
  char label[16];      /* "published", "calibrated", "example" */
  char device[48];     /* whose inside was simulated; "": none, and these are 0 */
  double inside_simulated, inside_known, ops_by_roofline;
  uint64_t flops, wire_bytes;            /* counted by the host, of all ranks */
  uint32_t claims;                       /* 1: as the method proposed, on rank 0 (of a forward) */
  double switch_ranks;                   /* devices on one switch; 0: any number */
  double domain_most, outside_domain;    /* bytes to which the machine was fitted (0: none); number of
                                          * collectives outside them */
  uint64_t trace_events, trace_left_out; /* of the trace */
  json_t *steps; /* with plugins.sim.steps: of the rank that ends last, times in us; else NULL. json_decref */
} bs_simulated;

/* BS_CONFIG, BS-SIM-MACHINE: a simulated time is 0, because the machine has no numbers. */
int32_t bs_simulated_takes_time(double time, bs_error *err);

/* Builds the case's layer in a separate world and runs one pass (enum bs_arm_work) of it. Ignores the case's
 * threads, sync mode, warm-up and iterations. BS_UNSUPPORTED, BS-SIM-CLOCK: its communicator has no virtual
 * clock. */
int32_t bs_simulate_case(const bs_case *c, uint32_t work, bs_simulated *out, bs_error *err);
struct sim_trace;
struct bs_simulated_et;
/* Like bs_simulate_case, but also writes the work and the messages of each rank to the trace (sim/trace.h;
 * plugins.sim.trace_events), and its steps to `et` (simulated_et.h). Both may be NULL. */
int32_t bs_simulate_traced(const bs_case *c, uint32_t work, struct sim_trace *trace,
                           struct bs_simulated_et *et, bs_simulated *out, bs_error *err);
/* The figures of the newest run of a world with a virtual clock. out is all zero before; the caller frees
 * out->steps. */
void bs_simulated_take(struct bs_world *world, bs_simulated *out);
/* The object `simulated` of a record. A new reference; machine NULL: it has no name. */
json_t *bs_simulated_json(const bs_simulated *s, const char *machine);
/* "compute", "memory", "launch", "wire", "wait": the largest; "nothing" if no time has passed. */
const char *bs_simulated_limit(const bs_simulated *s);
/* Returns that word for times by enum bs_sim_term. */
const char *bs_simulated_term(const double terms[BS_SIM_TERMS]);
/* "in-domain": the sizes of all collectives are within the fit of a calibrated machine; else
 * "extrapolated". */
const char *bs_simulated_domain(const bs_simulated *s);
/* Tests whether a gate may judge a row of this domain and label. BS_INCONCLUSIVE, BS-SIM-EXTRAPOLATED: it is
 * not "in-domain", and the caller has not accepted that. `what` names the row. */
int32_t bs_simulated_judgeable(const char *what, const char *domain, const char *label, int accept,
                               bs_error *err);
/* The dense layer on one rank of the same machine. */
bs_case bs_simulated_dense(const bs_case *like);

/* Writes a sentence when there are more ranks than the machine has on a switch, and the links between
 * switches are not specified; else returns 0. machine, algorithm and topology may be NULL. */
int bs_simulated_beyond(const bs_simulated *s, const char *machine, uint32_t ranks, const char *algorithm,
                        const char *topology, char *out_text, size_t size);
/* Writes a sentence on the trace that the run of a record wrote; 0: no trace. */
int bs_simulated_trace_text(const json_t *record, char *out_text, size_t size);
/* Phases 1, 2 and 3 of an experiment in such a world: the method and the dense layer on one rank, in the
 * record's "simulated". */
int32_t bs_simulated_run(bs_context *context, const bs_experiment *experiment, bs_progress_fn progress,
                         void *user, bs_phase_result *out, bs_error *err);
#endif
