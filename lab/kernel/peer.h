/* SPDX-License-Identifier: MIT
 * peer.h - an arm in another process, which times calls on request and sleeps in between: PyTorch (torch.h),
 * or a stored build of a plugin (stored.h). Commands and answers are lines on a socket, the child's standard
 * input and output. Its file descriptor 3 is memory that both share: inputs, where the child does not make
 * them, then the outputs, then the seconds of a series. The parent judges the outputs like those of arms
 * in its process.
 *
 *   command          answer
 *   (none)           "ok VERSION" when the child is ready
 *   batch LEAD N     "ok SECONDS" a call, of N calls after LEAD that are not timed
 *   series LEAD N    "ok", and the seconds of each of N calls in the memory
 *   output           "ok", and all outputs in the memory
 *
 * and commands of each kind that name the problem. "no REASON": the child does not serve it. The end of the
 * socket ends the child, and so does the end of the parent. A child that does not answer is killed after some
 * minutes, after a request to stop (lab/stop.h) in two seconds: BS_ABORTED. */
#ifndef BS_LAB_KERNEL_PEER_H
#define BS_LAB_KERNEL_PEER_H
#include "lab/kernel/data.h"
#include "lab/measure/load.h"
#include "lab/measure/span.h"

enum {
  BS_KERNEL_PEER_CALLS = 65536, /* of a series, at most */
  BS_KERNEL_PEER_LINE = 1024,   /* of a command or an answer */
  BS_KERNEL_PEER_SHARED = 3     /* the child's descriptor of the memory */
};

typedef struct bs_kernel_peer bs_kernel_peer;

/* The name of a kind of peer, and the function that gives it a problem. */
typedef struct bs_kernel_peer_kind {
  const char *name; /* "PyTorch" */
  const char *id;   /* of its errors: "BS-KERNEL-TORCH" */
  int quiet;        /* 1: what it prints to standard error is dropped */
  /* Shares memory (bs_kernel_peer_share) and sends the problem. BS_UNSUPPORTED: it does not serve it. */
  int32_t (*load)(bs_kernel_peer *peer, const bs_kernel_data *data, bs_error *err);
} bs_kernel_peer_kind;

/* Starts `program`, found on PATH if it has no slash. request: a first line that the child reads; NULL: none.
 * BS_UNAVAILABLE: it cannot be started, or answers "no". The caller keeps kind. */
int32_t bs_kernel_peer_start(const bs_kernel_peer_kind *kind, const char *program, const char *const *words,
                             const char *request, bs_kernel_peer **out, bs_error *err);
/* Ends the process; kills it if it does not end. NULL is allowed. */
void bs_kernel_peer_close(bs_kernel_peer *peer);
const char *bs_kernel_peer_version(const bs_kernel_peer *peer); /* "PyTorch 2.15.0 (AVX512)" */
/* The processor time of its process so far. */
void bs_kernel_peer_used(const bs_kernel_peer *peer, bs_process_use *out);
/* The problem that is timed from now on; the caller keeps data alive until the next one. */
int32_t bs_kernel_peer_load(bs_kernel_peer *peer, bs_kernel_data *data, bs_error *err);
/* These have the contracts of bs_kernel_arm_batch, bs_kernel_arm_series and bs_kernel_arm_judge. */
int32_t bs_kernel_peer_batch(void *peer, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err);
int32_t bs_kernel_peer_series(void *peer, uint64_t warmup, uint64_t n, double *out_seconds, bs_error *err);
int32_t bs_kernel_peer_judge(bs_kernel_peer *peer, bs_kernel_numbers *out, bs_error *err);

/* ---- for kinds ---------------------------------------------------------------------------------- */

typedef struct bs_kernel_peer_part {
  const void *from; /* NULL: none */
  size_t bytes;
} bs_kernel_peer_part;

/* Shares the inputs side by side, room for y bytes of outputs, and from a whole cache line on room for the
 * seconds of a series. *out_bytes: of all. */
int32_t bs_kernel_peer_share(bs_kernel_peer *peer, const bs_kernel_peer_part *parts, uint32_t n, size_t y,
                             size_t *out_bytes, bs_error *err);
/* The offset of the seconds after y bytes of outputs that begin at y_at. */
static inline size_t bs_kernel_peer_seconds_at(size_t y_at, size_t y) {
  return y_at + (y + 63) / 64 * 64;
}
/* Sends a line ("": none) and reads the answer. out_answer: the text after "ok", of BS_KERNEL_PEER_LINE
 * bytes; NULL: it is not copied. BS_UNSUPPORTED with the text of "no". */
int32_t bs_kernel_peer_ask(bs_kernel_peer *peer, const char *command, char *out_answer, bs_error *err);
#endif
