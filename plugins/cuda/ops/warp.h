/* SPDX-License-Identifier: MIT
 * warp.h - joint operations of the lanes of a warp: shuffles, votes, products of small matrices on tensor
 * cores, loads of their operands from shared memory, and asynchronous copies.
 *
 * A step of a body that uses these is a warp's step: in the kernel each thread calls it, in the twin it is
 * called once a warp. Values of a lane are arrays of CUDA_LANES, [i][lane] or [i][lane][..]: one lane in the
 * kernel, in registers, 32 in the twin. Loops over lanes are `for (int l = 0; l < CUDA_LANES; l++)`, and the
 * number of the lane is CUDA_LANE(at, l). The twins' forms follow the PTX ISA, "Warp-level matrix
 * instructions", of mma.m16n8k16 and ldmatrix. */
#ifndef BS_PLUGIN_CUDA_WARP_H
#define BS_PLUGIN_CUDA_WARP_H
#include "numbers.h"

enum { CUDA_WARP = 32 };
#if defined(__CUDACC__)
#define CUDA_LANES 1
#define CUDA_LANE(at, l) ((at)->thread & 31u)
#else
#define CUDA_LANES CUDA_WARP
#define CUDA_LANE(at, l) ((void)(at), (uint32_t)(l))
#endif

/* A place in the block's shared memory: its address there, half as wide as a pointer. */
#if defined(__CUDACC__)
typedef uint32_t cuda_shared;
#else
typedef char *cuda_shared;
#endif
CUDA_FN cuda_shared cuda_shared_of(void *memory) {
#if defined(__CUDACC__)
  return (uint32_t)__cvta_generic_to_shared(memory);
#else
  return (char *)memory;
#endif
}
/* 16 bytes. */
CUDA_FN void cuda_shared_put(cuda_shared to, const cuda_raw *raw) {
#if defined(__CUDACC__)
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(raw->word[0]), "r"(raw->word[1]),
               "r"(raw->word[2]), "r"(raw->word[3])
               : "memory");
#else
  cuda_put_bytes(to, raw, 16);
#endif
}

/* ---- shuffles and votes ------------------------------------------------------------------------- */

/* out[l]: v of lane l ^ mask; out is not v. */
CUDA_FN void cuda_shuffle_xor(const float *v, float *out, uint32_t mask) {
#if defined(__CUDACC__)
  out[0] = __shfl_xor_sync(0xffffffffu, v[0], (int)mask);
#else
  for (uint32_t l = 0; l < CUDA_WARP; l++) out[l] = v[l ^ mask];
#endif
}
/* v of one lane, for all. */
CUDA_FN float cuda_broadcast(const float *v, uint32_t lane) {
#if defined(__CUDACC__)
  return __shfl_sync(0xffffffffu, v[0], (int)lane);
#else
  return v[lane];
#endif
}
/* A bit a lane: is v not 0? */
CUDA_FN uint32_t cuda_ballot(const uint32_t *v) {
#if defined(__CUDACC__)
  return __ballot_sync(0xffffffffu, v[0] != 0);
#else
  uint32_t bits = 0;
  for (uint32_t l = 0; l < CUDA_WARP; l++) bits |= (uint32_t)(v[l] != 0) << l;
  return bits;
#endif
}
/* The largest (the sum) over lanes that differ in the bits of `below` - 1: 4 is a row of a product. A NaN is
 * ignored in the largest. */
CUDA_FN void cuda_lanes_max(float *v, const uint32_t below) {
  float other[CUDA_LANES];
  CUDA_UNROLL
  for (uint32_t mask = 1; mask < below; mask *= 2) {
    cuda_shuffle_xor(v, other, mask);
    for (int l = 0; l < CUDA_LANES; l++) v[l] = fmaxf(v[l], other[l]);
  }
}
CUDA_FN void cuda_lanes_sum(float *v, const uint32_t below) {
  float other[CUDA_LANES];
  CUDA_UNROLL
  for (uint32_t mask = 1; mask < below; mask *= 2) {
    cuda_shuffle_xor(v, other, mask);
    for (int l = 0; l < CUDA_LANES; l++) v[l] += other[l];
  }
}

/* ---- products of 16 x 16 by 16 x 8 -------------------------------------------------------------- */

/* Two neighbours in 32 bits, the first in the lower half. */
CUDA_FN uint32_t cuda_pack16(float first, float second, const int is_bf16) {
#if defined(__CUDACC__)
  uint32_t pair;
  if (is_bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return is_bf16 ? cuda_bf16_of_f32(first) | cuda_bf16_of_f32(second) << 16
                 : cuda_f16_of_f32(first) | cuda_f16_of_f32(second) << 16;
#endif
}

#if !defined(__CUDACC__)
static inline float cuda_half_of(uint32_t pair, int upper, int is_bf16) {
  const uint32_t code = pair >> (upper ? 16 : 0) & 0xffffu;
  return is_bf16 ? cuda_f32_of_bf16(code) : cuda_f32_of_f16(code);
}
#endif

/* d += a b, sums in f32. d: rows lane / 4 and that + 8, columns 2 (lane % 4) and the next one. b: of [2 half]
 * and [2 half + 1]. */
CUDA_FN void cuda_mma(float (*d)[4], const uint32_t (*a)[4], const uint32_t (*b)[4], const int half,
                      const int is_bf16) {
#if defined(__CUDACC__)
  if (is_bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3])
        : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(b[0][2 * half]),
          "r"(b[0][2 * half + 1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3])
        : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(b[0][2 * half]),
          "r"(b[0][2 * half + 1]));
