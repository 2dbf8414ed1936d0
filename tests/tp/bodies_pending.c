/* SPDX-License-Identifier: MIT
 *
 * bodies_pending.c - T3, what drain does, T5, who waits for what on the host, and the mappings.
 */
#include <sched.h>
#include <stdatomic.h>

#include "core/base/error.h"
#include "tests/tp/bodies.h"

enum { ROWS = 3, F = 10, MANY = 6 };

/* Tensors and mappings of a test. */
typedef struct kit {
  bs_tp_mapping *sum[MANY];
  bs_tensor x[MANY], y[MANY];
} kit;

static void kit_free(bs_rank *rank, kit *k) {
  for (int i = 0; i < MANY; ++i) {
    bs_tp_mapping_free(k->sum[i]);
    bs_tp_tensor_free(rank, &k->x[i]);
    bs_tp_tensor_free(rank, &k->y[i]);
  }
}

static int32_t fill(bs_rank *rank, bs_tensor *t, float value, bs_error *err) {
  float host[ROWS * F];
  for (int i = 0; i < ROWS * F; ++i) host[i] = value + (float)i;
  return bs_tp_copy_in(rank, host, t, err);
}

static int32_t is_filled(bs_rank *rank, const bs_tensor *t, float value, float step, bs_error *err) {
  float host[ROWS * F];
  TRY(bs_tp_copy_out(rank, t, host, err));
  for (int i = 0; i < ROWS * F; ++i)
    MUST(host[i] == value + step * (float)i, "[%d] is %g, not %g", i, (double)host[i],
         (double)(value + step * (float)i));
  return BS_OK;
}

static int32_t kit_make(bs_rank *rank, kit *k, bs_error *err) {
  memset(k, 0, sizeof *k);
  for (int i = 0; i < MANY; ++i) {
    TRY(bs_tp_mapping_make(rank, BS_TP_REDUCE_FROM, BS_F32, ROWS, F, &k->sum[i], err));
    TRY(bs_tp_tensor_make(rank, BS_F32, ROWS, F, &k->x[i], err));
    TRY(bs_tp_tensor_make(rank, BS_F32, ROWS, F, &k->y[i], err));
  }
  return BS_OK;
}

static uint32_t tensor_rank(bs_rank *rank) {
  bs_tp_place p = {.struct_size = sizeof p};
  return bs_tp_get_place(rank, &p, NULL) == BS_OK ? p.tensor_rank : 0;
}

/* Starts the i-th sum: 100 i + rank over two ranks, so 200 i + 1, and twice the index. */
static int32_t start(bs_rank *rank, kit *k, int i, bs_error *err) {
  TRY(fill(rank, &k->x[i], 100.0f * (float)i + (float)tensor_rank(rank), err));
  return bs_tp_mapping_forward_start(k->sum[i], &k->x[i], &k->y[i], err);
}
static int32_t is_sum(bs_rank *rank, const kit *k, int i, bs_error *err) {
  return is_filled(rank, &k->y[i], 200.0f * (float)i + 1.0f, 2.0f, err);
}

/* ---- T3 -------------------------------------------------------------------------------------- */

/* A rank that leaves with pending work, and has freed all that the work uses. */
int32_t t3_orphan(bs_rank *rank, void *user, bs_error *err) {
  kit k;
  float *out = user; /* for each rank, where there is one memory */
  TRY(kit_make(rank, &k, err));
  for (int i = 0; i < MANY; ++i) TRY(start(rank, &k, i, err));
  MUST(bs_tp_pending(rank) == MANY, "%u pending", bs_tp_pending(rank));
  if (out != NULL) { /* a tensor of the caller's own memory */
    bs_tensor mine = k.y[0];
    mine.data = out + (size_t)bs_rank_get_api()->rank(rank) * ROWS * F;
    TRY(bs_tp_mapping_forward_start(k.sum[0], &k.x[0], &mine, err));
  }
  kit_free(rank, &k);
  MUST(bs_tp_pending(rank) >= MANY - 1, "a free has waited: %u pending", bs_tp_pending(rank));
  return BS_OK;
}

