/* SPDX-License-Identifier: MIT
 * hazard_places.c - two writes of one place of an output that no need orders. */
#include <stdlib.h>

#include "core/base/error.h"
#include "sim/hazard_parts.h"

#define ROWS_MOST (UINT64_C(1) << 24)

typedef struct row {
  uint64_t begin, end, job;
} row;

static int by_begin(const void *a, const void *b) {
  const row *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return x->job < y->job ? -1 : x->job > y->job;
}

static int is_of_output(const sim_logged *j) {
  return j->n_writes > 0 && sim_space_is_output(j->writes.space);
}

static uint64_t fill(const sim_oplog *log, row *rows) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < log->n; i++) {
    const sim_range *w = &log->jobs[i].writes;
    if (!is_of_output(&log->jobs[i])) continue;
    for (uint32_t r = 0; r < w->rows; r++, n++) {
      const uint64_t begin = sim_space_begins(w->space) + w->start + r * w->pitch;
      rows[n] = (row){begin, begin + w->bytes, i};
    }
  }
  return n;
}

/* A row is compared with the one before it that reaches farthest. Each job is told once with its neighbour.
 */
static void compare(const sim_oplog *log, const uint64_t *before, const row *rows, uint64_t n,
                    sim_hazards *out) {
  uint64_t far = 0, told = UINT64_MAX;
  for (uint64_t i = 1; i < n; i++) {
    const uint64_t a = rows[far].job, b = rows[i].job, late = a > b ? a : b, early = a > b ? b : a;
    if (rows[i].begin < rows[far].end && late != told && a != b && !sim_hazard_ordered(log, before, a, b)) {
      told = late;
      const int same = log->jobs[a].lane == log->jobs[b].lane;
      sim_hazard_add(out, &(sim_hazard){SIM_WRITES_UNORDERED, log->jobs[late].begin, late, early,
                                        same ? early : UINT64_MAX, log->jobs[early].writes});
    }
    if (rows[i].end > rows[far].end) far = i;
  }
}

int32_t sim_hazard_places(const sim_oplog *log, const uint64_t *before, sim_hazards *out, bs_error *err) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < log->n; i++) n += is_of_output(&log->jobs[i]) ? log->jobs[i].writes.rows : 0;
  if (n > ROWS_MOST)
    return bs_error_set(err, BS_INPUT, "BS-OPLOG-SIZE",
                        "the stores write %llu rows of outputs, more than 16777216", (unsigned long long)n);
  row *rows = malloc((n > 0 ? n : 1) * sizeof *rows);
  if (rows == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for hazards");
  fill(log, rows);
  qsort(rows, n, sizeof *rows, by_begin);
  compare(log, before, rows, n, out);
  free(rows);
  return BS_OK;
}
