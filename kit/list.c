/* SPDX-License-Identifier: MIT
 * list.c - which checks fit a plugin: those of every plugin, and for each thing that it registers those of
 * its kind. A row that is marked `least` may not be unsupported: a plugin that serves nothing is not
 * conformant. */
#include <stdio.h>

#include "kit/graph.h"

const char *const kit_groups[] = {"abi",          "lifecycle", "truth",     "numerics", "method",
                                  "communicator", "workload",  "algorithm", "threads",  "hygiene"};
const uint32_t kit_n_groups = sizeof kit_groups / sizeof kit_groups[0];

int bs_kit_group_known(const char *group) {
  const size_t length = strcspn(group, ".,");
  for (uint32_t i = 0; i < kit_n_groups; i++)
    if (strlen(kit_groups[i]) == length && strncmp(group, kit_groups[i], length) == 0) return 1;
  return 0;
}

typedef struct row {
  const char *group, *name;
  void (*body)(const kit_case *c);
  uint32_t least;
  uint32_t n_args; /* one check for each arg; 0: one without */
  const char *const *args;
} row;

static const row every[] = {
    {"abi", "file", kit_abi_file, 1, 0, NULL},
    {"abi", "symbols", kit_abi_symbols, 1, 0, NULL},
    {"abi", "host", kit_abi_host, 1, 0, NULL},
    {"abi", "things", kit_abi_things, 1, 0, NULL},
    {"abi", "later_host", kit_abi_later, 1, 0, NULL},
    {"lifecycle", "query", kit_life_query, 1, 0, NULL},
    {"lifecycle", "repeat", kit_life_repeat, 1, 0, NULL},
    {"lifecycle", "failures", kit_life_failures, 1, 0, NULL},
    {"lifecycle", "two_hosts", kit_life_two_hosts, 1, 0, NULL},
    {"hygiene", "output", kit_clean_output, 1, 0, NULL},
    {"hygiene", "environment", kit_clean_environment, 1, 0, NULL},
    {"hygiene", "signals", kit_clean_signals, 1, 0, NULL},
    {"hygiene", "process", kit_clean_process, 1, 0, NULL},
    {"hygiene", "files", kit_clean_files, 1, 0, NULL},
    {"hygiene", "threads", kit_clean_threads, 1, 0, NULL},
    {"hygiene", "exit", kit_clean_exit, 1, 0, NULL},
    {"hygiene", "tls", kit_clean_tls, 1, 0, NULL},
};
static const char *const families[] = {"float", "integer"};
static const row op_rows[] = {
    {"lifecycle", "memory", kit_life_memory, 0, 0, NULL},
    {"truth", "supports", kit_truth_supports, 0, 0, NULL},
    {"truth", "threads", kit_truth_threads, 0, 0, NULL},
    {"truth", "huge", kit_truth_huge, 0, 0, NULL},
    {"numerics", "least", kit_num_least, 1, 0, NULL},
    {"numerics", "values", kit_num_values, 0, 2, families},
    {"numerics", "special", kit_num_special, 0, 0, NULL},
    {"numerics", "subnormal", kit_num_small, 0, 0, NULL},
    {"numerics", "packed", kit_num_packed, 0, 0, NULL},
    {"numerics", "rows", kit_num_rows, 0, 0, NULL},
    {"numerics", "in_place", kit_num_in_place, 0, 0, NULL},
    {"numerics", "outside", kit_num_outside, 0, 0, NULL},
    {"numerics", "knobs", kit_num_knobs, 0, 0, NULL},
    {"numerics", "tokenwise", kit_num_tokenwise, 0, 0, NULL},
    {"threads", "plans", kit_op_together, 0, 0, NULL},
};
static const row backend_rows[] = {
    {"numerics", "device", kit_num_device, 1, 0, NULL},
    {"lifecycle", "device", kit_life_device, 0, 0, NULL},
};
static const char *const worlds[] = {"1", "2", "3", "4", "7"}, *const driven[] = {"1", "2", "3", "4"};
static const row method_rows[] = {
    {"lifecycle", "layer", kit_life_build, 0, 0, NULL},
    {"method", "exact", kit_method_exact, 0, 5, worlds},
    {"method", "real", kit_method_real, 0, 3, worlds},
    {"method", "gradient", kit_method_gradient, 0, 3, worlds},
    {"method", "repeats", kit_method_repeats, 0, 2, worlds},
    {"method", "driven", kit_method_driven, 0, 4, driven},
    {"threads", "worlds", kit_method_together, 0, 0, NULL},
    {"hygiene", "globals", kit_clean_globals, 1, 0, NULL},
};
static const char *const collectives[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                          "all_to_all", "send_recv",  "barrier"};
static const char *const faults[] = {"mismatch", "late", "abort", "any_order"}, *const of_processes[] = {
                                                                                    "killed", "config"};