int32_t t3_resume(bs_rank *rank, void *user, bs_error *err) {
  kit k;
  (void)user;
  TRY(kit_make(rank, &k, err));
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < MANY; ++i) TRY(start(rank, &k, i, err));
    TRY(bs_tp_drain(rank, err));
    MUST(bs_tp_pending(rank) == 0, "%u pending behind a drain", bs_tp_pending(rank));
    for (int i = 0; i < MANY; ++i) TRY(is_sum(rank, &k, i, err));
    for (int i = 0; i < MANY; ++i) TRY(fill(rank, &k.y[i], -1.0f, err));
  }
  kit_free(rank, &k);
  return BS_OK;
}

/* Each rank waits at other places, for other tensors. */
int32_t t3_many(bs_rank *rank, void *user, bs_error *err) {
  const uint32_t me = bs_rank_get_api()->rank(rank);
  kit k;
  (void)user;
  TRY(kit_make(rank, &k, err));
  for (int i = 0; i < MANY; ++i) {
    TRY(start(rank, &k, i, err));
    if (me == 0 || (me == 1 && i == 3)) TRY(bs_tp_drain(rank, err));
    if (me == 2 && i > 0) TRY(is_sum(rank, &k, i - 1, err));
    if (me == 2)
      MUST(bs_tp_pending(rank) == 1, "%u pending: a read waits for what writes it, no more",
           bs_tp_pending(rank));
  }
  for (int i = MANY; i-- > 0;) TRY(is_sum(rank, &k, i, err));
  MUST(bs_tp_pending(rank) == 0, "%u pending", bs_tp_pending(rank));
  kit_free(rank, &k);
  return BS_OK;
}

int32_t t3_idempotent(bs_rank *rank, void *user, bs_error *err) {
  kit k;
  (void)user;
  for (int i = 0; i < 3; ++i) TRY(bs_tp_drain(rank, err));
  TRY(kit_make(rank, &k, err));
  TRY(start(rank, &k, 1, err));
  TRY(start(rank, &k, 1, err)); /* the same plan: the first is waited for */
  MUST(bs_tp_pending(rank) == 1, "%u pending", bs_tp_pending(rank));
  for (int i = 0; i < 3; ++i) TRY(bs_tp_drain(rank, err));
  TRY(is_sum(rank, &k, 1, err));
  kit_free(rank, &k);
  TRY(bs_tp_drain(rank, err));
  return BS_OK;
}

/* Rank 1 fails with pending work; what the others have pending ends with it, and nothing stays started. */
int32_t t3_exception(bs_rank *rank, void *user, bs_error *err) {
  const uint32_t me = bs_rank_get_api()->rank(rank);
  kit k;
  (void)user;
  TRY(kit_make(rank, &k, err));
  TRY(start(rank, &k, 0, err));
  if (me == 1) {
    kit_free(rank, &k);
    return bs_error_set(err, BS_CONFIG, "T3-EXCEPTION", "on purpose");
  }
  int32_t rc = start(rank, &k, 1, err);
  if (rc == BS_OK) rc = start(rank, &k, 2, err);
  if (rc == BS_OK) rc = bs_tp_drain(rank, err);
  if (rc == BS_OK)
    rc = bs_rank_barrier(rank, "t3_exception", err); /* the other tensor group learns it here */
  MUST(rc == BS_ABORTED, "the drain returned %s", bs_status_name(rc));
  (void)bs_tp_drain(rank, NULL);
  MUST(bs_tp_pending(rank) == 0 && bs_tp_drain(rank, NULL) == BS_OK, "%u pending behind a failed drain",
       bs_tp_pending(rank));
  kit_free(rank, &k);
  return rc;
}

/* ---- T5 -------------------------------------------------------------------------------------- */

