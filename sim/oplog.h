/* SPDX-License-Identifier: MIT
 * oplog.h - the op log of a tile program: what each job read and wrote, when, and which jobs it needs. A text
 * with tabs, a line a job, in the order of their ends. No value is in it.
 *
 *   #oplog 1 \t op OP \t knobs KNOBS \t device NAME HASH \t unit ps
 *   #begin \t end \t lane \t job \t what \t reads \t writes \t needs
 *   132000 \t 260000 \t pe0.cube0 \t 2 \t product \t scratch:0+8192,scratch:16384+8192 \t scratch:32768+16384
 * \t 0,1
 *
 * A job is its number in its lane; needs are jobs of the same lane. A range is SPACE:START+BYTES, or
 * SPACE:START+BYTES*ROWS/PITCH; "-" is none. Operands are A, B and Y of a product, X0 to X7 and Y0 to Y2 of a
 * map, Q, K, V and O of attention; scratch is the lane's own. */
#ifndef BS_SIM_OPLOG_H
#define BS_SIM_OPLOG_H
#include "sim/program.h"

enum {
  SIM_OPLOG_JOBS = 1 << 19, /* at most */
  SIM_OPLOG_LANES = 1 << 16,
  SIM_OPLOG_LINE = 1024, /* characters */
  SIM_OPLOG_READS = 3,   /* ranges of a job */
  SIM_OPLOG_ROWS = 1 << 16
};
#define SIM_OPLOG_BYTES (UINT64_C(1) << 40) /* of a space */

enum sim_space {
  SIM_SPACE_A = 0,
  SIM_SPACE_B,
  SIM_SPACE_Y,
  SIM_SPACE_SCRATCH,
  SIM_SPACE_INPUTS, /* of a map */
  SIM_SPACE_OUTPUTS = SIM_SPACE_INPUTS + SIM_MAP_INPUTS,
  SIM_SPACE_Q = SIM_SPACE_OUTPUTS + SIM_MAP_OUTPUTS,
  SIM_SPACE_K,
  SIM_SPACE_V,
  SIM_SPACE_O,
  SIM_SPACES
};
const char *sim_space_name(uint32_t space);
int sim_space_is_output(uint32_t space);
/* The operands of a program lie in the device's memory, each at a number times SIM_OPLOG_BYTES. */
uint64_t sim_space_begins(uint32_t space);
/* The space of an address in a program of this enum sim_op_kind; SIM_SPACES: none. */
uint32_t sim_space_at(uint32_t kind, uint64_t address);

typedef struct sim_range {
  uint32_t space, rows;         /* rows: 1, or so many pieces */
  uint64_t start, bytes, pitch; /* bytes of one row */
} sim_range;

typedef struct sim_logged {
  uint64_t begin, end;
  uint32_t lane, job, what; /* what: enum sim_what */
  uint32_t n_reads, n_writes, n_needs;
  uint32_t needs[SIM_NEEDS]; /* jobs of the lane */
  sim_range reads[SIM_OPLOG_READS], writes;
} sim_logged;

typedef struct sim_oplog {
  char op[160], knobs[160], device[48];
  uint64_t hash; /* of the device's text */
  uint32_t n_lanes, lanes_capacity;
  char (*lanes)[64]; /* their names */
  uint32_t *names;   /* a hash table of them: numbers + 1 */
  uint64_t n, capacity;
  sim_logged *jobs;
  /* By sim_oplog_index: job j of lane l is jobs[at[first[l] + j]], below first[l + 1]. */
  uint64_t *first, *at;
} sim_oplog;

/* Fills what the log says of itself; lanes are those of the layout. Free it in every case. */
int32_t sim_oplog_open(sim_oplog *out, const sim_layout *layout, const char *op, const char *knobs,
                       bs_error *err);
void sim_oplog_free(sim_oplog *log);
/* BS_NO_MEMORY; BS_CONFIG BS-OPLOG-SIZE: too many jobs. */
int32_t sim_oplog_add(sim_oplog *log, const sim_logged *job, bs_error *err);
/* Makes first and at. BS_INPUT BS-OPLOG-JOBS: a lane's jobs are not 0, 1, 2, ..., each once. */
int32_t sim_oplog_index(sim_oplog *log, bs_error *err);
/* The number of a lane; UINT32_MAX: none has the name. */
uint32_t sim_oplog_lane(const sim_oplog *log, const char *name);
/* The same, and a new one where none has it; UINT32_MAX: too many, or no memory. */
uint32_t sim_oplog_add_lane(sim_oplog *log, const char *name);
const sim_logged *sim_oplog_job(const sim_oplog *log, uint32_t lane, uint64_t job);
uint64_t sim_oplog_jobs(const sim_oplog *log, uint32_t lane);
/* "scratch:0+8192". */
void sim_range_say(const sim_range *range, char *out, uint32_t size);
int sim_ranges_meet(const sim_range *a, const sim_range *b);

/* path "-": stdout. */
int32_t sim_oplog_write(const sim_oplog *log, const char *path, bs_error *err);
/* BS_INPUT with BS-OPLOG-HEAD, -LINE, -SPACE, -RANGE, -NEEDS, -ORDER, -JOBS or -SIZE, the file and the line.
 * Free *out in every case. */
int32_t sim_oplog_read(const char *path, sim_oplog *out, bs_error *err);

/* A begin or an end of a job. */
typedef struct sim_moment {
  uint64_t time, job; /* its place in the log */
  uint32_t ends;
} sim_moment;

/* All moments in the order in which data moves: of equal times the writes first, but a job that takes no time
 * begins and ends where the log has it. 2 n of them; the caller frees. NULL: no memory. */
sim_moment *sim_oplog_moments(const sim_oplog *log);

/* A job looks back on loads of its tile, which may have ended beside newer ones that are open. */
enum { SIM_LOADED = 2 * SIM_OPEN };

/* Makes a log of a run: the user of sim_inside_config.done is a sim_program whose `told` is one. */
typedef struct sim_recorder {
  sim_oplog *log;
  bs_error *err;
  int32_t rc;
  uint32_t slots;                 /* of each operand that is loaded; 0: the knob `stages` */
  uint64_t (*loaded)[SIM_LOADED]; /* bytes of the newest loads of each lane */
} sim_recorder;

/* 1: programs of this kind with these knobs have logs. */
int sim_recorder_takes(uint32_t kind, const sim_knobs *knobs);
int32_t sim_recorder_open(sim_recorder *out, sim_oplog *log, bs_error *err);
void sim_recorder_close(sim_recorder *recorder);
void sim_recorder_done(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin,
                       uint64_t end);
#endif
