/* SPDX-License-Identifier: MIT
 * test_sim_device.c - the text of a device, its places and ways, and what is refused. */
#include "core/base/error.h"
#include "sim/layout.h"
#include "tests/run_tests.h"

#define PARTS                                                                                      \
  "tensor: {at: pe, kind: server, does: product, rate: {bf16: 8e12}, grain: [16, 16, 16]}, "       \
  "dma: {at: pe, kind: link, workers: 2, first_s: 100e-9, Bps: 256e9, flit_B: 64}, "               \
  "noc: {at: cube, kind: net, shape: mesh, size: [4, 2], Bps: 256e9, first_s: 2e-9, flit_B: 64}, " \
  "hbm: {at: cube, kind: memory, channels: 16, Bps: 32e9, first_s: 40e-9, flit_B: 64, node: spread}"
#define DEVICE(parts, ways)                                                                                \
  "{name: small, label: example, levels: {cube: 2, pe: 8}, lane: {at: pe, scratch_B: 1Mi}, parts: {" parts \
  "}, ways: {" ways "}, tiles: {product: [\"256,256,64\"], stages: \"2,3\"}}"
#define WAYS "load: [dma, hbm, noc], store: [dma, noc, hbm]"

static void make(const char *text, sim_device *device, sim_layout *layout) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(sim_device_read(text, device, &err) == BS_OK, "%s: %s", err.where, err.message);
  ck_assert_msg(sim_layout_make(device, BS_BF16, layout, &err) == BS_OK, "%s", err.message);
}

START_TEST(a_device_is_what_its_text_says) {
  sim_device d;
  sim_layout l;
  make(DEVICE(PARTS, WAYS), &d, &l);
  ck_assert_str_eq(d.name, "small");
  ck_assert_uint_eq(d.lanes, 16);
  ck_assert_uint_eq(d.scratch, 1 << 20);
  ck_assert_uint_eq(d.n_classes, 4);
  ck_assert_uint_eq(d.classes[1].first, 100000);
  ck_assert_uint_eq(d.classes[0].grain[2], 16);
  ck_assert_uint_eq(d.n_tiles, 1);
  ck_assert_uint_eq(d.tiles[0][2], 64);
  ck_assert_uint_eq(d.n_stages, 2);
  ck_assert_uint_eq(sim_layout_units(&l, 1), 32); /* two engines a PE */
  ck_assert_uint_eq(sim_layout_units(&l, 2), 2 * 2 * (3 * 2 + 4 * 1));
  ck_assert_uint_eq(sim_layout_units(&l, 3), 32);
  ck_assert_uint_eq(l.parts[l.base[0]].q32, sim_rate_q32(8e12));
  sim_layout_free(&l);
}
END_TEST

/* From the lane's place to a channel's, along x, then y. */
START_TEST(a_way_goes_over_the_hops_between_two_places) {
  static const char *const store[] = {"dma.pe1.cube1", "noc.cube1 1>2", "noc.cube1 2>6", "hbm.cube1"};
  static const char *const load[] = {"dma.pe1.cube1", "hbm.cube1", "noc.cube1 6>5", "noc.cube1 5>1"};
  sim_device d;
  sim_layout l;
  char name[64];
  make(DEVICE(PARTS, WAYS), &d, &l);
  for (uint32_t way = SIM_WAY_LOAD; way <= SIM_WAY_STORE; way++) {
    sim_job job = {0};
    const sim_trip trip = {
        .way = way, .lane = 9, .home = UINT32_MAX, .request = {.bytes = 64, .address = 6 * 256}};
    ck_assert_int_eq(sim_layout_trip(&l, &trip, &job, NULL), BS_OK);
    ck_assert_uint_eq(job.n_stops, 4);
    ck_assert_uint_eq(job.address, 6 * 256);
    for (uint32_t s = 0; s < 4; s++) {
      sim_layout_part_name(&l, job.stops[s].part, name, sizeof name);
      ck_assert_str_eq(name, way == SIM_WAY_LOAD ? load[s] : store[s]);
      ck_assert_uint_eq(job.stops[s].amount, 64);
    }
  }
  sim_layout_free(&l);
}
END_TEST

