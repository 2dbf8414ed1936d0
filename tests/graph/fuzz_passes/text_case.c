/* SPDX-License-Identifier: MIT
 * text_case.c - writes cases in ONNX's text syntax (onnx_text.h). */
#include "tests/graph/fuzz_passes/text_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "tests/graph/fuzz_passes/patterns.h"

static const char *type_name(uint32_t dtype) {
  static const struct {
    uint32_t dtype;
    const char *name;
  } names[] = {{BS_F64, "double"}, {BS_F16, "float16"}, {BS_BF16, "bfloat16"}, {BS_I64, "int64"},
               {BS_I32, "int32"},  {BS_U8, "uint8"},    {BS_I8, "int8"},       {BS_BOOL, "bool"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].dtype == dtype) return names[i].name;
  return "float";
}

static void put_type(FILE *out, uint32_t dtype, uint32_t rank, const int64_t *dims) {
  fputs(type_name(dtype), out);
  for (uint32_t i = 0; i < rank; i++) fprintf(out, "%c%lld", i == 0 ? '[' : ',', (long long)dims[i]);
  if (rank > 0) fputc(']', out);
}

static void put_element(FILE *out, uint32_t dtype, double x) {
  uint16_t bits;
  if (dtype == BS_F16 || dtype == BS_BF16) {
    bs_store_f64(dtype, &bits, 0, x);
    fprintf(out, "%u", bits);
  } else if (!is_float_dtype(dtype)) {
    fprintf(out, "%.0f", x);
  } else if (isnan(x)) {
    fputs("nan", out);
  } else {
    fprintf(out, dtype == BS_F64 ? "%.17g" : "%.9g", x);
  }
}

static void put_tensor(FILE *out, const char *name, const value *v, const double *data) {
  const int64_t n = spec_count(v);
  put_type(out, v->dtype, v->rank, v->dims);
  fprintf(out, " %s = {", name);
  for (int64_t i = 0; i < n; i++) {
    if (i > 0) fputs(", ", out);
    put_element(out, v->dtype, data[i]);
  }
  fputs("}", out);
}

static void put_attrs(FILE *out, const char *attrs) {
  char words[sizeof((node *)0)->attrs], *state = NULL;
  memcpy(words, attrs, sizeof words);
  const char *before = " <";
  for (char *w = strtok_r(words, " ", &state); w != NULL; w = strtok_r(NULL, " ", &state)) {
    char *text = strchr(w, '=');
    *text++ = '\0';
    if (strcmp(w, "perm") == 0)
      fprintf(out, "%sperm = [%s]", before, text);
    else if (strcmp(w, "epsilon") == 0 || strcmp(w, "alpha") == 0)
      fprintf(out, "%s%s: float = %s", before, w, text);
    else if (strcmp(w, "approximate") == 0)
      fprintf(out, "%sapproximate: string = \"%s\"", before, text);
    else
      fprintf(out, "%s%s: int = %s", before, w, text);
    before = ", ";
  }
  if (*before == ',') fputs(">", out);
}

static void put_nodes(FILE *out, const spec *s) {
  for (uint32_t i = 0; i < s->n_nodes; i++) {
    const node *n = &s->nodes[i];
    fprintf(out, "   v%d = %s", n->out, n->op);
    put_attrs(out, n->attrs);
    for (uint32_t k = 0; k < n->n_in; k++) {
      fputs(k == 0 ? " (" : ", ", out);
      if (n->in[k] == SPEC_NONE)
        fputs("\"\"", out);
      else
        fprintf(out, "v%d", n->in[k]);
    }
    fputs(")\n", out);
  }
}

