/* SPDX-License-Identifier: MIT
 * map_body.h - the interpreter of programs, for one type of numbers (map_f32.h, map_f64.h, map_i64.h). A
 * thread takes MAP_EACH elements. A slot of shared memory holds one value of them, and no other thread reads
 * it. A thread reads all inputs of its elements before it writes: an output may be an input. */
#ifndef BS_PLUGIN_CUDA_MAP_BODY_H
#define BS_PLUGIN_CUDA_MAP_BODY_H
#include "map.h"

enum { MAP_LAST = CUDA_SPACE_DIMS - 1 };

/* ---- places ------------------------------------------------------------------------------------ */

CUDA_FN char *map_slot(char *shared, uint32_t slot, const cuda_at *at) {
  return shared + (slot * at->threads + at->thread) * MAP_BYTES;
}

CUDA_FN map_values map_get(const map_args *a, char *shared, uint32_t place, const cuda_at *at) {
  map_values x;
  if (place >= MAP_CONSTANT) {
    const map_number c = map_of_bits(a->consts[place - MAP_CONSTANT]);
    CUDA_UNROLL
    for (int i = 0; i < MAP_EACH; i++) x.v[i] = c;
  } else {
    const cuda_raw raw = cuda_get_bytes(map_slot(shared, place, at), MAP_BYTES);
    CUDA_UNROLL
    for (int i = 0; i < MAP_EACH; i++) x.v[i] = map_of_raw(&raw, i);
  }
  return x;
}

CUDA_FN void map_put(char *shared, uint32_t slot, const cuda_at *at, const map_values *x) {
  const cuda_raw raw = map_to_raw(x->v, MAP_EACH);
  cuda_put_bytes(map_slot(shared, slot, at), &raw, MAP_BYTES);
}

/* The same for element i alone. */
CUDA_FN map_number map_get_one(const map_args *a, char *shared, uint32_t place, const cuda_at *at, int i) {
  if (place >= MAP_CONSTANT) return map_of_bits(a->consts[place - MAP_CONSTANT]);
  const cuda_raw raw =
      cuda_get_bytes(map_slot(shared, place, at) + i * (MAP_BYTES / MAP_EACH), MAP_BYTES / MAP_EACH);
  return map_of_raw(&raw, 0);
}

CUDA_FN void map_put_one(char *shared, uint32_t slot, const cuda_at *at, int i, map_number x) {
  const cuda_raw raw = map_to_raw(&x, 1);
  cuda_put_bytes(map_slot(shared, slot, at) + i * (MAP_BYTES / MAP_EACH), &raw, MAP_BYTES / MAP_EACH);
}

/* ---- inputs and outputs ------------------------------------------------------------------------ */

CUDA_FN map_number map_read_one(const cuda_spread *in, int64_t offset) {
  map_number v;
  if (in->size == 0) return map_of_index(offset);
  const cuda_raw raw = cuda_get(cuda_spread_element(in, offset), in->size, 1);
  map_widen(in->dtype, &raw, &v, 1);
  return v;
}

/* Neighbours along the last dim as they are in memory, or one element that repeats. What is wider than 16
 * bytes comes in two halves. */
typedef struct map_piece {
  cuda_raw half[2];
  int64_t offset;
} map_piece;

CUDA_FN map_piece map_fetch(const cuda_spread *in, const int64_t *place) {
  map_piece p;
  p.offset = cuda_spread_offset(in, place);
  if (in->size == 0) return p;
  const char *from = cuda_spread_element(in, p.offset);
  if (in->strides[MAP_LAST] == 0) {
    p.half[0] = cuda_get(from, in->size, 1);
  } else if (MAP_EACH > 2 && in->size == 8) {
    p.half[0] = cuda_get_bytes(from, 16);
    p.half[1] = cuda_get_bytes(from + 16, 16);
  } else {
    p.half[0] = cuda_get(from, in->size, MAP_EACH);
  }
  return p;
}

