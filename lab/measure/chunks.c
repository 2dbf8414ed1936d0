/* SPDX-License-Identifier: MIT
 * chunks.c - see chunks.h. */
#include "lab/measure/chunks.h"

#include <string.h>

#include "lab/measure/constants.h"
#include "lab/measure/kernel.h"
#include "lab/phase/arms.h"

static const char *const counts[] = {"off", "2", "3", "4", "5", "6", "7", "8"};
enum { COUNTS = (int)(sizeof counts / sizeof counts[0]) };
static const double WORTH = 0.95; /* of the time without: less is within what a prediction can miss by */

/* The option's place among them; -1: nothing to resolve. */
static int asked(const bs_layer_spec *spec, size_t most) {
  for (uint32_t i = 0; i < spec->n_options && i < most; ++i)
    if (strcmp(spec->option_keys[i], "overlap") == 0 && strcmp(spec->option_values[i], "auto") == 0)
      return (int)i;
  return -1;
}

static double seconds(const bs_machine *m, const bs_kernel *k, const bs_case *c) {
  bs_predicted p;
  bs_error err;
  memset(&err, 0, sizeof err);
  err.struct_size = (uint32_t)sizeof err;
  if (bs_predict_case(m, k, c, &p, &err) != BS_OK) return 0.0;
  return p.has_kernel ? p.kernel.total : p.bound.total;
}

void bs_overlap_resolve(const bs_experiment *e, bs_subject *s) {
  const size_t most = sizeof s->option_values / sizeof s->option_values[0];
  const int at = asked(&s->spec, most);
  if (at < 0 || s->spec.n_options > most) return;
  if (e->peers != NULL) return; /* processes measure differently: the methods' own model is the same in all */
  bs_arm_case arm[BS_ARMS_MAX];
  bs_machine machine;
  bs_kernel kernel;
  bs_error err;
  double footprint = 0.0;
  bs_arms_of((bs_context *)(uintptr_t)s->context, e, s, arm);
  bs_case *c = &arm[0].c;
  memset(&err, 0, sizeof err);
  err.struct_size = (uint32_t)sizeof err;
  if (bs_predict_footprint(c, &footprint, &err) != BS_OK) return; /* who builds the layer will say why */
  if (!bs_constants_find(e->machine_constants, c, footprint, &machine) &&
      (e->only_stored || bs_machine_measure(c, footprint, &machine, &err) != BS_OK))
    return;
  const int known = bs_kernel_identify(c, &kernel, &err) == BS_OK &&
                    bs_constants_kernel(e->machine_constants, c, footprint, &kernel, &kernel);
  memcpy(s->option_values, s->spec.option_values, s->spec.n_options * sizeof s->option_values[0]);
  c->spec.option_values = s->option_values;
  double least = 0.0;
  int best = 0;
  for (int i = 0; i < COUNTS; ++i) {
    s->option_values[at] = counts[i];
    const double t = seconds(&machine, known ? &kernel : NULL, c);
    if (i == 0) least = WORTH * t;
    if (i == 0 || t <= 0.0 || t >= least) continue;
    least = t;
    best = i;
  }
  s->option_values[at] = counts[best];
  s->spec.option_values = s->option_values;
}
