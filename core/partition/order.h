/* SPDX-License-Identifier: MIT
 * order.h - a matrix whose rows, or columns, are seen in another order: a view of a weight source. */
#ifndef BS_CORE_PARTITION_ORDER_H
#define BS_CORE_PARTITION_ORDER_H
#include "blockshock/blockshock.h"

/* Positions at .. at+count-1 of the view are rows (columns) from .. from+count-1 of the source. */
typedef struct bs_order_run {
  int64_t at, from, count;
} bs_order_run;
/* Runs one after another: the first has at 0, and they cover `total` positions. Zero-initialise. One that
 * is not changed may be read by several threads. */
typedef struct bs_order {
  bs_order_run *runs;
  uint32_t n, cap;
  int64_t total;
} bs_order;

/* Appends a run; one that continues the last run makes that one longer. BS_NO_MEMORY. */
BS_API int32_t bs_order_add(bs_order *io_order, int64_t from, int64_t count, bs_error *err);
/* Each of `total` rows comes once: BS_INTERNAL names the first that does not. */
BS_API int32_t bs_order_check(const bs_order *order, int64_t total, bs_error *err);
/* 1: nothing moves. */
BS_API int bs_order_is_plain(const bs_order *order);
/* The row at a position, 0 <= at < total. */
BS_API int64_t bs_order_at(const bs_order *order, int64_t at);
/* 1: they move the same rows to the same positions. */
BS_API int bs_order_same(const bs_order *a, const bs_order *b);
/* *out_order is the caller's (bs_order_free), on errors too. BS_NO_MEMORY. */
BS_API int32_t bs_order_copy(const bs_order *order, bs_order *out_order, bs_error *err);
BS_API void bs_order_free(bs_order *order);

/* A view and what its read needs: `source` is handed out. The inner source and the orders outlive it. It
 * reads as the inner one does: from any thread, with the inner source's errors. */
typedef struct bs_order_view {
  bs_source source;
  const bs_source *inner;
  const bs_order *rows, *columns; /* NULL: as they are */
} bs_order_view;
/* The matrix with its rows and columns in these orders. *out_view must stay where it is. BS_INVALID_ARGUMENT:
 * an order has another length. */
BS_API int32_t bs_order_view_make(const bs_source *inner, const bs_order *rows, const bs_order *columns,
                                  bs_order_view *out_view, bs_error *err);
#endif
