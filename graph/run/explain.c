/* SPDX-License-Identifier: MIT
 * explain.c - what a session is: its passes, its nodes and who serves them, its memory, its times; as text or
 * JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/op/quant.h"
#include "graph/run/args.h"
#include "graph/run/bucket.h"
#include "graph/run/session.h"
#include "graph/split/front.h"
#include "graph/split/method.h"

static const char *plural(uint64_t n) {
  return n == 1 ? "" : "s";
}

typedef struct report {
  bs_session *s;
  const gbinding *b;
  bs_text t;
} report;

static const char *const level_names[] = {"no", "emulated", "native", "unknown"};

/* ---- nodes ----------------------------------------------------------------------------------- */

/* All of the model's nodes that a node came from. */
static void put_origins(bs_text *t, const graph *g, uint32_t origin, const char *between) {
  for (int first = 1; origin != GNONE; origin = g->origins[origin].next, first = 0)
    bs_text_printf(t, "%s%s", first ? "" : between, graph_text_of(g, g->origins[origin].text));
}

BS_API uint32_t bs_session_node_count(const bs_session *s) {
  s = gsession_lead(s);
  return s == NULL ? 0 : s->bound->n_steps;
}

/* Texts of node infos are made once and live as long as the binding. */
static const char *lasting(graph *g, const char *text) {
  const uint32_t id = graph_text(g, text);
  return id != GNONE ? graph_text_of(g, id) : "";
}

/* "F, y split: 384 of 768 rows; 2 states split": its role, what the method says, why it is in no pair. */
static const char *split_text(const gbinding *b, const gnode *n, const bs_proposal *proposal) {
  static const char *const roles[] = {"", "F, y split: ", "S, x split: ", "S, x whole: "};
  static const char *const pairs[] = {"in no pair", "its pair as F is refused", "its pair as S is refused"};
  const gnode_split *split = &b->g->splits[n->layer - 1];
  bs_text t = {0};
  bs_text_printf(&t, "%s%s", roles[split->role], proposal->text);
  if (split->n_states > 0) bs_text_printf(&t, "; %u states split", split->n_states);
  if (split->why != GNONE)
    bs_text_printf(&t, "; %s: %s", pairs[split->refused], graph_text_of(b->g, split->why));
  const char *text = lasting(b->g, t.data != NULL ? t.data : "");
  bs_text_free(&t);
  return text;
}

/* Fills the work of a rank for a product that a method splits. */
static int32_t layer_info(const gbinding *b, const gstep *step, bs_node_info *io, bs_error *err) {
  bs_proposal proposal;
  const int32_t rc = glayer_propose(b, step, &proposal, err);
  if (rc != BS_OK) return rc;
  const gnode *n = &b->g->nodes[step->node];
  io->op = "layer";
  io->level = BS_LEVEL_NATIVE;
  io->method = step->method;
  io->split = split_text(b, n, &proposal);
  io->flops = proposal.flops;
  io->bytes =
      proposal.weight_bytes + graph_bytes(&b->g->values[n->in[0]]) + graph_bytes(&b->g->values[n->out[0]]);
  io->n_collectives = proposal.n_collectives;
  for (uint32_t i = 0; i < proposal.n_collectives; i++) io->payload_bytes += proposal.coll_payload[i];
  return BS_OK;
}

