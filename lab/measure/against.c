/* SPDX-License-Identifier: MIT
 * against.c - see against.h. */
#include "lab/measure/against.h"

#include <math.h>
#include <stdio.h>

#include "core/base/text.h"

static const double OFF = 1.15;

bs_against bs_against_of(const bs_predicted *p, double measured) {
  bs_against a = {0};
  const int holds = p->least > 0.0 && measured > 0.0;
  a.below_bound = holds && measured < p->least;
  const double share = holds ? p->bound.total / measured : 0.0;
  if (!a.below_bound && share <= 1.0 + BS_SAME_PASSES) a.share = fmin(share, 1.0);
  if (p->has_kernel && p->kernel.total > 0.0) a.ratio = measured / p->kernel.total;
  a.off = a.ratio > OFF || (a.ratio > 0.0 && a.ratio < 1.0 / OFF);
  return a;
}

static json_t *known(double value) {
  return value > 0.0 ? json_real(value) : json_null();
}

void bs_against_json(json_t *into, const bs_against *a) {
  json_object_set_new(into, "below_bound", json_boolean(a->below_bound));
  json_object_set_new(into, "share_of_limit", known(a->share));
  json_object_set_new(into, "measured_over_predicted", known(a->ratio));
}

/* The causes that the facts leave open, each behind "; ". */
static void causes_of(const bs_against_facts *f, bs_text *out) {
  const bs_machine *m = f->machine;
  const uint32_t width = f->ranks * f->threads;
  if (f->disturbed > 0)
    bs_text_printf(out, "; %llu of %llu pairs were disturbed", (unsigned long long)f->disturbed,
                   (unsigned long long)f->pairs);
  if (width > m->cores)
    bs_text_printf(out, "; %u threads share %u cores", width, m->cores);
  else if (width > 1 && width < m->threads)
    bs_text_printf(out, "; rates are known of one core and of all %u, not of %u", m->threads, width);
  if (m->spread > BS_SAME_PASSES)
    bs_text_printf(out, "; passes of the machine's constants differed by %.0f %%", 100.0 * m->spread);
  if (m->measured_at[0] != '\0')
    bs_text_printf(
        out,
        "; the stored constants are of %.8s, when others took %.0f %% of the processors' time (bsrun doctor "
        "--measure takes new ones)",
        m->measured_at, 100.0 * fmax(m->others, 0.0));
  if (out->size == 0)
    bs_text_printf(out, "; no cause is known (the kernel's rates are of 64 tokens and of one)");
}

int bs_against_sentence(const bs_predicted *p, double measured, const bs_against_facts *f, char *out,
                        size_t size) {
  const bs_against a = bs_against_of(p, measured);
  bs_text causes = {0};
  if (a.below_bound) {
    snprintf(out, size,
             "%s: measured %.4g ms is below the bound %.4g ms: the constants are from another state of the "
             "machine, or the work was not done; the share of the limit is UNKNOWN",
             f->arm, 1e3 * measured, 1e3 * p->bound.total);
    return 1;
  }
  if (!a.off) return 0;
  causes_of(f, &causes);
  snprintf(out, size, "%s: measured %.4g ms, predicted %.4g ms (%.2f times as long): %s", f->arm,
           1e3 * measured, 1e3 * p->kernel.total, a.ratio, causes.failed ? "out of memory" : causes.data + 2);
  bs_text_free(&causes);
  return 1;
}
