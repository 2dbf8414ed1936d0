/* SPDX-License-Identifier: MIT
 * plan.c - see plan.h. */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const do_names[WRAP_DO_COUNT_] = {"hang", "err",      "delay", "flip",
                                                     "nan",  "truncate", "kill",  "stop"};
/* Other calls of a backend and a communicator, from WRAP_OP_ALLOC on. */
static const char *const plain_names[WRAP_OP_FIRST - WRAP_OP_ALLOC] = {"alloc", "copy", "sync", "event",
                                                                       "exchange"};
static const char *const stage_names[] = {"", ".prepare", ".pack"};
static const char key_words[] = "rank, op, seq, do, ms";

typedef struct reader {
  const char *text, *p;
  int slow;
  wrap_complaint *complaint;
} reader;

/* One word of the plan: [from, from + n). */
typedef struct word {
  const char *from;
  size_t n;
} word;

const char *wrap_do_name(uint32_t what) {
  return what < WRAP_DO_COUNT_ ? do_names[what] : "?";
}

static const char *core_name(uint32_t op) {
  return op < BS_CORE_OPS ? bs_name_of(BS_NAMES_OP, op) : "other";
}

const char *wrap_op_name(uint32_t op, char out[40]) {
  const uint32_t i = op - WRAP_OP_FIRST;
  if (op < BS_COLL_COUNT_)
    snprintf(out, 40, "%s", bs_name_of(BS_NAMES_COLL, op));
  else if (op < WRAP_OP_FIRST)
    snprintf(out, 40, "%s", plain_names[op - WRAP_OP_ALLOC]);
  else if (op < WRAP_OP_COUNT_)
    snprintf(out, 40, "%s%s", core_name(i / 3), stage_names[i % 3]);
  else
    snprintf(out, 40, "?");
  return out;
}

uint32_t wrap_op_of(const char *name, uint32_t stage) {
  uint32_t op = 0;
  while (op < BS_CORE_OPS && strcmp(core_name(op), name) != 0) ++op;
  return WRAP_OP_FIRST + 3 * op + stage;
}

static int complain(const reader *r, const char *at, const char *what, word w, const char *words) {
  r->complaint->at = (uint32_t)(at - r->text) + 1u;
  if (w.n > 0)
    snprintf(r->complaint->what, sizeof r->complaint->what, "'%.*s' %s", (int)(w.n > 40 ? 40 : w.n), w.from,
             what);
  else
    snprintf(r->complaint->what, sizeof r->complaint->what, "%s", what);
  snprintf(r->complaint->words, sizeof r->complaint->words, "%s", words);
  return 0;
}

static void spaces(reader *r) {
  while (*r->p == ' ') ++r->p;
}

static word take(reader *r, const char *until) {
  spaces(r);
  word w = {r->p, strcspn(r->p, until)};
  r->p += w.n;
  while (w.n > 0 && w.from[w.n - 1] == ' ') --w.n;
  return w;
}

static int is(word w, const char *name) {
  return strlen(name) == w.n && memcmp(w.from, name, w.n) == 0;
}

/* Digits only, or "*" where that is allowed. */
static int number(const reader *r, word w, const char *what, int any, uint64_t most, uint64_t *out) {
  char text[24];
  if (any && is(w, "*")) {
    *out = WRAP_ANY;
    return 1;
  }
  const int good = w.n > 0 && w.n < sizeof text - 4 && strspn(w.from, "0123456789") >= w.n;
  if (good) {
    memcpy(text, w.from, w.n);
    text[w.n] = '\0';
    *out = strtoull(text, NULL, 10);
    if (*out <= most) return 1;
  }
  snprintf(text, sizeof text, "%s0..%llu", any ? "*, " : "", (unsigned long long)most);
  return complain(r, w.from, what, w, text);
}

/* Do weights get packed for the core op? */
static int is_packed(uint32_t op) {
  const char *name = core_name(op);
  return strcmp(name, "matmul") == 0 || strcmp(name, "matmul24") == 0 || strcmp(name, "matmul_q") == 0;
}

/* Can a plan name it? "other" it cannot, nor the pack of an op without weights. */
static int is_nameable(uint32_t op) {
  const uint32_t i = op - WRAP_OP_FIRST;
  return op < WRAP_OP_FIRST || (i / 3 < BS_CORE_OPS && (i % 3 != WRAP_PACK || is_packed(i / 3)));
}

/* An error's hint has room for one of the ops: a command lists them. */
static int unknown_op(const reader *r, word w) {
  char words[sizeof r->complaint->words] = "*, ", name[40];
  size_t used = 3;
  for (uint32_t op = 0; op < WRAP_OP_FIRST && used < sizeof words; ++op)
    used += (size_t)snprintf(words + used, sizeof words - used, "%s, ", wrap_op_name(op, name));
  if (used < sizeof words)
    snprintf(words + used, sizeof words - used,
             "matmul and the others of `bsrun completion words ops`, OP.prepare, matmul.pack, matmul24.pack, "
             "matmul_q.pack");
  return complain(r, w.from, "is no op", w, words);
}

