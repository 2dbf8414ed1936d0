/* SPDX-License-Identifier: MIT
 * main.c - fuzz_passes: random small graphs with the patterns of the passes and a change or two each, with
 * passes against as written (judge.c). A worker judges; when a graph ends it, the next worker goes on behind
 * that graph. Exit 0: nothing found, 6: something, 2: usage. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/error.h"
#include "tests/graph/fuzz_passes/changes.h"
#include "tests/graph/fuzz_passes/patterns.h"
#include "tests/graph/fuzz_passes/shrink.h"
#include "tests/graph/fuzz_passes/text_case.h"

enum { MAX_FOUND = 400, MAX_NAMES = 32 };

/* Findings of one kind. */
typedef struct found {
  char key[120], why[320];
  uint64_t times, graph; /* graph: of the first */
  double seconds;
} found;

/* Shared by the workers. */
typedef struct state {
  uint64_t graph, right, none, refused;
  uint64_t patterns[MAX_NAMES], changes[MAX_NAMES], changed[3];
  uint32_t n_found, shrunk;
  char refusal[320];
  found list[MAX_FOUND];
} state;

typedef struct options {
  double seconds;
  uint64_t graphs, seed, begin;
  uint32_t shrinks, first; /* first: it ends with the first finding */
  const char *keep, *replay;
  judging j;
} options;

static state *shared;
static double began;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *outcome_name(uint32_t outcome) {
  return outcome == OUTCOME_VALUE ? "value" : outcome == OUTCOME_STATUS ? "status" : "crash";
}

/* "value fuse_norm: norm, keepdims" */
static void key_of(const spec *s, const verdict *v, char *out, size_t size) {
  int n = snprintf(out, size, "%s %s:", outcome_name(v->outcome), v->pass[0] != '\0' ? v->pass : "-");
  for (uint32_t i = 0; i < s->n_patterns && n < (int)size; i++)
    n += snprintf(out + n, size - (size_t)n, "%s%s", i > 0 ? " > " : " ", pattern_get(s->patterns[i])->name);
  for (uint32_t i = 0; i < s->n_changes && n < (int)size; i++)
    n += snprintf(out + n, size - (size_t)n, "%s%s", i > 0 ? ", " : " + ", change_name(s->changes[i]));
}

/* Counts a finding. 1: the first of its kind. */
static int count_found(const char *key, const verdict *v, uint64_t graph) {
  uint32_t i = 0;
  while (i < shared->n_found && strcmp(shared->list[i].key, key) != 0) i++;
  if (i == MAX_FOUND) return 0;
  found *f = &shared->list[i];
  f->times++;
  if (i < shared->n_found) return 0;
  shared->n_found++;
  f->graph = graph;
  f->seconds = now() - began;
  snprintf(f->key, sizeof f->key, "%s", key);
  snprintf(f->why, sizeof f->why, "%s", v->why);
  return 1;
}

static void save_case(options *o, choices *c, uint64_t graph, uint32_t outcome, const char *pass) {
  char name[160], path[1024];
  if (o->keep == NULL) return;
  mkdir(o->keep, 0777);
  snprintf(name, sizeof name, "%s_%s_%llu_%llu", outcome_name(outcome), pass[0] != '\0' ? pass : "none",
           (unsigned long long)o->seed, (unsigned long long)graph);
  snprintf(path, sizeof path, "%s/%s.txt", o->keep, name);
  FILE *out = fopen(path, "w");
  if (out == NULL) return;
  write_case(&o->j, c, name, outcome == OUTCOME_CRASH, out);
  fclose(out);
}

static void report(options *o, choices *c, verdict *v, uint64_t graph) {
  char key[120];
  key_of(o->j.graph, v, key, sizeof key);
  if (!count_found(key, v, graph)) return;
  printf("graph %llu, %.1f s: %s\n  %s\n", (unsigned long long)graph, now() - began, key, v->why);
  if (shared->shrunk < o->shrinks) {
    shared->shrunk++;
    shrink(&o->j, c, v, 400);
    make_spec(o->j.graph, c, o->j.only, 0);
    key_of(o->j.graph, v, key, sizeof key);
    printf("  smaller: %s\n  %s\n  choices=", key, v->why);
    for (uint32_t i = 0; i < c->n_given; i++) printf("%s%u", i > 0 ? "," : "", c->given[i]);
    printf("\n");
    save_case(o, c, graph, v->outcome, v->pass);
  }
  fflush(stdout);
}

static void begin_choices(const options *o, uint64_t graph, choices *c) {
  c->n_given = c->n = c->quiet = 0;
  c->state = o->seed * 0x9E3779B97F4A7C15U + graph * 0xD1342543DE82EF95U;
}