BS_API int32_t bs_session_node(const bs_session *s, uint32_t index, bs_node_info *out_info, bs_error *err) {
  s = gsession_lead(s);
  if (s == NULL || out_info == NULL) return gargs_null("bs_session_node", "session and out_info", err);
  if (gargs_size("bs_session_node", "bs_node_info", out_info->struct_size, err) != BS_OK)
    return BS_INVALID_ARGUMENT;
  const gbinding *b = s->bound;
  if (index >= b->n_steps)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-NODE", "there is no node %u, the plan has %u",
                        index, b->n_steps);
  const gstep *step = &b->steps[index];
  const gnode *n = &b->g->nodes[step->node];
  bs_node_info info = {.struct_size = out_info->struct_size, .op = graph_op_name(n->op), .reason = ""};
  char serves[128];
  gquery q;
  bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
  bs_text origins = {0};
  info.method = "";
  info.split = n->whole != 0 ? graph_text_of(b->g, n->whole - 1) : "";
  gstep_serves(step, serves, sizeof serves);
  graph_query(b->g, n, &q);
  grank *r = b->rank;
  int32_t rc = step->layer != NULL ? layer_info(b, step, &info, err) : grank_enter(r, err);
  if (rc == BS_OK && step->layer == NULL)
    rc = grank_leave(r, r->api->op_supports(r->rank, &q.query, &answer, err), err);
  if (rc != BS_OK) {
    bs_text_free(&origins);
    return rc;
  }
  if (step->layer == NULL) {
    bs_op_cost(&q.query, &info.flops, &info.bytes);
    info.level = answer.level;
  }
  put_origins(&origins, b->g, n->origin, ", ");
  info.serves = lasting(b->g, serves);
  info.origin = lasting(b->g, origins.data != NULL ? origins.data : "");
  info.runs = step->runs;
  info.seconds = 1e-9 * (double)step->ns;
  if (gstep_falls_back(step))
    info.reason = lasting(b->g, answer.text[0] != '\0' ? answer.text : "refused when it was prepared");
  bs_text_free(&origins);
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return rc;
}

/* The implementations that can serve a node, best first, and the key of a choice between them. */
typedef struct candidates {
  bs_text names, key;
} candidates;

static void put_candidate(void *user, const bs_op_candidate *c) {
  candidates *all = user;
  if (all->key.size == 0) bs_text_printf(&all->key, "%s", c->key != NULL ? c->key : "");
  if (c->answer->level == BS_LEVEL_NO) return;
  const char *name = strrchr(c->name, '/');
  bs_text_printf(&all->names,
                 "%s{\"name\":\"%s:%s\",\"level\":\"%s\",\"how\":", all->names.size > 0 ? "," : "", c->plugin,
                 name != NULL ? name + 1 : c->name, level_names[c->answer->level & 3u]);
  bs_text how = {0}; /* as choices are reported (bs_choice_info) */
  bs_text_printf(&how, "%s%s%s", c->answer->algo, c->answer->text[0] != '\0' ? ", " : "", c->answer->text);
  for (char *at = how.data; at != NULL && *at != '\0'; at++)
    if ((unsigned char)*at < 0x20) *at = ' ';
  graph_put_json_text(&all->names, how.data != NULL ? how.data : "");
  bs_text_append(&all->names, "}", 1);
  bs_text_free(&how);
}

/* The values in use of the knobs of a node's plan. */
static void put_knobs(report *r, const gstep *step) {
  const bs_op_echo *echo = step->plan != NULL ? bs_plan_echo(step->plan) : NULL;
  bs_text_printf(&r->t, ",\"knobs\":");
  graph_put_json_text(&r->t, echo != NULL ? echo->knobs : "");
}

static void put_choice(report *r, const gnode *n) {
  const gcore *core = r->s->core;
  const bs_op_site site = {.struct_size = (uint32_t)sizeof site,
                           .threads = bs_world_threads_per_rank(r->s->rank->world),
                           .world_size = 1,
                           .fallback = 1};
  candidates all = {{0}, {0}};
  gquery q;
  graph_query(r->b->g, n, &q);
  bs_op_explain_at(r->s->context, core->backend, &site, &q.query, put_candidate, &all, NULL);
  bs_text_printf(&r->t, ",\"candidates\":[%s],\"key\":", all.names.data != NULL ? all.names.data : "");
  graph_put_json_text(&r->t, all.key.data != NULL ? all.key.data : "");
  bs_text_free(&all.names);
  bs_text_free(&all.key);
}

static void put_shape(bs_text *t, const gvalue *v) {
  bs_text_printf(t, "%s[", bs_dtype_name(v->dtype));
  for (uint32_t i = 0; i < v->rank; i++) bs_text_printf(t, "%s%" PRId64, i > 0 ? "," : "", v->dims[i]);
  bs_text_append(t, "]", 1);
}

/* "q4.g32 x8" of a quantised weight: its form, and how the product takes X. */
static void put_quant(bs_text *t, const graph *g, const gnode *n) {
  char form[BS_QUANT_TEXT];
  bs_quant_text(&graph_quant(g, n->weight)->quant, form);
  bs_text_printf(t, "%s", form);
  if (n->op == GOP_MATMUL_Q)
    bs_text_printf(t, " x %s", n->attrs[0] != 0 ? "8" : bs_dtype_name(g->values[n->in[0]].dtype));
}

