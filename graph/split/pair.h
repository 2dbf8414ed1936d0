/* SPDX-License-Identifier: MIT
 * pair.h - which values of a graph may be split over ranks, and the graph of one rank. It looks at a graph
 * behind its passes and knows nothing of worlds, methods and memory.
 *
 * A region begins at the output of a product F and ends at the inputs of products S. All values in it are
 * split: rank r of P has its part of each. F's rows and S's columns are then those of the rank, S's sums are
 * partial, and a method's layer adds them up. Every other value is whole on every rank.
 *
 * How a split root lies: its elements are rows of `period` elements. A row consists of parts, one after
 * another; a part is `units` units of `width` elements, which are never cut. Rank r keeps units
 * [r units/P, (r+1) units/P) of each part, in this order, without gaps: its row has period/P elements.
 *
 *   gsplit_find       regions and roles: independent of P
 *   gsplit_for        which regions stand on P ranks, and why the others do not
 *   gsplit_order      whose rows (columns) of the weight a rank has
 *   gsplit_localise   changes the graph into that of one rank
 *
 * Threads: functions that take a const graph and a const gsplit may run at the same time. Ownership: a gsplit
 * has its own memory, and no pointer into the graph. Node and value numbers are those of the graph. */
#ifndef BS_GRAPH_SPLIT_PAIR_H
#define BS_GRAPH_SPLIT_PAIR_H
#include "core/partition/order.h"
#include "graph/ir/graph.h"

/* ---- views (view.c) -------------------------------------------------------------------------- */
enum { GSPLIT_PARTS = 8 };
typedef struct gsplit_part {
  int64_t begin, units, width; /* begin and width in elements of the row */
} gsplit_part;
typedef struct gsplit_root {
  uint32_t root;   /* value */
  uint32_t region; /* of a gsplit */
  int64_t period;  /* elements of a row */
  uint32_t n_parts;
  gsplit_part parts[GSPLIT_PARTS];
} gsplit_root;

/* How a view lies in a split root: the dim that is cut, and the part that it reads. */
typedef struct gsplit_view {
  uint32_t dim, part;
} gsplit_view;
/* The same of any view of it (the root itself too). NULL: it is cut as *out_view says; else why it cannot be
 * cut: a static text that follows "its view". */
const char *gsplit_view_of(const gsplit_root *root, const gvalue *view, gsplit_view *out_view);
/* The view of a rank's part: dims, strides and offset of *io_view are replaced. They are the same on each
 * rank. BS_UNSUPPORTED, and *out_why (static): it cannot be cut into `ranks` parts. */
int32_t gsplit_view_local(const gsplit_root *root, uint32_t ranks, gvalue *io_view, const char **out_why);
/* How the root of `value` is split if `dim` of `value` is cut: its period by the strides of `value`, its
 * parts by all of its views that a node reads or writes. NULL, or a static text that follows "its root". */
const char *gsplit_root_of(const graph *g, uint32_t value, uint32_t dim, gsplit_root *out_root);

/* ---- regions (pair.c) ------------------------------------------------------------------------ */
enum { GSPLIT_WHY = 224 };
enum gsplit_role {
  GSPLIT_ALONE = 0, /* x and y are whole. `stop` and `why` say what keeps it from being an F */
  GSPLIT_F = 1,     /* a region starts in its output: it has rows of the weight */
  GSPLIT_S = 2      /* a region ends in its input: it has columns of the weight */
};

/* A node with a constant weight, in the order of the run. Roles are independent of P. Where its region does
 * not stand on P ranks (gsplit_region.refused), F gathers y and S reads the whole x. */
typedef struct gsplit_product {
  uint32_t node, role;
  uint32_t region;   /* GNONE: alone */
  int64_t n, k;      /* of the weight, which is whole */
  uint32_t weight;   /* values of the graph. gsplit_localise takes the bias off the node: this one is read */
  uint32_t bias;     /* in place of it. GNONE: none; on the whole of N, added once (S: on one rank) */
  uint32_t residual; /* 1: the node adds a value to y. No layer does so: gsplit_localise refuses it in an F or
                      * an S. Passes leave it out (gpass_ctx.layers), or gsplit_peel takes it off */
  uint32_t layer;    /* 0: no method can build it, because its weight is quantised; `why` says so. Each rank
                      * then has all of it */
  uint32_t stop;     /* alone: node at which the search for a region ended; GNONE: at no node */
  char why[GSPLIT_WHY]; /* alone */
} gsplit_product;

/* A value that is whole and read in parts inside a region: rank r reads entries [r n/P, (r+1) n/P) of `dim`.
 */