static void count_graph(const spec *s, const verdict *v) {
  if (v->outcome == OUTCOME_NO_GRAPH) {
    shared->none++;
    return;
  }
  if (v->outcome == OUTCOME_REFUSED) {
    if (shared->refused++ == 0) snprintf(shared->refusal, sizeof shared->refusal, "%s", v->why);
    return;
  }
  shared->right += v->outcome == OUTCOME_RIGHT;
  for (uint32_t i = 0; i < s->n_patterns; i++) shared->patterns[s->patterns[i]]++;
  for (uint32_t i = 0; i < s->n_changes; i++) shared->changes[s->changes[i]]++;
  shared->changed[s->n_changes < 2 ? s->n_changes : 2]++;
}

static uint64_t judged(void) {
  return shared->changed[0] + shared->changed[1] + shared->changed[2];
}

static int is_over(const options *o) {
  if (o->first && shared->n_found > 0) return 1;
  return (o->graphs > 0 && judged() >= o->graphs) || (o->graphs == 0 && now() - began >= o->seconds);
}

static void show_progress(void) {
  static double last;
  if (!isatty(2) || now() - last < 0.5) return;
  last = now();
  fprintf(stderr, "\r%llu graphs, %.0f s, %u kinds of findings ", (unsigned long long)judged(), last - began,
          shared->n_found);
}

static void work(options *o, uint64_t crashed) {
  choices c;
  verdict v;
  bs_error err = BS_ERROR_INIT;
  if (bs_context_open(NULL, &o->j.context, &err) != BS_OK) {
    fprintf(stderr, "fuzz_passes: %s: %s\n", err.id, err.message);
    _exit(5);
  }
  if (crashed != UINT64_MAX) {
    begin_choices(o, crashed, &c);
    make_spec(o->j.graph, &c, o->j.only, 0); /* what it drew, if this alone does not crash */
    begin_choices(o, crashed, &c);
    judge_apart(&o->j, &c, &v);
    begin_choices(o, crashed, &c);
    make_spec(o->j.graph, &c, o->j.only, 0);
    if (v.outcome != OUTCOME_CRASH) snprintf(v.why, sizeof v.why, "a crash that does not happen again");
    v.outcome = OUTCOME_CRASH;
    report(o, &c, &v, crashed);
  }
  for (; !is_over(o); shared->graph++) {
    alarm(60);
    begin_choices(o, shared->graph, &c);
    judge(&o->j, &c, &v);
    count_graph(o->j.graph, &v);
    if (v.outcome >= OUTCOME_VALUE) {
      alarm(0);
      report(o, &c, &v, shared->graph);
    }
    show_progress();
  }
  bs_context_close(o->j.context);
  exit(0);
}

static void run_workers(options *o) {
  uint64_t crashed = UINT64_MAX;
  shared->graph = o->begin;
  while (!is_over(o)) {
    int status = 0;
    fflush(stdout);
    const pid_t worker = fork();
    if (worker == 0) work(o, crashed);
    if (worker < 0 || waitpid(worker, &status, 0) != worker) exit(70);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 5) exit(5);
    crashed = shared->graph++;
  }
}

/* ---- tables ------------------------------------------------------------------------------------ */

static void print_tables(void) {
  printf(
      "\n%llu graphs in %.0f s: %llu without a change, %llu with one, %llu with two; %llu right, %llu "
      "refused as "
      "written, %llu choices without a graph\n",
      (unsigned long long)judged(), now() - began, (unsigned long long)shared->changed[0],
      (unsigned long long)shared->changed[1], (unsigned long long)shared->changed[2],
      (unsigned long long)shared->right, (unsigned long long)shared->refused,
      (unsigned long long)shared->none);
  if (shared->refused > 0) printf("the first refusal: %s\n", shared->refusal);
  printf("patterns:");
  for (uint32_t i = 0; pattern_get(i) != NULL; i++)
    printf(" %s %llu", pattern_get(i)->name, (unsigned long long)shared->patterns[i]);
  printf("\nchanges:");
  for (uint32_t i = 0; change_name(i) != NULL; i++)
    printf("%s %s %llu", i > 0 ? "," : "", change_name(i), (unsigned long long)shared->changes[i]);
  printf("\n");
  if (shared->n_found == 0) return;
  printf("\n%-74s %8s %8s %9s\n", "found", "times", "first s", "graph");
  for (uint32_t i = 0; i < shared->n_found; i++)
    printf("%-74s %8llu %8.1f %9llu\n", shared->list[i].key, (unsigned long long)shared->list[i].times,
           shared->list[i].seconds, (unsigned long long)shared->list[i].graph);
}