static int is_quantised(const graph *g, const gnode *n) {
  return n->weight != GNONE && graph_quant(g, n->weight) != NULL;
}

/* What the lowering had to say of constants: those that were dequantised. */
static void put_notes(report *r, int json) {
  const graph *g = r->b->g;
  if (json) bs_text_printf(&r->t, "\"notes\":[");
  for (uint32_t i = g->notes; i != GNONE; i = g->origins[i].next) {
    const char *text = graph_text_of(g, g->origins[i].text);
    if (json) {
      graph_put_json_text(&r->t, text);
      if (g->origins[i].next != GNONE) bs_text_append(&r->t, ",", 1);
    } else {
      bs_text_printf(&r->t, "%s\n", text);
    }
  }
  if (json) bs_text_append(&r->t, "],", 2);
}

static void put_layer_json(report *r, const bs_node_info *info) {
  bs_text_printf(&r->t, ",\"method\":");
  graph_put_json_text(&r->t, info->method);
  bs_text_printf(&r->t, ",\"split\":");
  graph_put_json_text(&r->t, info->split);
  bs_text_printf(&r->t, ",\"collectives\":%u,\"payload_bytes\":%" PRIu64, info->n_collectives,
                 info->payload_bytes);
}

static int32_t put_nodes(report *r, int json, int profile, bs_error *err) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < r->b->n_steps; i++) total += r->b->steps[i].ns;
  if (json) bs_text_printf(&r->t, "\"nodes\":[");
  for (uint32_t i = 0; i < r->b->n_steps; i++) {
    bs_node_info info = {.struct_size = (uint32_t)sizeof info};
    const gnode *n = &r->b->g->nodes[r->b->steps[i].node];
    const int32_t rc = bs_session_node(r->s, i, &info, err);
    if (rc != BS_OK) return rc;
    const double us = info.runs > 0 ? 1e6 * info.seconds / (double)info.runs : 0;
    if (json) {
      bs_text_printf(&r->t, "%s\n{\"index\":%u,\"op\":\"%s\",\"serves\":", i > 0 ? "," : "", i, info.op);
      graph_put_json_text(&r->t, info.serves);
      bs_text_printf(&r->t, ",\"level\":\"%s\",\"reason\":", level_names[info.level & 3u]);
      graph_put_json_text(&r->t, info.reason);
      bs_text_printf(&r->t, ",\"shape\":\"");
      put_shape(&r->t, &r->b->g->values[n->out[0]]);
      bs_text_printf(
          &r->t,
          "\",\"flops\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"runs\":%" PRIu64
          ",\"seconds\":%.9g,\"prepare_s\":%.6g,\"cpu_s\":%.9g,\"asleep_s\":%.9g,\"waits\":%" PRIu64
          ",\"origin\":",
          info.flops, info.bytes, info.runs, info.seconds, r->b->steps[i].prepare_s,
          1e-9 * (double)r->b->steps[i].cpu_ns, 1e-9 * (double)r->b->steps[i].asleep_ns,
          r->b->steps[i].waits);
      graph_put_json_text(&r->t, info.origin);
      if (is_quantised(r->b->g, n)) {
        bs_text_printf(&r->t, ",\"weight\":\"");
        put_quant(&r->t, r->b->g, n);
        bs_text_append(&r->t, "\"", 1);
      }
      put_knobs(r, &r->b->steps[i]);
      if (!profile && r->b->steps[i].layer == NULL) put_choice(r, n);
      if (info.split != NULL && info.split[0] != '\0') put_layer_json(r, &info);
      bs_text_append(&r->t, "}", 1);
      continue;
    }
    bs_text_printf(&r->t, "%4u  %-10s %-18s ", i, info.op, info.serves);
    put_shape(&r->t, &r->b->g->values[n->out[0]]);
    if (is_quantised(r->b->g, n)) {
      bs_text_append(&r->t, "  ", 2);
      put_quant(&r->t, r->b->g, n);
    }
    if (profile)
      bs_text_printf(&r->t, "  %.1f us  %.1f%%", us,
                     total > 0 ? 100.0 * (double)r->b->steps[i].ns / (double)total : 0);
    if (info.reason != NULL && info.reason[0] != '\0') bs_text_printf(&r->t, "  (%s)", info.reason);
    if (info.method != NULL && info.method[0] != '\0')
      bs_text_printf(&r->t, "  %s; %u collective%s, payload %" PRIu64 " bytes", info.split,
                     info.n_collectives, plural(info.n_collectives), info.payload_bytes);
    else if (info.split != NULL && info.split[0] != '\0')
      bs_text_printf(&r->t, "  %s", info.split);
    bs_text_printf(&r->t, "  # %s\n", info.origin);
  }
  if (json) bs_text_append(&r->t, "]", 1);
  return BS_OK;
}

