/* SPDX-License-Identifier: MIT
 * replay_log.c - see replay_parts.h. */
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/sim/replay_parts.h"

/* ---- jobs -------------------------------------------------------------------------------------- */

int32_t bs_replay_bad_job(const bs_replaying *r, uint64_t at, const char *why) {
  const sim_logged *j = &r->log->jobs[at];
  bs_error_set(r->err, BS_INPUT, "BS-REPLAY-JOB", "lane %s, job %u (%s) cannot be run: %s",
               r->log->lanes[j->lane], j->job, sim_what_name(j->what), why);
  bs_error_hint(r->err, "the log is of another op or of other knobs than its first line says");
  return BS_INPUT;
}

char *bs_replay_bytes(const bs_replaying *r, const sim_logged *j, const sim_range *range) {
  if (range->space == SIM_SPACE_SCRATCH) return r->scratch + j->lane * r->of_lane + range->start;
  return r->space[range->space] + range->start;
}

static int is_there(const bs_replaying *r, const sim_range *range) {
  if (range->space == SIM_SPACE_SCRATCH) return 1;
  return range->start + (range->rows - 1) * range->pitch + range->bytes <= r->bytes[range->space];
}

uint64_t bs_range_bytes(const sim_range *range) {
  return range->rows * range->bytes;
}

int32_t bs_replay_copied(bs_replaying *r, uint64_t at, char *out) {
  const sim_logged *j = &r->log->jobs[at];
  const sim_range *from = &j->reads[0];
  if (bs_range_bytes(from) != bs_range_bytes(&j->writes))
    return bs_replay_bad_job(r, at, "it reads and writes other numbers of bytes");
  for (uint32_t i = 0; i < from->rows; i++)
    memcpy(out + i * from->bytes, bs_replay_bytes(r, j, from) + i * from->pitch, from->bytes);
  return BS_OK;
}

/* A hash of the bytes that a job reads in its lane's scratch. */
static uint64_t hash_of_reads(const bs_replaying *r, const sim_logged *j) {
  uint64_t h = UINT64_C(14695981039346656037);
  for (uint32_t i = 0; i < j->n_reads; i++) {
    if (j->reads[i].space != SIM_SPACE_SCRATCH) continue;
    const char *at = bs_replay_bytes(r, j, &j->reads[i]);
    for (uint64_t b = 0; b < j->reads[i].bytes; b += 8) {
      uint64_t word = 0;
      const uint64_t left = j->reads[i].bytes - b;
      memcpy(&word, at + b, left < 8 ? left : 8);
      h = (h ^ word) * UINT64_C(1099511628211);
      h ^= h >> 29;
    }
  }
  return h;
}

static int32_t begins(bs_replaying *r, uint64_t at) {
  const sim_logged *j = &r->log->jobs[at];
  if (j->n_reads == 0 || j->n_writes == 0) return bs_replay_bad_job(r, at, "it reads or writes nothing");
  for (uint32_t i = 0; i < j->n_reads; i++)
    if (!is_there(r, &j->reads[i])) return bs_replay_bad_job(r, at, "it reads outside of its operand");
  if (!is_there(r, &j->writes)) return bs_replay_bad_job(r, at, "it writes outside of its operand");
  char *out = aligned_alloc(64, (bs_range_bytes(&j->writes) + 63) / 64 * 64);
  if (out == NULL) return bs_no_memory(r->err, "what a job writes");
  r->result[at] = out;
  r->read[at] = hash_of_reads(r, j);
  return r->compute(r, at, r->result[at]);
}

/* The job has read the later bytes, where some have changed since its begin. */
static int32_t ends(bs_replaying *r, uint64_t at) {
  const sim_logged *j = &r->log->jobs[at];
  const int32_t rc = hash_of_reads(r, j) == r->read[at] ? BS_OK : r->compute(r, at, r->result[at]);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < j->writes.rows; i++)
    memcpy(bs_replay_bytes(r, j, &j->writes) + i * j->writes.pitch, r->result[at] + i * j->writes.bytes,
           j->writes.bytes);
  free(r->result[at]);
  r->result[at] = NULL;
  return r->landed != NULL ? r->landed(r, at) : BS_OK;
}

/* ---- a run ------------------------------------------------------------------------------------- */

static uint64_t scratch_of(const sim_oplog *log) {
  uint64_t most = 0;
  for (uint64_t i = 0; i < log->n; i++) {
    const sim_logged *j = &log->jobs[i];
    for (uint32_t k = 0; k <= j->n_reads; k++) {
      const sim_range *range = k < j->n_reads ? &j->reads[k] : &j->writes;
      if (range->space == SIM_SPACE_SCRATCH) most = sim_max(most, range->start + range->bytes);
    }
  }
  return (most + 63) / 64 * 64;
}

int32_t bs_replay_check_size(double work, uint64_t memory, bs_error *err) {
  if (work <= (double)BS_OPLOG_PRODUCTS && memory <= BS_REPLAY_MEMORY) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-REPLAY-SIZE",
               "a replay of %.3g products and %.3g bytes is too large: at most %.3g and %.3g", work,
               (double)memory, (double)BS_OPLOG_PRODUCTS, (double)BS_REPLAY_MEMORY);
  bs_error_hint(err, "a log of a smaller shape on the same tiles");
  return BS_CONFIG;
}

static int32_t open_run(bs_replaying *r) {
  r->of_lane = scratch_of(r->log);
  const double scratch = (double)r->of_lane * (double)r->log->n_lanes;
  const int32_t rc = bs_replay_check_size(0, scratch > (double)BS_REPLAY_MEMORY ? UINT64_MAX : 0, r->err);
  if (rc != BS_OK) return rc;
  r->scratch = aligned_alloc(64, r->of_lane * r->log->n_lanes + 64);
  r->result = calloc(r->log->n > 0 ? r->log->n : 1, sizeof *r->result);
  r->read = calloc(r->log->n > 0 ? r->log->n : 1, sizeof *r->read);
  if (r->scratch == NULL || r->result == NULL || r->read == NULL)
    return bs_no_memory(r->err, "the scratch of a replay");
  memset(r->scratch, 0xff, r->of_lane * r->log->n_lanes + 64);
  return BS_OK;
}

static void close_run(bs_replaying *r) {
  for (uint64_t i = 0; r->result != NULL && i < r->log->n; i++) free(r->result[i]);
  free(r->result);
  free(r->read);
  free(r->scratch);
}

int32_t bs_replay_log(bs_replaying *r) {
  sim_moment *moments = NULL;
  int32_t rc = open_run(r);
  if (rc == BS_OK && (moments = sim_oplog_moments(r->log)) == NULL) rc = bs_no_memory(r->err, "a replay");
  for (uint64_t i = 0; rc == BS_OK && i < 2 * r->log->n; i++)
    rc = moments[i].ends ? ends(r, moments[i].job) : begins(r, moments[i].job);
  free(moments);
  close_run(r);
  return rc;
}