/* Bytes that touch a channel of every place come from one place, another for each tile. */
START_TEST(tiles_of_all_channels_take_turns_at_the_places) {
  sim_device d;
  sim_layout l;
  uint32_t hops = 0;
  make(DEVICE(PARTS, WAYS), &d, &l);
  for (uint64_t tile = 0; tile < 8; tile++) {
    sim_job job = {0};
    const sim_trip trip = {.home = UINT32_MAX, .request = {.bytes = 8192, .address = tile * 8192}};
    ck_assert_int_eq(sim_layout_trip(&l, &trip, &job, NULL), BS_OK);
    hops += job.n_stops - 2;
  }
  ck_assert_uint_eq(hops, 0 + 1 + 2 + 3 + 1 + 2 + 3 + 4);
  sim_layout_free(&l);
}
END_TEST

START_TEST(channels_of_their_own_have_no_hops) {
  sim_device d;
  sim_layout l;
  make(DEVICE("dma: {at: pe, kind: link, Bps: 256e9}, hbm: {at: cube, kind: memory, channels: 16, Bps: 32e9, "
              "node: own}",
              "load: [dma, hbm]"),
       &d, &l);
  ck_assert_uint_eq(l.n[1], 16);
  ck_assert_uint_eq(l.parts[l.base[1]].workers, 2);
  sim_job job = {0};
  ck_assert_int_eq(
      sim_layout_trip(&l, &(sim_trip){.lane = 9, .home = UINT32_MAX, .request = {64, 5000, 0, 0}}, &job,
                      NULL),
      BS_OK);
  ck_assert_uint_eq(job.n_stops, 2);
  ck_assert_uint_eq(job.stops[1].part, l.base[1] + 9);
  sim_layout_free(&l);
}
END_TEST

/* Engines that are counted: a load holds one of two slots from its beginning to its end. */
START_TEST(a_queue_on_a_way_is_held_by_the_job) {
  sim_device d;
  sim_layout l;
  make(DEVICE("engines: {at: cube, kind: queue, slots: 2}, ram: {at: pe, kind: memory, Bps: 1e9}",
              "load: [engines, ram]"),
       &d, &l);
  sim_job job = {0};
  ck_assert_int_eq(
      sim_layout_trip(&l, &(sim_trip){.lane = 9, .home = UINT32_MAX, .request = {64, 0, 0, 0}}, &job, NULL),
      BS_OK);
  ck_assert_uint_eq(job.stops[0].how, SIM_TAKE);
  ck_assert_uint_eq(job.stops[0].part, l.base[0] + 1);
  ck_assert_uint_eq(job.stops[1].how, SIM_PASS);
  sim_layout_free(&l);
}
END_TEST

START_TEST(places_are_written_innermost_first) {
  static const struct {
    const char *text, *name;
  } rows[] = {{"pe3.cube1", "pe3.cube1"},     {"pe3", "pe3.cube1"}, {"cube0", "cube0"},
              {"hbm15.cube0", "hbm15.cube0"}, {"hbm", "hbm.cube1"}, {"dma.pe2.cube0", "dma.pe2.cube0"},
              {"pe7.cube0", "pe7.cube0"}};
  sim_device d;
  sim_layout l;
  bs_error err = BS_ERROR_INIT;
  sim_place beside, place;
  char name[64];
  make(DEVICE(PARTS, WAYS), &d, &l);
  ck_assert_int_eq(sim_layout_place(&l, "pe1.cube1", NULL, &beside, &err), BS_OK);
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    ck_assert_msg(sim_layout_place(&l, rows[i].text, &beside, &place, &err) == BS_OK, "%s", err.message);
    sim_layout_place_name(&l, &place, name, sizeof name);
    ck_assert_str_eq(name, rows[i].name);
  }
  static const char *const wrong[] = {"pe8", "pe", "hbm16", "cube2", "pe1.cube2", "cube1.pe1",
                                      "",    ".",  "pe1.",  "3",     "pe1.pe1",   "xx1"};
  for (int i = 0; i < TEST_COUNT(wrong); i++) {
    if (strcmp(wrong[i], "pe1.") == 0) continue;
    ck_assert_msg(sim_layout_place(&l, wrong[i], NULL, &place, &err) == BS_USAGE, "%s", wrong[i]);
    ck_assert_str_eq(err.id, "BS-DEVICE-PLACE");
  }
  sim_layout_free(&l);
}
END_TEST