/* ---- passes, memory, times ------------------------------------------------------------------- */

/* "round 2: weights 1, epilogue 1" of each round behind the first in which a pass changed something. */
static void put_rounds(report *r) {
  for (uint32_t k = 1; k < GPASS_ROUNDS; k++) {
    int any = 0;
    for (uint32_t i = 0; gpass_get(i) != NULL; i++) {
      const uint32_t changes = r->b->traces[i].by_round[k];
      if (changes == 0) continue;
      if (!any) bs_text_printf(&r->t, "round %u:", k + 1);
      bs_text_printf(&r->t, "%s %s %u", any ? "," : "", gpass_get(i)->name, changes);
      any = 1;
    }
    if (any) bs_text_append(&r->t, "\n", 1);
  }
}

static void put_pass_json(report *r, uint32_t i) {
  const gpass_trace *p = &r->b->traces[i];
  uint32_t rounds = GPASS_ROUNDS;
  while (rounds > 1 && p->by_round[rounds - 1] == 0) rounds--;
  bs_text_printf(&r->t, "%s{\"name\":\"%s\",\"off\":%s,\"changes\":%u,\"by_round\":[", i > 0 ? "," : "",
                 gpass_get(i)->name, p->off ? "true" : "false", p->changes);
  for (uint32_t k = 0; k < rounds; k++) bs_text_printf(&r->t, "%s%u", k > 0 ? "," : "", p->by_round[k]);
  bs_text_printf(&r->t, "],\"nodes\":%u,\"seconds\":%.6g}", p->nodes, p->seconds);
}

static void put_passes(report *r, int json) {
  if (json) bs_text_printf(&r->t, "\"passes\":[");
  for (uint32_t i = 0; gpass_get(i) != NULL; i++) {
    const gpass_trace *p = &r->b->traces[i];
    if (json)
      put_pass_json(r, i);
    else
      bs_text_printf(&r->t, "pass %-14s %s%5u changes %5u nodes  %s\n", gpass_get(i)->name,
                     p->off ? "off " : "    ", p->changes, p->nodes, gpass_get(i)->summary);
  }
  if (json)
    bs_text_append(&r->t, "],", 2);
  else
    put_rounds(r);
}

/* Which sizes the plan serves. */
static void put_sizes(report *r, int json) {
  const gmodel *m = r->s->graph->model;
  const gbucket_range *range = r->b->bucket != NULL ? &r->b->bucket->range : NULL;
  if (json) bs_text_printf(&r->t, "\"sizes\":{\"alone\":");
  if (json && r->b->alone != NULL)
    graph_put_json_text(&r->t, r->b->alone);
  else if (json)
    bs_text_printf(&r->t, "null");
  if (!json && r->b->alone != NULL) bs_text_printf(&r->t, "planned for these sizes alone: %s\n", r->b->alone);
  if (json) bs_text_printf(&r->t, ",\"range\":{");
  for (uint32_t i = 0; range != NULL && i < range->n; i++) {
    const char *name = m->symbols[range->symbol[i]];
    const long long least = range->least[i], largest = range->sizes[range->symbol[i]];
    if (json) {
      bs_text_printf(&r->t, "%s", i > 0 ? "," : "");
      graph_put_json_text(&r->t, name);
      bs_text_printf(&r->t, ":[%lld,%lld]", least, largest);
    } else {
      bs_text_printf(&r->t, "%s%s %lld to %lld", i > 0 ? ", " : "one plan serves ", name, least, largest);
    }
  }
  if (json) bs_text_printf(&r->t, "}},");
  if (!json && range != NULL)
    bs_text_printf(&r->t, ": %u numbers are set for a size, %u ops prepared again\n", r->b->bucket->n_numbers,
                   r->b->bucket->n_again);
}