/* Judges the graphs of the lines of a file that have "choices=..". */
static int replay(options *o) {
  FILE *in = fopen(o->replay, "r");
  char line[16384];
  int wrong = 0, n = 0;
  bs_error err = BS_ERROR_INIT;
  if (in == NULL || bs_context_open(NULL, &o->j.context, &err) != BS_OK) {
    fprintf(stderr, "fuzz_passes: %s cannot be read, or the library not opened\n", o->replay);
    if (in != NULL) fclose(in);
    return 4;
  }
  while (fgets(line, sizeof line, in) != NULL) {
    char *at = strstr(line, "choices=");
    if (at == NULL) continue;
    choices c = {.quiet = 1};
    verdict v;
    for (at += 8; c.n_given < SPEC_CHOICES && *at >= '0' && *at <= '9'; at += *at == ',')
      c.given[c.n_given++] = (uint32_t)strtoul(at, &at, 10);
    judge_apart(&o->j, &c, &v);
    wrong += v.outcome >= OUTCOME_VALUE;
    n++;
    printf("%s %s: %s\n",
           v.outcome >= OUTCOME_VALUE   ? outcome_name(v.outcome)
           : v.outcome == OUTCOME_RIGHT ? "right"
                                        : "no graph",
           v.pass, v.why);
    if (o->keep != NULL) write_case(&o->j, &c, "replayed", v.outcome == OUTCOME_CRASH, stdout);
  }
  fclose(in);
  bs_context_close(o->j.context);
  printf("%d of %d are wrong\n", wrong, n);
  return wrong > 0 ? 6 : 0;
}

static int usage(const char *why) {
  fprintf(
      stderr,
      "fuzz_passes: %s\n"
      "fuzz_passes [--seconds N | --graphs N] [--seed S] [--from GRAPH] [--off PASS].. [--only PATTERN]\n"
      "            [--keep DIR] [--shrink N] [--first] | --replay FILE\n"
      "Random small graphs with the patterns of the graph passes, with passes against as written.\n"
      "  --seconds N, --graphs N  how long (20 s)        --seed S, --from GRAPH  where it begins (1, 0)\n"
      "  --off PASS               that pass stays off    --only PATTERN          graphs that end with it\n"
      "  --keep DIR               found cases as text    --shrink N              how many are made smaller "
      "(60)\n"
      "  --replay FILE            judges the lines of FILE that say choices=..\n"
      "  --first                  ends with the first finding\n"
      "Exit: 0 nothing found, 6 something found, 5 no graph ran, 2 usage.\npatterns:",
      why);
  for (uint32_t i = 0; pattern_get(i) != NULL; i++) fprintf(stderr, " %s", pattern_get(i)->name);
  fprintf(stderr, "\n");
  return 2;
}

static int read_options(int argc, char **argv, options *o) {
  static const struct option names[] = {
      {"seconds", 1, NULL, 's'}, {"graphs", 1, NULL, 'g'}, {"seed", 1, NULL, 'S'}, {"from", 1, NULL, 'f'},
      {"off", 1, NULL, 'o'},     {"only", 1, NULL, 'p'},   {"keep", 1, NULL, 'k'}, {"shrink", 1, NULL, 'm'},
      {"replay", 1, NULL, 'r'},  {"first", 0, NULL, '1'},  {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
  for (int option; (option = getopt_long(argc, argv, "h", names, NULL)) != -1;) {
    if (option == 's')
      o->seconds = strtod(optarg, NULL);
    else if (option == 'g')
      o->graphs = strtoull(optarg, NULL, 10);
    else if (option == 'S')
      o->seed = strtoull(optarg, NULL, 10);
    else if (option == 'f')
      o->begin = strtoull(optarg, NULL, 10);
    else if (option == 'k')
      o->keep = optarg;
    else if (option == 'm')
      o->shrinks = (uint32_t)strtoul(optarg, NULL, 10);
    else if (option == 'r')
      o->replay = optarg;
    else if (option == '1')
      o->first = 1;
    else if (option == 'o' && o->j.n_off < MAX_PASSES)
      o->j.off[o->j.n_off++] = optarg;
    else if (option == 'p') {
      o->j.only = 0;
      while (pattern_get(o->j.only) != NULL && strcmp(pattern_get(o->j.only)->name, optarg) != 0) o->j.only++;
      if (pattern_get(o->j.only) == NULL) return usage("there is no such pattern");
    } else {
      return usage("what do you want?");
    }
  }
  return optind == argc ? 0 : usage("surplus words");
}

int main(int argc, char **argv) {
  options o = {.seconds = 20, .seed = 1, .shrinks = 60, .j = {.only = UINT32_MAX}};
  const int rc = read_options(argc, argv, &o);
  if (rc != 0) return rc;
  o.j.graph = calloc(1, sizeof *o.j.graph);
  o.j.stable = calloc(1, sizeof *o.j.stable);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED || o.j.graph == NULL || o.j.stable == NULL) return 10;
  began = now();
  int status = 0;
  if (o.replay != NULL) {
    status = replay(&o);
  } else {
    run_workers(&o);
    print_tables();
    if (judged() == 0) fputs("fuzz_passes: no graph ran; a plugin is perhaps not built\n", stderr);
    status = shared->n_found > 0 ? 6 : judged() == 0 ? 5 : 0;
  }
  spec_clear(o.j.graph);
  spec_clear(o.j.stable);
  free(o.j.graph);
  free(o.j.stable);
  return status;
}
