/* SPDX-License-Identifier: MIT
 * attention_ask.h - a query of attention over tensors of a test's own, and one run of it. */
#ifndef BS_TESTS_CPU_ATTENTION_ASK_H
#define BS_TESTS_CPU_ATTENTION_ASK_H
#include <string.h>

#include "cpu_host.h"

enum { Q, K, V, MASK, LENGTHS, DESCALE, Y, LSE, ARGS, DY = ARGS, DQ, DK, DV, DX_ARGS };

static inline bs_tensor dense(uint32_t dtype, const int64_t *dims, void *data) {
  bs_tensor t = {.struct_size = sizeof t, .dtype = dtype, .data = data};
  int64_t stride = 1;
  for (; t.rank < 4 && dims[t.rank] > 0; t.rank++) t.dims[t.rank] = dims[t.rank];
  for (uint32_t i = t.rank; i-- > 0; stride *= t.dims[i]) t.strides[i] = stride;
  t.bytes = (uint64_t)stride * BS_DTYPE_BYTES(dtype);
  return t;
}

/* What is asked of a plan of `t`; attrs as those of the op. */
typedef struct ask {
  bs_tensor_desc descs[DX_ARGS];
  const bs_tensor_desc *asked[DX_ARGS];
  bs_tensor *args[DX_ARGS];
  bs_op_query q;
} ask;
static inline void make_ask(ask *a, const char *op, const char *knobs, bs_tensor *t, uint32_t n,
                            const int64_t attrs[3]) {
  memset(a, 0, sizeof *a);
  for (uint32_t i = 0; i < n; i++) {
    if (t[i].data == NULL) continue;
    bs_tensor_desc *d = &a->descs[i];
    *d = (bs_tensor_desc){.struct_size = sizeof *d, .dtype = t[i].dtype, .rank = t[i].rank};
    memcpy(d->dims, t[i].dims, sizeof d->dims);
    memcpy(d->strides, t[i].strides, sizeof d->strides);
    a->asked[i] = d;
    a->args[i] = &t[i];
  }
  a->q = (bs_op_query){.struct_size = sizeof a->q, .op = op, .nargs = n, .args = a->asked, .knobs = knobs};
  a->q.numbers[0] = 1.0;
  for (int i = 0; i < 3 && attrs != NULL; i++) a->q.attrs[i] = attrs[i];
}

/* One run with knobs; the echo of its plan, and the class of the answer. 0: refused, with the reason in
 * err. */
static inline uint32_t try_run(kit_actor *c, ask *a, bs_op_echo *out_echo, bs_error *err) {
  void *plan = NULL;
  bs_op_answer answer = {.struct_size = sizeof answer};
  ck_assert_int_eq(c->impl->supports(c->state, &a->q, &answer), BS_OK);
  const int32_t rc = c->impl->prepare(c->state, &c->exec, &a->q, NULL, &plan, err);
  if (rc != BS_OK) return 0;
  ck_assert_int_eq(answer.level, BS_LEVEL_NATIVE);
  memset(c->scratch, 0xA5, c->scratch_bytes);
  ck_assert_msg(c->impl->run(plan, a->args, a->q.nargs, NULL, err) == BS_OK, "%s", err->message);
  *out_echo = (bs_op_echo){.struct_size = sizeof *out_echo};
  ck_assert_int_eq(c->impl->echo(plan, out_echo), BS_OK);
  c->impl->plan_free(plan);
  return answer.tolerance;
}
#endif