static void put_memory(report *r, int json) {
  const gplan_report *m = &r->b->report;
  bs_session_stats t = {.struct_size = (uint32_t)sizeof t};
  bs_session_stats_get(r->s, &t, NULL);
  if (!json) {
    bs_text_printf(&r->t,
                   "memory: naive %" PRIu64 ", bound before sharing %" PRIu64 ", bound %" PRIu64
                   ", arena %" PRIu64 " bytes (ratio %.4f, by %s%s)\n",
                   m->naive, m->bound_before, m->bound, m->arena, m->ratio, m->by != NULL ? m->by : "-",
                   m->proven ? ", proven" : "");
    bs_text_printf(&r->t,
                   "packed weights %" PRIu64 ", constants %" PRIu64 ", states %" PRIu64 ", scratch %" PRIu64
                   " bytes\n",
                   t.packed_bytes, t.constant_bytes, t.state_bytes, t.scratch_bytes);
    bs_text_printf(&r->t, "peak in step %u:", m->peak);
    for (uint32_t i = 0; i < m->n_top; i++) {
      char name[32];
      bs_text_printf(
          &r->t, " %s %" PRIu64,
          m->top[i].value == GPLAN_NONE ? "scratch" : graph_value_name(r->b->g, m->top[i].value, name),
          m->top[i].bytes);
    }
    bs_text_append(&r->t, "\n", 1);
    return;
  }
  bs_text_printf(&r->t,
                 "\"memory\":{\"naive\":%" PRIu64 ",\"bound_before\":%" PRIu64 ",\"bound\":%" PRIu64
                 ",\"arena\":%" PRIu64 ",\"ratio\":%.6g,\"by\":\"%s\",\"proven\":%s,\"scratch\":%" PRIu64
                 ",\"packed\":%" PRIu64 ",\"constants\":%" PRIu64 ",\"states\":%" PRIu64
                 ",\"peak\":%u,\"top\":[",
                 m->naive, m->bound_before, m->bound, m->arena, m->ratio, m->by != NULL ? m->by : "",
                 m->proven ? "true" : "false", t.scratch_bytes, t.packed_bytes, t.constant_bytes,
                 t.state_bytes, m->peak);
  for (uint32_t i = 0; i < m->n_top; i++) {
    char name[32];
    bs_text_printf(&r->t, "%s{\"value\":", i > 0 ? "," : "");
    graph_put_json_text(
        &r->t, m->top[i].value == GPLAN_NONE ? "scratch" : graph_value_name(r->b->g, m->top[i].value, name));
    bs_text_printf(&r->t, ",\"bytes\":%" PRIu64 "}", m->top[i].bytes);
  }
  bs_text_append(&r->t, "]},", 3);
}

/* Bytes of constants that a device has twice: packed for a product, and as rows for a take (a tied
 * embedding). *out_name: the largest. */
static uint64_t held_twice(const gbinding *b, uint32_t *out_value) {
  const graph *g = b->g;
  uint64_t all = 0, most = 0;
  *out_value = GNONE;
  for (uint32_t root = 0; root < g->n_values; root++) {
    int packed = 0, read = 0;
    if (g->values[root].kind != GV_CONST || g->values[root].base != root) continue;
    for (uint32_t id = g->first; id != GNONE; id = g->nodes[id].next) {
      const gnode *n = &g->nodes[id];
      packed |= graph_is_packed(n->op) && g->values[n->weight].base == root;
      for (uint32_t k = 0; k < n->n_in; k++) read |= n->in[k] != GNONE && g->values[n->in[k]].base == root;
    }
    const uint64_t bytes = packed && read ? graph_bytes(&g->values[root]) : 0;
    all += bytes;
    if (bytes > most) *out_value = root;
    if (bytes > most) most = bytes;
  }
  return all;
}