CUDA_FN map_values map_read(const cuda_spread *in, const map_piece *p) {
  map_values x;
  if (in->size == 0) {
    CUDA_UNROLL
    for (int i = 0; i < MAP_EACH; i++) x.v[i] = map_of_index(p->offset + i * in->strides[MAP_LAST]);
  } else if (in->strides[MAP_LAST] == 0) {
    map_widen(in->dtype, &p->half[0], x.v, 1);
    CUDA_UNROLL
    for (int i = 1; i < MAP_EACH; i++) x.v[i] = x.v[0];
  } else if (MAP_EACH > 2 && in->size == 8) {
    CUDA_UNROLL
    for (int i = 0; i < MAP_EACH; i += 2) map_widen(in->dtype, &p->half[i / 2], &x.v[i], 2);
  } else {
    map_widen(in->dtype, &p->half[0], x.v, MAP_EACH);
  }
  return x;
}

CUDA_FN void map_write(const cuda_spread *out, int64_t offset, const map_values *x) {
  if (MAP_EACH > 2 && out->size == 8) {
    CUDA_UNROLL
    for (int i = 0; i < MAP_EACH; i += 2) {
      const cuda_raw raw = map_narrow(out->dtype, &x->v[i], 2);
      cuda_put(cuda_spread_element(out, offset + i), &raw, 8, 2);
    }
  } else {
    const cuda_raw raw = map_narrow(out->dtype, x->v, MAP_EACH);
    cuda_put(cuda_spread_element(out, offset), &raw, out->size, MAP_EACH);
  }
}

/* Element i of a thread. Elements that are no neighbours lie a block apart, so that threads side by side read
 * side by side. */
CUDA_FN int64_t map_item(const map_args *a, const cuda_at *at, int i) {
  const int64_t first = (int64_t)at->block_x * at->threads;
  return a->dense ? first + at->thread : first * MAP_EACH + (int64_t)i * at->threads + at->thread;
}

/* The coordinates of item i, a piece or an element. */
CUDA_FN void map_place(const map_args *a, int64_t item, int64_t *out_at) {
  cuda_space_at(&a->space, item, out_at);
  if (a->dense) out_at[MAP_LAST] *= MAP_EACH;
}

CUDA_FN void map_load(const map_args *a, char *shared, const cuda_at *at) {
  int64_t place[CUDA_SPACE_DIMS];
  map_place(a, map_item(a, at, 0), place);
  map_piece next;
  if (a->n_in > 0) next = map_fetch(&a->in[0], place);
  CUDA_ROLL
  for (uint32_t k = 0; k < a->n_in; k++) { /* the next input arrives while this one is converted */
    const map_piece now = next;
    if (k + 1 < a->n_in) next = map_fetch(&a->in[k + 1], place);
    const map_values x = map_read(&a->in[k], &now);
    map_put(shared, k, at, &x);
  }
}

CUDA_FN void map_store(const map_args *a, char *shared, const cuda_at *at) {
  int64_t place[CUDA_SPACE_DIMS];
  map_place(a, map_item(a, at, 0), place);
  CUDA_ROLL
  for (uint32_t k = 0; k < a->n_out; k++) {
    const map_values x = map_get(a, shared, a->outs[k], at);
    map_write(&a->out[k], cuda_spread_offset(&a->out[k], place), &x);
  }
}

/* Element by element. Those behind the end are 0. */
CUDA_FN void map_load_each(const map_args *a, char *shared, const cuda_at *at) {
  CUDA_ROLL
  for (int i = 0; i < MAP_EACH; i++) {
    int64_t place[CUDA_SPACE_DIMS];
    const int64_t item = map_item(a, at, i);
    const int live = item < a->space.count;
    map_place(a, live ? item : 0, place);
    CUDA_ROLL
    for (uint32_t k = 0; k < a->n_in; k++)
      map_put_one(shared, k, at, i,
                  live ? map_read_one(&a->in[k], cuda_spread_offset(&a->in[k], place)) : (map_number)0);
  }
}

CUDA_FN void map_store_each(const map_args *a, char *shared, const cuda_at *at) {
  CUDA_ROLL
  for (int i = 0; i < MAP_EACH; i++) {
    int64_t place[CUDA_SPACE_DIMS];
    const int64_t item = map_item(a, at, i);
    if (item >= a->space.count) return;
    map_place(a, item, place);
    CUDA_ROLL
    for (uint32_t k = 0; k < a->n_out; k++) {
      const cuda_spread *out = &a->out[k];
      const map_number v = map_get_one(a, shared, a->outs[k], at, i);
      const cuda_raw raw = map_narrow(out->dtype, &v, 1);
      cuda_put(cuda_spread_element(out, cuda_spread_offset(out, place)), &raw, out->size, 1);
    }
  }
}

