/* SPDX-License-Identifier: MIT
 * knobs.c - numerics.knobs: some queries of an op with each value of each declared knob of the
 * implementation, against the fp64 oracle; and the plan's echo. supports or prepare may refuse a value. A
 * value that is accepted must give right numbers and must be the one in the echo. */
#include <stdio.h>

#include "kit/graph.h"

enum { MOST_VALUES = 12, SETTING = 128 };

/* Echoed by a plan of d: every knob, and those that were given with the given value. */
void kit_echo_check(const kit_actor *a, const kit_data *d, const void *plan) {
  char asked[64], told[64];
  if (a->impl->n_knobs == 0) return;
  struct {
    bs_op_echo echo;
    unsigned char beyond[16];
  } room;
  memset(&room, 0xA5, sizeof room);
  room.echo.struct_size = (uint32_t)sizeof room.echo;
  kit_assert(a->impl->echo(plan, &room.echo) == BS_OK, "%s: echo fails", kit_data_text(d));
  for (size_t i = 0; i < sizeof room.beyond; i++)
    kit_assert(room.beyond[i] == 0xA5, "%s: echo writes behind bs_op_echo", kit_data_text(d));
  kit_assert(room.echo.struct_size == sizeof room.echo, "%s: echo changes struct_size", kit_data_text(d));
  kit_assert(memchr(room.echo.knobs, '\0', sizeof room.echo.knobs) != NULL &&
                 memchr(room.echo.build, '\0', sizeof room.echo.build) != NULL,
             "%s: a text of the echo has no end", kit_data_text(d));
  for (uint32_t i = 0; i < a->impl->n_knobs; i++) {
    const char *name = a->impl->knobs[i]->name;
    char with[72];
    snprintf(with, sizeof with, "%s=auto", name);
    const int found =
        bs_knob_find(room.echo.knobs, name, told, sizeof told) || strstr(room.echo.knobs, with) != NULL;
    kit_assert(found, "%s: the echo '%s' lacks the knob %s", kit_data_text(d), room.echo.knobs, name);
    if (!bs_knob_find(d->query.knobs, name, asked, sizeof asked)) continue;
    kit_assert(strcmp(asked, told) == 0, "%s: asked %s=%s, the plan reports %s", kit_data_text(d), name,
               asked, room.echo.knobs);
  }
}

/* One query with one setting: 1 when it ran. */
static uint32_t one_setting(kit_actor *a, kit_data *d, const char *setting) {
  bs_op_answer answer;
  bs_error err = BS_ERROR_INIT;
  const char *stage = "";
  d->query.knobs = setting;
  if (a->packer == a->impl) d->pack_query.knobs = setting;
  snprintf(d->note, sizeof d->note, ", with %.70s", setting);
  kit_data_ask(a, d, &answer);
  if (answer.level == BS_LEVEL_NO) return 0;
  kit_poison_outputs(d, 0xA5);
  const int32_t rc = kit_data_run(a, d, &stage, &err);
  if (rc == BS_CONFIG || rc == BS_UNSUPPORTED) {
    kit_assert(err.message[0] != '\0', "%s: %s refuses without a word", kit_data_text(d), stage);
    return 0;
  }
  kit_assert(rc == BS_OK, "%s: %s fails: %s: %s", kit_data_text(d), stage, err.id, err.message);
  uint32_t tolerance = answer.tolerance;
  if (tolerance == 0) tolerance = kit_wide(d) ? BS_TOL_ACC_F64 : BS_TOL_ACC_F32;
  kit_data_judge(d, tolerance, 0);
  return 1;
}

static uint32_t one_knob(kit_actor *a, const kit_shape *shape, const bs_knob *knob) {
  const uint32_t n = bs_knob_count(knob), step = (n + MOST_VALUES - 1) / MOST_VALUES;
  uint32_t ran = 0;
  for (uint32_t v = 0; v < n; v += step) {
    char value[64], setting[SETTING];
    kit_data d;
    kit_assert(bs_knob_value(knob, v, value, sizeof value, NULL) == BS_OK, "%s has no value %u", knob->name,
               v);
    snprintf(setting, sizeof setting, "%s=%s", knob->name, value);
    kit_data_make(&d, a->impl->op, shape);
    ran += one_setting(a, &d, setting);
    kit_data_free(a, &d);
  }
  return ran;
}

void kit_num_knobs(const kit_case *c) {
  static const uint32_t queries[] = {0, 7, 10, 11, 12, 27, 31, 38, 44}; /* corners, then drawn ones */
  static const uint32_t dtypes[] = {BS_BF16, BS_F32}; /* of plain ones, for those that serve little else */
  kit_shape plain = {.B = 4, .N = 8, .K = 16, .seed = 11, .plain = 1};
  static kit_actor a;
  kit_shape s;
  if (!kit_actor_open(&a, c->thing, 3)) return;
  if (!kit_op_known(a.impl->op)) {
    kit_actor_close(&a);
    kit_unsupported("op %s is the plugin's own: the kit has no oracle of it", a.impl->op);
    return;
  }
  const int of_graphs = kit_graph_find(a.impl->op) != NULL;
  plain.spread = of_graphs ? KIT_DENSE : 0;
  for (uint32_t k = 0; k < a.impl->n_knobs; k++) {
    uint32_t ran = 0;
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++)
      if (kit_grid(a.impl->op, queries[i], 0, &s)) ran += one_knob(&a, &s, a.impl->knobs[k]);
    const int has_plain =
        of_graphs ? kit_graph_fit(a.impl->op, 0) : kit_op_is(a.impl->op, "matmul") || kit_is_q(a.impl->op);
    for (size_t i = 0; has_plain && i < sizeof dtypes / sizeof dtypes[0]; i++) {
      plain.x = plain.w = plain.y = dtypes[i];
      ran += one_knob(&a, &plain, a.impl->knobs[k]);
    }
    kit_assert(ran > 0, "no value of the knob %s is served", a.impl->knobs[k]->name);
  }
  kit_actor_close(&a);
}