#else
  float left[16][16], right[8][16];
  for (int l = 0; l < CUDA_WARP; l++)
    for (int i = 0; i < 4; i++)
      for (int upper = 0; upper < 2; upper++) {
        const int k = 2 * (l % 4) + 8 * (i / 2) + upper;
        left[l / 4 + 8 * (i % 2)][k] = cuda_half_of(a[l][i], upper, is_bf16);
        if (i < 2)
          right[l / 4][2 * (l % 4) + 8 * i + upper] = cuda_half_of(b[l][2 * half + i], upper, is_bf16);
      }
  for (int l = 0; l < CUDA_WARP; l++)
    for (int i = 0; i < 4; i++) {
      const float *x = left[l / 4 + 8 * (i / 2)], *y = right[2 * (l % 4) + i % 2];
      float sum = 0.0f;
      for (int k = 0; k < 16; k++) sum += x[k] * y[k];
      d[l][i] += sum;
    }
#endif
}

/* Loads four matrices of 8 rows of 16 bytes from shared memory; lane l gives the address of row l % 8 of
 * matrix l / 8. Of matrix i a lane gets [i]: row lane / 4, elements 2 (lane % 4) and the next; transposed:
 * column lane / 4, rows 2 (lane % 4) and the next. */
CUDA_FN void cuda_load_matrices(const cuda_shared *rows, uint32_t (*out)[4], const int turned) {
#if defined(__CUDACC__)
  if (turned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0][0]), "=r"(out[0][1]), "=r"(out[0][2]), "=r"(out[0][3])
                 : "r"(rows[0])
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0][0]), "=r"(out[0][1]), "=r"(out[0][2]), "=r"(out[0][3])
                 : "r"(rows[0])
                 : "memory");
#else
  for (int l = 0; l < CUDA_WARP; l++)
    if ((uintptr_t)rows[l] % 16 != 0) __builtin_trap(); /* as the device does */
  for (int l = 0; l < CUDA_WARP; l++)
    for (int i = 0; i < 4; i++) {
      uint16_t pair[2];
      for (int e = 0; e < 2; e++) {
        const int row = turned ? 2 * (l % 4) + e : l / 4, column = turned ? l / 4 : 2 * (l % 4) + e;
        __builtin_memcpy(&pair[e], rows[8 * i + row] + 2 * column, sizeof pair[e]);
      }
      out[l][i] = (uint32_t)pair[1] << 16 | pair[0];
    }
#endif
}

/* ---- asynchronous copies ------------------------------------------------------------------------ */

/* A thread's copies of 16 bytes from device to shared memory, in groups. The data of a group are only valid
 * after cuda_async_wait; the twin copies no sooner. */
typedef struct cuda_async {
#if defined(__CUDACC__)
  uint32_t unused;
#else
  struct {
    cuda_shared to;
    const void *from; /* NULL: zeros */
    uint64_t group;
  } list[64];
  uint32_t count;
  uint64_t group;
#endif
} cuda_async;

CUDA_FN void cuda_async_start(cuda_async *q) {
#if defined(__CUDACC__)
  q->unused = 0;
#else
  if (q->count != 0) __builtin_trap(); /* the newer copies could arrive before these; zeros at first */
  q->group = 0;
#endif
}
/* live 0: 16 bytes of zeros; `from` is not read, and is an address all the same. */
CUDA_FN void cuda_async_copy(cuda_async *q, cuda_shared to, const void *from, int live) {
#if defined(__CUDACC__)
  (void)q;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
               "r"(live ? 16 : 0)
               : "memory");
#else
  if (q->count == sizeof q->list / sizeof q->list[0]) __builtin_trap();
  if ((uintptr_t)to % 16 != 0 || (live && (uintptr_t)from % 16 != 0)) __builtin_trap();
  q->list[q->count].to = to;
  q->list[q->count].from = live ? from : 0;
  q->list[q->count++].group = q->group;
#endif
}
CUDA_FN void cuda_async_commit(cuda_async *q) {
#if defined(__CUDACC__)
  (void)q;
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  q->group++;
#endif
}
/* Waits until all of the thread's groups except the `newest` ones (0 to 2) are complete. */
CUDA_FN void cuda_async_wait(cuda_async *q, uint32_t newest) {
#if defined(__CUDACC__)
  (void)q;
  if (newest == 0)
    asm volatile("cp.async.wait_group 0;" ::: "memory");
  else if (newest == 1)
    asm volatile("cp.async.wait_group 1;" ::: "memory");
  else
    asm volatile("cp.async.wait_group 2;" ::: "memory");
#else
  uint32_t kept = 0;
  for (uint32_t i = 0; i < q->count; i++) {
    if (q->list[i].group + newest >= q->group)
      q->list[kept++] = q->list[i];
    else if (q->list[i].from == 0)
      __builtin_memset(q->list[i].to, 0, 16);
    else
      __builtin_memcpy(q->list[i].to, q->list[i].from, 16);
  }
  q->count = kept;
#endif
}
/* Waits until all copies are complete, also those after the newest group. No copy may be in progress at the
 * next start. */
CUDA_FN void cuda_async_finish(cuda_async *q) {
  cuda_async_commit(q);
  cuda_async_wait(q, 0);
}
#endif
