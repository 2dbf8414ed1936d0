/* SPDX-License-Identifier: MIT
 * plan.c - what most ops of ref do alike: plans, and runs over a few matrices and vectors. */
#include "../ref.h"

int32_t ref_plan_make(const bs_op_impl *impl, ref_state *state, const bs_exec *exec, const bs_op_query *query,
                      size_t size, void **out_plan, bs_error *err) {
  const int32_t rc = ref_require(impl, state, query, err);
  if (rc != BS_OK) return rc;
  ref_plan *plan = state->host->alloc(state->host->ctx, size, 64);
  if (plan == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a plan of %s", impl->op);
  memset(plan, 0, size);
  plan->host = state->host;
  plan->exec = exec;
  memcpy(plan->attrs, query->attrs, sizeof plan->attrs);
  memcpy(plan->numbers, query->numbers, sizeof plan->numbers);
  plan->activation = query->activation;
  plan->nargs = query->nargs;
  *out_plan = plan;
  return BS_OK;
}

void ref_plan_free(void *opaque) {
  ref_plan *plan = opaque;
  if (plan != NULL) plan->host->free(plan->host->ctx, plan);
}

int ref_args_fit(const bs_op_query *query, uint32_t n, const uint32_t *ranks, uint32_t optional,
                 bs_op_answer *out_answer) {
  for (uint32_t i = 0; i < n; i++) {
    if ((optional >> i & 1u) != 0 && query->args[i] == NULL) continue;
    if (ref_arg_ok(query, i, ranks[i])) continue;
    ref_answer_no(out_answer, BS_REASON_RANK, "arg %u: %u dimensions of a known dtype", i, ranks[i]);
    return 0;
  }
  return 1;
}

int32_t ref_job_run(const ref_plan *plan, bs_tensor *const *args, uint32_t nargs,
                    void (*share)(void *job, uint32_t member, uint32_t width), const char *id,
                    const char *text, bs_error *err) {
  ref_job job;
  memset(&job, 0, sizeof job);
  job.plan = plan;
  for (uint32_t i = 0; i < nargs; i++)
    if (args[i] != NULL) job.v[i] = ref_view_of(args[i]);
  int32_t rc = plan->exec->parallel_for(plan->exec->ctx, share, &job);
  if (rc == BS_OK) rc = job.failed;
  return rc == BS_OK ? rc : bs_fail(err, rc, id, "%s", text);
}

void ref_job_items(ref_job *job, int64_t items, uint32_t member, uint32_t width,
                   int32_t (*one)(const ref_job *job, int64_t item)) {
  int64_t begin, end;
  ref_share(items, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int32_t rc = one(job, i);
    if (rc != BS_OK) __atomic_store_n(&job->failed, rc, __ATOMIC_RELAXED);
  }
}
