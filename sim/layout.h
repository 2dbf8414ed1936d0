/* SPDX-License-Identifier: MIT
 * layout.h - the parts of a device, one of each class at each place of its level, and the ways between
 * places: what a program's jobs are made of. */
#ifndef BS_SIM_LAYOUT_H
#define BS_SIM_LAYOUT_H
#include "sim/device.h"
#include "sim/inside.h"

typedef struct sim_layout {
  const sim_device *device;
  uint32_t dtype; /* enum bs_dtype, of the products' rate; 0: data moves alone */
  uint32_t n_parts;
  sim_part *parts;                            /* opened */
  uint32_t base[SIM_CLASSES], n[SIM_CLASSES]; /* the parts of a class */
  /* Times the device's rate, and gaps so much shorter, from the next reset on; 0: as the device says. */
  double speed[SIM_CLASSES];
} sim_layout;

/* A place: number `index` of all of its level. With a class it is a part there; `unit` is a channel of a
 * memory (or another number behind the part's name), UINT32_MAX: none is named. */
typedef struct sim_place {
  uint32_t level, index;
  uint32_t class, unit; /* class SIM_CLASSES: the place itself */
} sim_place;

/* One move of data along a way. */
typedef struct sim_trip {
  uint32_t way;  /* enum sim_way */
  uint32_t lane; /* whose it is */
  uint32_t to;   /* SIM_WAY_SEND: another lane */
  uint32_t
      home; /* of the memory: its part, counted in its class; UINT32_MAX: the one that the lane is under */
  sim_request request;
} sim_trip;

/* Rates of products are those of the dtype, of maps those of f32 or the one that is given. BS_CONFIG: no rate
 * for the dtype, or a way that does not reach (BS-DEVICE-REACH). The device must live as long. */
int32_t sim_layout_make(const sim_device *device, uint32_t dtype, sim_layout *out, bs_error *err);
/* The same for programs that use no units of products: those need no rate. */
int32_t sim_layout_make_without_products(const sim_device *device, uint32_t dtype, sim_layout *out,
                                         bs_error *err);
void sim_layout_free(sim_layout *layout);
/* All parts free, nothing counted. */
int32_t sim_layout_reset(sim_layout *layout, bs_error *err);

/* Adds the stops of a trip to a job, and sets its address. BS_CONFIG BS-DEVICE-REACH: the way ends elsewhere;
 * BS_UNSUPPORTED: too many stops, or the device has no such way. */
int32_t sim_layout_trip(const sim_layout *layout, const sim_trip *trip, sim_job *job, bs_error *err);
/* The part of a class for a lane: that of the place above it. */
uint32_t sim_layout_part(const sim_layout *layout, uint32_t class, uint32_t lane);
/* The first class of servers that does it; SIM_CLASSES: none. */
uint32_t sim_layout_does(const sim_layout *layout, uint32_t does);

/* "pe3.cube0": innermost first, or a part ("hbm3.cube0", "tensor.pe3.cube0"). What is left out on the outer
 * side is that of `beside`, or the first. BS_USAGE BS-DEVICE-PLACE, with the nearest name. */
int32_t sim_layout_place(const sim_layout *layout, const char *text, const sim_place *beside, sim_place *out,
                         bs_error *err);
void sim_layout_place_name(const sim_layout *layout, const sim_place *place, char *out, uint32_t size);
void sim_layout_lane_name(const sim_layout *layout, uint32_t lane, char *out, uint32_t size);
/* "dma.pe3.cube0", "noc.cube0 3>2". */
void sim_layout_part_name(const sim_layout *layout, uint32_t part, char *out, uint32_t size);
uint32_t sim_layout_class_of(const sim_layout *layout, uint32_t part);
/* What works at once in a class: workers, channels, or the links that a net has. */
uint64_t sim_layout_units(const sim_layout *layout, uint32_t class);
/* 1: `speed` of the class changes something: its parts have a rate or gaps. */
int sim_layout_has_speed(const sim_layout *layout, uint32_t class);
#endif
