/* SPDX-License-Identifier: MIT
 * run_nodes.c - runs ONNX's node tests, which node_tests.py has written to a folder, and counts what passes.
 *
 *   run_nodes DIR LIST [--backend NAME] [--write]
 *
 * LIST is the tracked list of the cases that pass, a name a line. Exit status 1: a case of the list does not
 * pass, no case was run, or (where DIR has ort.txt) ONNX Runtime passes as many as we do. --write makes the
 * list anew. */
#include "tests/graph/case_run.h"

typedef struct nodes_case {
  char name[200], op[60];
  int kind; /* an index of kinds */
  int passed, listed, ort;
  double rtol, atol;
  uint32_t n_in, n_out;
} nodes_case;

static const char *const kinds[] = {"core", "other", "expanded"};
enum { N_KINDS = 3 };

typedef struct nodes_set {
  nodes_case *cases;
  size_t n;
} nodes_set;

static FILE *open_file(const char *folder, const char *name, const char *mode) {
  char path[1200];
  snprintf(path, sizeof path, "%s%s%s", folder, folder[0] != '\0' ? "/" : "", name);
  return fopen(path, mode);
}

static int read_cases(const char *folder, nodes_set *set) {
  char line[400], kind[20], rtol[40], atol[40], n_in[40], n_out[40];
  FILE *f = open_file(folder, "cases.txt", "r");
  if (f == NULL) return 0;
  while (fgets(line, sizeof line, f) != NULL) {
    nodes_case c = {0};
    if (sscanf(line, "%199s %59s %19s %39s %39s %39s %39s", c.name, c.op, kind, rtol, atol, n_in, n_out) != 7)
      continue;
    c.n_in = (uint32_t)strtoul(n_in, NULL, 10);
    c.n_out = (uint32_t)strtoul(n_out, NULL, 10);
    c.rtol = strtod(rtol, NULL);
    c.atol = strtod(atol, NULL);
    while (c.kind + 1 < N_KINDS && strcmp(kind, kinds[c.kind]) != 0) ++c.kind;
    nodes_case *more = realloc(set->cases, (set->n + 1) * sizeof *more);
    if (more == NULL) break;
    set->cases = more;
    set->cases[set->n++] = c;
  }
  fclose(f);
  return set->n > 0;
}

/* Marks the cases whose names stand in a file, the first word of each line. `offset` is of the mark. */
static int mark_cases(const char *folder, const char *name, nodes_set *set, size_t offset) {
  char line[400], word[200];
  FILE *f = open_file(folder, name, "r");
  if (f == NULL) return 0;
  while (fgets(line, sizeof line, f) != NULL) {
    if (sscanf(line, "%199s", word) != 1) continue;
    for (size_t i = 0; i < set->n; ++i) {
      if (strcmp(set->cases[i].name, word) == 0) *(int *)(void *)((char *)&set->cases[i] + offset) = 1;
    }
  }
  fclose(f);
  return 1;
}

static int open_tensors(const char *folder, const char *prefix, uint32_t n, bs_onnx_pb *files,
                        const bs_onnx_tensor **out, char *why, size_t size) {
  for (uint32_t i = 0; i < n; ++i) {
    char path[1400];
    bs_error err = BS_ERROR_INIT;
    snprintf(path, sizeof path, "%s/%s_%u.pb", folder, prefix, i);
    if (bs_onnx_pb_open(path, &files[i], &err) != BS_OK) {
      snprintf(why, size, "%s: %s", err.id, err.message);
      while (i-- > 0) bs_onnx_pb_close(&files[i]);
      return 0;
    }
    out[i] = &files[i].tensor;
  }
  return 1;
}

