/* SPDX-License-Identifier: MIT
 * skel_op.c - activate@ref/skel_op: relu, or no activation, of f32 matrices of any strides. What it does not
 * serve it refuses with a reason, and another implementation is asked. */
#include "skel_op.h"

/* The op's knob. A tuner tries each value; "auto" lets prepare choose. */
static const bs_knob deal_knob = {(uint32_t)sizeof(bs_knob),
                                  0u,
                                  "deal",
                                  "runs,turns",
                                  "auto",
                                  "a member's rows: a run of them, or every so many-th; auto: runs"};
static const bs_knob *const knobs[] = {&deal_knob};

typedef struct op_plan {
  const bs_host *host;
  const bs_exec *exec; /* lives as long as the plan */
  int relu;
  int turns; /* the knob */
} op_plan;

/* One run, as the members of the rank's team see it. */
typedef struct op_job {
  const bs_tensor *in, *out;
  int relu, turns;
} op_job;

static int32_t no(bs_op_answer *answer, uint32_t reason, const char *why) {
  answer->level = BS_LEVEL_NO;
  answer->reason = reason;
  snprintf(answer->text, sizeof answer->text, "%s", why);
  return BS_OK;
}

/* Pure, and true: what is answered NATIVE here must run, what is answered NO must be refused by prepare. */
static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  (void)state;
  const bs_tensor_desc *in = query->nargs == 2 ? query->args[0] : NULL;
  const bs_tensor_desc *out = query->nargs == 2 ? query->args[1] : NULL;
  if (in == NULL || out == NULL || in->rank != 2 || out->rank != 2)
    return no(answer, BS_REASON_RANK, "needs two matrices");
  if (in->dims[0] != out->dims[0] || in->dims[1] != out->dims[1])
    return no(answer, BS_REASON_SHAPE, "input and output differ in shape");
  if (in->dtype != BS_F32 || out->dtype != BS_F32)
    return no(answer, BS_REASON_DTYPE, "f32 input and output only");
  if (query->activation != BS_ACT_RELU && query->activation != BS_ACT_NONE)
    return no(answer, BS_REASON_NOT_BUILT, "relu and none only");
  answer->level = BS_LEVEL_NATIVE;
  answer->score = 200; /* of 1000; that of the backend's own is 100 */
  answer->reason = BS_REASON_NONE;
  answer->tolerance = BS_TOL_EXACT;
  answer->workspace = 0;
  snprintf(answer->algo, sizeof answer->algo, "%s", query->activation == BS_ACT_RELU ? "relu" : "copy");
  return BS_OK;
}

/* Everything slow, once a shape: choose, allocate. `packed` is for ops over weights. */
static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const bs_host *host = (const bs_host *)state;
  bs_op_answer answer;
  char deal[8];
  (void)packed;
  memset(&answer, 0, sizeof answer);
  answer.struct_size = (uint32_t)sizeof answer;
  supports(state, query, &answer);
  if (answer.level == BS_LEVEL_NO)
    return bs_fail(err, BS_UNSUPPORTED, "BS-SKEL-OP-QUERY", "activate@ref/skel_op: %s", answer.text);
  op_plan *plan = (op_plan *)host->alloc(host->ctx, sizeof *plan, 64);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SKEL-OP-MEMORY", "no memory for a plan");
  plan->host = host;
  plan->exec = exec;
  plan->relu = query->activation == BS_ACT_RELU;
  plan->turns = bs_knob_find(query->knobs, "deal", deal, sizeof deal) && strcmp(deal, "turns") == 0;
  *out_plan = plan;
  return BS_OK;
}

/* The plan's report: every knob with the value in use. The host compares it with its request. */
static int32_t echo(const void *ptr, bs_op_echo *out_echo) {
  const op_plan *plan = (const op_plan *)ptr;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  bs_echo_word(&mine, "deal", plan->turns ? "turns" : "runs");
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

/* This member's share of the rows. NaN is not negative and stays. */
static void apply_rows(void *arg, uint32_t member, uint32_t width) {
  const op_job *job = (const op_job *)arg;
  const int64_t rows = job->in->dims[0], cols = job->in->dims[1];
  const int64_t in_step = job->in->strides[1], out_step = job->out->strides[1];
  const int64_t first = job->turns ? (int64_t)member : rows * member / width;
  const int64_t end = job->turns ? rows : rows * (member + 1) / width;
  for (int64_t b = first; b < end; b += job->turns ? (int64_t)width : 1) {
    const float *in = (const float *)job->in->data + b * job->in->strides[0];
    float *out = (float *)job->out->data + b * job->out->strides[0];
    for (int64_t n = 0; n < cols; n++) {
      const float value = in[n * in_step];
      out[n * out_step] = job->relu && value < 0.0f ? 0.0f : value;
    }
  }
}

/* The hot call: the host has compared the tensors with the query. No memory, no locks, no names. */
static int32_t run(void *ptr, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const op_plan *plan = (const op_plan *)ptr;
  op_job job = {args[0], args[1], plan->relu, plan->turns};
  (void)nargs;
  (void)stream; /* ref's ops are done when run returns */
  if (job.in->dims[0] == 0 || job.in->dims[1] == 0) return BS_OK;
  const int32_t rc = plan->exec->parallel_for(plan->exec->ctx, apply_rows, &job);
  return rc == BS_OK ? BS_OK : bs_fail(err, rc, "BS-SKEL-OP-TEAM", "the rank's team failed");
}

static void plan_free(void *ptr) {
  op_plan *plan = (op_plan *)ptr;
  if (plan != NULL) plan->host->free(plan->host->ctx, plan);
}

void skel_op_table(bs_op_impl *impl) {
  memset(impl, 0, sizeof *impl);
  impl->struct_size = (uint32_t)sizeof *impl;
  impl->op = "activate";
  impl->backend = "ref";
  impl->name = "skel_op";
  impl->summary = "relu or none, row by row";
  impl->supports = supports;
  impl->prepare = prepare;
  impl->run = run;
  impl->plan_free = plan_free;
  impl->n_knobs = 1;
  impl->knobs = knobs;
  impl->echo = echo;
}
