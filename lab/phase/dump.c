/* SPDX-License-Identifier: MIT
 * dump.c - writing a case's matrices as .npy. */
#include "lab/phase/dump.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/dtype.h"
#include "formats/npy.h"
#include "lab/case/joint.h"
#include "lab/error.h"

typedef struct captured {
  double *values; /* [rows, cols] */
  int64_t rows, cols;
  int failed, reduced;
} captured;

enum { SITE = 64 };

struct bs_dump {
  char dir[3800];
  char
      site[SITE]; /* of the sum or gather that makes y; the parts of one that is divided have ".0", ".1" .. */
  int64_t tokens;
  uint32_t ranks;
  captured *partial;
  bs_collective_hook hook;
};

/* The index of this part of y's exchange, 0 for a whole one; -1: another exchange. */
static int part_of(const bs_dump *dump, const bs_coll_call *call) {
  const size_t n = strlen(dump->site);
  if (call->site == NULL || strncmp(call->site, dump->site, n) != 0) return -1;
  const char *rest = call->site + n;
  if (rest[0] == '\0') return 0;
  return rest[0] == '.' && rest[1] >= '0' && rest[1] <= '9' && rest[2] == '\0' ? rest[1] - '0' : -1;
}

/* Makes room for `rows` x `cols` more values: below the present ones if the part has fewer than all tokens,
 * to their right otherwise. *out_first is the place of its first value, *out_ld the length of a row. NULL: no
 * memory. */
static double *make_room(const bs_dump *dump, captured *mine, int64_t rows, int64_t cols, int64_t *out_ld) {
  const int below = mine->rows == 0 || rows != dump->tokens;
  const int64_t all_rows = below ? mine->rows + rows : mine->rows,
                all_cols = below ? cols : mine->cols + cols;
  const size_t count = (size_t)(all_rows * all_cols);
  double *values = malloc((count ? count : 1) * sizeof *values);
  if (!values) return NULL;
  for (int64_t r = 0; r < mine->rows; ++r)
    memcpy(values + r * all_cols, mine->values + r * mine->cols, (size_t)mine->cols * sizeof *values);
  double *first = below ? values + mine->rows * all_cols : values + mine->cols;
  free(mine->values);
  *mine = (captured){values, all_rows, all_cols, mine->failed, mine->reduced};
  *out_ld = all_cols;
  return first;
}

/* Keeps only the last forward: its first part replaces the earlier data. Runs on the rank's own thread. */
static uint32_t capture(void *user, uint32_t rank, const bs_coll_call *call) {
  bs_dump *dump = user;
  captured *mine = &dump->partial[rank];
  const int part = part_of(dump, call);
  const int gathers = call->kind == BS_COLL_ALL_GATHER && call->counts;
  const int reduces = call->kind == BS_COLL_ALL_REDUCE || call->kind == BS_COLL_REDUCE_SCATTER;
  if (part < 0 || (!reduces && (!gathers || mine->reduced))) return 1; /* terms come before blocks of sums */
  mine->reduced = reduces;
  if (part == 0) mine->rows = mine->cols = 0;
  uint32_t place, ranks;
  bs_hook_place(call, &place, &ranks);
  uint64_t cols = gathers ? call->counts[place] : call->count;
  if (call->kind == BS_COLL_REDUCE_SCATTER && call->counts) {
    cols = 0;
    for (uint32_t r = 0; r < ranks; ++r) cols += call->counts[r];
  }
  int64_t ld = 0;
  double *to = make_room(dump, mine, (int64_t)call->rows, (int64_t)cols, &ld);
  if (!to) {
    mine->failed = 1;
    return 1;
  }
  for (int64_t row = 0; row < (int64_t)call->rows; ++row) {
    for (int64_t i = 0; i < (int64_t)cols; ++i)
      to[row * ld + i] = bs_load_f64(call->dtype_in, call->in, row * call->in_stride + i);
  }
  return 1;
}

/* Tokens that are shared out travel as one row: written as rows of tokens. */
static void shape_tokens(const bs_dump *dump, captured *mine) {
  const int64_t count = mine->rows * mine->cols;
  if (mine->rows != 1 || dump->tokens < 2 || count % dump->tokens != 0) return;
  mine->rows = dump->tokens;
  mine->cols = count / dump->tokens;
}

int32_t bs_dump_open(const char *dir, const char *method, int64_t tokens, uint32_t world_size, bs_dump **out,
                     bs_error *err) {
  *out = NULL;
  bs_dump *dump = calloc(1, sizeof *dump);
  if (!dump) return bs_no_memory(err, "a dump");
  dump->ranks = world_size;
  dump->tokens = tokens;
  snprintf(dump->site, sizeof dump->site, "%s.y", method);
  dump->partial = calloc(world_size, sizeof *dump->partial);
  dump->hook = (bs_collective_hook){.user = dump, .before = capture, .after = NULL};
  if (!dump->partial) {
    bs_dump_close(dump);
    return bs_no_memory(err, "a dump of %u ranks", world_size);
  }
  const int n = snprintf(dump->dir, sizeof dump->dir, "%s", dir);
  if (n <= 0 || (size_t)n >= sizeof dump->dir) {
    bs_dump_close(dump);
    return bs_error_set(err, BS_USAGE, "BS-DUMP-DIR", "--to: a folder name of %d bytes (1 to %zu allowed)", n,
                        sizeof dump->dir - 1);
  }
  struct stat st;
  if (mkdir(dump->dir, 0777) != 0 && (errno != EEXIST || stat(dump->dir, &st) != 0 || !S_ISDIR(st.st_mode))) {
    const int32_t rc =
        bs_error_errno(err, BS_IO, "BS-DUMP-DIR", errno, "--to %s: cannot make the folder", dir);
    bs_dump_close(dump);
    return rc;
  }
  *out = dump;
  return BS_OK;
}

