/* SPDX-License-Identifier: MIT
 * simulated_et.c - see simulated_et.h. Steps come rank by rank, in the order in which the rank made them. */
#include "lab/phase/simulated_et.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/chakra.h"
#include "lab/error.h"

enum { NEWEST = 64, HOST_CPU = 1, CPUS = 2 };

typedef struct step {
  char what[56];
  uint64_t rank, began, ended, flops, bytes, ranks;
} step;

typedef struct placed {
  uint64_t ended;
  uint32_t node;
} placed;

struct bs_simulated_et {
  bs_et et;
  step now; /* its fields still come */
  int has_step;
  uint64_t rank;         /* of the steps that have come last */
  placed newest[NEWEST]; /* of this rank, as a ring */
  uint64_t n_placed;
  uint64_t cpu_until[CPUS];
  int32_t rc;
  bs_error err; /* the first */
};

int32_t bs_simulated_et_begin(uint32_t world_size, bs_simulated_et **out_et, bs_error *err) {
  bs_simulated_et *t = calloc(1, sizeof *t);
  *out_et = t;
  if (t == NULL) return bs_no_memory(err, "a trace");
  t->err = (bs_error)BS_ERROR_INIT;
  return bs_et_begin(&t->et, world_size, err);
}

void bs_simulated_et_free(bs_simulated_et *t) {
  if (t == NULL) return;
  bs_et_free(&t->et);
  free(t);
}

static void refuse(bs_simulated_et *t, const char *why) {
  t->rc = bs_error_set(&t->err, BS_UNSUPPORTED, "BS-ET-STEP", "--to et: rank %llu, %s: %s",
                       (unsigned long long)t->now.rank, t->now.what, why);
}

/* The collective of a step "all_reduce y"; BS_ET_COLLS: it is another step. */
static uint32_t collective_of(const step *s) {
  for (uint32_t c = 0; c < BS_ET_COLLS; c++) {
    const size_t n = strlen(bs_et_coll_name(c));
    if (strncmp(s->what, bs_et_coll_name(c), n) == 0 && (s->what[n] == ' ' || s->what[n] == '\0')) return c;
  }
  return BS_ET_COLLS;
}

/* Adds a node that needs `on` (UINT32_MAX: nothing). A processor does one thing at a time. */
static uint32_t add(bs_simulated_et *t, bs_et_node n, uint32_t on) {
  uint32_t index = 0;
  const int takes_cpu = n.kind == BS_ET_CALC || n.kind == BS_ET_MEMORY;
  if (takes_cpu && n.start < t->cpu_until[n.cpu]) {
    refuse(t, "two streams work at the same time, and a Chakra trace has one");
    return index;
  }
  if (takes_cpu) t->cpu_until[n.cpu] = n.start + n.ps;
  n.rank = (uint32_t)t->now.rank;
  t->rc = bs_et_add(&t->et, &n, &index, &t->err);
  if (t->rc == BS_OK && on != UINT32_MAX) t->rc = bs_et_need_add(&t->et, index, on, 0, &t->err);
  return index;
}

/* The step that ended last, at or before `began`. */
static placed before(const bs_simulated_et *t, uint64_t began) {
  placed best = {0, UINT32_MAX};
  const uint64_t n = t->n_placed < NEWEST ? t->n_placed : NEWEST;
  for (uint64_t i = 0; i < n; i++) {
    const placed *p = &t->newest[(t->n_placed - 1 - i) % NEWEST];
    if (p->ended <= began && (best.node == UINT32_MAX || p->ended > best.ended)) best = *p;
  }
  return best;
}

/* A collective's bytes are Chakra's: of an all-gather what each rank gives. */
static bs_et_node node_of(bs_simulated_et *t) {
  const step *s = &t->now;
  bs_et_node n = {.name = bs_et_text(&t->et, s->what, strlen(s->what)),
                  .ps = s->ended - s->began,
                  .start = s->began,
                  .flops = s->flops,
                  .bytes = s->bytes,
                  .kind = s->flops == 0 && s->bytes > 0 ? BS_ET_MEMORY : BS_ET_CALC};
  if (n.name == NULL) n.name = "";
  if (s->ranks == 0) return n;
  n.kind = BS_ET_COLL;
  n.coll = collective_of(s);
  n.flops = 0;
  if (n.coll == BS_ET_ALL_GATHER) n.bytes = s->bytes / s->ranks + (s->bytes % s->ranks != 0);
  if (n.coll == BS_ET_COLLS)
    refuse(t, "messages are not written: leave hardware.algorithm out");
  else if (s->ranks != t->et.n_ranks)
    refuse(t, "collectives of all ranks are written, not of some");
  return n;
}

static void place(bs_simulated_et *t) {
  const step *s = &t->now;
  if (!t->has_step || t->rc != BS_OK) return;
  t->has_step = 0;
  if (s->rank != t->rank) {
    t->rank = s->rank;
    t->n_placed = 0;
    memset(t->cpu_until, 0, sizeof t->cpu_until);
  }
  if (s->ended == s->began) return;
  const bs_et_node n = node_of(t);
  placed on = before(t, s->began);
  if (t->rc == BS_OK && on.ended < s->began)
    on.node =
        add(t, (bs_et_node){.name = "host", .ps = s->began - on.ended, .start = on.ended, .cpu = HOST_CPU},
            on.node);
  if (t->rc != BS_OK) return;
  const uint32_t node = add(t, n, on.node);
  t->newest[t->n_placed++ % NEWEST] = (placed){s->ended, node};
}

void bs_simulated_et_take(bs_simulated_et *t, const char *name, double value, const char *text) {
  const struct {
    const char *name;
    uint64_t *to;
  } fields[] = {{"rank", &t->now.rank},   {"began", &t->now.began}, {"ended", &t->now.ended},
                {"flops", &t->now.flops}, {"bytes", &t->now.bytes}, {"ranks", &t->now.ranks}};
  if (strncmp(name, "every", 5) != 0) return;
  if (text != NULL) {
    place(t);
    t->now = (step){.rank = t->rank};
    snprintf(t->now.what, sizeof t->now.what, "%s", text);
    t->has_step = 1;
    return;
  }
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
    if (name[5] == '.' && strcmp(name + 6, fields[i].name) == 0) *fields[i].to = (uint64_t)value;
}

int32_t bs_simulated_et_write(bs_simulated_et *t, const char *prefix, bs_error *err) {
  place(t);
  if (t->rc != BS_OK) {
    if (err != NULL) *err = t->err;
    return t->rc;
  }
  const int32_t rc = bs_et_end(&t->et, err);
  return rc == BS_OK ? bs_chakra_write(&t->et, prefix, err) : rc;
}