static int32_t read_by_copy_out(bs_rank *rank, kit *k, bs_error *err) {
  return is_sum(rank, k, 0, err);
}
static int32_t read_by_get(bs_rank *rank, kit *k, bs_error *err) {
  double value = 0.0;
  TRY(bs_tp_get(rank, &k->y[0], 1, 2, &value, err));
  MUST(value == 1.0 + 2.0 * (F + 2), "%g", value);
  return BS_OK;
}
static int32_t read_by_format(bs_rank *rank, kit *k, bs_error *err) {
  static const char want[] = "f32 [3, 10]\n[[1, 3, 5, 7, 9, 11, 13, 15, ...],\n [21, 23, 25,";
  char text[512], cut[8];
  TRY(bs_tp_format(rank, &k->y[0], text, sizeof text, err));
  MUST(strncmp(text, want, sizeof want - 1) == 0, "%s", text);
  TRY(bs_tp_format(rank, &k->y[0], cut, sizeof cut, err));
  MUST(strcmp(cut, "f32 [3,") == 0, "%s", cut);
  return BS_OK;
}
static int32_t read_by_copy(bs_rank *rank, kit *k, bs_error *err) {
  TRY(bs_tp_copy(rank, &k->y[0], &k->x[5], err));
  return is_filled(rank, &k->x[5], 1.0f, 2.0f, err);
}

/* Everything that reads a tensor on the host waits for what writes it. */
int32_t t5_readers(bs_rank *rank, void *user, bs_error *err) {
  static int32_t (*const readers[])(bs_rank *, kit *, bs_error *) = {read_by_copy_out, read_by_get,
                                                                     read_by_format, read_by_copy};
  kit k;
  (void)user;
  TRY(kit_make(rank, &k, err));
  for (size_t i = 0; i < sizeof readers / sizeof readers[0]; ++i) {
    TRY(start(rank, &k, 0, err));
    TRY(start(rank, &k, 1, err));
    TRY(readers[i](rank, &k, err));
    MUST(bs_tp_pending(rank) == 1, "reader %d: %u pending, not the one that it does not read", (int)i,
         bs_tp_pending(rank));
    TRY(is_sum(rank, &k, 1, err));
    MUST(bs_tp_pending(rank) == 0, "reader %d", (int)i);
    TRY(fill(rank, &k.y[0], -5.0f, err));
  }
  kit_free(rank, &k);
  return BS_OK;
}

/* Rank 1 comes only when rank 0 has written (where the ranks share memory: `user`): a write that waited would
 * never return. */
int32_t t5_writers(bs_rank *rank, void *user, bs_error *err) {
  _Atomic uint32_t *written = user;
  const uint32_t me = bs_rank_get_api()->rank(rank);
  kit k;
  TRY(kit_make(rank, &k, err));
  TRY(fill(rank, &k.x[3], 7.0f, err));
  while (written != NULL && me == 1 && atomic_load(written) == 0) sched_yield();
  TRY(start(rank, &k, 0, err));
  TRY(fill(rank, &k.x[0], 1000.0f, err)); /* what the sum reads: behind it */
  TRY(fill(rank, &k.y[0], 50.0f, err));   /* what it writes: behind it too */
  MUST(bs_tp_pending(rank) == 3, "%u pending, not a sum and two writes", bs_tp_pending(rank));
  TRY(fill(rank, &k.x[4], 3.0f, err)); /* what nothing pending uses: at once */
  MUST(bs_tp_pending(rank) == 3, "%u pending", bs_tp_pending(rank));
  TRY(bs_tp_copy(rank, &k.x[3], &k.y[0], err)); /* waits for its source alone */
  MUST(bs_tp_pending(rank) == 4, "%u pending, not a sum and three writes", bs_tp_pending(rank));
  if (written != NULL && me == 0) atomic_store(written, 1);
  TRY(is_filled(rank, &k.y[0], 7.0f, 1.0f, err)); /* in the order of the program */
  TRY(is_filled(rank, &k.x[0], 1000.0f, 1.0f, err));
  TRY(start(rank, &k, 1, err));
  TRY(is_sum(rank, &k, 1, err));
  kit_free(rank, &k);
  return BS_OK;
}

