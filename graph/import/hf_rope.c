/* SPDX-License-Identifier: MIT
 * hf_rope.c - rotary positions of a folder: the angles that config.json asks for as tables, in f32 as
 * transformers computes them. Called by llama.c. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/import/hf.h"

enum { MAX_TABLE = 1 << 24 }; /* 131072 tokens of heads of 256 */

/* ---- keys ------------------------------------------------------------------------------------- */

/* The object that says how to rotate: rope_scaling where it has a key, else rope_parameters (transformers 5);
 * NULL: there is none. */
static const char *object_of(const hf_build *b) {
  static const char *const objects[2] = {"rope_scaling", "rope_parameters"};
  for (int i = 0; i < 2; i++)
    if (hf_has_key(b, objects[i]) && hf_count(b, objects[i]) != 0) return objects[i];
  return NULL;
}

/* The path of a key in that object. */
static const char *inside(hf_build *b, const char *key) {
  const char *object = object_of(b);
  return object == NULL ? key : hf_name(b, hf_name(b, object, "."), key);
}

/* The same, or the key at the top of config.json where the object lacks it. */
static const char *inside_or_top(hf_build *b, const char *key) {
  const char *name = inside(b, key);
  return hf_has_key(b, name) ? name : key;
}

static const char *type_of(hf_build *b, const char **out_key) {
  *out_key = inside(b, "rope_type");
  if (!hf_has_key(b, *out_key)) *out_key = inside(b, "type");
  const char *type = object_of(b) == NULL ? "default" : hf_text(b, *out_key, "default");
  const int phi3 = strcmp(hf_text(b, "model_type", NULL), "phi3") == 0;
  return phi3 && (strcmp(type, "su") == 0 || strcmp(type, "yarn") == 0) ? "longrope" : type;
}

/* The tokens that the model was trained with first: a key at the top comes before the object's. */
static double trained(hf_build *b) {
  static const char key[] = "original_max_position_embeddings";
  if (hf_has_key(b, key)) return hf_real(b, key, 0);
  if (strcmp(hf_text(b, "model_type", NULL), "phi3") == 0) return 4096;
  return hf_real(b, inside(b, key), hf_real(b, "max_position_embeddings", 0));
}

static void check_keys(hf_build *b) {
  static const char *const known[] = {"rope_type",
                                      "type",
                                      "rope_theta",
                                      "partial_rotary_factor",
                                      "factor",
                                      "original_max_position_embeddings",
                                      "attention_factor",
                                      "beta_fast",
                                      "beta_slow",
                                      "short_factor",
                                      "long_factor",
                                      "low_freq_factor",
                                      "high_freq_factor",
                                      "mscale",
                                      "mscale_all_dim",
                                      "truncate",
                                      NULL};
  const char *object = object_of(b);
  if (object != NULL) hf_known_keys(b, object, known);
}

/* ---- frequencies ------------------------------------------------------------------------------ */

/* Of each pair of columns; scale: of cosines and sines. */
typedef struct waves {
  int64_t width, pairs;
  double base, scale, old;
  float *of[2]; /* [1]: of longrope, beyond `old` tokens; else NULL */
} waves;

static float power(const waves *w, int64_t i) {
  return powf((float)w->base, (float)(2 * i) / (float)w->width);
}

static void linear(hf_build *b, waves *w) {
  const float factor = (float)hf_real(b, inside(b, "factor"), 0);
  for (int64_t i = 0; i < w->pairs; i++) w->of[0][i] /= factor;
}

/* Llama 3: long waves are stretched by the factor, short ones stay, those between are mixed. */
static void llama3(hf_build *b, waves *w) {
  const float factor = (float)hf_real(b, inside(b, "factor"), 0), old = (float)trained(b);
  const float low = (float)hf_real(b, inside(b, "low_freq_factor"), 0),
              high = (float)hf_real(b, inside(b, "high_freq_factor"), 0);
  if (b->rc == BS_OK && high <= low)
    hf_refuse(b, inside(b, "high_freq_factor"), "it must be above low_freq_factor");
  for (int64_t i = 0; i < w->pairs; i++) {
    const float f = w->of[0][i], wave = (float)(2 * acos(-1.0)) / f;
    const float mix = (old / wave - low) / (high - low);
    if (wave > old / low)
      w->of[0][i] = f / factor;
    else if (wave >= old / high)
      w->of[0][i] = (1 - mix) * f / factor + mix * f;
  }
}

