/* SPDX-License-Identifier: MIT
 * watch.c - see watch.h. */
#include "lab/case/watch.h"

#include "blockshock/plugin.h"
#include "core/base/error.h"
#include "lab/stop.h"

/* Counts in rows of the whole weight, for any division among ranks. */
static void count(const bs_watched *view, int64_t nrows, const bs_partition *cols) {
  const bs_case *c = view->watch->tell;
  const uint64_t all = (uint64_t)c->spec.N, width = c->spec.K > 0 ? (uint64_t)c->spec.K : 1;
  const uint64_t more = (uint64_t)nrows * (uint64_t)(cols != NULL ? cols->count : view->inner->cols);
  const uint64_t rows =
      (atomic_fetch_add_explicit(&view->watch->values, more, memory_order_relaxed) + more) / width;
  if (view->shows) bs_case_tell(c, "build", rows < all ? rows : all, all);
}

static int32_t read_watched(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                            void *out, int64_t out_stride, bs_error *err) {
  const bs_watched *view = ctx;
  int32_t rc = bs_stop_check(err);
  if (rc == BS_OK) rc = view->inner->read(view->inner->ctx, row, nrows, cols, dtype, out, out_stride, err);
  if (rc == BS_OK && view->watch->tell != NULL) count(view, nrows, cols);
  return rc;
}

void bs_watch_source(bs_watch *watch, bs_watched *view, const bs_source *inner, int shows, bs_source *out) {
  *view = (bs_watched){.inner = inner, .watch = watch, .shows = shows};
  *out = *inner;
  out->ctx = view;
  out->read = read_watched;
  bs_generator_under(inner, 0, view, &view->made, out);
}
