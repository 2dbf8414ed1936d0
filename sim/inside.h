/* SPDX-License-Identifier: MIT
 * inside.h - the inside of a device in virtual time: lanes of jobs over parts (part.h). A lane is a PE or a
 * resident block. A job is a token with its stops, in order, and its needs: earlier jobs of its lane. One
 * event a stop; equal times go by lane, then by the order in which they were made. */
#ifndef BS_SIM_INSIDE_H
#define BS_SIM_INSIDE_H
#include "blockshock/blockshock.h"
#include "sim/part.h"

enum {
  SIM_STOPS = 24, /* of a job */
  SIM_NEEDS = 9,
  SIM_OPEN = 64 /* jobs of a lane that have not ended; a need looks at most so far back */
};

/* What a job does at a queue. */
enum sim_stop_how {
  SIM_PASS = 0, /* no queue */
  SIM_TAKE,     /* holds a slot until it ends, or until the job ends that is `until` jobs later */
  SIM_PUT,      /* holds a slot from now on; the item is there when the job ends */
  SIM_GET       /* waits for an item; its slot is given back when the job ends */
};

typedef struct sim_stop {
  uint32_t part;
  uint16_t how; /* enum sim_stop_how */
  uint16_t until;
  uint64_t amount;
} sim_stop;

typedef struct sim_job {
  uint32_t n_stops, n_needs;
  uint32_t what;   /* the program's word for it, for done() */
  uint32_t posted; /* it ends for its lane when its last link has it; the memory commits later */
  uint64_t begin;  /* not before */
  uint64_t key;    /* of its tile, for a cache */
  uint64_t address, pitch;
  uint32_t rows;             /* of its requests (sim_request) */
  uint32_t needs[SIM_NEEDS]; /* so many jobs back; 0, or further back than the first job: none */
  sim_stop stops[SIM_STOPS];
} sim_job;

/* A token at a stop. */
typedef struct sim_passed {
  const sim_job *job;
  uint64_t index; /* of the job in its lane */
  uint32_t lane, stop;
  uint64_t reached; /* by its head; of a server or a queue the whole token */
  uint64_t waited;  /* at a memory the mean of its channels */
  sim_flow after;
} sim_passed;

typedef struct sim_inside_config {
  sim_part *parts; /* opened; sim_inside_run leaves what they did in them */
  uint32_t n_parts, n_lanes;
  uint64_t start; /* of every lane */
  /* 1: *out_job is job number `index` of the lane; 0: the lane has no more. *out_job comes with its numbers
   * before the stops all 0. */
  int (*next)(void *user, uint32_t lane, uint64_t index, sim_job *out_job);
  void (*pass)(void *user, const sim_passed *at); /* NULL: not told */
  /* NULL: not told. Jobs of a lane in the order of their ends. */
  void (*done)(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin, uint64_t end);
  void (*lane_name)(void *user, uint32_t lane, char *out, uint32_t size); /* NULL: a number */
  void (*part_name)(void *user, uint32_t part, char *out, uint32_t size);
  void *user;
} sim_inside_config;

typedef struct sim_inside_result {
  uint64_t end;     /* of the last job */
  uint64_t settled; /* also the last commit of what was posted */
  uint64_t events, jobs;
} sim_inside_result;

/* BS_DEADLINE BS-INSIDE-STUCK: lanes wait for each other's items or slots; BS_OVERFLOW BS-INSIDE-TIME: beyond
 * 213 days; BS_NO_MEMORY; BS_INVALID_ARGUMENT BS-INSIDE-JOB: a job names a part that is not there, or has
 * too many stops or needs. */
int32_t sim_inside_run(const sim_inside_config *config, sim_inside_result *out, bs_error *err);
#endif