static double stretch_of(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* The column that turns `turns` times in `old` tokens. */
static double column_of(const waves *w, double turns) {
  return (double)w->width * log(w->old / (turns * 2 * acos(-1.0))) / (2 * log(w->base));
}

/* YaRN: columns that turn often stay, slow ones are stretched, between them it is a ramp. */
static void yarn(hf_build *b, waves *w) {
  const double factor = hf_real(b, inside(b, "factor"), 0);
  const char *m = inside(b, "mscale"), *all = inside(b, "mscale_all_dim");
  const int both = hf_has_key(b, m) && hf_has_key(b, all);
  double stretch = stretch_of(factor, 1);
  if (both) stretch = stretch_of(factor, hf_real(b, m, 0)) / stretch_of(factor, hf_real(b, all, 0));
  w->scale = hf_real(b, inside(b, "attention_factor"), stretch);
  w->old = trained(b);
  double low = column_of(w, hf_real(b, inside(b, "beta_fast"), 32)),
         high = column_of(w, hf_real(b, inside(b, "beta_slow"), 1));
  if (hf_bool(b, inside(b, "truncate"), 1)) {
    low = floor(low);
    high = ceil(high);
  }
  low = low < 0 ? 0 : low;
  high = high > (double)(w->width - 1) ? (double)(w->width - 1) : high;
  if (low == high) high += 0.001;
  for (int64_t i = 0; i < w->pairs; i++) {
    const float place = ((float)i - (float)low) / (float)(high - low),
                ramp = place < 0   ? 0.0F
                       : place > 1 ? 1.0F
                                   : place,
                keep = 1 - ramp;
    w->of[0][i] = 1 / ((float)factor * power(w, i)) * (1 - keep) + w->of[0][i] * keep;
  }
}

static void longrope(hf_build *b, waves *w) {
  static const char *const names[2] = {"short_factor", "long_factor"};
  w->old = trained(b);
  const double factor =
      hf_real(b, inside(b, "factor"), hf_real(b, "max_position_embeddings", 0) / (w->old > 0 ? w->old : 1));
  w->scale = hf_real(b, inside(b, "attention_factor"), factor <= 1 ? 1 : sqrt(1 + log(factor) / log(w->old)));
  for (int t = 0; t < 2 && b->rc == BS_OK; t++) {
    hf_reals(b, inside(b, names[t]), w->pairs, w->of[t]);
    for (int64_t i = 0; i < w->pairs; i++) w->of[t][i] = 1 / (w->of[t][i] * power(w, i));
  }
}

/* Fills w. "dynamic" changes nothing below max_position_embeddings, and a cache does not go beyond. */
static void find_waves(hf_build *b, waves *w) {
  const char *key, *type = type_of(b, &key);
  if (b->rc != BS_OK) return;
  for (int64_t i = 0; i < w->pairs; i++) w->of[0][i] = 1 / power(w, i);
  if (strcmp(type, "linear") == 0)
    linear(b, w);
  else if (strcmp(type, "dynamic") == 0)
    (void)hf_real(b, inside(b, "factor"), 0);
  else if (strcmp(type, "llama3") == 0)
    llama3(b, w);
  else if (strcmp(type, "yarn") == 0)
    yarn(b, w);
  else if (strcmp(type, "longrope") == 0)
    longrope(b, w);
  else if (strcmp(type, "default") != 0)
    hf_refuse(b, key, "known: default linear dynamic llama3 yarn longrope");
}

/* GGUF has the rule of Llama 3 as a tensor: each frequency is divided by its factor. */
static void divide(hf_build *b, waves *w) {
  static const char name[] = "rope_freqs.weight";
  if (b->rc != BS_OK || b->weights->gguf == NULL || !hf_has_weight(b, name)) return;
  hf_weight(b, name, 1, &w->pairs);
  const bs_st_tensor *t = hf_weights_find(b->weights, name);
  if (b->rc == BS_OK && t->dtype != BS_F32)
    b->rc = bs_error_set(b->err, BS_INPUT, "BS-HF-DTYPE", "tensor '%s' has the dtype %s and not F32", name,
                         t->type_name);
  for (int64_t i = 0; b->rc == BS_OK && i < w->pairs; i++) {
    float factor;
    memcpy(&factor, (const char *)t->data + i * (int64_t)sizeof factor, sizeof factor);
    w->of[0][i] /= factor;
  }
}

/* ---- tables ----------------------------------------------------------------------------------- */

static uint32_t table(hf_build *b, const char *name, int wide, const int64_t *dims, const float *data) {
  uint32_t out = GMODEL_NONE;
  const uint64_t bytes = (uint64_t)dims[0] * (uint64_t)dims[1] * sizeof *data;
  if (b->rc == BS_OK) b->rc = gmodel_constant(b->model, name, BS_F32, 2, dims, data, bytes, 0, &out, b->err);
  return wide && hf_wide(b) == BS_F32 ? out : hf_cast(b, name, out, BS_F32);
}

/* Angles are rounded to f32 where the original rounds them, so that late positions agree. The rows of the
 * second factors follow those of the first. */
static void make_tables(hf_build *b, const waves *w, int tables, hf_rope *rope) {
  const int64_t dims[2] = {b->cache * tables, w->pairs};
  const uint64_t bytes = (uint64_t)dims[0] * (uint64_t)dims[1] * sizeof(float);
  float *cosines = gmodel_alloc(b->model, bytes), *sines = gmodel_alloc(b->model, bytes);
  if (cosines == NULL || sines == NULL) {
    b->rc = bs_error_set(b->err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for the rotary tables");
    return;
  }
  for (int64_t t = 0, at = 0; t < dims[0]; t++)
    for (int64_t i = 0; i < w->pairs; i++, at++) {
      const float *of = w->of[t / b->cache]; /* w has as many as `tables` says */
      if (of == NULL) return;
      const float angle = (float)(t % b->cache) * of[i];
      cosines[at] = (float)cos((double)angle) * (float)w->scale;
      sines[at] = (float)sin((double)angle) * (float)w->scale;
    }
  rope->cosines = table(b, "rotary_cos", rope->wide, dims, cosines);
  rope->sines = table(b, "rotary_sin", rope->wide, dims, sines);
}

/* The rows of the tables: the positions, and in a run that ends beyond `old` tokens the second table's. */
static uint32_t places(hf_build *b, int64_t old) {
  static const int64_t zero = 0, one = 1;
  uint32_t at = b->slots > 0 ? b->places : b->positions;
  if (old > 0) {
    const bs_attr whole = hf_attr_int("to", 7);
    uint32_t more = hf_op2(b, "Greater", "is_long", b->filled, hf_ints(b, &old, 1));
    more = hf_op(b, "Cast", "is_long", &more, 1, &whole, 1);
    if (b->slots > 0) more = hf_op2(b, "Unsqueeze", "is_long", more, hf_ints(b, &one, 1));
    at = hf_op2(b, "Add", "rotary_rows", at, hf_op2(b, "Mul", "is_long", more, hf_ints(b, &b->cache, 1)));
  }
  return b->slots > 0 ? at : hf_op2(b, "Unsqueeze", "position_ids", at, hf_ints(b, &zero, 1));
}

/* The columns of a head that are turned, in pairs. */
static int64_t turned_columns(hf_build *b, int64_t head) {
  const char *key = inside_or_top(b, "partial_rotary_factor");
  const double part = hf_real(b, key, 1);
  const int phi3 = strcmp(hf_text(b, "model_type", NULL), "phi3") == 0;
  const int64_t width = part <= 1 ? (int64_t)((double)head * part) : 0;
  if (b->rc == BS_OK && !phi3 && part != 1) hf_refuse(b, key, "only 1 is built for this model_type");
  if (b->rc == BS_OK && (width < 1 || (width + 1) / 2 * 2 > head))
    hf_refuse(b, key, "it must turn an even number of columns");
  return b->rc == BS_OK ? width : 2;
}

static void no_room(hf_build *b) {
  if (b->rc != BS_OK) return;
  b->rc = bs_error_set(b->err, BS_INPUT, "BS-HF-CACHE",
                       "a cache of %" PRId64 " tokens needs rotary tables of more than %d numbers", b->cache,
                       MAX_TABLE);
  bs_error_hint(b->err, "ask for fewer tokens of the cache");
}

void hf_rope_read(hf_build *b, int64_t head, double theta, int wide, hf_rope *out_rope) {
  const char *key;
  check_keys(b);
  waves w = {.width = turned_columns(b, head), .scale = 1};
  w.pairs = (w.width + 1) / 2;
  w.base = hf_real(b, inside_or_top(b, "rope_theta"), theta);
  out_rope->wide = wide;
  out_rope->width = 2 * w.pairs;
  if (b->rc == BS_OK && b->cache > MAX_TABLE / (w.pairs > 0 ? w.pairs : 1)) no_room(b);
  for (int t = 0; t < 2 && b->rc == BS_OK; t++) {
    w.of[t] = gmodel_alloc(b->model, (uint64_t)w.pairs * sizeof(float));
    if (w.of[t] == NULL) b->rc = model_no_memory(b->err);
  }
  if (b->rc == BS_OK) find_waves(b, &w);
  divide(b, &w);
  const int two = strcmp(type_of(b, &key), "longrope") == 0 && w.old < (double)b->cache;
  if (two && 2 * b->cache > MAX_TABLE / (w.pairs > 0 ? w.pairs : 1)) no_room(b);
  if (b->rc != BS_OK) return;
  make_tables(b, &w, 1 + two, out_rope);
  out_rope->places = places(b, two ? (int64_t)w.old : 0);
  if (two) b->note = "longrope: keys keep their rotation when a sequence outgrows the short factors";
}

/* The rotation of heads whose columns 2i and 2i + 1 are turned together. Its result has them as columns i and
 * i + half: what follows has the bits that it has for a folder. */
static uint32_t turn_pairs(hf_build *b, const char *name, const uint32_t in[4]) {
  return hf_own_op(b, "RotaryPairs", name, in, 4, NULL, 0);
}

uint32_t hf_rope_turn(hf_build *b, const hf_rope *rope, const char *name, uint32_t x, int64_t head) {
  if (rope->wide) x = hf_widen(b, name, x);
  const uint32_t in[4] = {x, rope->cosines, rope->sines, rope->places};
  const bs_attr part = hf_attr_int("rotary_embedding_dim", rope->width);
  x = b->pairs ? turn_pairs(b, name, in)
               : hf_op(b, "RotaryEmbedding", name, in, 4, &part, rope->width < head);
  return rope->wide ? hf_cast(b, name, x, hf_wide(b)) : x;
}
