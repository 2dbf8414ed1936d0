/* SPDX-License-Identifier: MIT
 * sim.h - shared parts of the sim plugin. A world of virtual devices runs on one thread: the engine
 * (sim/engine.h) resumes one rank at a time, and device.c, op.c and comm.c add the time of its work to its
 * clocks.
 *
 * A rank has a clock of its host and one of each stream of its device, in ps. An op is put on a stream: it
 * begins at the later of the stream's and the host's clock, and the host continues after the launch.
 * stream_wait is the later of two clocks; a collective begins when the last of its ranks has arrived. */
#ifndef BS_PLUGINS_SIM_SIM_H
#define BS_PLUGINS_SIM_SIM_H
#include <blockshock/plugin.h>
#include <pthread.h>

#include "sim/ask.h"
#include "sim/closed.h"
#include "sim/coroutine.h"
#include "sim/cost.h"
#include "sim/engine.h"
#include "sim/topology.h"
#include "sim/trace.h"

#define SIM_MAX_RANKS (1u << 20)

enum sim_steps { SIM_STEPS_LAST = 1, SIM_STEPS_ALL = 2, SIM_STEPS_FIRST = 4 };

/* The machine, from the parameters plugins.sim.* (params.c). */
typedef struct sim_machine {
  sim_roof roof;                           /* flops: of 16-bit floats */
  uint64_t flops_f64, flops_f32, flops_f8; /* per second; 0: no time */
  sim_wire wire;
  sim_link link;                      /* the same, as the engine takes it */
  uint64_t mem_bytes;                 /* of a device; 0: no limit */
  const char *label;                  /* "published" or "calibrated" */
  uint64_t domain_least, domain_most; /* bytes of the collectives that it was fitted to */
  uint32_t domain_ranks;              /* 0: any */
  uint32_t switch_ranks;              /* devices on one switch; 0: any number */
  uint32_t buffering;                 /* enum sim_buffering */
  int32_t by_time;                    /* 1: order E also without a topology */
  int32_t steps;                      /* enum sim_steps: which are reported; 0: none is kept */
  uint64_t trace_events;              /* of a run that are kept for a trace; 0: none */
} sim_machine;

typedef struct sim_world sim_world;

/* What a hardware file gives, before a device is read. */
typedef struct sim_given {
  double flops, flops_f32, flops_f64, flops_f8, mem_Bps, launch_s;
} sim_given;

/* The device of plugins.sim.device, and the times of ops inside of it (inside.c). */
typedef struct sim_inside sim_inside;

/* The state of a topology: which of the plugin's it is. */
typedef struct sim_topology_choice {
  const struct sim_plugin *plugin;
  uint32_t kind; /* enum sim_topology_kind */
} sim_topology_choice;

typedef struct sim_plugin {
  const bs_host *host;
  bs_plugin_self *self;
  sim_machine machine;
  sim_inside *inside; /* NULL: ops take what the roofline says */
  char *base;         /* of addresses that nothing can read or write */
  uint64_t range;     /* bytes of them */
  pthread_mutex_t lock;
  sim_world *driven; /* the existing worlds, each driven by a separate thread; protected by the lock */
  sim_topology_choice topologies[SIM_TOPOLOGIES];
} sim_plugin;

/* An allocation of a device. */
typedef struct sim_block {
  uint64_t first, bytes; /* from the base on; of the wrapper: the address */
} sim_block;

/* An op, a collective or a message of a rank. */
typedef struct sim_step {
  char what[56]; /* "matmul", "all_reduce y" */
  uint64_t began, ended;
  uint64_t closed; /* only by its closed form; 0: it has none */
  uint64_t flops, bytes;
  uint64_t spent[SIM_TERMS];
  uint32_t ranks; /* that meet; 0: an op */
  uint32_t reserved;
} sim_step;

/* A rank and its device. */
typedef struct sim_rank {
  const sim_plugin *plugin;
  sim_world *world; /* NULL: a device that was opened outside of a world of this plugin */
  uint32_t index;
  uint32_t nblocks, blocks_capacity;
  uint32_t sharers;  /* ranks of its machine; 0: it is alone */
  sim_block *blocks; /* ascending */
  uint64_t bytes_now, bytes_peak;
  uint64_t bytes_refused, bytes_taken; /* the request that did not fit, and the bytes in use then; 0: none */
  sim_time host, stream;               /* of the default stream */
  uint64_t compute_side, memory_side;  /* of its ops: each side of the roofline separately */
  uint64_t ops, not_costed;
  uint64_t inside_simulated, inside_known, by_roofline; /* of the ops, where there is a device */
  sim_step *steps;                                      /* of the newest run, if they are recorded */
  uint32_t nsteps, steps_capacity;
  uint32_t nstreams; /* that were created */
} sim_rank;

