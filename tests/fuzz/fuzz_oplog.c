/* SPDX-License-Identifier: MIT
 * fuzz_oplog.c - any bytes as an op log: an error that names itself, or jobs whose hazards can be told. */
#include <string.h>

#include "core/base/error.h"
#include "sim/hazard.h"
#include "tests/fuzz/input.h"

static void tell(const sim_oplog *log) {
  bs_error err = BS_ERROR_INIT;
  sim_hazards found;
  char text[512];
  const int32_t rc = sim_hazards_find(log, &found, &err);
  if (rc != BS_OK && (rc != BS_INPUT || strcmp(err.id, "BS-OPLOG-SIZE") != 0)) abort();
  for (uint32_t i = 0; rc == BS_OK && i < found.n; i++) {
    sim_hazard_say(log, &found.kept[i], text, sizeof text);
    if (text[0] != 'H') abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bs_error err = BS_ERROR_INIT;
  sim_oplog log;
  const int32_t rc = sim_oplog_read(fuzz_path(data, size), &log, &err);
  if (rc == BS_OK) {
    for (uint64_t i = 0; i < log.n; i++) {
      const sim_logged *j = &log.jobs[i];
      if (sim_oplog_job(&log, j->lane, j->job) != j || j->end < j->begin || j->what >= SIM_WHATS) abort();
    }
    tell(&log);
  } else if (strncmp(err.id, "BS-OPLOG-", 9) != 0 || err.message[0] == '\0') {
    abort();
  }
  sim_oplog_free(&log);
  return 0;
}
