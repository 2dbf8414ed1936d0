/* SPDX-License-Identifier: MIT
 * probe.h - one message of a simulated machine, hop by hop: `bsrun sim probe`. */
#ifndef BS_LAB_SIM_PROBE_H
#define BS_LAB_SIM_PROBE_H
#include <jansson.h>

#include "blockshock/blockshock.h"

enum { BS_PROBE_FLOWS = 64 }; /* the message and the flows that compete with it */

typedef struct bs_probe_flow {
  uint32_t from, to;
} bs_probe_flow;

typedef struct bs_probe {
  const char *topology; /* as hardware.topology; NULL or "": every two ranks have a link of their own */
  uint32_t ranks;
  uint32_t n_flows;            /* 1 to BS_PROBE_FLOWS */
  const bs_probe_flow *flows;  /* the first is the one that is reported; all begin at the same time */
  uint64_t bytes;              /* of each */
  double alpha_s, bytes_per_s; /* of such a link; a rate of 0: bytes take no time */
} bs_probe;

/* Simulates the messages in the order of time. *out_rows: a row for the send port, for each link of the path
 * and for the receive port, and one for the whole, whose hop is "total": times in us. At each hop the head of
 * the message arrives (reached_us), waits (wait_us) until the link is free, and takes latency_us; the link is
 * busy for bytes_us. The total has their sums, the bytes of the slowest link only, and closed_us, the sum of
 * all latencies and bytes / least rate. The caller releases. BS_USAGE: a rank does not exist, or sends to
 * itself; or the topology refuses the number of ranks. */
int32_t bs_probe_run(bs_context *context, const bs_probe *probe, json_t **out_rows, bs_error *err);
#endif