static void put_model(FILE *out, const spec *s, const char *name) {
  const char *before = "";
  fprintf(out, "<\n   ir_version: 10,\n   opset_import: [\"\" : 23]\n>\n%s (", name);
  for (uint32_t i = 0; i < s->n_values; i++) {
    if (s->values[i].kind != VALUE_INPUT) continue;
    fputs(before, out);
    put_type(out, s->values[i].dtype, s->values[i].rank, s->values[i].dims);
    fprintf(out, " v%u", i);
    before = ", ";
  }
  fputs(") => (", out);
  for (uint32_t i = 0; i < s->n_outputs; i++) {
    const value *v = &s->values[s->outputs[i]];
    fputs(i > 0 ? ", " : "", out);
    put_type(out, v->dtype, v->rank, v->dims);
    fprintf(out, " v%d", s->outputs[i]);
  }
  fputs(")\n", out);
  before = "   <";
  for (uint32_t i = 0; i < s->n_values; i++) {
    char called[16];
    if (s->values[i].kind != VALUE_CONST) continue;
    fputs(before, out);
    snprintf(called, sizeof called, "v%u", i);
    put_tensor(out, called, &s->values[i], s->values[i].data);
    before = ",\n    ";
  }
  fputs(*before == ',' ? ">\n{\n" : "{\n", out);
  put_nodes(out, s);
  fputs("}\n", out);
}

/* ---- tolerances ------------------------------------------------------------------------------ */

static int is_near(const result *r, const result *wanted, double rtol, double atol) {
  for (uint32_t k = 0; k < wanted->n_outputs; k++)
    for (int64_t i = 0; i < wanted->counts[k]; i++) {
      const double x = r->outputs[k][i], w = wanted->outputs[k][i];
      if (isnan(x) && isnan(w)) continue;
      if (x != w && !(isfinite(w) && fabs(x - w) <= atol + rtol * fabs(w))) return 0;
    }
  return 1;
}

static int find_tolerance(const result *off, const result *ref, const result *on, double *rtol,
                          double *atol) {
  const int fails = on->status == BS_OK;
  for (*rtol = 0.1; *rtol > 1e-16; *rtol /= 10)
    for (*atol = *rtol; *atol > 1e-40; *atol /= 1e3)
      if (is_near(ref, off, *rtol / 4, *atol / 4) && !(fails && is_near(on, off, 4 * *rtol, 4 * *atol)))
        return 1;
  *rtol = *atol = 0;
  return 0;
}

static void put_case(FILE *out, const spec *s, const choices *c, const char *name, const result *wanted,
                     double rtol, double atol) {
  uint32_t n_in = 0;
  fprintf(out, "== %s %.0e %.0e choices=", name, rtol, atol);
  for (uint32_t i = 0; i < c->n; i++) fprintf(out, "%s%u", i > 0 ? "," : "", c->made[i]);
  fputs("\n", out);
  put_model(out, s, name);
  char called[16];
  for (uint32_t i = 0; i < s->n_values; i++) {
    if (s->values[i].kind != VALUE_INPUT) continue;
    snprintf(called, sizeof called, "in%u", n_in++);
    fputs("-- ", out);
    put_tensor(out, called, &s->values[i], s->values[i].data);
    fputs("\n", out);
  }
  for (uint32_t i = 0; i < s->n_outputs; i++) {
    snprintf(called, sizeof called, "out%u", i);
    fputs("-- ", out);
    put_tensor(out, called, &s->values[s->outputs[i]], wanted->outputs[i]);
    fputs("\n", out);
  }
}

int write_case(judging *j, choices *c, const char *name, int crashes, FILE *out) {
  static const mode off = {"cpu", 0, 1, {"all"}}, ref = {"ref", 0, 1, {"all"}}, on = {"cpu", 0, 0, {NULL}};
  const mode *const modes[3] = {&off, &ref, &on};
  result r[3] = {{0}, {0}, {0}};
  machine *m = NULL;
  char error[240];
  double rtol, atol;
  if (!make_spec(j->graph, c, j->only, 0)) return 0;
  int ok = machine_open(j->context, j->graph, 0, &m, error, sizeof error) == BS_OK;
  if (crashes) r[2].status = BS_INTERNAL;
  for (uint32_t i = 0; i < (crashes ? 2u : 3u) && ok; i++) {
    machine_run(m, modes[i], &r[i]);
    ok = i == 2 || r[i].status == BS_OK;
  }
  if (ok) {
    find_tolerance(&r[0], &r[1], &r[2], &rtol, &atol);
    put_case(out, j->graph, c, name, &r[0], rtol, atol);
  }
  for (uint32_t i = 0; i < 3; i++) result_clear(&r[i]);
  machine_close(m);
  return ok;
}
