/* SPDX-License-Identifier: MIT
 * hazard.h - what is wrong with the data of an op log: places and times alone, no value. A read is taken at a
 * job's begin and must not change until its end; a write lands at its end; of equal times writes come first.
 */
#ifndef BS_SIM_HAZARD_H
#define BS_SIM_HAZARD_H
#include "sim/oplog.h"

enum sim_hazard_kind {
  SIM_READ_OF_NOTHING = 1, /* H1: bytes that no job has written */
  SIM_READ_OF_ANOTHER,     /* H2: a version that is not the one its need wrote */
  SIM_WRITE_WHILE_READ,    /* H3: a write and a read of the same bytes at one time */
  SIM_BUFFERS_SHARE,       /* H4: two live buffers of one lane share bytes */
  SIM_WRITES_UNORDERED,    /* H5: two writes of one place that no need orders */
  SIM_HAZARD_KINDS
};
enum { SIM_HAZARDS_KEPT = 16 };

typedef struct sim_hazard {
  uint32_t kind;
  uint64_t time, job, other; /* places in the log; other UINT64_MAX: no job */
  uint64_t needs;            /* `job` lacks a need of this one; UINT64_MAX: of none in its lane */
  sim_range where;
} sim_hazard;

typedef struct sim_hazards {
  uint64_t total, count[SIM_HAZARD_KINDS];
  uint32_t n; /* the first ones */
  sim_hazard kept[SIM_HAZARDS_KEPT];
} sim_hazards;

/* BS_NO_MEMORY; BS_INPUT BS-OPLOG-SIZE: more jobs of a lane at one time, or more rows of Y, than a program
 * makes. */
int32_t sim_hazards_find(const sim_oplog *log, sim_hazards *out, bs_error *err);
/* One line, with both jobs, the bytes and the need that is missing. */
void sim_hazard_say(const sim_oplog *log, const sim_hazard *hazard, char *out, uint32_t size);
const char *sim_hazard_text(uint32_t kind);
#endif
