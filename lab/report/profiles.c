/* SPDX-License-Identifier: MIT
 * profiles.c - the section of a report for runs of `bsrun profile`: parts compared with the bound, and
 * findings. */
#include <string.h>

#include "lab/report/model.h"
#include "lab/report/rows.h"

enum { MOST_PARTS = 60, MOST_FINDINGS = 60 };

static const bs_field parts[] = {{"part", "part", 0, 0},
                                 {"rank", "rank", BS_FIELD_RIGHT, 0},
                                 {"seconds", "s", BS_FIELD_RIGHT, 4},
                                 {"share", "share", BS_FIELD_RIGHT, 3},
                                 {"flops", "FLOP", BS_FIELD_RIGHT, 4},
                                 {"bytes", "bytes", BS_FIELD_RIGHT, 4},
                                 {"gflops", "GFLOP/s", BS_FIELD_RIGHT, 4},
                                 {"gbytes_s", "GB/s", BS_FIELD_RIGHT, 4},
                                 {"bound_percent", "% of bound", BS_FIELD_RIGHT, 3}};
static const bs_field findings[] = {{"rule", "finding", 0, 0},
                                    {"state", "state", 0, 0},
                                    {"text", "measured", 0, 0},
                                    {"says", "what it means where it holds", 0, 0}};

static void one_profile(bs_text *out, const json_t *row) {
  const json_t *profile = json_object_get(row, "profile"), *subject = json_object_get(profile, "subject");
  const json_t *bound = json_object_get(profile, "bound"), *counters = json_object_get(profile, "counters"),
               *calls = json_object_get(profile, "calls");
  bs_text_printf(out, "<h3>");
  bs_svg_escape(out, bs_row_text(subject, "kind"));
  bs_text_printf(out, " ");
  bs_svg_escape(out, bs_row_text(subject, "name"));
  bs_text_printf(out, "</h3>\n<p>%.4g s", bs_row_number(profile, "call_s"));
  if (calls != NULL)
    bs_text_printf(out, " (median of %.0f; shortest %.4g, 95 %% at most %.4g)", bs_row_number(calls, "n"),
                   bs_row_number(calls, "min_s"), bs_row_number(calls, "p95_s"));
  if (bs_row_text(bound, "limit")[0] != '\0') {
    bs_text_printf(out, ", %.3g %% of the bound by ", bs_row_number(bound, "percent"));
    bs_svg_escape(out, bs_row_text(bound, "limit"));
  }
  if (bs_row_text(counters, "reason")[0] != '\0') {
    bs_text_printf(out, "; counters are UNKNOWN: ");
    bs_svg_escape(out, bs_row_text(counters, "reason"));
  }
  bs_text_printf(out, " (");
  bs_svg_escape(out, bs_row_text(row, "run"));
  bs_text_printf(out, ")</p>\n");
  bs_html_table(out, parts, sizeof parts / sizeof parts[0], json_object_get(profile, "parts"), MOST_PARTS);
  bs_html_table(out, findings, sizeof findings / sizeof findings[0], json_object_get(profile, "findings"),
                MOST_FINDINGS);
}

void bs_html_profiles(bs_text *out, const json_t *profiles) {
  if (json_array_size(profiles) == 0) return;
  bs_text_printf(out, "<h2 id=\"profiles\">Profiles</h2>\n");
  for (size_t i = 0; i < json_array_size(profiles); i++) one_profile(out, json_array_get(profiles, i));
}