/* Every net reaches every place, and each of its links ends where the next begins. */
START_TEST(each_shape_joins_its_places) {
  static const char *const shapes[] = {"mesh, size: [4, 2]", "ring", "torus2d, size: [2, 4]", "fullmesh",
                                       "crossbar"};
  for (int s = 0; s < TEST_COUNT(shapes); s++) {
    char text[1024];
    sim_device d;
    sim_layout l;
    snprintf(text, sizeof text,
             DEVICE("dma: {at: pe, kind: link, Bps: 256e9}, fabric: {at: package, kind: net, shape: ring, "
                    "Bps: 1e11}, "
                    "noc: {at: cube, kind: net, shape: %s, Bps: 256e9, first_s: 3e-9}",
                    "send: [dma, noc, fabric, noc]"),
             shapes[s]);
    make(text, &d, &l);
    for (uint32_t from = 0; from < 16; from++)
      for (uint32_t to = 0; to < 16; to++) {
        sim_job job = {0};
        const sim_trip trip = {
            .way = SIM_WAY_SEND, .lane = from, .to = to, .home = UINT32_MAX, .request = {64, 0, 0, 0}};
        ck_assert_int_eq(sim_layout_trip(&l, &trip, &job, NULL), BS_OK);
        for (uint32_t i = 1; i < job.n_stops; i++) ck_assert_uint_ge(job.stops[i].part, l.base[1]);
        if (from == to) ck_assert_uint_eq(job.n_stops, 1);
      }
    sim_layout_free(&l);
  }
}
END_TEST

#define CACHES                                                                 \
  "m: {at: pe, kind: memory, Bps: 1e9}, n: {at: pe, kind: memory, Bps: 1e9}, " \
  "x: {at: pe, kind: cache, bytes: 1Mi, hit: m}, y: {at: pe, kind: cache, bytes: 1Mi, hit: n}"