/* Adds what the session holds of a device's memory, the arena of the first run included. */
static void put_device(report *r, int json) {
  const gbinding *b = r->b;
  const gcore *core = r->s->core;
  const double mib = 1024.0 * 1024.0;
  const bs_backend *backend = NULL;
  void *state = NULL;
  bs_device_info info = {.struct_size = (uint32_t)sizeof info};
  uint32_t tied = GNONE;
  char name[32];
  if (!b->rank->apart || b->rank->phantom ||
      bs_find_backend(b->rank->context, core->backend, &backend, &state, NULL) != BS_OK)
    return;
  if (backend->device_info(state, 0, &info, NULL) != BS_OK) info.memory_bytes = 0;
  const uint64_t twice = held_twice(b, &tied), later = b->own_arena == NULL ? b->arena_bytes : 0,
                 held = core->packed_bytes + gdevice_held(core) + later;
  if (json) {
    bs_text_printf(&r->t, "\"device\":{\"held\":%" PRIu64 ",\"memory\":%" PRIu64 ",\"twice\":%" PRIu64 "},",
                   held, info.memory_bytes, twice);
    return;
  }
  bs_text_printf(&r->t, "device memory: %.1f of %.1f MiB", (double)held / mib,
                 (double)info.memory_bytes / mib);
  if (twice > 0)
    bs_text_printf(&r->t, "; %s lies there twice, packed for its product and as a table (%.1f MiB more)",
                   graph_value_name(b->g, tied, name), (double)twice / mib);
  bs_text_append(&r->t, "\n", 1);
}

static int32_t put_misses(report *r, int json, bs_error *err) {
  gmisses all = {0};
  const int32_t rc = gsession_misses(r->s, &all, err);
  if (rc == BS_OK) gmisses_put(&all, json, &r->t);
  gmisses_free(&all);
  return rc;
}

static void put_stats(report *r, int json, bs_error *err) {
  bs_session_stats t = {.struct_size = (uint32_t)sizeof t};
  char captured[240];
  if (bs_session_stats_get(r->s, &t, err) != BS_OK) return;
  gcapture_tell(r->b, captured, sizeof captured);
  if (json)
    bs_text_printf(&r->t,
                   "\"counters\":{\"runs\":%" PRIu64 ",\"plans_made\":%" PRIu64 ",\"plans_again\":%" PRIu64
                   ",\"plans_reused\":%" PRIu64 ",\"host_waits\":%" PRIu64 ",\"copied_bytes\":%" PRIu64
                   ",\"fallback_nodes\":%" PRIu64
                   ",\"captured\":\"%s\""
                   "},\"seconds\":{\"load\":%.6g,\"lower\":%.6g,\"passes\":%.6g,\"plan\":%.6g,\"pack\":%.6g,"
                   "\"prepare\":%.6g,\"first_run\":%.6g},",
                   t.runs, t.plans_made, t.plans_again, t.plans_reused, t.host_waits, t.copied_bytes,
                   t.fallback_nodes, captured, t.load_s, t.lower_s, t.pass_s, t.plan_s, t.pack_s, t.prepare_s,
                   t.first_run_s);
  else
    bs_text_printf(
        &r->t,
        "seconds: load %.4f, lower %.4f, passes %.4f, plan %.4f, pack %.4f, prepare %.4f, first run %.4f\n"
        "%" PRIu64 " nodes are served by another backend than %s\n",
        t.load_s, t.lower_s, t.pass_s, t.plan_s, t.pack_s, t.prepare_s, t.first_run_s, t.fallback_nodes,
        r->s->core->backend);
  if (!json && captured[0] != '\0')
    bs_text_printf(&r->t, "device: %s; %" PRIu64 " bytes copied and %" PRIu64 " waits in %" PRIu64 " runs\n",
                   captured, t.copied_bytes, t.host_waits, t.runs);
}

static uint32_t in_pairs(const graph *g) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->n_splits; i++)
    n += g->splits[i].role == GNODE_F || g->splits[i].role == GNODE_S;
  return n;
}

/* Adds the weights of all layers: what this rank holds, and what one rank alone would hold, in bytes. */
static void count_weights(const gbinding *b, uint64_t *io_held, uint64_t *io_whole) {
  for (uint32_t i = 0; i < b->n_steps; i++) {
    const gmethod_arm *arm;
    bs_layer_spec spec;
    bs_proposal proposal;
    const gnode *n = &b->g->nodes[b->steps[i].node];
    if (b->steps[i].layer == NULL || glayer_propose(b, &b->steps[i], &proposal, NULL) != BS_OK) continue;
    const gnode_split *split = &b->g->splits[n->layer - 1];
    if (gmethod_spec(b->core->method, b->g, n, split->role, split->bias, &arm, &spec, NULL) != BS_OK)
      continue;
    *io_held += proposal.weight_bytes;
    *io_whole += (uint64_t)spec.N * (uint64_t)spec.K * BS_DTYPE_BYTES(spec.w_dtype);
  }
}

