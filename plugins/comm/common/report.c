/* SPDX-License-Identifier: MIT
 *
 * report.c - see report.h. Nothing here is on the hot path.
 */
#include "report.h"

#include <sched.h>

int32_t comm_check_group(uint32_t me, uint32_t n, const uint32_t *ranks, uint32_t nranks, uint32_t *out_me,
                         bs_error *err) {
  int found = 0;
  if (nranks == 0 || nranks > n)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-GROUP", "a group of %u of %u ranks", nranks, n);
  for (uint32_t i = 0; i < nranks; ++i) {
    if (ranks[i] >= n || (i > 0 && ranks[i] <= ranks[i - 1]))
      return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-GROUP",
                     "ranks of a group must ascend and be below %u; entry %u is %u", n, i, ranks[i]);
    if (ranks[i] != me) continue;
    *out_me = i;
    found = 1;
  }
  if (found) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-GROUP", "rank %u opens a group that it is not in", me);
}

int32_t comm_check_peer(uint32_t me, uint32_t n, const bs_coll_call *call, bs_error *err) {
  if (call->root < n && call->root != me) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-ROOT", "rank %u cannot exchange with rank %u of %u", me,
                 call->root, n);
}

int32_t comm_check_root(uint32_t n, const bs_coll_call *call, bs_error *err) {
  if (call->root < n) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-ROOT", "root %u of %u ranks", call->root, n);
}

int32_t comm_check_message(uint32_t me, uint32_t n, const bs_coll_call *call, bs_error *err) {
  if (call->kind == BS_COLL_SEND || call->kind == BS_COLL_RECV) return comm_check_peer(me, n, call, err);
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-KIND", "exchange takes sends and receives, not kind %u",
                 call->kind);
}

int32_t comm_converted(int32_t work, const bs_coll_call *call, bs_error *err) {
  if (work == BS_OK) return BS_OK;
  return bs_fail(err, work, "BS-COLL-DTYPE", "cannot convert dtype 0x%04x to 0x%04x", call->dtype_in,
                 call->dtype_out);
}

int32_t comm_reduced(int32_t work, bs_error *err) {
  return work == BS_OK ? BS_OK : bs_fail(err, work, "BS-COLL-DTYPE", "reduction failed on this rank");
}

int32_t comm_received(int32_t status, const char *text, bs_error *err) {
  if (status == BS_OK) return BS_OK;
  return bs_fail(err, status, "BS-COLL-DTYPE", "the receiver failed at %s", text);
}

void comm_miss(comm_missing *missing, uint32_t rank, const char *last) {
  const size_t room = sizeof missing->text - missing->used;
  const int n = snprintf(missing->text + missing->used, room, "%srank %u (last call: %s)",
                         missing->used ? ", " : "", rank, last);
  if (n > 0) missing->used += (size_t)n;
  if (missing->used >= sizeof missing->text) missing->used = sizeof missing->text - 1u;
}

void comm_deadline_text(char *out, size_t size, int64_t timeout_ns, const char *text, const char *missing) {
  snprintf(out, size, "%.3g s passed in %s; missing: %s", (double)timeout_ns * 1e-9, text, missing);
}

int32_t comm_fail_deadline(const char *why, const char *where, bs_error *err) {
  bs_fail(err, BS_DEADLINE, "BS-COLL-DEADLINE", "%s", why);
  comm_where(err, where);
  return BS_DEADLINE;
}

void comm_hint_deadline(bs_error *err) {
  bs_fail_hint(err, "a rank is late, stopped or in another call; raise the timeout if it is only slow");
}

void comm_mismatch_text(char *out, size_t size, uint32_t rank_a, const char *a, uint32_t rank_b,
                        const char *b) {
  snprintf(out, size, "rank %u called %s, rank %u called %s", rank_a, a, rank_b, b);
}

int32_t comm_fail_mismatch(const char *text, const char *where, bs_error *err) {
  bs_fail(err, BS_MISMATCH, "BS-COLL-MISMATCH", "ranks disagree: %s", text);
  comm_where(err, where);
  comm_hint_mismatch(err);
  return BS_MISMATCH;
}

void comm_hint_mismatch(bs_error *err) {
  bs_fail_hint(
      err, "every rank must make the same collective calls, in the same order, with equal dtypes and counts");
}

void comm_pair_texts(const bs_coll_call *call, uint64_t sent, uint64_t expected, char a[COMM_PAIR_TEXT],
                     char b[COMM_PAIR_TEXT]) {
  const char *site = call->site != NULL ? call->site : "";
  snprintf(a, COMM_PAIR_TEXT, "all_to_all at '%.40s' sending it %llu", site, (unsigned long long)sent);
  snprintf(b, COMM_PAIR_TEXT, "all_to_all at '%.40s' expecting %llu", site, (unsigned long long)expected);
}

int64_t comm_param(const bs_host *host, bs_plugin_self *self, const char *name, int64_t fallback) {
  bs_value value;
  memset(&value, 0, sizeof value);
  value.struct_size = (uint32_t)sizeof value;
  if (!BS_HOST_HAS(host, param_get)) return fallback;
  return host->param_get(host->ctx, self, name, &value, NULL) == BS_OK ? value.i : fallback;
}

uint32_t comm_cores_allowed(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return n > 0 ? (uint32_t)n : 1u;
}

int32_t comm_register(const bs_host *host, bs_plugin_self *self, const bs_param_desc *params, size_t nparams,
                      const bs_comm *table, void *state, const bs_src_loc *here, bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < nparams; ++i)
    rc = host->param_define(host->ctx, self, &params[i], err);
  return rc != BS_OK ? rc : host->register_thing(host->ctx, self, BS_KIND_COMM, table, state, here, err);
}
