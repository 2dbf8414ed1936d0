/* SPDX-License-Identifier: MIT
 *
 * tensor.h - dtypes, tensors (views; never own memory), sources (where a matrix comes from), quantised
 * matrices, and K-partitions and masks (which input columns a rank owns).
 *
 * Units: dims, strides, rows and columns are counted in elements, and what is named `bytes` in bytes.
 * Ownership: no struct of this header owns memory. Its maker keeps the memory that its pointers name for as
 * long as the struct is used, and so the ctx of a source, of a bs_kept and of a bs_quant.
 * Threads: the structs are data. The functions `read` may be called by several threads at the same time, and
 * give the same bits each time.
 * Errors: `read` returns an enum bs_status and fills err, which may be NULL. BS_INPUT is a file that cannot
 * be read, and BS_INVALID_ARGUMENT rows or columns that the matrix does not have.
 */
#ifndef BLOCKSHOCK_TENSOR_H
#define BLOCKSHOCK_TENSOR_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most dimensions of a tensor. */
#define BS_MAX_DIMS 6

/* (DLPack type code << 8) | bits, so that bytes = (dtype & 0xff) / 8. f8e4m3 is the OCP "fn" form
 * (no infinity, max 448), f8e5m2 has infinities (max 57344). bool is one byte, 0 or 1. */
enum bs_dtype {
  BS_F64 = 0x0240,
  BS_F32 = 0x0220,
  BS_F16 = 0x0210,
  BS_BF16 = 0x0410,
  BS_F8E4M3 = 0x0A08,
  BS_F8E5M2 = 0x0C08,
  BS_I64 = 0x0040,
  BS_I32 = 0x0020,
  BS_I8 = 0x0008,
  BS_U8 = 0x0108,
  BS_BOOL = 0x0608
};
#define BS_DTYPE_BYTES(dtype) (((dtype)&0xffu) / 8u)

/* Shape without memory. A stride is counted in elements; all strides zero means dense row-major. */
typedef struct bs_tensor_desc {
  uint32_t struct_size;
  uint32_t dtype;
  uint32_t rank;
  uint32_t reserved;
  int64_t dims[BS_MAX_DIMS];
  int64_t strides[BS_MAX_DIMS];
} bs_tensor_desc;

/* A view of device memory. Fixed size for ever (the reserved words are its room), so arrays and values of it
 * are allowed. Strides are in elements and always filled in. data is aligned to its element's size at least
 * (what tensor_alloc gives is aligned to cache lines): ops refuse other pointers, BS-OP-ALIGN. */
typedef struct bs_tensor {
  uint32_t struct_size;
  uint32_t dtype;
  uint32_t rank;
  uint32_t flags;
  int64_t dims[BS_MAX_DIMS];
  int64_t strides[BS_MAX_DIMS];
  void *data;
  uint64_t bytes; /* bytes reachable from data; kernels may not touch more */
  uint64_t reserved[4];
} bs_tensor;

/* A K-partition: the input columns one rank owns, ascending.
 * CONTIGUOUS: columns begin .. begin+count-1, `columns` is NULL. GATHER: columns[0..count). */
enum bs_partition_kind { BS_PARTITION_CONTIGUOUS = 0, BS_PARTITION_GATHER = 1 };
typedef struct bs_partition {
  uint32_t struct_size;
  uint32_t kind;
  int64_t total; /* K */
  int64_t begin;
  int64_t count;
  const uint32_t *columns;
  /* When the kept set repeats every `period` columns (fixed patterns) kernels may use the period
   * instead of the list: bit j of pattern_bits is set where column k with k mod period = j is kept,
   * within columns [begin, begin + span). period 0: no such structure. */
  uint32_t period;
  uint32_t pattern_bits;
  int64_t span;
} bs_partition;

/* Which columns (or, for kinds that differ by row, which weights) belong to which rank; the table
 * mask x P is in share/doc/blockshock/methods.md. Fixed patterns apply to column k through k mod pattern_len.
 */
enum bs_mask_kind {
  BS_MASK_CONTIGUOUS = 0, /* K split into P runs, sizes differing by at most one */
  BS_MASK_COMPLEMENT = 1, /* pattern_a for even ranks, pattern_b for odd ranks */
  BS_MASK_INTERLEAVE = 2, /* rank r keeps k with k mod P = r */
  BS_MASK_UNEVEN = 3,     /* runs of given shares */
  BS_MASK_RANDOM_2OF4 = 4,
  BS_MASK_MAGNITUDE = 5,
  BS_MASK_TRANSPOSABLE = 6,
  BS_MASK_IMPORTANCE = 7 /* runs of given shares (none: equal ones) of the columns in the order of `order` */
};
typedef struct bs_mask {
  uint32_t struct_size;
  uint32_t kind;
  uint32_t pattern_len; /* 4 for complement masks */
  uint32_t pattern_a;   /* bit j: column j of the pattern is kept */
  uint32_t pattern_b;
  uint32_t n_shares; /* UNEVEN, IMPORTANCE: P shares, > 0, any scale */
  const double *shares;
  uint64_t seed;    /* RANDOM_2OF4 */
  const char *name; /* for messages and records, e.g. "complement_1100_0011" */
  /* Each of the K columns once, the most important first. IMPORTANCE is cut along it; of any other kind it
   * tells which columns a layer in two precisions keeps high. NULL: none. */
  const uint32_t *order;
  int64_t n_order; /* entries of order: K */
} bs_mask;