/* How the products are split over ranks. */
static void put_split(report *r, int json) {
  const gmethod *m = r->s->core->method;
  uint64_t held = 0, whole = 0;
  bs_session_stats t = {.struct_size = (uint32_t)sizeof t};
  if (m == NULL || bs_session_stats_get(r->s, &t, NULL) != BS_OK) return;
  count_weights(r->b, &held, &whole);
  if (json) {
    bs_text_printf(&r->t, "\"split\":{\"method\":");
    graph_put_json_text(&r->t, m->text);
    bs_text_printf(&r->t,
                   ",\"ranks\":%u,\"in_pairs\":%u,\"layers\":%" PRIu64 ",\"layers_whole\":%" PRIu64
                   ",\"layers_again\":%" PRIu64 ",\"collectives\":%" PRIu64 ",\"payload_bytes\":%" PRIu64
                   ",\"weight_bytes\":%" PRIu64 ",\"weight_bytes_whole\":%" PRIu64 "},",
                   t.ranks, in_pairs(r->b->g), t.layers, t.layers_whole, t.layers_again, t.collectives,
                   t.payload_bytes, held, whole);
    return;
  }
  bs_text_printf(&r->t,
                 "%s on %u rank%s: %" PRIu64 " layer%s, %u in pairs, %" PRIu64
                 " product%s whole on every rank; a run: %" PRIu64 " collective%s, payload %" PRIu64
                 " bytes; a rank holds %" PRIu64 " of %" PRIu64 " bytes of the layers' weights\n",
                 m->text, t.ranks, plural(t.ranks), t.layers, plural(t.layers), in_pairs(r->b->g),
                 t.layers_whole, plural(t.layers_whole), t.collectives, plural(t.collectives),
                 t.payload_bytes, held, whole);
}

BS_API int32_t bs_session_text(bs_session *s, uint32_t what, uint32_t json,
                               void (*put)(void *user, const char *text), void *user, bs_error *err) {
  s = gsession_lead(s);
  if (s == NULL || put == NULL) return gargs_null("bs_session_text", "session and put", err);
  report r = {.s = s, .b = s->bound};
  int32_t rc = BS_OK;
  if (what == BS_REPORT_DUMP) return graph_dump(s->bound->g, (int)json, put, user, err);
  if (what != BS_REPORT_EXPLAIN && what != BS_REPORT_PLAN && what != BS_REPORT_PROFILE &&
      what != BS_REPORT_MISSES)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-REPORT", "there is no report %u", what);
  if (what == BS_REPORT_PROFILE && !s->profile)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-REPORT",
                        "the session was opened without `profile`");
  if (json) bs_text_printf(&r.t, "{\"backend\":\"%s\",", s->core->backend);
  if (what == BS_REPORT_EXPLAIN) put_passes(&r, (int)json);
  if (what == BS_REPORT_MISSES) rc = put_misses(&r, (int)json, err);
  if (what == BS_REPORT_EXPLAIN) put_notes(&r, (int)json);
  if (what == BS_REPORT_EXPLAIN) put_sizes(&r, (int)json);
  if (what == BS_REPORT_EXPLAIN || what == BS_REPORT_PLAN) put_memory(&r, (int)json);
  if (what == BS_REPORT_EXPLAIN || what == BS_REPORT_PLAN) put_device(&r, (int)json);
  if (what == BS_REPORT_EXPLAIN) put_stats(&r, (int)json, err);
  if (what == BS_REPORT_EXPLAIN) put_split(&r, (int)json);
  if (what == BS_REPORT_EXPLAIN || what == BS_REPORT_PROFILE)
    rc = put_nodes(&r, (int)json, what == BS_REPORT_PROFILE, err);
  if (json && what == BS_REPORT_PLAN) bs_text_printf(&r.t, "\"steps\":%u", r.b->n_steps);
  if (json) bs_text_append(&r.t, "}\n", 2);
  if (rc == BS_OK && r.t.failed)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a report");
  if (rc == BS_OK) put(user, r.t.data != NULL ? r.t.data : "");
  bs_text_free(&r.t);
  return rc;
}
