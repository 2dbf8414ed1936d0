/* SPDX-License-Identifier: MIT
 *
 * pull.c - see pull.h.
 */
#include "pull.h"

#include <stdlib.h>

static uint32_t members_of(const bs_exec *exec) {
  return exec->width > 0 ? exec->width : 1;
}

bs_error *cpu_errors_make(const bs_exec *exec) {
  const uint32_t width = members_of(exec);
  bs_error *errors = calloc(width, sizeof *errors);
  for (uint32_t i = 0; errors != NULL && i < width; i++) errors[i].struct_size = (uint32_t)sizeof *errors;
  return errors;
}

int32_t cpu_team_errors(const bs_exec *exec, void (*body)(void *, uint32_t, uint32_t), void *arg,
                        const bs_error *errors, bs_error *err) {
  const int32_t rc = cpu_team(exec, 0, body, arg, err);
  for (uint32_t i = 0; rc == BS_OK && i < members_of(exec); i++) {
    if (errors[i].code == BS_OK) continue;
    if (err != NULL) *err = errors[i];
    return errors[i].code;
  }
  return rc;
}

typedef struct pull_job {
  const cpu_pull *pull;
  uint8_t *rows;       /* CPU_PANEL rows a member */
  uint64_t rows_bytes; /* of one member */
  bs_error *errors;    /* one a member */
} pull_job;

static void pull_share(void *arg, uint32_t member, uint32_t width) {
  const pull_job *job = arg;
  const cpu_pull *p = job->pull;
  uint8_t *rows = job->rows + member * job->rows_bytes;
  int64_t begin, end;
  cpu_share(p->panels, member, width, &begin, &end);
  for (int64_t panel = begin; panel < end; panel++) {
    const int64_t first = panel * CPU_PANEL, count = p->N - first < CPU_PANEL ? p->N - first : CPU_PANEL;
    const int32_t rc = p->source->read(p->source->ctx, first, count, p->partition, p->dtype, rows, p->K,
                                       &job->errors[member]);
    if (rc != BS_OK) {
      job->errors[member].code = rc;
      return;
    }
    p->place(p->packed, panel, count, rows);
  }
}

int32_t cpu_pull_panels(const cpu_pull *pull, bs_error *err) {
  const bs_exec *exec = pull->exec;
  pull_job job = {pull, NULL, (uint64_t)pull->K * CPU_PANEL * BS_DTYPE_BYTES(pull->dtype),
                  cpu_errors_make(exec)};
  int32_t rc = BS_NO_MEMORY;
  job.rows = exec->alloc(exec->ctx, job.rows_bytes * members_of(exec));
  if (job.errors == NULL || job.rows == NULL)
    bs_fail(err, rc, "BS-CPU-MEMORY", "no memory for %d rows of %lld weights a thread", CPU_PANEL,
            (long long)pull->K);
  else
    rc = cpu_team_errors(exec, pull_share, &job, job.errors, err);
  if (job.rows != NULL) exec->free(exec->ctx, job.rows);
  free(job.errors);
  return rc;
}