/* ---- mappings -------------------------------------------------------------------------------- */

/* Both directions of each kind over two ranks, F features, of which this rank has `part` from `begin` on. */
int32_t t2_mappings(bs_rank *rank, void *user, bs_error *err) {
  const float me = (float)tensor_rank(rank);
  bs_tensor whole = {.struct_size = sizeof whole}, part = whole, back = whole;
  (void)user;
  for (int started = 0; started < 2; ++started)
    for (uint32_t kind = BS_TP_COPY_TO; kind <= BS_TP_GATHER_FROM; ++kind) {
      int32_t (*const forward)(bs_tp_mapping *, const bs_tensor *, bs_tensor *, bs_error *) =
          started ? bs_tp_mapping_forward_start : bs_tp_mapping_forward;
      int32_t (*const backward)(bs_tp_mapping *, const bs_tensor *, bs_tensor *, bs_error *) =
          started ? bs_tp_mapping_backward_start : bs_tp_mapping_backward;
      bs_tp_mapping *m = NULL;
      int64_t begin = 0, count = 0;
      TRY(bs_tp_mapping_make(rank, kind, BS_F32, ROWS, F, &m, err));
      bs_tp_mapping_part(m, &begin, &count);
      MUST(begin == (me > 0.0f ? F / 2 : 0) && count == F / 2, "part %d+%d", (int)begin, (int)count);
      const int64_t inside = kind < BS_TP_SCATTER_TO ? F : count;
      TRY(bs_tp_tensor_make(rank, BS_F32, ROWS, F, &whole, err));
      TRY(bs_tp_tensor_make(rank, BS_F32, ROWS, inside, &part, err));
      TRY(bs_tp_tensor_make(rank, BS_F32, ROWS, F, &back, err));
      double value = 0.0;
      switch (kind) {
        case BS_TP_COPY_TO:
        case BS_TP_REDUCE_FROM: { /* one direction copies, the other sums me and 1 - me */
          TRY(fill(rank, &whole, me, err));
          const int sums = kind == BS_TP_REDUCE_FROM;
          TRY((sums ? backward : forward)(m, &whole, &part, err));
          TRY(is_filled(rank, &part, me, 1.0f, err));
          TRY((sums ? forward : backward)(m, &part, &back, err));
          TRY(is_filled(rank, &back, 1.0f, 2.0f, err));
          break;
        }
        default: { /* the part of a whole, and the whole of the parts */
          const int gathers = kind == BS_TP_GATHER_FROM;
          TRY(fill(rank, &whole, 0.0f, err));
          TRY((gathers ? backward : forward)(m, &whole, &part, err));
          TRY(bs_tp_get(rank, &part, 2, 1, &value, err));
          MUST(value == (double)(2 * F + begin + 1), "the part has %g", value);
          TRY((gathers ? forward : backward)(m, &part, &back, err));
          TRY(is_filled(rank, &back, 0.0f, 1.0f, err));
          break;
        }
      }
      bs_error e = BS_ERROR_INIT;
      part.dims[1] = F + 1;
      MUST(forward(m, &whole, &part, &e) != BS_OK && strcmp(e.id, "BS-TP-MAPPING") == 0, "%s", e.id);
      part.dims[1] = inside;
      bs_tp_tensor_free(rank, &whole);
      bs_tp_tensor_free(rank, &part);
      bs_tp_tensor_free(rank, &back);
      bs_tp_mapping_free(m);
    }
  bs_tp_mapping *none = NULL;
  bs_error e = BS_ERROR_INIT;
  MUST(bs_tp_mapping_make(rank, 4, BS_F32, ROWS, F, &none, &e) != BS_OK, "kind 4");
  MUST(bs_tp_mapping_make(rank, 0, BS_F32, 0, F, &none, &e) != BS_OK && none == NULL, "no rows");
  return BS_OK;
}