/* ---- steps ------------------------------------------------------------------------------------- */

CUDA_FN map_values map_of_one(uint32_t op, const map_values *x) {
  map_values out = *x;
  switch (op) {
    MAP_CASE(BS_EXPR_NEG, map_neg(x->v[i]));
    MAP_CASE(BS_EXPR_ABS, map_abs(x->v[i]));
    MAP_CASE(BS_EXPR_SIGN, map_sign(x->v[i]));
    MAP_CASE(BS_EXPR_NOT, x->v[i] == 0);
    default:
      map_function(op, &out);
      break;
  }
  return out;
}

CUDA_FN map_values map_of_two(uint32_t op, const map_values *x, const map_values *y) {
  map_values out = *x;
  switch (op) {
    MAP_CASE(BS_EXPR_ADD, map_add(x->v[i], y->v[i]));
    MAP_CASE(BS_EXPR_SUB, map_sub(x->v[i], y->v[i]));
    MAP_CASE(BS_EXPR_MUL, map_mul(x->v[i], y->v[i]));
    MAP_CASE(BS_EXPR_MIN, map_min(x->v[i], y->v[i]));
    MAP_CASE(BS_EXPR_MAX, map_max(x->v[i], y->v[i]));
    MAP_CASE(BS_EXPR_LT, x->v[i] < y->v[i]);
    MAP_CASE(BS_EXPR_LE, x->v[i] <= y->v[i]);
    MAP_CASE(BS_EXPR_EQ, x->v[i] == y->v[i]);
    MAP_CASE(BS_EXPR_AND, map_and(x->v[i], y->v[i]));
    MAP_CASE(BS_EXPR_OR, map_or(x->v[i], y->v[i]));
    MAP_CASE(BS_EXPR_XOR, map_xor(x->v[i], y->v[i]));
    default:
      map_function_of_two(op, &out, y);
      break;
  }
  return out;
}

CUDA_FN map_values map_of_three(uint32_t op, const map_values *x, const map_values *y, const map_values *z) {
  map_values out;
  CUDA_UNROLL
  for (int i = 0; i < MAP_EACH; i++)
    out.v[i] = op == BS_EXPR_FMA ? map_fma(x->v[i], y->v[i], z->v[i]) : x->v[i] != 0 ? y->v[i] : z->v[i];
  return out;
}

/* Converted as an output of the dtype is, and back. */
CUDA_FN map_values map_through(uint32_t dtype, const map_values *x) {
  map_values out;
  CUDA_UNROLL
  for (int i = 0; i < MAP_EACH; i += 2) {
    const cuda_raw raw = map_narrow(dtype, &x->v[i], 2);
    map_widen(dtype, &raw, &out.v[i], 2);
  }
  return out;
}

CUDA_FN void map_run(const map_args *a, char *shared, const cuda_at *at) {
  CUDA_ROLL
  for (uint32_t s = 0; s < a->n_steps; s++) {
    const map_step step = a->steps[s];
    map_values x = map_get(a, shared, step.a, at);
    if (step.op == BS_EXPR_TO) {
      x = map_through(step.dtype, &x);
    } else if (step.op < BS_EXPR_ADD) {
      x = map_of_one(step.op, &x);
    } else {
      const map_values y = map_get(a, shared, step.b, at);
      if (step.op < BS_EXPR_FMA) {
        x = map_of_two(step.op, &x, &y);
      } else {
        const map_values z = map_get(a, shared, step.c, at);
        x = map_of_three(step.op, &x, &y, &z);
      }
    }
    map_put(shared, step.out, at, &x);
  }
}

CUDA_FN void map_thread(const map_args *a, char *shared, const cuda_at *at) {
  if (map_item(a, at, 0) >= a->space.count) return;
  if (a->dense)
    map_load(a, shared, at);
  else
    map_load_each(a, shared, at);
  map_run(a, shared, at);
  if (a->dense)
    map_store(a, shared, at);
  else
    map_store_each(a, shared, at);
}
#endif
