/* SPDX-License-Identifier: MIT
 * device.h - what a device is made of: levels, classes of parts, ways, tiles. A class is one line of the
 * file; layout.h makes the parts of it, one at each place of its level. docs/inside.md has the fields. */
#ifndef BS_SIM_DEVICE_H
#define BS_SIM_DEVICE_H
#include "blockshock/blockshock.h"
#include "sim/part.h"

enum {
  SIM_LEVELS = 5, /* the package, and at most four below it */
  SIM_CLASSES = 24,
  SIM_WAY_PARTS = 12,
  SIM_TILES = 8,
  SIM_PLACES = 1 << 16,  /* at most so many of one level */
  SIM_LANES_MOST = 4096, /* each takes 40 KB in a run */
  SIM_PARTS = 1 << 17,
  SIM_NET = SIM_PART_KINDS /* in a file only: links of a shape */
};
enum sim_does { SIM_DOES_NOTHING = 0, SIM_DOES_PRODUCT, SIM_DOES_MAP, SIM_DOES_COMMAND, SIM_DOES };
enum sim_shape {
  SIM_SHAPE_MESH = 0,
  SIM_SHAPE_RING,
  SIM_SHAPE_TORUS2D,
  SIM_SHAPE_FULLMESH,
  SIM_SHAPE_CROSSBAR
};
/* Where the channels of a memory are: at its own place (no hops), dealt out to the places of the next level,
 * or some for each of these places alone. */
enum sim_node_of { SIM_NODE_HERE = 0, SIM_NODE_SPREAD, SIM_NODE_OWN };
enum sim_way { SIM_WAY_LOAD = 0, SIM_WAY_STORE, SIM_WAY_SEND, SIM_WAYS };
/* The numbers of a tile of products: rows and columns of Y, depth, and lanes of a place that work on such
 * tiles at once (0: all). */
enum sim_tile { SIM_TILE_M = 0, SIM_TILE_N, SIM_TILE_K, SIM_TILE_RESIDENT, SIM_TILE_NUMBERS };
enum sim_rate {
  SIM_RATE_F64 = 0,
  SIM_RATE_F32,
  SIM_RATE_BF16,
  SIM_RATE_F16,
  SIM_RATE_F8,
  SIM_RATE_I8,
  SIM_RATES
};

typedef struct sim_class {
  char name[24];
  uint32_t kind;  /* enum sim_part_kind, or SIM_NET */
  uint32_t level; /* `at` */
  uint32_t does, shape, node, posted;
  uint32_t assumed;   /* its figures are no published ones */
  uint32_t workers;   /* channels of a memory, slots of a queue */
  uint32_t flit, hit; /* hit: a class */
  uint32_t size[2], grain[3];
  uint64_t first, gap, credit, interleave, bytes;
  double rate[SIM_RATES]; /* a second; 0: none is given. Of links, memories and nets all are Bps. */
  double pJ;              /* a unit; below 0: not declared */
} sim_class;

typedef struct sim_way_of {
  uint32_t n, classes[SIM_WAY_PARTS];
} sim_way_of;

typedef struct sim_device {
  char name[48], label[16];
  uint32_t n_levels; /* the package is level 0 */
  struct {
    char name[16];
    uint32_t each, places; /* places in one of the level above; in all */
  } levels[SIM_LEVELS];
  uint32_t lane_level, lanes_each, lanes;
  uint64_t scratch; /* bytes of a place, which its lanes share */
  uint64_t slots;   /* of them, those that the slots of a product's operands may take; 0: all */
  uint32_t n_classes;
  sim_class classes[SIM_CLASSES];
  sim_way_of ways[SIM_WAYS], launch_out, launch_back;
  uint64_t launch; /* ps; of a device that gives one number */
  uint32_t n_tiles, n_stages;
  uint32_t tiles[SIM_TILES][SIM_TILE_NUMBERS], stages[SIM_TILES];
  uint32_t group;                                /* rows of tiles that lanes take together; 0: 1 */
  uint32_t n_attention, attention[SIM_TILES][2]; /* queries, keys */
  /* Shares of the rates that are reached: of units of products, and of memories that keep no cache's tiles.
   */
  double of_units, of_memory;
  double watts_idle; /* below 0: not declared */
  uint64_t hash;     /* of the text */
} sim_device;

/* Reads a canonical text (tree.h). Errors are BS_CONFIG; `where` is the path of the entry, as in
 * parts.tensor.rate, from which a caller that has the file finds its line. */
int32_t sim_device_read(const char *text, sim_device *out, bs_error *err);
/* SIM_CLASSES: no class of that name. */
uint32_t sim_device_class(const sim_device *device, const char *name);
const char *sim_class_kind_name(uint32_t kind);
const char *sim_way_name(uint32_t way);
/* BS_NO_MEMORY BS-INSIDE-SCRATCH: buffers of so many bytes do not fit the scratch of a place of lanes. */
int32_t sim_device_fits(const sim_device *device, uint64_t bytes, bs_error *err);
/* Is it a memory whose tiles a cache keeps? */
int sim_device_is_hit(const sim_device *device, uint32_t class);
/* The class of the memory that loads come from, behind all caches; SIM_CLASSES: none. */
uint32_t sim_device_memory(const sim_device *device);
#endif