static const char *const exchange_faults[] = {"mismatch", "late", "abort"};
static const row comm_rows[] = {
    {"communicator", "values", kit_comm_collective, 0, 7, collectives},
    {"communicator", "faults", kit_comm_faults, 0, 4, faults},
    {"communicator", "faults", kit_comm_processes, 0, 2, of_processes},
    {"communicator", "exchange", kit_comm_exchange, 0, 0, NULL},
    {"communicator", "exchange", kit_comm_exchange_faults, 0, 3, exchange_faults},
    {"lifecycle", "world", kit_life_world, 0, 0, NULL},
    {"threads", "worlds", kit_comm_together, 0, 0, NULL},
};
static const row work_rows[] = {
    {"workload", "stream", kit_work_stream, 1, 0, NULL},
    {"workload", "parts", kit_work_parts, 0, 0, NULL},
    {"lifecycle", "open", kit_life_open, 0, 0, NULL},
};

static const char *const levels[] = {"V4", "V0", "V1_V3", "V2", "V6"}; /* enum sim_level */
static const row algorithm_rows[] = {
    {"algorithm", "level", kit_algorithm_level, 0, 5, levels},
    {"algorithm", "formula", kit_algorithm_formula, 0, 0, NULL},
};

typedef struct list {
  const kit_survey *survey;
  kit_case *cases;
  uint32_t n, max;
} list;

/* 1: an op of a backend of this plugin, or the backend, whose memory holds no values. */
static int phantom(const kit_survey *s, const kit_found *f) {
  for (uint32_t i = 0; i < s->n_things; i++)
    if (s->things[i].phantom && strcmp(s->things[i].name, f->kind == BS_KIND_OP ? f->backend : f->name) == 0)
      return 1;
  return 0;
}

/* Does a row apply? Some are only for some ops, for ranks that are processes, or for memory that holds
 * values. The behaviour of a communicator is checked under one of its names. */
static int fits(const kit_survey *s, const row *r, const kit_found *f) {
  if (f->again && strcmp(r->group, "lifecycle") != 0) return 0;
  if (strcmp(r->group, "numerics") == 0 && phantom(s, f)) return 0;
  if (r->body == kit_comm_processes) return f->launch == BS_LAUNCH_ATTACHED;
  if (f->kind != BS_KIND_OP) return 1;
  const kit_graph_op *graph = kit_graph_find(f->op);
  if (r->body == kit_num_knobs) return f->knobs > 0;
  if (r->body == kit_num_outside)
    return strcmp(f->op, "take") == 0 || strcmp(f->op, "put") == 0 || kit_is_take_q(f->op);
  if (r->body == kit_num_in_place && graph != NULL) return graph->in_places > 0;
  if (r->body == kit_num_small && graph != NULL) return (int)graph->rounds;
  if (r->body == kit_num_in_place)
    return strcmp(f->op, "activate") == 0 || kit_has_base(f->op) || kit_is_loss(f->op);
  if (r->body == kit_num_packed) return kit_op_is(f->op, "matmul") || strcmp(f->op, "matmul_q") == 0;
  return 1;
}

static void add(list *l, const row *r, const char *thing, uint32_t index) {
  for (uint32_t a = 0; a < (r->n_args > 0 ? r->n_args : 1) && l->n < l->max; a++) {
    if (r->args == worlds && a >= 3 && !kit_full()) break;
    kit_case *c = &l->cases[l->n++];
    memset(c, 0, sizeof *c);
    c->group = r->group;
    c->body = r->body;
    c->thing = index;
    c->arg = a;
    c->least = r->least;
    snprintf(c->name, sizeof c->name, "%s.%s%s%s%s%s", r->group, r->name, r->n_args > 0 ? "." : "",
             r->n_args > 0 ? r->args[a] : "", thing != NULL ? "." : "", thing != NULL ? thing : "");
  }
}

static void add_rows(list *l, const row *rows, size_t n, const char *thing, uint32_t index) {
  for (size_t i = 0; i < n; i++)
    if (thing == NULL || fits(l->survey, &rows[i], &l->survey->things[index])) add(l, &rows[i], thing, index);
}
#define ADD(l, rows, thing, index) add_rows((l), (rows), sizeof(rows) / sizeof(rows)[0], (thing), (index))

uint32_t kit_list(const kit_survey *s, kit_case *cases, uint32_t max) {
  list l = {s, cases, 0, max};
  ADD(&l, every, NULL, 0);
  for (uint32_t i = 0; i < s->n_things; i++) {
    char name[200];
    kit_found_name(&s->things[i], name, sizeof name);
    switch (s->things[i].kind) {
      case BS_KIND_OP:
        ADD(&l, op_rows, name, i);
        for (uint32_t k = 0; k < l.n && !kit_op_known(s->things[i].op); k++)
          if (cases[k].thing == i && cases[k].body == kit_num_least) cases[k].least = 0;
        break;
      case BS_KIND_BACKEND:
        ADD(&l, backend_rows, name, i);
        break;
      case BS_KIND_METHOD:
        ADD(&l, method_rows, name, i);
        break;
      case BS_KIND_COMM:
        ADD(&l, comm_rows, name, i);
        break;
      case BS_KIND_WORKLOAD:
        ADD(&l, work_rows, name, i);
        break;
      case BS_KIND_ALGORITHM:
        ADD(&l, algorithm_rows, name, i);
        break;
      default: /* importers, topologies: nothing uses them yet, what every plugin keeps to is all
                */
        break;
    }
  }
  return l.n;
}
