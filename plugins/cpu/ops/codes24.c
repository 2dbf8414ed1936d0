/* SPDX-License-Identifier: MIT
 *
 * codes24.c - the positions of 2:4 weights: read from a bs_kept by the team, and kept in a list of those that
 * live, so that a second weight with the same positions, or with the other half of them, needs no stream of
 * its own. Slow path only. */
#include <stdlib.h>

#include "packed24.h"
#include "pull.h"

typedef struct codes_job {
  const cpu_codes *codes;
  const bs_kept *kept;
  uint8_t *rows; /* CPU_PANEL rows of groups a member */
  int64_t groups;
  bs_error *errors; /* one a member */
} codes_job;

/* Two of four: bit pattern to first + 4 second; 0 for any other. */
static uint32_t code_of(uint32_t pattern) {
  static const uint8_t codes[16] = {0, 0, 0, 4, 0, 8, 9, 0, 0, 12, 13, 0, 14, 0, 0, 0};
  return pattern < 16 ? codes[pattern] : 0;
}

static int32_t bad_group(int64_t row, int64_t group, uint32_t pattern, bs_error *err) {
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-KEPT",
                 "row %lld, columns %lld..: the positions keep 0x%02x, not two of four", (long long)row,
                 (long long)(4 * group), pattern);
}

/* Reads a panel's codes; padding rows keep the first two columns. */
static int32_t read_panel(const codes_job *job, int64_t panel, uint8_t *rows, bs_error *err) {
  const cpu_codes *c = job->codes;
  const int64_t first = panel * CPU_PANEL, count = c->rows - first < CPU_PANEL ? c->rows - first : CPU_PANEL;
  const int32_t rc = job->kept->read(job->kept->ctx, first, count, 0, job->groups, rows, job->groups, err);
  if (rc != BS_OK) return rc;
  for (int64_t u = 0; u < c->units; u++)
    for (int64_t i = 0; i < CPU_PANEL; i++) cpu_codes_at(c, panel, u)[i] = 0x44444444u;
  for (int64_t lane = 0; lane < count; lane++)
    for (int64_t g = 0; g < job->groups; g++) {
      const uint32_t pattern = rows[lane * job->groups + g], code = code_of(pattern);
      if (code == 0) return bad_group(first + lane, g, pattern, err);
      cpu_codes_at(c, panel, g / 8)[lane] ^= (code ^ 4u) << (uint32_t)(g % 8 * 4);
    }
  return BS_OK;
}

static void read_share(void *arg, uint32_t member, uint32_t width) {
  const codes_job *job = arg;
  int64_t begin, end;
  cpu_share(job->codes->panels, member, width, &begin, &end);
  for (int64_t p = begin; p < end; p++) {
    const int32_t rc = read_panel(job, p, job->rows + member * CPU_PANEL * job->groups, &job->errors[member]);
    if (rc == BS_OK) continue;
    job->errors[member].code = rc;
    return;
  }
}

static int32_t read_all(cpu_codes *codes, const bs_kept *kept, bs_error *err) {
  const uint32_t width = codes->exec->width > 0 ? codes->exec->width : 1;
  codes_job job = {codes, kept, NULL, cpu_kept_length(codes->cols) / 2, cpu_errors_make(codes->exec)};
  int32_t rc = BS_NO_MEMORY;
  job.rows = malloc((size_t)(width * CPU_PANEL * job.groups + 1));
  if (job.errors == NULL || job.rows == NULL)
    bs_fail(err, rc, "BS-CPU-MEMORY", "no memory for %d rows of positions a thread", CPU_PANEL);
  else
    rc = cpu_team_errors(codes->exec, read_share, &job, job.errors, err);
  free(job.rows);
  free(job.errors);
  return rc;
}

static void codes_free(cpu_codes *codes) {
  if (codes->words != NULL) codes->exec->free(codes->exec->ctx, codes->words);
  free(codes);
}