/* Which two of each four neighbouring columns a half keeps, row by row: the positions of a 2:4 weight. They
 * come from a mask and never from the values, so that zeros stay where they are. A group is columns 4g ..
 * 4g+3; the last one may reach beyond cols, where every weight is zero. The kept weights of a row, ascending,
 * are its packed row, 2 ceil(cols / 4) long. */
typedef struct bs_kept {
  uint32_t struct_size;
  uint32_t transposable; /* 1: also two of each four rows of an aligned 4 x 4 block */
  int64_t rows;
  int64_t cols;
  void *ctx;
  /* Groups group .. group+ngroups-1 of rows row .. row+nrows-1 into out, a byte each (bit j: column 4g+j is
   * kept; exactly two are set), out_stride bytes between rows. Thread-safe and pure. */
  int32_t (*read)(void *ctx, int64_t row, int64_t nrows, int64_t group, int64_t ngroups, uint8_t *out,
                  int64_t out_stride, bs_error *err);
} bs_kept;

/* How a generated matrix is made, so that a device can make it where it is needed, with the bits that `read`
 * gives. Element (row, col) is a function of (seed, stream, i), i = first + row * line + col: its word w,
 * normal z or uniform u (share/doc/blockshock/numbers.md) goes through the law in f32, each operation
 * rounded, and is rounded to the source's dtype; `read` rounds that to the dtype that is asked for. */
enum bs_law {
  BS_LAW_ZERO = 0,
  BS_LAW_NORMAL = 1,  /* z b + a */
  BS_LAW_UNIFORM = 2, /* u b + a */
  BS_LAW_TERNARY = 3, /* 0 where w div 2 >= threshold, else 1 of an odd w, -1 of an even one */
  BS_LAW_INTEGER = 4, /* (w (2 bound + 1)) div 2^32 - bound */
  BS_LAW_CLIPPED = 5  /* z b, held between -a and a */
};
typedef struct bs_generator {
  uint32_t struct_size;
  uint32_t law; /* enum bs_law */
  /* ctx of the source that this generator describes. If it differs from source.ctx, ignore this generator. */
  const void *ctx;
  uint64_t seed;
  uint64_t first, line;
  uint32_t stream;
  uint32_t threshold, bound;
  float a, b;
  uint32_t reserved;
} bs_generator;

/* A source of a matrix: a generator by seed and index, a mapped file, or memory. `read` fills rows
 * row .. row+nrows-1, the columns of `cols` (NULL: all), rounded to `dtype`, into out with out_stride
 * elements between rows. Thread-safe and pure: the same call gives the same bits. */
typedef struct bs_source {
  uint32_t struct_size;
  uint32_t dtype; /* the values are exactly representable in it */
  int64_t rows;
  int64_t cols;
  void *ctx;
  int32_t (*read)(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype, void *out,
                  int64_t out_stride, bs_error *err);
  /* Since 0.6: how the matrix is made; NULL: unknown. It is valid only while its ctx equals this ctx: code
   * that replaces `read` must replace ctx too. */
  const bs_generator *generator;
} bs_source;

/* Values of bs_quant.flags. */
enum bs_quant_flags {
  BS_QUANT_ZEROS = 1, /* each group has its zero */
  BS_QUANT_LOWS = 2,  /* each group, with STEPS each span, has its low */
  BS_QUANT_STEPS = 4  /* scales (and lows) of spans, times a whole number of each group */
};

/* The arrays that bs_quant.read fills. The caller owns them; an array without its flag is NULL. Rows of codes
 * lie codes_stride bytes apart, rows of the others have no gap between them. */
typedef struct bs_quant_rows {
  uint32_t struct_size;
  uint32_t reserved;
  uint8_t *codes; /* [nrows][cols], a byte each: 0 .. 2^bits - 1 */
  int64_t codes_stride;
  float *scales;      /* [nrows][spans] */
  uint8_t *zeros;     /* [nrows][groups]: 0 .. 2^bits - 1 */
  float *lows;        /* [nrows][spans] */
  int8_t *steps;      /* [nrows][groups] */
  uint8_t *low_steps; /* [nrows][groups]: of LOWS with STEPS */
} bs_quant_rows;

/* A quantised matrix. A group is `group` neighbouring columns of one row, a span `span` of them; the last of
 * a row may be shorter. Element (n,k) has the code q, and its group has a zero, a scale and a low. It is
 * w = scale (q - zero) - low, in f32, each operation rounded. Without STEPS a span is a group. With STEPS
 * scale = scales[span] steps[group] and low = lows[span] low_steps[group]. Without LOWS nothing is
 * subtracted. share/doc/blockshock/ops.md has the sums of matmul_q. */
typedef struct bs_quant {
  uint32_t struct_size;
  uint32_t bits;  /* of a code: 4, 6 or 8 */
  uint32_t flags; /* enum bs_quant_flags */
  int32_t zero;   /* of all groups, without ZEROS: 0 .. 2^bits - 1 */
  int64_t rows, cols;
  int64_t group; /* a power of two, 16 .. 256, or cols: one scale a row */
  int64_t span;  /* with STEPS a multiple of group, at most 256; else group */
  void *ctx;
  /* Rows row .. row + nrows - 1 into the arrays of `out`; nothing is written between rows of codes.
   * Thread-safe and pure. NULL in a query that packs nothing. */
  int32_t (*read)(void *ctx, int64_t row, int64_t nrows, const bs_quant_rows *out, bs_error *err);
} bs_quant;

#ifdef __cplusplus
}
#endif
#endif