static int run_one(bs_context *context, const char *backend, const char *root, const nodes_case *one,
                   char *why, size_t size) {
  case_run c = {.context = context,
                .backend = backend,
                .rtol = one->rtol,
                .atol = one->atol,
                .n_in = one->n_in,
                .n_out = one->n_out};
  bs_onnx_pb in[CASE_MAX_PORTS], out[CASE_MAX_PORTS];
  char folder[1200], path[1300];
  snprintf(folder, sizeof folder, "%s/%s", root, one->name);
  snprintf(path, sizeof path, "%s/model.onnx", folder);
  if (one->n_in > CASE_MAX_PORTS || one->n_out > CASE_MAX_PORTS) return 0;
  if (!open_tensors(folder, "input", one->n_in, in, c.in, why, size)) return 0;
  int passed = 0;
  if (open_tensors(folder, "output", one->n_out, out, c.out, why, size)) {
    passed = case_run_file(&c, path) == CASE_PASSED;
    snprintf(why, size, "%s", c.why);
    for (uint32_t i = 0; i < one->n_out; ++i) bs_onnx_pb_close(&out[i]);
  }
  for (uint32_t i = 0; i < one->n_in; ++i) bs_onnx_pb_close(&in[i]);
  return passed;
}

static void write_list(const char *path, const nodes_set *set) {
  FILE *f = fopen(path, "w");
  if (f == NULL) return;
  for (size_t i = 0; i < set->n; ++i) {
    if (set->cases[i].passed) fprintf(f, "%s\n", set->cases[i].name);
  }
  fclose(f);
}

/* Prints the counts; returns the exit status. */
static int report(const nodes_set *set, int has_ort) {
  size_t n[N_KINDS] = {0}, passed[N_KINDS] = {0}, ort[N_KINDS] = {0}, unexpected = 0, fresh = 0;
  for (size_t i = 0; i < set->n; ++i) {
    const nodes_case *c = &set->cases[i];
    n[c->kind] += 1;
    passed[c->kind] += (size_t)c->passed;
    ort[c->kind] += (size_t)c->ort;
    unexpected += (size_t)(c->listed && !c->passed);
    fresh += (size_t)(c->passed && !c->listed);
  }
  for (int k = 0; k < N_KINDS; ++k) {
    if (n[k] == 0) continue;
    printf("%-8s  %zu of %zu cases pass (%.1f %%)", kinds[k], passed[k], n[k],
           100.0 * (double)passed[k] / (double)n[k]);
    if (has_ort) printf("; ONNX Runtime %zu", ort[k]);
    printf("\n");
  }
  if (fresh > 0) printf("%zu cases pass that the list does not have: run with --write\n", fresh);
  if (unexpected > 0) printf("%zu cases of the list do not pass\n", unexpected);
  if (set->n == 0) printf("no case was run\n");
  return set->n == 0 || unexpected > 0 || (has_ort && passed[0] <= ort[0]);
}

int main(int argc, char **argv) {
  const char *backend = "ref";
  int write = 0;
  for (int i = 3; i < argc; ++i) {
    if (strcmp(argv[i], "--write") == 0) write = 1;
    if (strcmp(argv[i], "--backend") == 0 && i + 1 < argc) backend = argv[++i];
  }
  nodes_set set = {0};
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  if (argc < 3) {
    fprintf(stderr, "usage: run_nodes DIR LIST [--backend NAME] [--write]\n");
    return 2;
  }
  if (!read_cases(argv[1], &set) || bs_context_open(NULL, &context, &err) != BS_OK) {
    fprintf(stderr, "run_nodes: no case in %s, or no context: %s\n", argv[1], err.message);
    free(set.cases);
    return 1;
  }
  const int has_ort = mark_cases(argv[1], "ort.txt", &set, offsetof(nodes_case, ort));
  mark_cases("", argv[2], &set, offsetof(nodes_case, listed));
  for (size_t i = 0; i < set.n; ++i) {
    char why[900] = "";
    set.cases[i].passed = run_one(context, backend, argv[1], &set.cases[i], why, sizeof why);
    if (!set.cases[i].passed)
      printf("%s %s %s: %s\n", set.cases[i].listed ? "FAILED" : "not passed", kinds[set.cases[i].kind],
             set.cases[i].name, why);
  }
  if (write) {
    write_list(argv[2], &set);
    for (size_t i = 0; i < set.n; ++i) set.cases[i].listed = set.cases[i].passed;
  }
  const int status = report(&set, has_ort);
  bs_context_close(context);
  free(set.cases);
  return status;
}