typedef struct gsplit_cut {
  uint32_t region, node, arg, dim;
} gsplit_cut;

typedef struct gsplit_region {
  uint32_t f;           /* product */
  uint32_t first, last; /* nodes, in the order of the run: F and the last S */
  uint32_t n_s, n_states;
  /* By gsplit_for. refused 1: `why` tells the reason, and it was found at node `stop`. */
  uint32_t refused, stop;
  char why[GSPLIT_WHY];
} gsplit_region;

typedef struct gsplit {
  gsplit_product *products;
  gsplit_region *regions;
  gsplit_root *roots; /* split ones, states too */
  gsplit_cut *cuts;
  uint32_t *root_of;    /* of each value: index into roots of its root; GNONE: whole */
  uint32_t *region_of;  /* of each node: its region; GNONE. F and S belong to it */
  uint32_t *product_of; /* of each node: index into products; GNONE */
  uint32_t n_products, n_regions, n_roots, n_cuts;
  uint32_t cap_products, cap_regions, cap_roots, cap_cuts;
  uint32_t n_values, n_nodes; /* of the graph */
  uint32_t ranks;             /* of the last gsplit_for; 0: none */
} gsplit;

/* Regions and roles of a graph after its passes. A graph without regions is no error: every product is alone
 * then. BS_NO_MEMORY. */
int32_t gsplit_find(const graph *g, gsplit **out_split, bs_error *err);
void gsplit_free(gsplit *split);
/* Sets `refused` of each region for `ranks` ranks (at least 1), and `ranks`. */
void gsplit_for(gsplit *io_split, const graph *g, uint32_t ranks);
/* 1: the value is split, and its region stands; as of the last gsplit_for. */
int gsplit_is_split(const gsplit *split, const graph *g, uint32_t value);
/* 1: the node (a product) works on its rank's part, because its region stands. */
int gsplit_stands(const gsplit *split, uint32_t product);
/* Takes residuals off products: act(x W + bias) + residual becomes a product and a map behind it. Before
 * gsplit_find, where the passes have fused them. The sum rounds twice then. */
int32_t gsplit_peel(graph *g, bs_error *err);

/* ---- orders and the rank's graph (rewrite.c) ------------------------------------------------- */
/* Rows of F, or columns of S, in the order in which ranks hold them: position i of the order is row (column)
 * from + i - at of the weight. Rank r has positions [r n/P, (r+1) n/P). For a method that gives rank r just
 * these positions, bs_order_view_make makes the layer's sources: of F the weight with its rows in this order
 * and the bias (one row) with its columns in it, of S the weight with its columns in it.
 * units NULL: S's columns stay as they are, F's rows follow. Else units[i] is the unit of S's input (a head,
 * or a feature) that comes at place i, `n_units` of them, each once: rank r has places [r n/P, (r+1) n/P).
 * S's columns stay, because its method owns just these; F's rows get the order. BS_UNSUPPORTED with a text:
 * units of other parts (groups of heads) do not follow, or a value of the region is cut by place. *out_order
 * is the caller's (bs_order_free). A product alone: all rows as they are. */
int32_t gsplit_order(const gsplit *split, const graph *g, uint32_t product, const uint32_t *units,
                     uint32_t n_units, bs_order *out_order, bs_error *err);
/* Units of the input of the product S: what its method must give a rank whole numbers of. */
void gsplit_units(const gsplit *split, const graph *g, uint32_t product, int64_t *out_units,
                  int64_t *out_width);

/* Changes the graph into that of `rank` of split->ranks ranks: dims and strides of the split values, states
 * 1/P, other offsets of what is cut. Regions that do not stand stay whole.
 * Products keep op, weight, x and y. In a region that stands, x of an S is [T,K/P], y of an F [T,N/P]; the
 * bias goes (gsplit_product.bias). So graph_validate holds for what is not a product in a standing region,
 * and the caller replaces these nodes. Graphs of all ranks are equal but for offsets of views of cut values,
 * which have new value numbers from split->n_values on. BS_UNSUPPORTED: a product F or S adds a residual.
 * After an error the graph is undefined. */
int32_t gsplit_localise(graph *g, const gsplit *split, uint32_t rank, bs_error *err);

/* A line for each product with its region, for reports and tests:
 *   matmul of h.0.attn.c_attn F 0: 12 x 4, 12 x 4, 12 x 4; 2 states
 *   matmul of h.0.attn.c_proj S 0
 *   matmul of lm_head alone: matmul of lm_head gives the output logits of the model */
void gsplit_text(const gsplit *split, const graph *g, bs_text *io_text);
#endif