static int32_t codes_read(const bs_exec *exec, const bs_kept *kept, cpu_codes **out_codes, bs_error *err) {
  cpu_codes *c = calloc(1, sizeof *c);
  uint64_t words = 0;
  if (c == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for positions");
  c->exec = exec;
  c->refs = 1;
  c->rows = kept->rows;
  c->cols = kept->cols;
  c->panels = c->rows / CPU_PANEL + (c->rows % CPU_PANEL != 0);
  c->units = c->cols / CPU_UNIT_COLUMNS + (c->cols % CPU_UNIT_COLUMNS != 0);
  int32_t rc = BS_OK;
  if (__builtin_mul_overflow((uint64_t)c->panels * CPU_PANEL, (uint64_t)c->units, &words) ||
      __builtin_mul_overflow(words, sizeof *c->words, &c->bytes))
    rc = bs_fail(err, BS_OVERFLOW, "BS-CPU-SIZE", "positions of %lld x %lld are more than can be addressed",
                 (long long)c->rows, (long long)c->cols);
  if (rc == BS_OK && c->bytes > 0) {
    c->words = exec->alloc(exec->ctx, c->bytes);
    if (c->words == NULL)
      rc = bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for %llu bytes of positions",
                   (unsigned long long)c->bytes);
    if (rc == BS_OK) rc = read_all(c, kept, err);
  }
  if (rc != BS_OK) {
    codes_free(c);
    return rc;
  }
  *out_codes = c;
  return BS_OK;
}

static uint32_t other_word(uint32_t word) {
  uint32_t other = 0;
  for (uint32_t shift = 0; shift < 32; shift += 4) other |= cpu_code_other(word >> shift & 15u) << shift;
  return other;
}

/* 0: other positions, 1: the same, 2: the other half. Only what the rows have counts: the rest is filled up.
 */
static int compare(const cpu_codes *a, const cpu_codes *b) {
  if (a->exec != b->exec || a->rows != b->rows || a->cols != b->cols) return 0;
  if (a->bytes == 0 || memcmp(a->words, b->words, a->bytes) == 0) return 1;
  const int64_t groups = cpu_kept_length(a->cols) / 2;
  for (int64_t n = 0; n < a->rows; n++)
    for (int64_t u = 0; u < a->units; u++) {
      const int64_t left = groups - u * 8;
      const uint32_t used = left >= 8 ? UINT32_MAX : (1u << (uint32_t)(left * 4)) - 1u;
      const uint32_t mine = cpu_codes_at(a, n / CPU_PANEL, u)[n % CPU_PANEL];
      if (((other_word(mine) ^ cpu_codes_at(b, n / CPU_PANEL, u)[n % CPU_PANEL]) & used) != 0) return 0;
    }
  return 2;
}

int32_t cpu_codes_take(cpu_state *state, const bs_exec *exec, const bs_kept *kept, cpu_codes **out_codes,
                       uint32_t *out_other, bs_error *err) {
  cpu_codes *fresh = NULL;
  int how = 0;
  const int32_t rc = codes_read(exec, kept, &fresh, err);
  if (rc != BS_OK || fresh == NULL) return rc;
  (void)pthread_mutex_lock(&state->codes_lock);
  cpu_codes *c = state->codes;
  for (; c != NULL; c = c->next)
    if ((how = compare(c, fresh)) != 0) break;
  if (c != NULL) {
    c->refs++;
  } else {
    fresh->next = state->codes;
    state->codes = fresh;
  }
  (void)pthread_mutex_unlock(&state->codes_lock);
  if (c != NULL) codes_free(fresh);
  *out_codes = c != NULL ? c : fresh;
  *out_other = how == 2;
  return BS_OK;
}

void cpu_codes_drop(cpu_state *state, cpu_codes *codes) {
  if (codes == NULL) return;
  (void)pthread_mutex_lock(&state->codes_lock);
  const int last = --codes->refs == 0;
  for (cpu_codes **p = &state->codes; last && *p != NULL; p = &(*p)->next)
    if (*p == codes) {
      *p = codes->next;
      break;
    }
  (void)pthread_mutex_unlock(&state->codes_lock);
  if (last) codes_free(codes);
}

int cpu_kept_fits(const bs_op_query *query, int64_t rows, int64_t cols, bs_op_answer *answer) {
  const bs_kept *k = query->kept;
  const bs_partition *p = query->partition;
  if (k == NULL || k->rows != rows || k->cols != cols)
    return cpu_answer_no(answer, BS_REASON_SPARSITY, "needs the positions of a weight [%lld,%lld]",
                         (long long)rows, (long long)cols);
  if (p == NULL || (p->kind == BS_PARTITION_CONTIGUOUS && p->begin % 4 == 0)) return 1;
  return cpu_answer_no(answer, BS_REASON_SPARSITY, "the columns are no run of whole groups of four");
}
