/* SPDX-License-Identifier: MIT
 * together_op.c - group threads, for ops: two ranks run two plans over one packed weight at the same time.
 * The first rank is stopped in the middle of its run wherever the kernel happens to be, by a page of its
 * tensors that it may not touch yet; the second runs from begin to end meanwhile. No luck of timing is
 * needed. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kit/graph.h"

typedef struct side {
  kit_actor *a;
  kit_data d;
  void *packed; /* shared by both; NULL: the op takes none */
  void *plan;
  int32_t rc;
  bs_error err;
  unsigned char *alone; /* the output's block after a separate run */
} side;

/* ---- the page that stops ---------------------------------------------------------------------- */

static struct {
  unsigned char *page;
  size_t bytes;
  _Atomic int stopped, go;
} trap;

static void on_fault(int number, siginfo_t *info, void *context) {
  const struct timespec step = {0, 1000000};
  const unsigned char *at = info->si_addr;
  (void)context;
  if (trap.page == NULL || at < trap.page || at >= trap.page + trap.bytes) {
    signal(number, SIG_DFL); /* a fault of the plugin's own: it happens again, and ends the process */
    return;
  }
  atomic_store(&trap.stopped, 1);
  for (int i = 0; i < 40000 && !atomic_load(&trap.go); i++) nanosleep(&step, NULL);
  mprotect(trap.page, trap.bytes, PROT_READ | PROT_WRITE);
}

/* Protects a page in the middle of a tensor. 0: the tensor has no whole page. */
static int set_trap(const kit_tensor *t) {
  const uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t begin = (uintptr_t)t->block, end = begin + t->block_bytes;
  uintptr_t page = (begin + t->block_bytes / 2) / size * size;
  if (page < begin) page += size;
  if (page + size > end) return 0;
  trap.page = (unsigned char *)page;
  trap.bytes = size;
  trap.stopped = trap.go = 0;
  return mprotect(trap.page, trap.bytes, PROT_NONE) == 0;
}

/* ---- two sides -------------------------------------------------------------------------------- */

static void run_plan(side *s) {
  bs_tensor *args[KIT_ARGS];
  for (uint32_t i = 0; i < s->d.nargs; i++) args[i] = s->d.a[i].block != NULL ? &s->d.a[i].t : NULL;
  bs_error_clear(&s->err);
  s->rc = s->a->impl->run(s->plan, args, s->d.nargs, NULL, &s->err);
}

/* A plan is prepared and run by the rank's own thread. */
static void *first_main(void *opaque) {
  side *s = opaque;
  run_plan(s);
  return NULL;
}

static void check_side(const side *s, const char *which) {
  const kit_tensor *out = &s->d.a[s->d.out];
  kit_assert(s->rc == BS_OK, "%s: two ranks at once: run of the %s fails: %s: %s", kit_data_text(&s->d),
             which, s->err.id, s->err.message);
  kit_assert(memcmp(out->block, s->alone, out->block_bytes) == 0,
             "%s: two ranks run it at once, one of them stopped in the middle: the %s gets other values than "
             "alone: plans share memory that is written while they run",
             kit_data_text(&s->d), which);
}

static void meet(side *first, side *second, const kit_tensor *where, const char *what) {
  const struct timespec step = {0, 1000000};
  pthread_t thread;
  kit_poison_outputs(&first->d, 0xA5);
  kit_poison_outputs(&second->d, 0xA5);
  if (!set_trap(where)) return;
  kit_assert(pthread_create(&thread, NULL, first_main, first) == 0, "no threads");
  for (int i = 0; i < 10000 && !atomic_load(&trap.stopped); i++) nanosleep(&step, NULL);
  kit_assert(atomic_load(&trap.stopped), "%s: run never touches %s", kit_data_text(&first->d), what);
  alarm(20);
  run_plan(second);
  alarm(0);
  atomic_store(&trap.go, 1);
  pthread_join(thread, NULL);
  mprotect(trap.page, trap.bytes, PROT_READ | PROT_WRITE);
  check_side(first, "stopped one");
  check_side(second, "other one");
}

static void on_alarm(int number) {
  (void)number;
  static const char text[] = "run of one rank waits for another rank's: it may not lock";
  memcpy(kit.notes[kit.current].text, text, sizeof text);
  _exit(1);
}

static void side_make(side *s, kit_actor *a, const char *op, const kit_shape *shape) {
  memset(s, 0, sizeof *s);
  s->a = a;
  kit_data_make(&s->d, op, shape);
  for (uint32_t i = 0; i < s->d.nargs; i++) kit_push(a, &s->d.a[i]);
}

