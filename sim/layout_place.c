/* SPDX-License-Identifier: MIT
 * layout_place.c - places and parts by name: "pe3.cube0", "hbm3.cube0", "noc.cube0 3>2". */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "sim/layout_net.h"

/* ---- names ------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void say(char *out, uint32_t size, const char *form, ...) {
  va_list args;
  const size_t n = strlen(out);
  va_start(args, form);
  if (n < size) vsnprintf(out + n, size - n, form, args);
  va_end(args);
}

/* ".pe3.cube0" of a place; nothing of the package. */
static void say_levels(const sim_device *d, uint32_t level, uint32_t place, char *out, uint32_t size) {
  for (; level > 0; level--) {
    say(out, size, "%s%s%u", out[0] != '\0' ? "." : "", d->levels[level].name, place % d->levels[level].each);
    place /= d->levels[level].each;
  }
}

void sim_layout_place_name(const sim_layout *l, const sim_place *p, char *out, uint32_t size) {
  out[0] = '\0';
  if (p->class != SIM_CLASSES) say(out, size, "%s", l->device->classes[p->class].name);
  if (p->unit != UINT32_MAX) say(out, size, "%u", p->unit);
  say_levels(l->device, p->level, p->index, out, size);
  if (out[0] == '\0') say(out, size, "%s", l->device->levels[0].name);
}

void sim_layout_lane_name(const sim_layout *l, uint32_t lane, char *out, uint32_t size) {
  const sim_device *d = l->device;
  sim_layout_place_name(l, &(sim_place){d->lane_level, lane / d->lanes_each, SIM_CLASSES, UINT32_MAX}, out,
                        size);
  if (d->lanes_each > 1) say(out, size, "/%u", lane % d->lanes_each);
}

void sim_layout_part_name(const sim_layout *l, uint32_t part, char *out, uint32_t size) {
  const uint32_t class = sim_layout_class_of(l, part), index = part - l->base[class];
  const sim_class *c = &l->device->classes[class];
  if (c->kind != SIM_NET) {
    const uint32_t own = c->kind == SIM_MEMORY && c->node == SIM_NODE_OWN;
    sim_layout_place_name(l, &(sim_place){c->level + own, index, class, UINT32_MAX}, out, size);
    return;
  }
  uint32_t from = 0, to = 0;
  sim_net_ends(c, index % sim_net_slots(c), &from, &to);
  sim_layout_place_name(l, &(sim_place){c->level, index / sim_net_slots(c), class, UINT32_MAX}, out, size);
  if (to != UINT32_MAX)
    say(out, size, " %u>%u", from, to);
  else
    say(out, size, index % 2 == 0 ? " %u>switch" : " switch>%u", from);
}

/* ---- places ------------------------------------------------------------------------------------ */

/* One word of a place: a name and a number. */
typedef struct word {
  char name[32];
  uint32_t number; /* UINT32_MAX: none */
} word;

static const char *read_word(const char *at, word *out) {
  const size_t n = strcspn(at, "."), letters = strcspn(at, "0123456789.");
  uint32_t number = 0;
  *out = (word){.number = UINT32_MAX};
  if (letters == 0 || letters >= sizeof out->name || n - letters > 7 ||
      strspn(at + letters, "0123456789") != n - letters)
    return NULL;
  memcpy(out->name, at, letters);
  for (size_t i = letters; i < n; i++) number = number * 10 + (uint32_t)(at[i] - '0');
  if (n > letters) out->number = number;
  return at + n + (at[n] == '.');
}