static int op_number(const reader *r, word w, uint64_t *out) {
  char name[40];
  if (is(w, "*")) {
    *out = WRAP_ANY;
    return 1;
  }
  for (uint32_t op = 0; op < WRAP_OP_COUNT_; ++op) {
    if (!is_nameable(op) || !is(w, wrap_op_name(op, name))) continue;
    *out = op;
    return 1;
  }
  return unknown_op(r, w);
}

static int do_number(const reader *r, word w, uint32_t *out) {
  for (uint32_t i = 0; i < WRAP_DO_COUNT_; ++i) {
    if (!is(w, do_names[i]) || (r->slow && i != WRAP_DELAY)) continue;
    *out = i;
    return 1;
  }
  return complain(r, w.from, "is nothing to do", w,
                  r->slow ? "delay" : "hang, err, delay, flip, nan, truncate, kill, stop");
}

/* Does the op have a result that this can be done to? */
static int has_result(uint64_t op, uint32_t what) {
  if (what < WRAP_FLIP || what > WRAP_TRUNCATE || op == WRAP_ANY) return 1;
  if (op < BS_COLL_COUNT_) return op != BS_COLL_BARRIER;
  if (op == WRAP_OP_EXCHANGE) return 1;
  if (op == WRAP_OP_COPY) return what != WRAP_NAN;
  return op >= WRAP_OP_FIRST && (op - WRAP_OP_FIRST) % 3 == WRAP_RUN;
}

enum { HAS_RANK = 1, HAS_OP = 2, HAS_SEQ = 4, HAS_DO = 8, HAS_MS = 16 };

static int setting(reader *r, wrap_step *s, unsigned *seen) {
  static const char *const keys[] = {"rank", "op", "seq", "do", "ms"};
  const word key = take(r, "=,;");
  size_t i = 0;
  while (i < 5 && !is(key, keys[i])) ++i;
  if (i == 5) return complain(r, key.from, key.n > 0 ? "is no key" : "a key is missing", key, key_words);
  if (*r->p != '=') return complain(r, r->p, "needs a value", key, "KEY=VALUE");
  if (*seen & (1u << i)) return complain(r, key.from, "is given twice", key, "each key once");
  *seen |= 1u << i;
  ++r->p;
  const word value = take(r, ",;");
  uint64_t ms = 0;
  switch (i) {
    case 0:
      return number(r, value, "is no rank", 1, 65535, &s->rank);
    case 1:
      return op_number(r, value, &s->op);
    case 2:
      return number(r, value, "is no number of a call", 1, 1000000000, &s->seq);
    case 3:
      return do_number(r, value, &s->what);
    default:
      if (!number(r, value, "is no number of milliseconds", 0, 3600000, &ms)) return 0;
      s->ns = (int64_t)ms * 1000000;
      return 1;
  }
}

static int step(reader *r, wrap_step *s) {
  const char *start = r->p;
  unsigned seen = 0;
  const word none = {start, 0};
  *s = (wrap_step){WRAP_ANY, WRAP_ANY, WRAP_ANY, WRAP_DELAY, 0};
  for (;;) {
    if (!setting(r, s, &seen)) return 0;
    if (*r->p != ',') break;
    ++r->p;
  }
  if (!(seen & HAS_DO) && !r->slow)
    return complain(r, start, "a step needs do=", none, "hang, err, delay, flip, nan, truncate");
  if (s->what == WRAP_DELAY && !(seen & HAS_MS))
    return complain(r, start, "a delay needs ms=", none, "ms=0..3600000");
  if (s->what != WRAP_DELAY && (seen & HAS_MS))
    return complain(r, start, "only a delay takes ms=", none, "do=delay");
  if (!has_result(s->op, s->what))
    return complain(r, start, "this op has no result that this could be done to", none,
                    "hang, err, delay; flip, nan and truncate: collectives but barrier, ops; copy but nan");
  return 1;
}

int wrap_plan_parse(const char *text, int slow, wrap_plan *out, wrap_complaint *complaint) {
  reader r = {text, text, slow, complaint};
  memset(out, 0, sizeof *out);
  memset(complaint, 0, sizeof *complaint);
  for (;;) {
    const word none = {r.p, 0};
    spaces(&r);
    if (*r.p == '\0') return 1; /* nothing, or nothing after the last ';' */
    if (out->n == WRAP_STEPS_MAX) return complain(&r, r.p, "more than 64 steps", none, "at most 64");
    if (!step(&r, &out->steps[out->n])) return 0;
    out->n++;
    if (*r.p == ';') ++r.p;
  }
}
