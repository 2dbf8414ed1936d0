/* SPDX-License-Identifier: MIT
 * trace.h - what happened when, as Chrome trace events (JSON that Perfetto and chrome://tracing open): a
 * process a rank, a thread a stream or port, slices of ops and messages, arrows from sends to receives. A
 * trace holds at most `cap` events, of the ranks first to last; what is beyond is counted. */
#ifndef BS_SIM_TRACE_H
#define BS_SIM_TRACE_H
#include <stdint.h>

#include "blockshock/blockshock.h"

enum { SIM_TRACE_CAP = 200000 };

/* Threads of a rank; from SIM_LANE_STREAMS on its other streams. */
enum sim_lane {
  SIM_LANE_HOST = 0,
  SIM_LANE_STREAM = 1,
  SIM_LANE_SEND = 2,
  SIM_LANE_RECEIVE = 3,
  SIM_LANE_STREAMS = 4,
  SIM_LANE_COLLECTIVES = 63, /* of a simulated trace */
  SIM_LANES = 64
};

/* One span of a lane. `arrow`: the same number at both ends of a message; else 0. */
typedef struct sim_trace_span {
  uint64_t begin, end, arrow;
  uint32_t rank, lane; /* below SIM_LANES */
  char name[48];
} sim_trace_span;

/* When the ports of a message's two ranks are busy with it. */
typedef struct sim_trace_ports {
  uint64_t send_begin, send_end, receive_begin, receive_end;
} sim_trace_ports;

typedef struct sim_trace sim_trace;

/* cap 0: SIM_TRACE_CAP. NULL: no memory. The memory of an event is taken when it comes. */
sim_trace *sim_trace_new(uint64_t cap, uint32_t first_rank, uint32_t last_rank);
void sim_trace_free(sim_trace *t);
/* Names for a trace whose processes are no ranks. `lane` UINT32_MAX: of the process; else of a thread. */
void sim_trace_names(sim_trace *t,
                     void (*name)(void *user, uint32_t rank, uint32_t lane, char *out, uint32_t size),
                     void *user);
/* Adds a slice for an op or a collective. `name` is copied (47 characters of it). Without memory the event is
 * dropped and counted, as those beyond the cap. */
void sim_trace_slice(sim_trace *t, uint32_t rank, uint32_t lane, const char *name, uint64_t begin,
                     uint64_t end);
/* Adds a message that has arrived: a slice at each port, and the arrow between them if both ranks are traced.
 * The engine calls it when sim_config.trace is set. */
void sim_trace_message(sim_trace *t, uint32_t from, uint32_t to, const char *site,
                       const sim_trace_ports *ports);
/* The spans of a trace, in the order in which they were added. sim_trace_put copies one into another trace;
 * the span of a message's end also counts its half of the arrow. */
uint64_t sim_trace_spans(const sim_trace *t);
const sim_trace_span *sim_trace_at(const sim_trace *t, uint64_t index);
void sim_trace_put(sim_trace *t, const sim_trace_span *span);
/* Events that another trace has left out. */
void sim_trace_leave_out(sim_trace *t, uint64_t events);
uint64_t sim_trace_events(const sim_trace *t);
uint64_t sim_trace_dropped(const sim_trace *t);
/* Writes a new file; times are us with six digits (ps). BS_IO. */
int32_t sim_trace_write(const sim_trace *t, const char *path, bs_error *err);
#endif