static int32_t wrong(const sim_layout *l, const char *text, const char *name, const char *why,
                     bs_error *err) {
  const char *names[SIM_CLASSES + SIM_LEVELS];
  uint32_t n = 0;
  for (uint32_t i = 1; i < l->device->n_levels; i++) names[n++] = l->device->levels[i].name;
  for (uint32_t c = 0; c < l->device->n_classes; c++)
    if (l->device->classes[c].kind == SIM_MEMORY) names[n++] = l->device->classes[c].name;
  const char *nearest = bs_nearest(name, names, n);
  bs_error_set(err, BS_USAGE, "BS-DEVICE-PLACE", "'%.60s' is no place of device %s: %s", text,
               l->device->name, why);
  if (nearest != NULL && strcmp(nearest, name) != 0)
    bs_error_hint(err, "did you mean '%s'?", nearest);
  else
    bs_error_hint(err, "a place is written innermost first, as in %s0%s%s%s",
                  l->device->levels[l->device->n_levels - 1].name, l->device->n_levels > 2 ? "." : "",
                  l->device->n_levels > 2 ? l->device->levels[l->device->n_levels - 2].name : "",
                  l->device->n_levels > 2 ? "0" : "");
  return BS_USAGE;
}

static uint32_t level_of(const sim_device *d, const char *name) {
  uint32_t level = 1;
  while (level < d->n_levels && strcmp(d->levels[level].name, name) != 0) level++;
  return level;
}

/* The first word: a level with its number, or a part. */
static int32_t read_first(const sim_layout *l, const char *text, const word *first, sim_place *out,
                          bs_error *err) {
  const sim_device *d = l->device;
  char why[96];
  out->class = sim_device_class(d, first->name);
  out->unit = UINT32_MAX;
  out->level = level_of(d, first->name);
  if (out->class == SIM_CLASSES) {
    if (out->level == d->n_levels) return wrong(l, text, first->name, "no level or part has that name", err);
    if (first->number != UINT32_MAX && first->number < d->levels[out->level].each) return BS_OK;
    snprintf(why, sizeof why, "%s is numbered 0 to %u", first->name, d->levels[out->level].each - 1);
    return wrong(l, text, first->name, why, err);
  }
  const sim_class *c = &d->classes[out->class];
  out->level = c->level;
  out->unit = first->number;
  if (first->number == UINT32_MAX || (c->kind == SIM_MEMORY && first->number < c->workers)) return BS_OK;
  snprintf(why, sizeof why,
           c->kind == SIM_MEMORY ? "the channels of %s are numbered 0 to %u" : "%s has no numbers", c->name,
           c->workers - 1);
  return wrong(l, text, first->name, why, err);
}

int32_t sim_layout_place(const sim_layout *l, const char *text, const sim_place *beside, sim_place *out,
                         bs_error *err) {
  const sim_device *d = l->device;
  uint32_t numbers[SIM_LEVELS], level;
  char why[96];
  word w;
  const char *at = read_word(text, &w);
  if (at == NULL) return wrong(l, text, text, "a name and a number are wanted", err);
  const int32_t rc = read_first(l, text, &w, out, err);
  if (rc != BS_OK) return rc;
  /* What is not said is the other end's, or 0. */
  uint32_t place = beside != NULL ? beside->index : 0, from = beside != NULL ? beside->level : 0;
  for (level = 0; level < SIM_LEVELS; level++) numbers[level] = 0;
  for (level = from; level > 0; level--) {
    numbers[level] = place % d->levels[level].each;
    place /= d->levels[level].each;
  }
  level = out->level;
  if (out->class == SIM_CLASSES) numbers[level--] = w.number;
  while (*at != '\0') {
    at = read_word(at, &w);
    const uint32_t said = at != NULL ? level_of(d, w.name) : d->n_levels;
    if (at == NULL || said > level || said == d->n_levels)
      return wrong(l, text, at != NULL ? w.name : text, "its levels go from the inside to the outside", err);
    if (w.number >= d->levels[said].each) {
      snprintf(why, sizeof why, "%s is numbered 0 to %u", w.name, d->levels[said].each - 1);
      return wrong(l, text, w.name, why, err);
    }
    numbers[said] = w.number;
    level = said - 1;
  }
  out->index = 0;
  for (level = 1; level <= out->level; level++)
    out->index = out->index * d->levels[level].each + numbers[level];
  return BS_OK;
}
