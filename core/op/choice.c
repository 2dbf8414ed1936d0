/* SPDX-License-Identifier: MIT
 * choice.c - see choice.h. Slow path only; a book holds a handful of keys, so lists are searched. */
#include "core/op/choice.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/op/knob.h"
#include "core/op/schema.h"

#define ARROW " -> "

typedef struct wish {
  char *key;
  const char *name;  /* into key's block */
  const char *knobs; /* too; NULL: none */
} wish;

/* An echo that a plan reported. It does not change once a reader may have it. */
typedef struct said {
  bs_op_echo echo;
  struct said *before;
} said;

/* A key that was asked for, with the candidates that can serve it. */
typedef struct asked {
  char *key;
  char *chosen; /* NULL: only asked about */
  char *why;    /* the wish was refused */
  said *said;   /* each other one once, the newest first; NULL: nothing */
  bs_text candidates;
} asked;

/* A binary that a plan reported, and the knobs that it stands for. */
typedef struct built {
  const bs_op_impl *impl;
  char knobs[sizeof(((bs_op_echo *)0)->knobs)];
  char build[sizeof(((bs_op_echo *)0)->build)];
} built;

struct bs_choice_book {
  pthread_mutex_t lock; /* of the report; the wishes do not change */
  uint32_t n_wishes, n_asked, capacity, n_built;
  wish *wishes;
  asked *asked;
  built *built;
};

/* ---- wishes --------------------------------------------------------------------------------- */

/* Cuts the knobs off "PLUGIN:NAME{KNOBS}". 0: the braces are not one pair at the end, after a plugin's name.
 */
static int split_knobs(char *name, char **out_knobs) {
  char *open = strpbrk(name, "{}");
  *out_knobs = NULL;
  if (open == NULL) return 1;
  const size_t length = strlen(open);
  if (*open != '{' || length < 3 || open[length - 1] != '}' || strcspn(open + 1, "{}") != length - 2 ||
      strcspn(name, ":") >= (size_t)(open - name))
    return 0;
  open[length - 1] = '\0';
  *open = '\0';
  *out_knobs = open + 1;
  return 1;
}

