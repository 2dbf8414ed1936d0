/* SPDX-License-Identifier: MIT
 * bench_build.c - detects two settings of one provider whose knobs should select different binaries but
 * report the same build. Each arm is prepared in a separate world, so no world can detect this. */
#include <stdio.h>
#include <string.h>

#include "core/op/knob.h"
#include "core/plugin/registry.h"
#include "lab/error.h"
#include "lab/kernel/bench_point.h"
#include "lab/store/env.h"

/* The registered thing of the provider "cpu:packed"; NULL: this name is not registered. */
static const bs_thing *find_thing(const bs_point *point, const char *provider) {
  const char *op = bs_kernel_problem_op(point->problem->kind), *colon = strchr(provider, ':');
  const bs_thing *thing;
  char plugin[160];
  if (colon == NULL) return NULL;
  snprintf(plugin, sizeof plugin, "%.*s", (int)(colon - provider), provider);
  for (uint32_t i = 0; (thing = bs_registry_thing(point->bench->context, plugin, i)) != NULL; i++) {
    const bs_op_impl *impl = thing->vtable;
    if (thing->kind == BS_KIND_OP && strcmp(impl->op, op) == 0 && strcmp(impl->name, colon + 1) == 0)
      return thing;
  }
  return NULL;
}

/* The first knob that selects a binary and has another value in the two echoes; NULL: none. */
static const char *differing_knob(const bs_op_impl *impl, const bs_op_echo *a, const bs_op_echo *b) {
  for (uint32_t i = 0; i < impl->n_knobs; i++) {
    char mine[BS_KNOB_VALUE] = "", other[BS_KNOB_VALUE] = "";
    const bs_knob *knob = impl->knobs[i];
    if ((knob->flags & BS_KNOB_BUILD) == 0) continue;
    if (bs_knob_said(a->knobs, knob->name, mine) && bs_knob_said(b->knobs, knob->name, other) &&
        strcmp(mine, other) != 0)
      return knob->name;
  }
  return NULL;
}

static int32_t tell(bs_entrant *e, const bs_entrant *other, const char *knob, const char *build,
                    bs_error *err) {
  char text[1200];
  json_t *fields = json_object_get(e->record, "build");
  snprintf(text, sizeof text, "%s has another %s and reports the same build, %.100s: one of them was not run",
           other->label, knob, build);
  return json_object_set_new(fields, "unshown_knobs", json_integer(1)) != 0 ||
                 json_object_set_new(fields, "message", bs_env_string(text)) != 0
             ? bs_no_memory(err, "a record")
             : BS_OK;
}

int32_t bs_entrant_check_build(const bs_point *point, bs_entrant *e, bs_error *err) {
  const bs_op_echo *echo = e->arm != NULL ? bs_kernel_arm_echo(e->arm) : NULL;
  const bs_thing *thing = echo != NULL ? find_thing(point, bs_kernel_arm_provider(e->arm)) : NULL;
  /* A plan that reports no build has the build of the plugin's file, for all knobs. */
  if (thing == NULL || echo->build[0] == '\0' ||
      (thing->build != NULL && strcmp(thing->build, echo->build) == 0))
    return BS_OK;
  for (const bs_entrant *other = point->of; other < e; other++) {
    const bs_op_echo *before = other->arm != NULL ? bs_kernel_arm_echo(other->arm) : NULL;
    if (before == NULL || strcmp(before->build, echo->build) != 0 ||
        strcmp(bs_kernel_arm_provider(other->arm), bs_kernel_arm_provider(e->arm)) != 0)
      continue;
    const char *knob = differing_knob(thing->vtable, echo, before);
    if (knob != NULL) return tell(e, other, knob, echo->build, err);
  }
  return BS_OK;
}