static void side_ready(side *s, void *packed) {
  s->packed = packed;
  s->rc = s->a->impl->prepare(s->a->state, &s->a->exec, &s->d.query, packed, &s->plan, &s->err);
  kit_assert(s->rc == BS_OK, "%s: prepare fails: %s: %s", kit_data_text(&s->d), s->err.id, s->err.message);
  kit_tensor *out = &s->d.a[s->d.out];
  kit_poison_outputs(&s->d, 0xA5);
  run_plan(s);
  kit_assert(s->rc == BS_OK, "%s: run fails: %s: %s", kit_data_text(&s->d), s->err.id, s->err.message);
  s->alone = malloc(out->block_bytes);
  kit_assert(s->alone != NULL, "no memory");
  memcpy(s->alone, out->block, out->block_bytes);
}

static void side_free(side *s) {
  if (s->plan != NULL) s->a->impl->plan_free(s->plan);
  free(s->alone);
  kit_data_free(s->a, &s->d);
}

/* ---- the check -------------------------------------------------------------------------------- */

/* The first dtype of which a query of several pages is served. */
static int find_shape(const kit_actor *a, kit_shape *out) {
  static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16, BS_F64, BS_I32};
  const uint32_t kinds = kit_graph_kinds(a->impl->op);
  for (size_t n = 0; n < kinds * sizeof dtypes / sizeof dtypes[0]; n++) {
    const size_t i = n / kinds;
    bs_op_answer answer;
    kit_data d;
    *out = (kit_shape){.x = dtypes[i],
                       .w = dtypes[i],
                       .y = dtypes[i],
                       .B = 40,
                       .N = 296,
                       .K = 520,
                       .flags = BS_QUERY_DETERMINISTIC,
                       .seed = 21,
                       .in_place = kit_graph_find(a->impl->op) != NULL}; /* no small inputs */
    out->index = (uint32_t)(n % kinds);
    if (kinds > 1) out->spread = KIT_DENSE;
    if (kit_op_is(a->impl->op, "matmul_dw") && bs_dtype_is_float(dtypes[i])) out->w = BS_F32;
    if (strstr(a->impl->op, "_columns") != NULL) out->part = KIT_PATTERN;
    kit_data_make(&d, a->impl->op, out);
    kit_data_ask(a, &d, &answer);
    kit_data_free((kit_actor *)(uintptr_t)a, &d);
    if (answer.level == BS_LEVEL_NATIVE || answer.level == BS_LEVEL_EMULATED) return 1;
  }
  return 0;
}

static void both(kit_actor *a, kit_actor *b, kit_shape shape) {
  side first, second;
  side_make(&first, a, a->impl->op, &shape);
  if (kit_is_q(a->impl->op))
    shape.index++; /* a plan has the form of its weight */
  else
    shape.seed++;
  side_make(&second, b, a->impl->op, &shape);
  void *packed = kit_data_pack(a, &first.d);
  side_ready(&first, packed);
  side_ready(&second, packed);
  if (strcmp(a->impl->op, "take") != 0 &&
      strcmp(a->impl->op, "put") != 0) /* that reads what its index names */
    meet(&first, &second, &first.d.a[0], "the middle of its input");
  meet(&first, &second, &first.d.a[first.d.out], "the middle of its output");
  side_free(&first);
  side_free(&second);
  if (packed != NULL) a->packer->packed_free(packed);
}

void kit_op_together(const kit_case *c) {
  static kit_actor a, b;
  kit_shape shape;
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  if (!kit_actor_open(&a, c->thing, 1)) return;
  const char *why = kit_actor_attach(&b, a.p, c->thing, 1);
  kit_assert(why == NULL, "a device cannot be opened twice: %s", why);
  if (!kit_op_known(a.impl->op)) {
    kit_unsupported("op %s is the plugin's own: the kit knows no queries of it", a.impl->op);
  } else if (kit_changes_weight(a.impl->op)) {
    kit_unsupported("it writes its weight: one rank at a time");
  } else if (!kit_host_memory(&a)) {
    kit_unsupported("the kit stops runs whose tensors are in host memory");
  } else if (!find_shape(&a, &shape)) {
    kit_unsupported("no dtype of a deterministic query of 40 x 296 x 520 is served");
  } else {
    sigaction(SIGSEGV, &action, NULL);
    signal(SIGALRM, on_alarm);
    both(&a, &b, shape);
    signal(SIGSEGV, SIG_DFL);
  }
  kit_actor_close(&b);
  kit_actor_close(&a);
}