const bs_collective_hook *bs_dump_hook(bs_dump *dump) {
  return &dump->hook;
}

static int32_t write_array(const bs_dump *dump, const char *name, int32_t rank, uint32_t dtype, int64_t rows,
                           int64_t cols, const void *data, bs_error *err) {
  char path[4096];
  const int64_t dims[2] = {rows, cols};
  if (rank < 0) {
    snprintf(path, sizeof path, "%s/%s.npy", dump->dir, name);
  } else {
    snprintf(path, sizeof path, "%s/%s_rank%d.npy", dump->dir, name, rank);
  }
  return bs_npy_write(path, dtype, 2, dims, data, err);
}

static int32_t write_source(const bs_dump *dump, const char *name, const bs_source *source, bs_error *err) {
  const uint32_t dtype = source->dtype;
  const size_t count = (size_t)source->rows * (size_t)source->cols;
  void *data = malloc(count ? count * BS_DTYPE_BYTES(dtype) : 1);
  if (!data) {
    return bs_no_memory(err, "the dump of %s of %lld x %lld", name, (long long)source->rows,
                        (long long)source->cols);
  }
  int32_t rc = source->read(source->ctx, 0, source->rows, NULL, dtype, data, source->cols, err);
  if (rc == BS_OK) rc = write_array(dump, name, -1, dtype, source->rows, source->cols, data, err);
  free(data);
  return rc;
}

static int32_t write_columns(const bs_dump *dump, uint32_t rank, const bs_case *c, const bs_case_rank *mine,
                             bs_error *err) {
  const bs_partition *p = mine->owns.columns;
  const int64_t count = p ? p->count : c->spec.K;
  int64_t *list = malloc((size_t)(count > 0 ? count : 1) * sizeof *list);
  if (!list) return bs_no_memory(err, "a column list");
  for (int64_t i = 0; i < count; ++i) list[i] = bs_view_column(p, i);
  int32_t rc = write_array(dump, "columns", (int32_t)rank, BS_I64, 1, count, list, err);
  free(list);
  if (rc != BS_OK || mine->kept == NULL) return rc;
  return write_array(dump, "kept", (int32_t)rank, BS_U8, mine->owns.row_count, (count + 3) / 4, mine->kept,
                     err);
}

static void put_captured(bs_parcel *p, const captured *mine) {
  bs_parcel_put(p, mine, sizeof *mine); /* numbers; the pointer is replaced */
  bs_parcel_put_block(p, mine->values, (uint64_t)(mine->rows * mine->cols) * sizeof *mine->values);
}

static int32_t get_captured(void *user, uint32_t rank, bs_parcel *p, bs_error *err) {
  captured *of = &((bs_dump *)user)->partial[rank];
  (void)err;
  bs_parcel_get(p, of, sizeof *of);
  of->values = bs_parcel_get_block(p, NULL);
  of->failed |= (int)p->failed;
  return BS_OK;
}

/* Collects on rank 0 what other processes captured. It uses a new world, because the case's own is closed. */
static int32_t collect(bs_dump *dump, const bs_case *c, bs_error *err) {
  bs_case plain = *c;
  bs_world *world = NULL;
  bs_parcel mine = {0};
  plain.hook = NULL;
  int32_t rc = bs_case_world(&plain, &world, err);
  if (rc == BS_OK && bs_exchange_joint(world)) {
    put_captured(&mine, &dump->partial[bs_world_own_rank(world)]);
    rc = bs_joint_gather(world, dump->ranks, &mine, get_captured, dump, err);
  }
  bs_world_destroy(world);
  return rc;
}

int32_t bs_dump_write(bs_dump *dump, const bs_case *c, const bs_case_result *result, bs_error *err) {
  int32_t rc = collect(dump, c, err);
  if (rc != BS_OK || !bs_case_judged(c)) return rc;
  rc = write_source(dump, "x", c->x, err);
  if (rc == BS_OK) rc = write_source(dump, "w", c->w, err);
  if (rc == BS_OK && c->bias) rc = write_source(dump, "bias", c->bias, err);
  for (uint32_t r = 0; rc == BS_OK && r < result->world_size; ++r) {
    const bs_case_rank *mine = &result->ranks[r];
    captured *partial = &dump->partial[r];
    shape_tokens(dump, partial);
    if (partial->failed) rc = bs_no_memory(err, "rank %u's partial", r);
    if (rc == BS_OK && partial->values) {
      rc = write_array(dump, "partial", (int32_t)r, BS_F64, partial->rows, partial->cols, partial->values,
                       err);
    }
    if (rc == BS_OK)
      rc = write_array(dump, "y", (int32_t)r, c->spec.y_dtype, c->spec.B, mine->y_cols, mine->y, err);
    if (rc == BS_OK) rc = write_columns(dump, r, c, mine, err);
  }
  return rc;
}

void bs_dump_close(bs_dump *dump) {
  if (!dump) return;
  for (uint32_t r = 0; dump->partial && r < dump->ranks; ++r) free(dump->partial[r].values);
  free(dump->partial);
  free(dump);
}