START_TEST(what_is_wrong_in_a_device_is_named) {
  static const struct {
    const char *text, *id, *where, *says;
  } rows[] = {
      {"[]", "BS-DEVICE-TEXT", "", "it begins with {"},
      {"{name: a, name: b}", "BS-DEVICE-TEXT", "", "a key comes twice"},
      {"{name: a", "BS-DEVICE-TEXT", "", "a comma, or the end of a list, is missing"},
      {"{name: \"a}", "BS-DEVICE-TEXT", "", "a quote is missing"},
      {"{name: a, label: good}", "BS-DEVICE-VALUE", "label", "'good' is not a value of this field"},
      {"{name: a}", "BS-DEVICE-FIELD", "", "a device needs the field label"},
      {"{name: a, label: example, lanes: 3}", "BS-DEVICE-FIELD", "lanes", "'lanes' is not a field here"},
      {DEVICE("x: {at: pe, kind: unit}", ""), "BS-DEVICE-VALUE", "parts.x.kind",
       "'unit' is not a value of this field"},
      {DEVICE("x: {at: po, kind: link, Bps: 1e9}", ""), "BS-DEVICE-LEVEL", "parts.x.at",
       "'po' is not a level of the device"},
      {DEVICE("x: {at: pe, kind: link}", ""), "BS-DEVICE-FIELD", "parts.x", "x needs the field Bps"},
      {DEVICE("x: {at: pe, kind: link, Bps: fast}", ""), "BS-DEVICE-VALUE", "parts.x.Bps",
       "'fast' is not a number"},
      {DEVICE("x: {at: pe, kind: link, Bps: 1e9, slots: 3}", ""), "BS-DEVICE-FIELD", "parts.x.slots",
       "'slots' is not a field here"},
      {DEVICE("x: {at: pe, kind: server, rate: {bf61: 1e9}}", ""), "BS-DEVICE-FIELD", "parts.x.rate.bf61",
       "'bf61' is not a field here"},
      {DEVICE("pe: {at: pe, kind: server}", ""), "BS-DEVICE-NAME", "parts.pe", "'pe' is the name of a level"},
      {DEVICE("x1: {at: pe, kind: server}", ""), "BS-DEVICE-NAME", "parts.x1", "no digit at the end"},
      {DEVICE("x: {at: pe, kind: net, shape: ring, Bps: 1e9}", ""), "BS-DEVICE-LEVEL", "parts.x",
       "it has no places to join"},
      {DEVICE("x: {at: cube, kind: net, shape: mesh, size: [3, 3], Bps: 1e9}", ""), "BS-DEVICE-SIZE",
       "parts.x.size", "whose product is 8"},
      {DEVICE("x: {at: cube, kind: memory, channels: 12, Bps: 1e9, node: spread}", ""), "BS-DEVICE-SIZE",
       "parts.x", "12 channels for 8 places"},
      {DEVICE("x: {at: pe, kind: link, Bps: 1e9, assumed: yes}", ""), "BS-DEVICE-VALUE", "parts.x.assumed",
       "'yes' is not a value of this field"},
      {DEVICE("x: {at: pe, kind: cache, bytes: 1Mi, hit: y}", ""), "BS-DEVICE-VALUE", "parts.x.hit",
       "'y' is not a value"},
      {DEVICE(PARTS, "load: [dma, hmb]"), "BS-DEVICE-WAY", "ways.load", "'hmb' is not a part of the device"},
      {DEVICE("m: {at: pe, kind: memory, Bps: 1e9}, x: {at: pe, kind: cache, bytes: 1Mi, hit: m}",
              "load: [m, x]"),
       "BS-DEVICE-WAY", "ways.load", "x keeps its tiles in m, which does not follow"},
      {DEVICE(CACHES ", z: {at: pe, kind: cache, bytes: 1Mi, hit: m}", "load: [x, y, z, n, m]"),
       "BS-DEVICE-WAY", "ways.load", "z is cache number 3 on this way, 2 are allowed"},
      {DEVICE(CACHES, "load: [y, x, n, m]"), "BS-DEVICE-WAY", "ways.load",
       "x comes behind y, so m, where its tiles are, must stand before n"},
      {DEVICE(CACHES, "load: [x, x, m]"), "BS-DEVICE-WAY", "ways.load", "x stands twice on this way"},
      {DEVICE(CACHES, "load: [x, m, n, m]"), "BS-DEVICE-WAY", "ways.load", "m stands twice on this way"},
      {DEVICE("q: {at: pe, kind: queue, slots: 1}, m: {at: pe, kind: memory, Bps: 1e9}", "load: [q, q, m]"),
       "BS-DEVICE-WAY", "ways.load", "q stands twice on this way"},
      {DEVICE("total: {at: pe, kind: server}", ""), "BS-DEVICE-NAME", "parts.total", "the name of a row"},
      {DEVICE(PARTS, "load: [dma, noc]"), "BS-DEVICE-WAY", "ways.load",
       "noc on the way load has one end, the lane at pe, and no memory at the other"},
      {DEVICE(PARTS, "store: [dma, noc]"), "BS-DEVICE-WAY", "ways.store",
       "noc on the way store has one end, the lane at pe, and no memory at the other"},
      {"{name: a, label: example, lane: {at: package}, parts: {}, efficiency: {units: 3}}", "BS-DEVICE-VALUE",
       "efficiency.units", "from 0.01 to 1.5"},
      {"{name: a, label: example, lane: {at: package}, parts: {}, tiles: {stages: \"1,1,1,1,1,1,1,1,3\"}}",
       "BS-DEVICE-VALUE", "tiles.stages", "more numbers than can be used"},
      {"{name: a, label: example, lane: {at: package}, parts: {m: {at: package, kind: server, does: command, "
       "first_s: 1e-6}}, launch: {first_s: 1e-6, out: [m]}}",
       "BS-DEVICE-LAUNCH", "launch", "first_s is a launch in one number"},
      {"{name: a, label: example, lane: {at: package}, parts: {}, tiles: {product: [\"8,8,8,2\"]}}",
       "BS-DEVICE-TILES", "tiles.product", "a place has 1 lanes, not 2"},
      {"{name: a, label: example, levels: {a: 5000}, lane: {at: a}, parts: {}}", "BS-DEVICE-SIZE", "lane",
       "at most 4096 lanes, not 5000"},
      {"{name: a, label: example, levels: {a: 70000}}", "BS-DEVICE-VALUE", "levels.a", "from 1 to 65536"},
      {"{name: a, label: example, levels: {a: 60000, b: 60000}}", "BS-DEVICE-LEVEL", "levels.b",
       "places in all"},
      {"{name: a, label: example, lane: {count: 1}, parts: {}}", "BS-DEVICE-FIELD", "lane",
       "a lane needs the field at"},
      {"{name: a, label: example, lane: {at: package}, parts: {}, tiles: {product: [\"1,2\"]}}",
       "BS-DEVICE-TILES", "tiles.product", "is not \"rows,columns,depth\""},
  };
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    sim_device d;
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(sim_device_read(rows[i].text, &d, &err) == BS_CONFIG, "row %d", i);
    ck_assert_msg(strcmp(err.id, rows[i].id) == 0 && strcmp(err.where, rows[i].where) == 0 &&
                      strstr(err.message, rows[i].says) != NULL,
                  "row %d: %s at %s: %s", i, err.id, err.where, err.message);
  }
  sim_device d;
  bs_error err = BS_ERROR_INIT;
  sim_device_read(DEVICE("x: {at: pe, kind: link, bps: 1e9, Bps: 1e9}", ""), &d, &err);
  ck_assert_str_eq(err.hint, "did you mean 'Bps'?");
}
END_TEST

