/* SPDX-License-Identifier: MIT
 * algorithm.c - group algorithm: the levels of sim/check.h, and formulas that are finite and do not fall when
 * there is more to do. Options have their defaults. */
#include "kit/kit.h"
#include "sim/check.h"

enum { RANKS = 33 }; /* of the quick kit; the full one goes on to 1,024 */

typedef struct subject {
  const bs_algorithm *algorithm;
  void *state;
  bs_value options[BS_ALGORITHM_MAX_OPTIONS];
} subject;

static void read_options(subject *s) {
  const bs_param_desc *const *params = s->algorithm->params;
  for (uint32_t i = 0; params != NULL && i < BS_ALGORITHM_MAX_OPTIONS && params[i] != NULL; i++) {
    bs_value *v = &s->options[i];
    kit_assert(params[i]->name != NULL && params[i]->default_text != NULL && params[i]->doc != NULL,
               "option %u lacks a name, a default or a text", i);
    v->struct_size = sizeof *v;
    v->type = params[i]->type;
    v->s = params[i]->default_text;
    v->f = strtod(v->s, NULL);
    v->i = strcmp(v->s, "true") == 0 ? 1 : strtoll(v->s, NULL, 10);
  }
}

static subject subject_of(const kit_case *c) {
  static kit_plugin p;
  kit_plugin_open(&p);
  const kit_thing *t = &p.host.things[c->thing];
  subject s = {.algorithm = t->vtable, .state = t->state};
  read_options(&s);
  return s;
}

static void judge(void *user, const sim_check_row *row) {
  uint64_t *cases = user;
  kit_assert(row->code == BS_OK || row->code == BS_INCONCLUSIVE, "%s %s: [%s] %s%s%s",
             sim_level_names[row->level], bs_name_of(BS_NAMES_COLL, row->kind), row->why.id, row->why.message,
             row->why.hint[0] != '\0' ? "; " : "", row->why.hint);
  *cases += row->cases;
}

void kit_algorithm_level(const kit_case *c) {
  const subject s = subject_of(c);
  bs_error err = BS_ERROR_INIT;
  uint64_t cases = 0;
  const sim_check_request q = {.algorithm = s.algorithm,
                               .state = s.state,
                               .options = s.options,
                               .levels = 1u << c->arg,
                               .max_ranks = kit_full() ? 1024 : RANKS};
  if (s.algorithm->schedule == NULL) {
    kit_unsupported("it has a formula and no schedule");
    return;
  }
  const int32_t rc = sim_check(&q, judge, &cases, &err);
  kit_assert(rc == BS_OK || (rc == BS_INCONCLUSIVE && c->arg == SIM_V6), "%s: %s", err.id, err.message);
  if (cases == 0) kit_unsupported("nothing that it serves adds");
}

/* Seconds for a shape; -1: it cannot do that. */
static double seconds(const subject *s, uint32_t kind, uint32_t p, uint64_t count) {
  const bs_coll_shape shape = {.struct_size = sizeof shape,
                               .kind = kind,
                               .world_size = p,
                               .count = count,
                               .element_bytes = 4,
                               .options = s->options};
  const bs_link link = {.struct_size = sizeof link, .latency_s = 1e-6, .bytes_per_s = 1e10};
  bs_error err = BS_ERROR_INIT;
  double value = -1;
  const int32_t rc = sim_cost_of(s->algorithm, s->state, &shape, &link, &value, &err);
  if (rc == BS_UNSUPPORTED) {
    kit_assert(err.message[0] != '\0', "cost refuses without a reason");
    return -1;
  }
  kit_assert(rc == BS_OK, "cost fails: %s: %s", err.id, err.message);
  return value;
}

void kit_algorithm_formula(const kit_case *c) {
  const subject s = subject_of(c);
  if (s.algorithm->cost == NULL) {
    kit_unsupported("it has no formula");
    return;
  }
  for (uint32_t kind = 0; kind < BS_COLL_COUNT_; kind++)
    for (uint32_t p = 1; (s.algorithm->kinds >> kind & 1) != 0 && p <= 17; p++) {
      const double little = seconds(&s, kind, p, 1000), much = seconds(&s, kind, p, 10000000);
      kit_assert(much >= little, "%s, %u ranks: ten million elements take %g s, a thousand %g s",
                 bs_name_of(BS_NAMES_COLL, kind), p, much, little);
    }
}
