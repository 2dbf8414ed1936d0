/* SPDX-License-Identifier: MIT
 *
 * arms.h - what bench_matmul times: one product Y [b,n] = X [b,k] times W [n,k] transposed, or one of its
 * backward pass, done in several ways on the same numbers. An arm is the cpu plugin, a library called as its
 * user calls it, or a limit of the machine that is timed like the others. */
#ifndef BS_BENCH_ARMS_H
#define BS_BENCH_ARMS_H
#include "blockshock/blockshock.h"

/* Y = X W^T, dX = dY W or dW = dY^T X in fp32. Backward is what the plugin's arms alone have. */
enum { BENCH_FORWARD, BENCH_DX, BENCH_DW };

/* Dense and row-major, all of one dtype. */
typedef struct bench_numbers {
  int64_t n, k, b;
  uint32_t dtype;
  int product;      /* BENCH_... */
  int kept;         /* W is 2:4, and of dW what it keeps is computed, [n,k/2] */
  void *w, *x, *dy; /* dy: NULL forward */
} bench_numbers;

typedef struct bench_arm bench_arm;
typedef struct bench_arm_ops {
  /* Makes the arm ready for these numbers, which stay until `release`. BS_UNSUPPORTED: it has no such product
   * and is left out of this shape. */
  int32_t (*ready)(bench_arm *arm, const bench_numbers *numbers, bs_error *err);
  /* Seconds a call over so many calls. */
  int32_t (*batch)(bench_arm *arm, uint64_t calls, double *out_seconds, bs_error *err);
  /* Y of the newest call, [b,n] of the arm's dtype, or dX, dW, until `release`. NULL: a limit has none. */
  const void *(*output)(bench_arm *arm, bs_error *err);
  void (*release)(bench_arm *arm); /* may follow a failed `ready` */
  void (*close)(bench_arm *arm);
} bench_arm_ops;

enum { BENCH_NAME = 24, BENCH_TEXT = 160, BENCH_PATH = 1024 };
struct bench_arm {
  const bench_arm_ops *ops; /* NULL: could not be opened, `why` says so */
  char name[BENCH_NAME];    /* "auto", "openblas" */
  uint32_t dtype;
  uint32_t is_limit;
  uint32_t backward;        /* 1: has dX and dW */
  const bench_numbers *own; /* of a smaller product, which is judged by itself; NULL: of the common one */
  double enqueue; /* of the newest batch: seconds a call until the host had it queued; 0: not known */
  char version[BENCH_TEXT]; /* of the library */
  char way[BENCH_TEXT];     /* kernel or function of the current shape, where it is known */
  char why[BENCH_TEXT];
  void *self;
};

typedef struct bench_arm_options {
  const char *backend; /* "cpu", "cuda" */
  uint32_t threads;
  int own_clock; /* the plugin is timed by what its thread runs, not by the clock on the wall */
  const char
      *isa; /* "avx2" or "all": what the plugin and the limits may use; the peers: bench_set_environment */
  const char *plugins; /* folder of plugins or NULL */
  const char *openblas, *blis, *python;
  const char *driver, *cublaslt; /* files, of cuda; NULL: where the system has them */
} bench_arm_options;

/* Fills `arm` (dtype set by the caller) by its name.
 * By the plugin, of either backend: auto; sparse24: its matmul24 of a W that is 2:4 (numbers.h: kept); of
 * half of the columns gathered (cut out before), run and masked (as ranks of row_parallel and blockshock have
 * them). cpu: packed, dnnl, the plugin with that choice; tuned; onednn, W stays [n,k]; onednn_any, in the
 * layout that oneDNN chooses; openblas; blis. cuda: tiles, the plugin with its own kernels alone; cublaslt,
 * called directly with the fastest of what its heuristics name. Both: torch. BS_UNAVAILABLE: a peer that this
 * machine lacks; BS_USAGE: no such name. */
int32_t bench_arm_open(const char *name, const bench_arm_options *options, bench_arm *arm, bs_error *err);
void bench_arm_close(bench_arm *arm);

int32_t bench_open_plugin(const char *impl, const bench_arm_options *options, bench_arm *arm, bs_error *err);
int32_t bench_open_part(const char *name, const bench_arm_options *options, bench_arm *arm, bs_error *err);
int32_t bench_open_cublaslt(const bench_arm_options *options, bench_arm *arm, bs_error *err);
int32_t bench_open_tuned(const bench_arm_options *options, bench_arm *arm, bs_error *err);
int32_t bench_open_onednn(int any, const bench_arm_options *options, bench_arm *arm, bs_error *err);
int32_t bench_open_cblas(const char *path, const bench_arm_options *options, bench_arm *arm, bs_error *err);
int32_t bench_open_torch(const bench_arm_options *options, bench_arm *arm, bs_error *err);

/* The limits as arms: seconds that the product's multiply-adds, and one reading of W, take at best with so
 * many threads. Both at once; limits[0] is "fma", limits[1] "read". */
int32_t bench_open_limits(const bench_arm_options *options, bench_arm limits[2], bs_error *err);
/* Of a GPU: "copy", seconds that moving the product's bytes takes at the rate of a copy within the device's
 * memory, and "rate", that its multiply-adds take at cuBLASLt's rate of a large product of the same dtype. */
int32_t bench_open_cuda_limits(const bench_arm_options *options, bench_arm limits[2], bs_error *err);

/* What libraries read from the environment when they are opened; before any of them is. Idle threads of
 * theirs spin for less than a lead (rounds.h); OpenMP's threads are bound to the cores that the plugin's are
 * bound to. isa "avx2" holds all of them to AVX2. A variable that is set already stays. */
void bench_set_environment(const char *isa, uint32_t threads);

/* The calling thread on one core while it is timed, on all where libraries start threads, which inherit it.
 */
void bench_on_one_core(void);
void bench_on_all_cores(void);
void bench_on_core(uint32_t index); /* of those that the process had; modulo their number */

#endif
