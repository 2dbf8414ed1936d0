/* SPDX-License-Identifier: MIT
 * report.h - refusals and reports that all communicators make in the same words. Used by threads, shm and
 * mpi. */
#ifndef BS_COMM_REPORT_H
#define BS_COMM_REPORT_H
#include "blockshock/plugin.h"

/* ---- refusals ----------------------------------------------------------------------------- */

/* The members of a group, as numbers below n, ascend, and `me` is one of them. */
int32_t comm_check_group(uint32_t me, uint32_t n, const uint32_t *ranks, uint32_t nranks, uint32_t *out_me,
                         bs_error *err);
/* The other end of a send or a recv; the root of a broadcast. */
int32_t comm_check_peer(uint32_t me, uint32_t n, const bs_coll_call *call, bs_error *err);
int32_t comm_check_root(uint32_t n, const bs_coll_call *call, bs_error *err);
/* A call of exchange. */
int32_t comm_check_message(uint32_t me, uint32_t n, const bs_coll_call *call, bs_error *err);

/* ---- reports ------------------------------------------------------------------------------ */

/* Data arrived; `work` is the status of converting or reducing them. */
int32_t comm_converted(int32_t work, const bs_coll_call *call, bs_error *err);
int32_t comm_reduced(int32_t work, bs_error *err);
/* The receiver's verdict on the data, in the words of the sender. */
int32_t comm_received(int32_t status, const char *text, bs_error *err);

/* "rank 2 (last call: ...)" of the missing ranks, one after another. */
typedef struct comm_missing {
  size_t used;
  char text[320];
} comm_missing;
void comm_miss(comm_missing *missing, uint32_t rank, const char *last);
/* Describes why a wait in the call `text` ended at its deadline. */
void comm_deadline_text(char *out, size_t size, int64_t timeout_ns, const char *text, const char *missing);
/* BS_DEADLINE and `why`, at the call `where`. */
int32_t comm_fail_deadline(const char *why, const char *where, bs_error *err);
void comm_hint_deadline(bs_error *err);

void comm_mismatch_text(char *out, size_t size, uint32_t rank_a, const char *a, uint32_t rank_b,
                        const char *b);
int32_t comm_fail_mismatch(const char *text, const char *where, bs_error *err);
void comm_hint_mismatch(bs_error *err);
/* Two ranks of an all_to_all that disagree: the amount that one sends, and the amount that the other
 * expects. */
enum { COMM_PAIR_TEXT = 96 };
void comm_pair_texts(const bs_coll_call *call, uint64_t sent, uint64_t expected, char a[COMM_PAIR_TEXT],
                     char b[COMM_PAIR_TEXT]);

static inline void comm_where(bs_error *err, const char *text) {
  if (err != NULL) snprintf(err->where, sizeof err->where, "%s", text);
}

/* ---- the plugin ----------------------------------------------------------------------------- */

int64_t comm_param(const bs_host *host, bs_plugin_self *self, const char *name, int64_t fallback);
uint32_t comm_cores_allowed(void); /* that this process may use */
/* The parameters of a plugin, then its table. */
int32_t comm_register(const bs_host *host, bs_plugin_self *self, const bs_param_desc *params, size_t nparams,
                      const bs_comm *table, void *state, const bs_src_loc *here, bs_error *err);
#endif
