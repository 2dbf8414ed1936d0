/* SPDX-License-Identifier: MIT
 * sampling_json.c - see sampler.h. */
#include "lab/measure/sampler.h"

#include <math.h>

static json_t *numbers(const double *values, size_t count) {
  json_t *list = json_array();
  for (size_t i = 0; list != NULL && i < count; ++i) json_array_append_new(list, json_real(values[i]));
  return list;
}

int bs_sampling_arm_json(json_t *into, const bs_sampled *s, uint32_t arm) {
  const bs_sampled_arm *a = &s->arm[arm];
  const bs_look *l = &a->look;
  json_t *fields =
      json_pack("{s:s,s:I,s:I,s:I,s:I,s:f,s:b,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "phase",
                bs_time_phase_name(s->phase), "forwards_per_sample", (json_int_t)a->warm.calls,
                "lead_forwards", (json_int_t)a->warm.lead, "warm_blocks", (json_int_t)a->warm.blocks,
                "warm_forwards", (json_int_t)(a->warm.first.count + a->warm.warm.count), "warm_s",
                a->warm.first.seconds + a->warm.warm.seconds, "settled", (int)a->warm.settled, "median_s",
                l->p50, "min_s", l->min, "p50_s", l->p50, "p90_s", l->p90, "p99_s", l->p99, "mad_s", l->mad,
                "order_effect", expm1(a->order));
  json_t *outliers =
      json_pack("{s:I,s:I,s:I,s:I}", "z_low", (json_int_t)l->z_low, "z_high", (json_int_t)l->z_high,
                "tukey_low", (json_int_t)l->tukey_low, "tukey_high", (json_int_t)l->tukey_high);
  int bad = fields == NULL || json_object_update(into, fields) != 0;
  json_decref(fields);
  bad |= json_object_set_new(into, "outliers", outliers);
  bad |= json_object_set_new(into, "samples_s", numbers(a->seconds, s->pairs));
  bad |= json_object_set_new(into, "discarded_s", numbers(a->discarded, s->discarded));
  return bad ? -1 : 0;
}

json_t *bs_sampling_comparison_json(const bs_sampled *s, uint32_t arm) {
  const bs_comparison *c = &s->arm[arm].comparison;
  char next[BS_LOOK_SENTENCE];
  const int unclear = c->word == BS_WORD_UNCLEAR, none = c->word == BS_WORD_NONE;
  json_t *out = json_pack("{s:s,s:s,s:I,s:I,s:I,s:f,s:f,s:f,s:s?,s:f,s:f}", "against", s->arm[arm].name,
                          "phase", bs_time_phase_name(s->phase), "pairs", (json_int_t)c->pairs, "groups",
                          (json_int_t)c->groups, "builds", (json_int_t)c->builds, "speedup", c->ratio, "low",
                          c->low, "high", c->high, "word", none ? NULL : bs_comparison_name(c->word),
                          "margin", c->margin, "order_effect", expm1(c->order));
  json_t *needs = unclear && c->needs > 0 ? json_integer((json_int_t)c->needs) : json_null();
  json_object_set_new(out, "needs_pairs", needs);
  bs_comparison_next(c, next, sizeof next);
  json_object_set_new(out, "cause", unclear || none ? json_string(bs_unclear_name(c->cause)) : json_null());
  json_object_set_new(out, "next", unclear ? json_string(next) : json_null());
  return out;
}

json_t *bs_sampling_pairs_json(const bs_sampled *s) {
  json_t *warnings = json_array();
  for (uint32_t i = 0; i < s->n_warnings; ++i) json_array_append_new(warnings, json_string(s->warning[i]));
  json_t *disturbed = json_pack("{s:I,s:I,s:I,s:I,s:I}", "stolen", (json_int_t)s->disturbed[BS_DISTURB_STEAL],
                                "switched", (json_int_t)s->disturbed[BS_DISTURB_SWITCH], "throttled",
                                (json_int_t)s->disturbed[BS_DISTURB_THROTTLE], "discarded",
                                (json_int_t)s->discarded, "kept", (json_int_t)s->disturbed_kept);
  json_t *out =
      json_pack("{s:I,s:s,s:f,s:I,s:f}", "pairs", (json_int_t)s->pairs, "stopped_by", bs_stop_name(s->stop),
                "pairs_s", s->seconds, "builds", (json_int_t)s->builds, "lead_s", s->lead_seconds);
  size_t start[BS_GROUPS_MAX + 1];
  const uint32_t groups = bs_sampling_groups(s, start);
  json_t *starts = json_array();
  for (uint32_t g = 0; g < groups; ++g) json_array_append_new(starts, json_integer((json_int_t)start[g]));
  json_object_set_new(out, "group_starts", starts);
  json_object_set_new(out, "disturbed_pairs", disturbed);
  json_object_set_new(out, "disturbance", bs_disturbance_json(&s->disturbance));
  json_object_set_new(out, "measuring_warnings", warnings);
  return out;
}
