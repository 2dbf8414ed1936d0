/* SPDX-License-Identifier: MIT
 * convert.c - out[b,n] = in[b,n] rounded to out's dtype (docs/numbers.md: nearest even, floats to integers
 * saturate, NaN to 0; bool is 0 or 1). Any pair of dtypes, any strides. Rows are divided over the team, or
 * columns when there are fewer rows than members. */
#include "../ref.h"

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  if (query->nargs != 2 || !ref_arg_ok(query, 0, 2) || !ref_arg_ok(query, 1, 2))
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs two matrices of known dtypes");
  if (query->args[0]->dims[0] != query->args[1]->dims[0] ||
      query->args[0]->dims[1] != query->args[1]->dims[1])
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "input and output differ in shape");
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  return ref_plan_make(&ref_convert, state, exec, query, sizeof(ref_plan), out_plan, err);
}

enum { CHUNK = 256 };

/* Both sides dense: one conversion a row. Otherwise through a dense piece of the output's dtype. */
static int32_t convert_part(const ref_rows *job, int64_t row, int64_t begin, int64_t end) {
  const bs_host *host = job->host;
  if (job->out.col == 1) {
    unsigned char *out = job->out.data + (uint64_t)(row * job->out.row + begin) * job->out.size;
    return ref_load(host, &job->in, row, NULL, begin, end - begin, job->out.dtype, out);
  }
  _Alignas(64) unsigned char piece[CHUNK * 8];
  for (int64_t c = begin; c < end; c += CHUNK) {
    const int64_t n = end - c < CHUNK ? end - c : CHUNK;
    int32_t rc = ref_load(host, &job->in, row, NULL, c, n, job->out.dtype, piece);
    if (rc == BS_OK) rc = ref_store(host, &job->out, row, c, n, job->out.dtype, piece);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const ref_plan *plan = opaque;
  ref_rows rows = {plan->host, ref_view_of(args[0]), ref_view_of(args[1]), convert_part, NULL, BS_OK};
  return ref_rows_run(&rows, plan->exec, err);
}

const bs_src_loc ref_convert_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_convert = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "convert",
    .backend = "ref",
    .name = "portable",
    .summary = "rounds to another dtype",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
