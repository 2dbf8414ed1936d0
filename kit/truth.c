/* SPDX-License-Identifier: MIT
 * truth.c - group truth: what supports answers is what happens. Supported queries run, refused ones refuse
 * with a reason, and the answer to a query is always the same. */
#include <pthread.h>
#include <stdio.h>

#include "kit/graph.h"

static void check_answer(const kit_data *d, const bs_op_answer *a) {
  kit_assert(a->level <= BS_LEVEL_UNKNOWN, "%s: supports answers level %u", kit_data_text(d), a->level);
  kit_assert(a->score <= 1000, "%s: supports answers a score of %u, at most 1000", kit_data_text(d),
             a->score);
  if (a->level == BS_LEVEL_NATIVE || a->level == BS_LEVEL_EMULATED)
    kit_assert(
        kit_tolerance_fits(d, a->tolerance),
        "%s: sums are asked for in %s, and supports answers %s with tolerance class %u, which is looser",
        kit_data_text(d), kit_wide(d) ? "f64" : "f32", bs_level_name(a->level), a->tolerance);
  if (a->level != BS_LEVEL_NO) return;
  kit_assert(
      a->reason != BS_REASON_NONE && memchr(a->text, '\0', sizeof a->text) != NULL && a->text[0] != '\0',
      "%s: supports answers NO without a reason code and a text", kit_data_text(d));
}

static void check_run(kit_actor *a, kit_data *d, const bs_op_answer *answer) {
  bs_error err = BS_ERROR_INIT;
  const char *stage = "";
  const int32_t rc = kit_data_run(a, d, &stage, &err);
  switch (answer->level) {
    case BS_LEVEL_NO:
      kit_assert(rc != BS_OK, "%s: supports answers NO (%s), and it runs", kit_data_text(d), answer->text);
      kit_assert(rc == BS_UNSUPPORTED, "%s: supports answers NO, and %s gives %s instead of UNSUPPORTED",
                 kit_data_text(d), stage, bs_status_name(rc));
      break;
    case BS_LEVEL_UNKNOWN:
      kit_assert(rc == BS_OK || rc == BS_UNSUPPORTED, "%s: supports answers UNKNOWN, and %s gives %s: %s",
                 kit_data_text(d), stage, bs_status_name(rc), err.message);
      break;
    default:
      kit_assert(rc == BS_OK, "%s: supports answers %s, and %s refuses: %s: %s", kit_data_text(d),
                 bs_level_name(answer->level), stage, err.id, err.message);
      break;
  }
  kit_assert(rc == BS_OK || err.message[0] != '\0', "%s: %s fails without a reason", kit_data_text(d), stage);
}

static int unknown_op(const kit_actor *a) {
  if (kit_op_known(a->impl->op)) return 0;
  kit_unsupported("op %s is the plugin's own: the kit knows no queries of it", a->impl->op);
  return 1;
}

void kit_truth_supports(const kit_case *c) {
  static kit_actor a;
  kit_shape s;
  if (!kit_actor_open(&a, c->thing, 2) || unknown_op(&a)) return;
  for (int family = 0; family < 2; family++)
    for (uint32_t i = 0; kit_grid(a.impl->op, i, family, &s) && !s.edge; i++) {
      kit_data d;
      bs_op_answer first, second;
      kit_data_make(&d, a.impl->op, &s);
      kit_data_ask(&a, &d, &first);
      kit_data_ask(&a, &d, &second);
      check_answer(&d, &first);
      kit_assert(memcmp(&first, &second, sizeof first) == 0, "%s: supports answers two things to one query",
                 kit_data_text(&d));
      check_run(&a, &d, &first);
      kit_data_free(&a, &d);
    }
  kit_actor_close(&a);
}

/* ---- from eight threads --------------------------------------------------------------------- */

enum { THREADS = 8, ASKED = 60 };

typedef struct asker {
  const kit_actor *a;
  const kit_data *d;
  bs_op_answer answers[ASKED];
} asker;

static void *ask_all(void *opaque) {
  asker *me = opaque;
  for (int i = 0; i < ASKED; i++) kit_data_ask(me->a, &me->d[i], &me->answers[i]);
  return NULL;
}

