/* SPDX-License-Identifier: MIT
 * shrink.c - makes the list of choices of a found case shorter and its numbers smaller while the same is
 * found: choice 0 is always the simplest, and what the list does not say is 0. */
#include "tests/graph/fuzz_passes/shrink.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct answer {
  choices c;
  verdict v;
} answer;

void judge_apart(judging *j, choices *io, verdict *out) {
  static answer *shared;
  int status = 0;
  if (shared == NULL)
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  *out = (verdict){.outcome = OUTCOME_NO_GRAPH};
  if (shared == MAP_FAILED) return;
  shared->c = *io;
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    judge(j, &shared->c, &shared->v);
    _exit(0);
  }
  if (child < 0 || waitpid(child, &status, 0) != child) return;
  *io = shared->c;
  *out = shared->v;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  *out = (verdict){.outcome = OUTCOME_CRASH};
  snprintf(out->why, sizeof out->why, "%s %d", WIFSIGNALED(status) ? "signal" : "exit status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

typedef struct search {
  judging *j;
  choices best;
  verdict found;
  uint32_t tries;
} search;

/* What the list says, without zeros at its end. */
static void given_of(choices *c) {
  memcpy(c->given, c->made, sizeof c->given);
  c->n_given = c->n;
  while (c->n_given > 0 && c->given[c->n_given - 1] == 0) c->n_given--;
  c->quiet = 1;
}

static int is_simpler(const choices *a, const choices *b) {
  if (a->n_given != b->n_given) return a->n_given < b->n_given;
  for (uint32_t i = 0; i < a->n_given; i++)
    if (a->given[i] != b->given[i]) return a->given[i] < b->given[i];
  return 0;
}

static int try_one(search *s, choices *c) {
  verdict v;
  if (s->tries == 0) return 0;
  s->tries--;
  judge_apart(s->j, c, &v);
  if (v.outcome != s->found.outcome || strcmp(v.pass, s->found.pass) != 0) return 0;
  if (v.outcome != OUTCOME_CRASH) given_of(c); /* one that crashed has not said what it drew */
  if (!is_simpler(c, &s->best)) return 0;
  s->best = *c;
  s->found = v;
  return 1;
}

static int without(search *s, uint32_t at, uint32_t n) {
  choices c = s->best;
  memmove(&c.given[at], &c.given[at + n], (c.n_given - at - n) * sizeof c.given[0]);
  c.n_given -= n;
  return try_one(s, &c);
}

static int zeroed(search *s, uint32_t at, uint32_t n) {
  choices c = s->best;
  memset(&c.given[at], 0, n * sizeof c.given[0]);
  return memcmp(c.given, s->best.given, sizeof c.given) != 0 && try_one(s, &c);
}

static int lowered(search *s, uint32_t at, uint32_t to) {
  choices c = s->best;
  c.given[at] = to;
  return to < s->best.given[at] && try_one(s, &c);
}

static int one_round(search *s) {
  int better = 0;
  for (uint32_t n = s->best.n_given / 2; n > 0; n /= 2)
    if (n <= s->best.n_given) better |= without(s, s->best.n_given - n, n);
  for (uint32_t n = 8; n > 0; n /= 2)
    for (uint32_t at = 0; at + n <= s->best.n_given && s->tries > 0; at++)
      better |= zeroed(s, at, n) || without(s, at, n);
  for (uint32_t at = 0; at < s->best.n_given && s->tries > 0; at++)
    better |=
        lowered(s, at, 1) || lowered(s, at, s->best.given[at] / 2) || lowered(s, at, s->best.given[at] - 1);
  return better;
}

void shrink(judging *j, choices *io, verdict *io_verdict, uint32_t tries) {
  search s = {.j = j, .best = *io, .found = *io_verdict, .tries = tries};
  given_of(&s.best);
  while (s.tries > 0 && s.best.n_given > 0 && one_round(&s)) {
  }
  *io = s.best;
  *io_verdict = s.found;
}