/* Two caches that nest, two of one memory, and one behind the other's memory. */
START_TEST(caches_that_nest_are_read) {
  static const char *const rows[] = {
      DEVICE(CACHES, "load: [y, x, m, n]"), DEVICE(CACHES, "load: [y, n, x, m]"),
      DEVICE(CACHES ", z: {at: pe, kind: cache, bytes: 1Mi, hit: m}", "load: [x, z, m]")};
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    sim_device d;
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(sim_device_read(rows[i], &d, &err) == BS_OK, "row %d: %s", i, err.message);
  }
}
END_TEST

START_TEST(a_way_that_does_not_reach_is_refused) {
  static const struct {
    const char *text, *says;
  } rows[] = {
      {DEVICE(PARTS, "load: [dma, hbm]"), "the way load ends at pe1.cube0 and does not reach pe0.cube0"},
      {DEVICE(PARTS, "store: [dma, hbm]"), "the way store ends at pe0.cube0 and does not reach pe1.cube0"},
      {DEVICE(PARTS, "send: [dma, noc]"), "the way send ends at pe0.cube0 and does not reach pe7.cube1"},
  };
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    sim_device d;
    sim_layout l;
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(sim_device_read(rows[i].text, &d, &err), BS_OK);
    ck_assert_int_eq(sim_layout_make(&d, BS_BF16, &l, &err), BS_CONFIG);
    ck_assert_str_eq(err.id, "BS-DEVICE-REACH");
    ck_assert_str_eq(err.message, rows[i].says);
  }
  sim_device d;
  sim_layout l;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(sim_device_read(DEVICE(PARTS, WAYS), &d, &err), BS_OK);
  ck_assert_int_eq(sim_layout_make(&d, BS_F32, &l, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-DEVICE-RATE");
}
END_TEST

START_TEST(k14_buffers_beyond_the_scratch_are_refused) {
  sim_device d;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(sim_device_read(DEVICE(PARTS, WAYS), &d, &err), BS_OK);
  ck_assert_int_eq(sim_device_fits(&d, 1048576, &err), BS_OK);
  ck_assert_int_eq(sim_device_fits(&d, 1048577, &err), BS_NO_MEMORY);
  ck_assert_str_eq(err.id, "BS-INSIDE-SCRATCH");
  ck_assert_str_eq(err.message, "the buffers of a lane take 1048577 bytes, its scratch on small has 1048576");
}
END_TEST

/* Texts with a byte changed, and texts that end early: refused or read, never more. */
START_TEST(damaged_texts_are_refused_or_read) {
  static const char whole[] = DEVICE(PARTS, WAYS);
  static const char bytes[] = "{}[]:,\" 0ax-";
  uint64_t state = 5;
  for (int i = 0; i < 4000; i++) {
    char text[sizeof whole];
    sim_device d;
    sim_layout l;
    memcpy(text, whole, sizeof whole);
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    const size_t at = (state >> 33) % (sizeof whole - 1);
    text[at] = i % 4 == 0 ? '\0' : bytes[(state >> 20) % (sizeof bytes - 1)];
    if (sim_device_read(text, &d, NULL) == BS_OK && sim_layout_make(&d, BS_BF16, &l, NULL) == BS_OK)
      sim_layout_free(&l);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_device_is_what_its_text_says},
                             {a_way_goes_over_the_hops_between_two_places},
                             {tiles_of_all_channels_take_turns_at_the_places},
                             {channels_of_their_own_have_no_hops},
                             {a_queue_on_a_way_is_held_by_the_job},
                             {places_are_written_innermost_first},
                             {each_shape_joins_its_places},
                             {what_is_wrong_in_a_device_is_named},
                             {caches_that_nest_are_read},
                             {a_way_that_does_not_reach_is_refused},
                             {k14_buffers_beyond_the_scratch_are_refused},
                             {damaged_texts_are_refused_or_read},
                             {0}};
  return run_tests("sim_device", tests, (test_setup){0});
}