void kit_truth_threads(const kit_case *c) {
  static kit_actor a;
  static kit_data d[ASKED];
  static asker askers[THREADS];
  pthread_t threads[THREADS];
  kit_shape s;
  if (!kit_actor_open(&a, c->thing, 1) || unknown_op(&a)) return;
  for (uint32_t i = 0; i < ASKED; i++) {
    if (!kit_grid(a.impl->op, i, i % 3 == 2, &s)) kit_grid(a.impl->op, i, 0, &s);
    kit_data_make(&d[i], a.impl->op, &s);
  }
  for (int t = 0; t < THREADS; t++) {
    askers[t].a = &a;
    askers[t].d = d;
    kit_assert(pthread_create(&threads[t], NULL, ask_all, &askers[t]) == 0, "no threads");
  }
  for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
  for (int t = 1; t < THREADS; t++)
    for (int i = 0; i < ASKED; i++)
      kit_assert(memcmp(&askers[t].answers[i], &askers[0].answers[i], sizeof(bs_op_answer)) == 0,
                 "%s: supports answers two threads differently", kit_data_text(&d[i]));
  for (int i = 0; i < ASKED; i++) kit_data_free(&a, &d[i]);
  kit_actor_close(&a);
}

/* ---- sizes too large to run ----------------------------------------------------------------- */

/* For 2:4 weights: supports looks at the sizes of positions and reads none. */
static void huge_groups(kit_data *d, const int64_t size[3]) {
  const int64_t length = (size[2] + 3) / 4 * 2;
  d->positions.rows = strcmp(d->op, "expand24") == 0 ? size[0] : size[1];
  d->positions.cols = size[2];
  if (kit_op_is(d->op, "matmul_dw")) d->a[2].d.dims[1] = length;
  if (strcmp(d->op, "expand24") != 0) return;
  d->a[0].d.dims[1] = length;
  d->a[1].d.dims[1] = size[2];
}

/* supports must have an answer, whatever the sizes: it may not overflow into a yes by a wrapped product. */
void kit_truth_huge(const kit_case *c) {
  static const int64_t huge[][3] = {{INT64_C(1) << 31, 3, 5},
                                    {3, INT64_C(1) << 31, 5},
                                    {3, 5, INT64_C(4294967291)},
                                    {INT64_C(1) << 20, INT64_C(1) << 20, 1},
                                    {1, INT64_C(1) << 33, INT64_C(1) << 20}};
  static kit_actor a;
  if (!kit_actor_open(&a, c->thing, 1) || unknown_op(&a)) return;
  for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
    kit_shape s = {.x = BS_F32, .w = BS_F32, .y = BS_F32, .B = 2, .N = 2, .K = 2, .seed = i};
    kit_data d;
    bs_op_answer answer;
    if (strstr(a.impl->op, "_columns") != NULL) s.part = KIT_RUN;
    kit_data_make(&d, a.impl->op, &s);
    const int64_t kept = huge[i][2] / 2;
    if (s.part == KIT_RUN) {
      d.partition.total = huge[i][2];
      d.partition.begin = 0;
      d.partition.count = d.partition.span = kept;
    }
    if (kit_graph_find(a.impl->op) != NULL) kit_graph_huge(&d, (uint32_t)i);
    for (uint32_t k = 0; k < d.nargs && kit_graph_find(a.impl->op) == NULL; k++) {
      if (d.a[k].block == NULL) continue;
      bs_tensor_desc *desc = &d.a[k].d;
      memset(desc->strides, 0, sizeof desc->strides);
      desc->dims[0] = huge[i][0];
      desc->dims[1] = huge[i][1];
    }
    if (kit_op_is(a.impl->op, "matmul") || kit_op_is(a.impl->op, "matmul_update"))
      d.a[0].d.dims[1] = huge[i][2];
    if (kit_op_is(a.impl->op, "matmul_dx")) d.a[1].d.dims[1] = huge[i][2];
    if (kit_op_is(a.impl->op, "matmul_dw")) {
      d.a[0].d.dims[1] = d.a[2].d.dims[1] = huge[i][2];
      d.a[2].d.dims[0] = huge[i][1];
    }
    if (d.groups != NULL) huge_groups(&d, huge[i]);
    if (d.q != NULL) kit_q_huge(&d, huge[i]);
    if (kit_is_loss(a.impl->op)) d.a[3].d.dims[1] = 1;
    if (kit_is_quant(a.impl->op)) kit_quant_huge(&d, huge[i][0], huge[i][1]);
    if (kit_op_is(a.impl->op, "matmul_update")) d.a[2].d.dims[0] = 1;
    if (kit_is_step(a.impl->op)) d.a[d.nargs - 1].d.dims[0] = d.nargs == 4 ? 8 : 4;
    if (s.part == KIT_RUN) {
      const int gather = strcmp(a.impl->op, "gather_columns") == 0;
      d.a[gather ? 0 : 1].d.dims[1] = huge[i][2];
      d.a[gather ? 1 : 0].d.dims[1] = kept;
    }
    memset(&answer, 0, sizeof answer);
    answer.struct_size = (uint32_t)sizeof answer;
    kit_assert(a.impl->supports(a.state, &d.query, &answer) == BS_OK,
               "supports fails at B=%lld N=%lld K=%lld", (long long)huge[i][0], (long long)huge[i][1],
               (long long)huge[i][2]);
    check_answer(&d, &answer);
    kit_data_free(&a, &d);
  }
  kit_actor_close(&a);
}