/* The objects of bs_stream and bs_event. */
typedef struct sim_stream {
  sim_time time; /* first member: steps.c identifies a stream by its time */
  uint32_t lane; /* of a trace */
} sim_stream;

static inline sim_time *sim_stream_time(sim_rank *rank, bs_stream *stream) {
  return stream != NULL ? &((sim_stream *)(void *)stream)->time : &rank->stream;
}
/* The time when the rank has done all work of the host and the default stream. */
static inline const sim_time *sim_rank_time(const sim_rank *rank) {
  return rank->host.now > rank->stream.now ? &rank->host : &rank->stream;
}

/* params.c */
int32_t sim_params_define(sim_plugin *plugin, bs_error *err);
int32_t sim_params_read(sim_plugin *plugin, bs_error *err);

/* world.c: the rank that the engine is running on this thread; NULL: none. */
sim_rank *sim_rank_now(sim_plugin *plugin);

/* device.c: counts a device's allocations, for the peak. sim_room: BS-SIM-MEMORY if so many more bytes do not
 * fit. */
int32_t sim_room(sim_rank *rank, uint64_t bytes, bs_error *err);
/* Repeats the error of the last request that found no room. */
int32_t sim_full(const sim_rank *rank, bs_error *err);
int32_t sim_block_add(sim_rank *rank, uint64_t first, uint64_t bytes, bs_error *err);
void sim_block_drop(sim_rank *rank, uint64_t first);
void sim_blocks_free(sim_rank *rank);

/* op.c */
int32_t sim_ops_register(sim_plugin *plugin, bs_error *err);
const char *sim_op_name(const char *op); /* the same, static */

/* topology.c: how many ranks of a world of `ranks` have the memory of one machine together: all of them, or a
 * group of our topology hier. */
uint32_t sim_topology_sharers(const bs_topology *topology, const void *opened, uint32_t ranks);
int32_t sim_topologies_register(sim_plugin *plugin, bs_error *err);

/* steps.c: records a step if requested, and its span for a trace. before: the time of the stream before it;
 * after it, `after`; `said` has its other data. */
void sim_step_add(sim_rank *rank, const char *kind, const char *site, const sim_time *before,
                  const sim_time *after, const sim_step *said);

/* inside.c. sim_inside_open sets plugin->inside and the machine's rates; sim_inside_close comes after it in
 * every case. BS_CONFIG BS-DEVICE-TWICE: the hardware file and the device disagree. */
int32_t sim_inside_open(sim_plugin *plugin, const char *text, const sim_given *given, bs_error *err);
void sim_inside_close(sim_plugin *plugin);
const char *sim_inside_name(const sim_inside *inside);
/* An op as the device sees it, without the dims of the run (inside_op.c). */
typedef struct sim_inside_op {
  sim_ask ask;
  const struct sim_inside_row *row; /* of the table of ops; NULL: it has no program */
  uint64_t columns;                 /* of X that the rank owns */
  int64_t attrs[3];                 /* of attention */
  uint32_t n_in, n_out;             /* of a map: the args that are read, and written */
  uint8_t in[BS_MAX_OP_ARGS], out[BS_MAX_OP_ARGS];
} sim_inside_op;
void sim_inside_prepare(sim_inside_op *out, const bs_op_query *query);
/* The question of a run with these args. 0: they do not fit the program, or there is nothing to do. */
int sim_inside_dims(const sim_inside_op *op, bs_tensor *const *args, uint32_t nargs, sim_ask *out);
/* The time of a run with these args: known, or simulated now. *out_has 0: the op has no program. */
int32_t sim_inside_ask(const sim_inside_op *op, sim_rank *rank, bs_tensor *const *args, uint32_t nargs,
                       sim_inside_time *out, int *out_has, bs_error *err);

/* costing.c: the cost of a plan's runs. */
typedef struct sim_costing {
  const sim_plugin *plugin;
  const char *op;
  uint64_t per_second; /* FLOPs */
  bs_op_rate rate;
  struct sim_query *asked; /* NULL: the rate is enough */
  void *program;           /* of its expression */
  sim_inside_op inside;    /* where the plugin has a device */
} sim_costing;
int32_t sim_costing_make(sim_costing *costing, const sim_plugin *plugin, const bs_op_query *query,
                         bs_error *err);
void sim_costing_free(sim_costing *costing);
/* Charges a run with these args to a stream of the rank's device. */
int32_t sim_costing_charge(sim_costing *costing, sim_rank *rank, bs_tensor *const *args, uint32_t nargs,
                           sim_time *stream, bs_error *err);

/* figures.c */
void sim_figures(void *world,
                 void (*each)(void *user, const char *name, double value, const char *unit, const char *text),
                 void *user);

extern const bs_backend sim_backend;
extern const bs_src_loc sim_backend_at;
extern const bs_backend sim_virtual;
extern const bs_src_loc sim_virtual_at;
extern const bs_comm sim_comm_table;
extern const bs_src_loc sim_comm_at;
#endif