static int same_text(const char *a, const char *b) {
  return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static int32_t no_choice(const char *text, bs_error *err) {
  bs_error_set(err, BS_CONFIG, "BS-OP-CHOICE", "'%.300s' is no choice of an implementation", text);
  bs_error_hint(err,
                "KEY -> PLUGIN:NAME or KEY -> PLUGIN:NAME{KNOB=VALUE;...}; bsrun explain OP shows keys, "
                "names and knobs");
  return BS_CONFIG;
}

static int32_t read_wish(bs_choice_book *book, const char *text, bs_error *err) {
  const char *arrow = strstr(text, ARROW);
  const char *name = arrow != NULL ? arrow + sizeof ARROW - 1 : "";
  if (arrow == NULL || arrow == text || name[0] == '\0' || strpbrk(name, " \t\n") != NULL)
    return no_choice(text, err);
  char *copy = bs_strdup(text), *knobs;
  if (copy == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-OP-MEMORY", "no memory for a choice");
  copy[arrow - text] = '\0';
  name = copy + (name - text);
  if (!split_knobs(copy + (name - copy), &knobs)) {
    free(copy);
    return no_choice(text, err);
  }
  const char *known = bs_choice_wanted(book, copy);
  if (known != NULL) {
    const int same = strcmp(known, name) == 0 && same_text(bs_choice_knobs(book, copy), knobs);
    if (!same)
      bs_error_set(err, BS_CONFIG, "BS-OP-CHOICE", "two choices, %.60s and %.60s, for %.300s", known,
                   text + (name - copy), copy);
    free(copy);
    return same ? BS_OK : BS_CONFIG;
  }
  book->wishes[book->n_wishes++] = (wish){copy, name, knobs};
  return BS_OK;
}

int32_t bs_choice_book_new(const char *const *texts, uint32_t count, bs_choice_book **out, bs_error *err) {
  *out = NULL;
  bs_choice_book *book = calloc(1, sizeof *book);
  if (book == NULL || pthread_mutex_init(&book->lock, NULL) != 0) {
    free(book);
    return bs_error_set(err, BS_NO_MEMORY, "BS-OP-MEMORY", "no memory for choices");
  }
  book->wishes = calloc(count > 0 ? count : 1, sizeof *book->wishes);
  if (book->wishes == NULL) {
    pthread_mutex_destroy(&book->lock);
    free(book);
    return bs_error_set(err, BS_NO_MEMORY, "BS-OP-MEMORY", "no memory for %u choices", count);
  }
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < count; i++) rc = read_wish(book, texts[i], err);
  if (rc != BS_OK) {
    bs_choice_book_free(book);
    return rc;
  }
  *out = book;
  return BS_OK;
}

void bs_choice_book_free(bs_choice_book *book) {
  if (book == NULL) return;
  for (uint32_t i = 0; i < book->n_wishes; i++) free(book->wishes[i].key);
  for (uint32_t i = 0; i < book->n_asked; i++) {
    free(book->asked[i].key);
    free(book->asked[i].chosen);
    free(book->asked[i].why);
    while (book->asked[i].said != NULL) {
      said *newest = book->asked[i].said;
      book->asked[i].said = newest->before;
      free(newest);
    }
    bs_text_free(&book->asked[i].candidates);
  }
  free(book->wishes);
  free(book->asked);
  free(book->built);
  pthread_mutex_destroy(&book->lock);
  free(book);
}

const char *bs_choice_wanted(const bs_choice_book *book, const char *key) {
  for (uint32_t i = 0; book != NULL && i < book->n_wishes; i++)
    if (strcmp(book->wishes[i].key, key) == 0) return book->wishes[i].name;
  return NULL;
}

const char *bs_choice_knobs(const bs_choice_book *book, const char *key) {
  for (uint32_t i = 0; book != NULL && i < book->n_wishes; i++)
    if (strcmp(book->wishes[i].key, key) == 0) return book->wishes[i].knobs;
  return NULL;
}

int bs_choice_names(const char *wanted, const bs_thing *thing, const bs_op_impl *impl) {
  const char *colon = strchr(wanted, ':');
  if (colon == NULL) return strcmp(wanted, impl->name) == 0;
  const size_t length = (size_t)(colon - wanted);
  return strlen(thing->plugin) == length && memcmp(thing->plugin, wanted, length) == 0 &&
         strcmp(colon + 1, impl->name) == 0;
}

/* ---- keys ----------------------------------------------------------------------------------- */

static const char *columns_of(const bs_partition *p) {
  return p == NULL ? "" : p->kind == BS_PARTITION_GATHER ? " columns=gather" : " columns=run";
}

static void put_dtype(bs_text *t, const char *name, const bs_tensor_desc *d) {
  if (d != NULL) bs_text_printf(t, " %s=%s", name, bs_dtype_name(d->dtype));
}

static void put_matmul(bs_text *t, const bs_op_query *q) {
  const bs_partition *p = q->partition;
  put_dtype(t, "x", q->args[0]);
  bs_text_printf(t, " w=%s", bs_dtype_name(q->weight_dtype));
  put_dtype(t, "y", q->args[3]);
  bs_text_printf(t, " N=%lld K=%lld%s B=%lld", (long long)q->args[3]->dims[1],
                 (long long)(p != NULL ? p->count : q->args[0]->dims[1]), columns_of(p),
                 (long long)q->args[3]->dims[0]);
  put_dtype(t, "bias", q->args[1]);
  put_dtype(t, "residual", q->args[2]);
}

static void put_other(bs_text *t, const bs_op_query *q) {
  bs_text_printf(t, " ");
  bs_op_describe_text(q, t); /* whole: a cut one would be another shape's too */
  bs_text_printf(t, "%s", columns_of(q->partition));
  for (uint32_t i = 0; i < sizeof q->attrs / sizeof q->attrs[0]; i++)
    if (q->attrs[i] != 0) bs_text_printf(t, " attr%u=%lld", i, (long long)q->attrs[i]);
  for (uint32_t i = 0; i < sizeof q->numbers / sizeof q->numbers[0]; i++)
    if (q->numbers[i] != 0.0) bs_text_printf(t, " number%u=%.17g", i, q->numbers[i]);
}

static void put_activation(bs_text *t, uint32_t activation) {
  if (activation == BS_ACT_NONE) return;
  const char *name = bs_name_of(BS_NAMES_ACTIVATION, activation);
  if (name[0] != '?')
    bs_text_printf(t, " act=%s", name);
  else
    bs_text_printf(t, " act=%u", activation);
}

void bs_choice_key(const bs_op_host *host, const bs_op_query *q, char *out, size_t size) {
  bs_text t = {0};
  bs_text_printf(&t, "%s@%s", q->op, bs_innermost(host->backend)); /* a wrapper's kernels are those */
  if (strcmp(q->op, "matmul") == 0 || strcmp(q->op, "matmul24") == 0)
    put_matmul(&t, q);
  else
    put_other(&t, q);
  if (q->kept != NULL) bs_text_printf(&t, " kept=2:4%s", q->kept->transposable ? "t" : "");
  put_activation(&t, q->activation);
  if (q->accumulate != BS_ACC_DEFAULT)
    bs_text_printf(&t, " sum=%s", q->accumulate == BS_ACC_F32 ? "f32" : "f64");
  if ((q->flags & BS_QUERY_DETERMINISTIC) != 0) bs_text_printf(&t, " deterministic");
  if ((q->flags & BS_QUERY_TRAIN) != 0) bs_text_printf(&t, " train");
  if ((q->flags & BS_QUERY_TOKENWISE) != 0) bs_text_printf(&t, " tokenwise");
  if ((q->flags & BS_QUERY_BITS) != 0) bs_text_printf(&t, " bits");
  if (q->workspace_limit != 0) bs_text_printf(&t, " workspace=%llu", (unsigned long long)q->workspace_limit);
  bs_text_printf(&t, " threads=%u P=%u", host->exec != NULL ? host->exec->width : 1u,
                 host->world_size > 0 ? host->world_size : 1u);
  const int fits = !t.failed && t.size < size;
  snprintf(out, size, "%s", fits ? t.data : "");
  bs_text_free(&t);
}

/* ---- the report ----------------------------------------------------------------------------- */

static asked *entry_of(bs_choice_book *book, const char *key) {
  for (uint32_t i = 0; i < book->n_asked; i++)
    if (strcmp(book->asked[i].key, key) == 0) return &book->asked[i];
  if (book->n_asked == book->capacity) {
    const uint32_t capacity = book->capacity == 0 ? 8 : 2 * book->capacity;
    asked *grown = realloc(book->asked, capacity * sizeof *grown);
    if (grown == NULL) return NULL;
    book->asked = grown;
    book->capacity = capacity;
  }
  asked *a = &book->asked[book->n_asked];
  memset(a, 0, sizeof *a);
  a->key = bs_strdup(key);
  if (a->key == NULL) return NULL;
  book->n_asked++;
  return a;
}

static void full_name(const bs_choice_row *row, char out[160]) {
  snprintf(out, 160, "%s:%s", row->thing->plugin, row->impl->name);
}

/* Adds the line "cpu:packed\tpacked-avx2", unless the candidate has a line already. */
static void add_candidate(asked *a, const bs_choice_row *row) {
  char name[160];
  full_name(row, name);
  const size_t length = strlen(name);
  for (const char *at = a->candidates.data; at != NULL; at = strchr(at, '\n')) {
    at += *at == '\n';
    if (strncmp(at, name, length) == 0 && at[length] == '\t') return;
  }
  char how[sizeof row->answer->algo + sizeof row->answer->text + 4];
  snprintf(how, sizeof how, "%s%s%s", row->answer->algo, row->answer->text[0] != '\0' ? ", " : "",
           row->answer->text);
  for (char *c = how; *c != '\0'; c++)
    if ((unsigned char)*c < 0x20) *c = ' ';
  bs_text_printf(&a->candidates, "%s%s\t%s", a->candidates.size > 0 ? "\n" : "", name, how);
}

void bs_choice_report(bs_choice_book *book, const char *key, const bs_choice_row *rows, uint32_t count,
                      const bs_choice_row *took) {
  if (book == NULL || key[0] == '\0') return;
  pthread_mutex_lock(&book->lock);
  asked *a = entry_of(book, key); /* without memory the report lacks it; the work goes on */
  for (uint32_t i = 0; a != NULL && i < count; i++) add_candidate(a, &rows[i]);
  if (a != NULL && took != NULL) {
    char name[160];
    full_name(took, name);
    if (a->chosen == NULL || strcmp(a->chosen, name) != 0) {
      free(a->chosen);
      a->chosen = bs_strdup(name);
    }
  }
  pthread_mutex_unlock(&book->lock);
}

int bs_choice_refuse(bs_choice_book *book, const char *key, const char *why) {
  int first = 0;
  if (book == NULL) return 0;
  pthread_mutex_lock(&book->lock);
  asked *a = entry_of(book, key);
  if (a != NULL && a->why == NULL) {
    a->why = bs_strdup(why);
    first = 1;
  }
  pthread_mutex_unlock(&book->lock);
  return first;
}

/* Refuses the echo of a plan that reports the same binary as an earlier plan of the implementation, although
 * knobs differ that need another binary. */
static int32_t check_build(bs_choice_book *book, const built *now, bs_error *err) {
  const bs_op_impl *impl = now->impl;
  for (uint32_t i = 0; i < book->n_built; i++) {
    const built *b = &book->built[i];
    if (b->impl != impl || strcmp(b->build, now->build) != 0) continue;
    if (strcmp(b->knobs, now->knobs) == 0) return BS_OK;
    bs_error_set(err, BS_PLUGIN, "BS-OP-KNOB-ECHO",
                 "a plan with %.100s and one with %.100s report one build, %s", b->knobs, now->knobs,
                 now->build);
    bs_error_where(err, "%s@%s/%s echo", impl->op, impl->backend, impl->name);
    bs_error_hint(err, "these knobs select a binary each: the values do not reach what is built or loaded");
    return BS_PLUGIN;
  }
  built *grown = realloc(book->built, (book->n_built + 1) * sizeof *grown);
  if (grown == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-OP-MEMORY", "no memory for an echo");
  book->built = grown;
  book->built[book->n_built++] = *now;
  return BS_OK;
}

int32_t bs_choice_build(bs_choice_book *book, const bs_op_impl *impl, const bs_op_echo *echo, bs_error *err) {
  built now = {.impl = impl};
  bs_knobs_of_build(impl, echo, now.knobs, sizeof now.knobs);
  snprintf(now.build, sizeof now.build, "%s", echo->build);
  if (book == NULL || now.knobs[0] == '\0' || now.build[0] == '\0') return BS_OK;
  pthread_mutex_lock(&book->lock);
  const int32_t rc = check_build(book, &now, err);
  pthread_mutex_unlock(&book->lock);
  return rc;
}

/* Without memory the report has what was said before. */
static void add_said(asked *a, const bs_op_echo *echo) {
  said **at = &a->said;
  while (*at != NULL && memcmp(&(*at)->echo, echo, sizeof *echo) != 0) at = &(*at)->before;
  said *newest = *at;
  if (newest != NULL)
    *at = newest->before;
  else if ((newest = malloc(sizeof *newest)) == NULL)
    return;
  else
    memcpy(&newest->echo, echo, sizeof *echo);
  newest->before = a->said;
  a->said = newest;
}

void bs_choice_echo(bs_choice_book *book, const char *key, const bs_thing *thing, const bs_op_echo *echo) {
  const bs_op_impl *impl = thing->vtable;
  if (book == NULL || key[0] == '\0') return;
  pthread_mutex_lock(&book->lock);
  asked *a = entry_of(book, key); /* without memory the report lacks it; the work goes on */
  if (a != NULL) add_said(a, echo);
  if (a != NULL && a->chosen == NULL) { /* over a weight that was packed for another key */
    char name[160];
    snprintf(name, sizeof name, "%s:%s", thing->plugin, impl->name);
    a->chosen = bs_strdup(name);
  }
  pthread_mutex_unlock(&book->lock);
}

uint32_t bs_choice_count(bs_choice_book *book) {
  if (book == NULL) return 0;
  pthread_mutex_lock(&book->lock);
  const uint32_t count = book->n_asked;
  pthread_mutex_unlock(&book->lock);
  return count;
}

int32_t bs_choice_get(bs_choice_book *book, uint32_t index, bs_choice_info *out, bs_error *err) {
  bs_choice_info full = {.struct_size = (uint32_t)sizeof full};
  if (index >= bs_choice_count(book))
    return bs_error_set(err, BS_NOT_FOUND, "BS-OP-CHOICE", "there is no choice number %u", index);
  pthread_mutex_lock(&book->lock);
  const asked *a = &book->asked[index];
  const char *wanted = bs_choice_wanted(book, a->key), *knobs = bs_choice_knobs(book, a->key);
  full.key = a->key;
  full.chosen = a->chosen != NULL ? a->chosen : "";
  full.wanted = wanted != NULL ? wanted : "";
  full.candidates = a->candidates.data != NULL ? a->candidates.data : "";
  full.why = a->why != NULL ? a->why : "";
  full.knobs = knobs != NULL ? knobs : "";
  full.echo = a->said != NULL ? &a->said->echo : NULL;
  pthread_mutex_unlock(&book->lock);
  const uint32_t size = out->struct_size < sizeof full ? out->struct_size : (uint32_t)sizeof full;
  full.struct_size = out->struct_size;
  memcpy(out, &full, size);
  return BS_OK;
}