/* ---- services that fail --------------------------------------------------------------------- */

enum { HOST, DEVICE, TEAM, N_SERVICES };

typedef struct service {
  const char *what;
  int64_t *calls, *fail_at;
} service;

/* Each call of one service fails, one after the other: the result is an error with a reason and nothing left,
 * or the right output despite the failure. */
static void fail_each(kit_actor *a, kit_data *d, const service *s, uint32_t tolerance) {
  for (int64_t n = 1; n < 100; n++) {
    bs_error err = BS_ERROR_INIT;
    const char *stage = "";
    const int64_t before = a->p->host.blocks;
    snprintf(d->note, sizeof d->note, " (%s %lld fails)", s->what, (long long)n);
    kit_poison_outputs(d, 0xA5);
    *s->calls = 0;
    *s->fail_at = n;
    const int32_t rc = kit_data_run(a, d, &stage, &err);
    const int64_t used = *s->calls;
    *s->fail_at = 0;
    kit_assert(a->live == 0 && a->p->host.blocks == before, "%s: memory is left by %s", kit_data_text(d),
               stage);
    kit_assert(rc == BS_OK || err.message[0] != '\0', "%s: %s fails without a reason", kit_data_text(d),
               stage);
    if (rc == BS_OK && (a->backend->flags & BS_BACKEND_PHANTOM) == 0) kit_data_judge(d, tolerance, 0);
    if (used < n) break;
  }
}

void kit_life_memory(const kit_case *c) {
  static kit_actor a;
  const service services[N_SERVICES] = {
      [HOST] = {"allocation of host memory", NULL, NULL},
      [DEVICE] = {"allocation of device memory", &a.calls, &a.fail_at},
      [TEAM] = {"parallel_for", &a.team_calls, &a.team_fail_at},
  };
  kit_shape s = {.x = BS_F32, .w = BS_F32, .y = BS_F32, .B = 5, .N = 17, .K = 33, .seed = 5};
  kit_data d;
  bs_op_answer answer;
  if (!kit_actor_open(&a, c->thing, 2) || unknown_op(&a)) return;
  if (strncmp(a.impl->op, "matmul", 6) == 0 || strstr(a.impl->op, "_columns") != NULL) s.part = KIT_PATTERN;
  if (kit_graph_find(a.impl->op) != NULL) s.spread = KIT_DENSE;
  for (s.index = 0;; s.index++) { /* of the kinds of queries the first that is served */
    kit_data_make(&d, a.impl->op, &s);
    kit_data_ask(&a, &d, &answer);
    if (answer.level != BS_LEVEL_NO || s.index + 1 == kit_graph_kinds(a.impl->op)) break;
    kit_data_free(&a, &d);
  }
  for (int i = 0; i < N_SERVICES && answer.level != BS_LEVEL_NO; i++) {
    service one = services[i];
    if (i == HOST) one = (service){one.what, &a.p->host.calls, &a.p->host.fail_at};
    fail_each(&a, &d, &one, answer.tolerance);
  }
  kit_data_free(&a, &d);
  if (answer.level == BS_LEVEL_NO) kit_unsupported("f32 is not served: %s", answer.text);
  kit_actor_close(&a);
}
