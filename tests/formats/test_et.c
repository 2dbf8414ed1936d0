/* SPDX-License-Identifier: MIT
 * test_et.c - traces: a Chakra file made by hand from the schema, every broken rule of both formats by its id
 * and place, and what our writers write comes back. */
#include "core/base/error.h"
#include "formats/chakra.h"
#include "formats/goal.h"
#include "tests/formats/files.h"
#include "tests/run_tests.h"

/* GlobalMetadata {version 1: "0.0.4"}, Node {id 1: 3, name 2, type 3: COMM_COLL_NODE, attr 10: AttributeProto
 * {name 1, bool_val 27 or int64_val 9}}: 80 bytes, each written from the numbers of et_def.proto. */
static const unsigned char by_hand[] = {
    0x07, 0x0a, 0x05, '0',  '.',  '0',  '.', '4',                                                      /**/
    0x47, 0x08, 0x03, 0x12, 0x11, 'a',  'l', 'l', '_', 'r', 'e', 'd', 'u', 'c',  'e',  '_',  'o', 'f', /**/
    '_',  '1',  'M',  'i',  0x18, 0x07,                                                                /**/
    0x52, 0x0e, 0x0a, 0x09, 'i',  's',  '_', 'c', 'p', 'u', '_', 'o', 'p', 0xd8, 0x01, 0x00,           /**/
    0x52, 0x0d, 0x0a, 0x09, 'c',  'o',  'm', 'm', '_', 't', 'y', 'p', 'e', 0x48, 0x00,                 /**/
    0x52, 0x0f, 0x0a, 0x09, 'c',  'o',  'm', 'm', '_', 's', 'i', 'z', 'e', 0x48, 0x80, 0x80, 0x40};

START_TEST(a_chakra_file_made_by_hand) {
  bs_et et;
  bs_error err = BS_ERROR_INIT;
  ck_assert_uint_eq(sizeof by_hand, 80);
  files_write("a.0.et", by_hand, sizeof by_hand);
  const char *path = files_write("a.1.et", by_hand, sizeof by_hand);
  /* The prefix, and a file of it, are the same trace. */
  ck_assert_msg(bs_chakra_read(_i == 0 ? files_path("a") : path, &et, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(bs_et_end(&et, &err), BS_OK);
  ck_assert(et.n_ranks == 2 && et.n_nodes == 2 && et.n_needs == 0 && et.n_groups == 1 && et.unknown == 0);
  const bs_et_node *n = &et.nodes[1];
  ck_assert(n->id == 3 && n->rank == 1 && n->kind == BS_ET_COLL && n->coll == BS_ET_ALL_REDUCE);
  ck_assert(n->bytes == 1048576 && n->cpu == 0 && n->group == 0 && n->ps == BS_ET_NO_TIME);
  ck_assert_str_eq(n->name, "all_reduce_of_1Mi");
  bs_et_free(&et);
}
END_TEST

/* ---- Chakra ------------------------------------------------------------------------------------- */

#define HEAD "\x02\x0a\x00"
#define TEXT(s) s, sizeof(s) - 1

static const struct {
  const char *bytes;
  size_t size;
  const char *id;
} bad_chakra[] = {
    {TEXT(""), "BS-CHAKRA-HEAD"},
    {TEXT("\x04\x08\x01\x18\x04"), "BS-CHAKRA-HEAD"}, /* a node stands first */
    {TEXT(HEAD "\x05\x08\x01"), "BS-CHAKRA-LENGTH"},  /* cut off */
    {TEXT(HEAD "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), "BS-CHAKRA-LENGTH"},
    {TEXT(HEAD "\x04\x08\x01\x18\x09"), "BS-CHAKRA-NODE"},                     /* type 9 */
    {TEXT(HEAD "\x04\x08\x01\x18\x05"), "BS-CHAKRA-PEER"},                     /* a send without comm_dst */
    {TEXT(HEAD "\x04\x08\x01\x18\x04\x04\x08\x01\x18\x04"), "BS-CHAKRA-NODE"}, /* twice the same number */
    {TEXT(HEAD "\x06\x08\x01\x18\x04\x28\x07"), "BS-CHAKRA-NEED"},             /* needs 7 */
    {TEXT(HEAD "\x07\x08\x01\x18\x04\x2a\x01\x80"), "BS-CHAKRA-NODE"}, /* a list of needs is cut off */
    {TEXT(HEAD "\x06\x08\x01\x18\x04\x08\x80"), "BS-PB-VARINT"},
    {TEXT(HEAD "\x05\x08\x01\x18\x04\x0b"), "BS-PB-WIRE"}, /* a group */
    {TEXT(HEAD "\x05\x08\x01\x12\x09\x41"), "BS-PB-LENGTH"},
    {TEXT(HEAD "\x0e\x08\x01\x18\x04\x38\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "BS-CHAKRA-TIME"},
    {TEXT(HEAD "\x13\x18\x07\x52\x0f\x0a\x09"
               "comm_type"
               "\x40\x09\x48\x0f"),
     "BS-CHAKRA-COLL"},
    {TEXT(HEAD "\x13\x18\x05\x52\x0f\x0a\x08"
               "comm_dst"
               "\x48\x80\x80\x80\x01"),
     "BS-CHAKRA-PEER"},
};

START_TEST(each_broken_rule_of_chakra_has_its_id) {
  bs_et et;
  bs_error err = BS_ERROR_INIT;
  files_write("b.0.et", bad_chakra[_i].bytes, bad_chakra[_i].size);
  const int32_t rc = bs_chakra_read(files_path("b"), &et, &err);
  char what[16];
  snprintf(what, sizeof what, "row %d", _i);
  files_expect(&err, rc, BS_INPUT, bad_chakra[_i].id, what);
  ck_assert_msg(strstr(err.where, "b.0.et") != NULL, "row %d: %s", _i, err.where);
  bs_et_free(&et);
}
END_TEST

START_TEST(no_rank_is_missing) {
  bs_et et;
  bs_error err = BS_ERROR_INIT;
  files_write("c.0.et", by_hand, sizeof by_hand);
  files_write("c.2.et", by_hand, sizeof by_hand);
  files_write("c.03x.et", by_hand, sizeof by_hand);
  files_expect(&err, bs_chakra_read(files_path("c"), &et, &err), BS_INPUT, "BS-CHAKRA-OPEN", "rank 1");
  ck_assert_msg(strstr(err.where, "c.1.et") != NULL, "%s", err.where);
  bs_et_free(&et);
  files_expect(&err, bs_chakra_read(files_path("none"), &et, &err), BS_INPUT, "BS-CHAKRA-OPEN", "none");
  bs_et_free(&et);
}
END_TEST

/* Each number of AttributeProto that can hold num_ops: the byte of its field and wire, and 8 or its code. */
START_TEST(numbers_of_every_kind) {
  static const struct {
    const char *value;
    size_t size;
    uint64_t flops, unknown;
  } rows[] = {{TEXT("\x38\x08"), 8, 0},
              {TEXT("\x48\x08"), 8, 0},
              {TEXT("\x58\x08"), 8, 0},
              {TEXT("\x68\x08"), 8, 0},
              {TEXT("\x78\x10"), 8, 0},
              {TEXT("\x88\x01\x10"), 8, 0},
              {TEXT("\x9d\x01\x08\0\0\0"), 8, 0},
              {TEXT("\xa9\x01\x08\0\0\0\0\0\0\0"), 8, 0},
              {TEXT("\x19\0\0\0\0\0\0\x20\x40"), 8, 0},
              {TEXT("\x2d\0\0\0\x41"), 8, 0},
              {TEXT("\xea\x01\x01"
                    "8"),
               0, 1}};
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    unsigned char file[64] = HEAD;
    size_t n = 3;
    const size_t size = rows[i].size;
    file[n++] = (unsigned char)(4 + 9 + size);
    memcpy(file + n, "\x18\x04\x52", 3);
    file[n + 3] = (unsigned char)(9 + size);
    memcpy(file + n + 4, "\x0a\x07num_ops", 9);
    memcpy(file + n + 13, rows[i].value, size);
    bs_et et;
    bs_error err = BS_ERROR_INIT;
    files_write("n.0.et", file, n + 13 + size);
    ck_assert_msg(bs_chakra_read(files_path("n"), &et, &err) == BS_OK, "row %d: %s", i, err.message);
    ck_assert_msg(et.nodes[0].flops == rows[i].flops && et.unknown == rows[i].unknown, "row %d: %llu", i,
                  (unsigned long long)et.nodes[0].flops);
    bs_et_free(&et);
  }
}
END_TEST

/* ---- GOAL --------------------------------------------------------------------------------------- */

static const struct {
  const char *text, *id;
  int line;
} bad_goal[] = {
    {"", "BS-GOAL-RANKS", 1},
    {"rank 0 {\n}\n", "BS-GOAL-RANKS", 1},
    {"num_ranks 0\n", "BS-ET-RANKS", 1},
    {"num_ranks 65537\n", "BS-GOAL-NUMBER", 1},
    {"num_ranks 2\nnum_ranks 2\n", "BS-GOAL-WORD", 2},
    {"num_ranks 2\nrank 2 {\n}\n", "BS-GOAL-RANKS", 2},
    {"num_ranks 2\nrank 1 {\n}\nrank 0 {\n}\n", "BS-GOAL-RANKS", 4},
    {"num_ranks 2\nrank 0 {\nl1: recv 8b from -1 tag 0\n}\n", "BS-GOAL-ANY", 3},
    {"num_ranks 2\nrank 0 {\n/* one\n two */ l1: recv 8b from 1 tag -1\n}\n", "BS-GOAL-ANY", 4},
    {"num_ranks 2\nrank 0 {\nsend 8 to 1\n}\n", "BS-GOAL-WORD", 3},
    {"num_ranks 2\nrank 0 {\nsend 8b from 1\n}\n", "BS-GOAL-WORD", 3},
    {"num_ranks 2\nrank 0 {\ncalc 1 calc 2\n}\n", "BS-GOAL-WORD", 3},
    {"num_ranks 2\nrank 0 {\ncalc 99999999999999999999999\n}\n", "BS-GOAL-NUMBER", 3},
    {"num_ranks 2\nrank 0 {\ncalc 1 cpu 256\n}\n", "BS-GOAL-NUMBER", 3},
    {"num_ranks 2\nrank 0 {\nl1: calc 1\nl1 requires l2\n}\n", "BS-GOAL-LABEL", 4},
    {"num_ranks 2\nrank 0 {\nl1: calc 1\nl1: calc 2\n}\n", "BS-GOAL-LABEL", 4},
    {"num_ranks 2\nrank 0 {\nl1 needs l1\n}\n", "BS-GOAL-WORD", 3},
    {"num_ranks 2\nrank 0 {\nl1: calc 1\n", "BS-GOAL-WORD", 4},
    {"num_ranks 2\nrank 0 {\nl1: calc 1\n} }\n", "BS-GOAL-WORD", 4},
    {"num_ranks 2\n/* open\n", "BS-GOAL-WORD", 2},
};

START_TEST(each_broken_rule_of_goal_has_its_id_and_line) {
  bs_et et;
  bs_error err = BS_ERROR_INIT;
  const char *path = files_write("a.goal", bad_goal[_i].text, strlen(bad_goal[_i].text));
  const int32_t rc = bs_goal_read(path, &et, &err);
  char where[32];
  snprintf(where, sizeof where, "a.goal:%d", bad_goal[_i].line);
  files_expect(&err, rc, BS_INPUT, bad_goal[_i].id, bad_goal[_i].text);
  ck_assert_msg(strstr(err.where, where) != NULL, "%s: %s", bad_goal[_i].text, err.where);
  bs_et_free(&et);
}
END_TEST

static const char goal[] =
    "num_ranks 3\n"
    "\nrank 0 {\n"
    "l1: calc 100 cpu 1\n"
    "l2: send 8b to 2 tag 7\n"
    "l3: calc 5\n"
    "l2 requires l1\n"
    "l3 irequires l2\n"
    "}\n"
    "\nrank 1 {\n}\n"
    "\nrank 2 {\n"
    "l1: recv 8b from 0 tag 7 nic 1\n"
    "}\n";

/* This text has the same nodes, with blanks, comments, needs before their labels, and a rank left out. */
static const char loose_goal[] =
    "// a schedule\nnum_ranks 3 /* of\nthree */\n"
    "rank 0 {\r\n"
    "b requires a_1\n\tc irequires b\n"
    "a_1 :calc 100 cpu 1 // works\n  b: send 8 b to 2 tag 7 cpu 0\n c: calc 5\n}\n"
    "rank 2{ recv 8b from 0 tag 7 nic 1 }\n";

START_TEST(goal_comes_back_as_it_was) {
  bs_et et;
  bs_error err = BS_ERROR_INIT;
  uint64_t rounded = 1;
  char back[sizeof goal + 8] = "";
  const char *path = files_write("b.goal", _i == 0 ? goal : loose_goal, strlen(_i == 0 ? goal : loose_goal));
  ck_assert_msg(bs_goal_read(path, &et, &err) == BS_OK, "%s %s", err.where, err.message);
  ck_assert_int_eq(bs_et_end(&et, &err), BS_OK);
  ck_assert(et.n_nodes == 4 && et.nodes[0].ps == 100000 && et.nodes[0].cpu == 1 && et.nodes[3].rank == 2);
  ck_assert_uint_eq(et.first_node[2] - et.first_node[1], 0);
  ck_assert_int_eq(bs_goal_write(&et, files_path("c.goal"), &rounded, &err), BS_OK);
  FILE *f = fopen(files_path("c.goal"), "r");
  ck_assert_uint_eq(fread(back, 1, sizeof back - 1, f), sizeof goal - 1);
  fclose(f);
  ck_assert_str_eq(back, goal);
  ck_assert_uint_eq(rounded, 0);
  /* Chakra has no needs of a start. */
  files_expect(&err, bs_chakra_write(&et, files_path("c"), &err), BS_UNSUPPORTED, "BS-CHAKRA-START", "start");
  bs_et_free(&et);
}
END_TEST

/* ---- back and forth ----------------------------------------------------------------------------- */

static uint32_t drawn(uint32_t *state, uint32_t below) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) % below;
}

/* Nodes of all kinds, with needs backwards and forwards. */
static void make(bs_et *et, uint32_t seed) {
  bs_error err = BS_ERROR_INIT;
  uint32_t state = seed, index = 0;
  ck_assert_int_eq(bs_et_begin(et, 3, &err), BS_OK);
  for (uint32_t i = 0; i < 60; i++) {
    bs_et_node n = {
        .id = i % 20, .name = i % 3 ? "a name" : "", .rank = i / 20, .kind = drawn(&state, BS_ET_KINDS)};
    n.ps = i % 4 == 0 ? BS_ET_NO_TIME : drawn(&state, 1u << 24) * (UINT64_C(1) << drawn(&state, 30));
    n.bytes = drawn(&state, 1u << 20);
    if (n.kind == BS_ET_CALC) n.flops = drawn(&state, 1u << 20) * UINT64_C(1000000);
    if (n.kind == BS_ET_CALC || n.kind == BS_ET_MEMORY) n.cpu = drawn(&state, 2);
    if (n.kind == BS_ET_SEND || n.kind == BS_ET_RECV) {
      n.peer = (n.rank + 1 + drawn(&state, 2)) % 3;
      n.tag = drawn(&state, 1u << 20);
    }
    if (n.kind == BS_ET_COLL) {
      n.coll = drawn(&state, BS_ET_COLLS);
      ck_assert_int_eq(bs_et_group_of(et, "17", drawn(&state, 3), &n.group, &err), BS_OK);
    }
    ck_assert_int_eq(bs_et_add(et, &n, &index, &err), BS_OK);
    for (uint32_t k = drawn(&state, 4); k > 0; k--)
      ck_assert_int_eq(bs_et_need_add(et, index, n.rank * 20 + drawn(&state, 20), 0, &err), BS_OK);
  }
  ck_assert_int_eq(bs_et_end(et, &err), BS_OK);
}

START_TEST(what_is_written_as_chakra_comes_back) {
  bs_et a, b;
  bs_error err = BS_ERROR_INIT;
  make(&a, (uint32_t)_i);
  ck_assert_msg(bs_chakra_write(&a, files_path("w"), &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_chakra_read(files_path("w"), &b, &err) == BS_OK, "%s %s", err.where, err.message);
  ck_assert_msg(bs_et_end(&b, &err) == BS_OK, "%s", err.message);
  ck_assert(a.n_nodes == b.n_nodes && a.n_needs == b.n_needs && b.unknown == 0 && b.controls == 0);
  for (uint32_t i = 0; i < a.n_nodes; i++) {
    const bs_et_node *x = &a.nodes[i], *y = &b.nodes[i];
    ck_assert(x->id == y->id && x->rank == y->rank && x->kind == y->kind && x->coll == y->coll);
    ck_assert(x->ps == y->ps && x->flops == y->flops && x->bytes == y->bytes && x->cpu == y->cpu);
    ck_assert(x->peer == y->peer && x->tag == y->tag);
    ck_assert_str_eq(x->name, y->name);
    ck_assert_str_eq(a.groups[x->group].name, b.groups[y->group].name);
    ck_assert_uint_eq(a.first_need[i + 1], b.first_need[i + 1]);
  }
  for (uint64_t k = 0; k < a.n_needs; k++) ck_assert_uint_eq(a.needs[k].on, b.needs[k].on);
  bs_et_free(&a);
  bs_et_free(&b);
}
END_TEST

/* ---- groups and limits -------------------------------------------------------------------------- */

START_TEST(groups_have_ranks) {
  static const struct {
    const char *json;
    int good;
  } rows[] = {{"{\"1\": [0, 2]}", 1},
              {"{\"1\": [0, 3]}", 0},
              {"{\"1\": [2, 0]}", 0},
              {"{\"1\": [0, 0]}", 0},
              {"{\"1\": []}", 0},
              {"{\"1\": 3}", 0},
              {"[1]", 0},
              {"{\"1\": [0.5]}", 0},
              {"{\"1\": [-1, 0]}", 0},
              {"{\"0\": [0], \"1\": [1]}", 1},
              {"{", 0}};
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    bs_et et;
    bs_error err = BS_ERROR_INIT;
    uint32_t group = 0;
    ck_assert_int_eq(bs_et_begin(&et, 3, &err), BS_OK);
    const int32_t rc =
        bs_et_groups_read(&et, files_write("g.json", rows[i].json, strlen(rows[i].json)), &err);
    if (rows[i].good) {
      ck_assert_msg(rc == BS_OK, "%s: %s", rows[i].json, err.message);
      ck_assert_int_eq(bs_et_group_of(&et, "1", 1, &group, &err), BS_OK);
      ck_assert_int_eq(bs_et_end(&et, &err), BS_OK);
      ck_assert(group == 1 && et.groups[1].n == (i == 0 ? 2 : 1) && et.groups[0].n == 3 && et.inferred == 0);
    } else {
      files_expect(&err, rc, BS_INPUT, "BS-ET-GROUP", rows[i].json);
    }
    bs_et_free(&et);
  }
}
END_TEST

START_TEST(limits_hold) {
  bs_et et;
  bs_error err = BS_ERROR_INIT;
  uint32_t index = 0;
  const bs_et_node rows[] = {{.name = "", .kind = BS_ET_SEND, .peer = 2},
                             {.name = "", .kind = BS_ET_RECV, .peer = 0},
                             {.name = "", .cpu = BS_ET_MAX_CPUS},
                             {.name = "", .bytes = BS_ET_MAX_SIZE + 1},
                             {.name = "", .ps = BS_ET_MAX_SIZE + 1}};
  static const char *const ids[] = {"BS-ET-PEER", "BS-ET-PEER", "BS-ET-CPU", "BS-ET-SIZE", "BS-ET-SIZE"};
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    ck_assert_int_eq(bs_et_begin(&et, 2, &err), BS_OK);
    ck_assert_int_eq(bs_et_add(&et, &rows[i], &index, &err), BS_OK);
    files_expect(&err, bs_et_end(&et, &err), BS_INPUT, ids[i], ids[i]);
    bs_et_free(&et);
  }
  files_expect(&err, bs_et_begin(&et, BS_ET_MAX_RANKS + 1, &err), BS_INPUT, "BS-ET-RANKS", "ranks");
  bs_et_free(&et);
}
END_TEST

START_TEST(goal_says_what_it_cannot_hold) {
  bs_et et;
  bs_error err = BS_ERROR_INIT;
  uint64_t rounded = 0;
  uint32_t index = 0;
  const bs_et_node rows[] = {{.name = "", .kind = BS_ET_COLL},
                             {.name = "", .flops = 8, .ps = BS_ET_NO_TIME},
                             {.name = "", .ps = 1500}};
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    ck_assert_int_eq(bs_et_begin(&et, 1, &err), BS_OK);
    ck_assert_int_eq(bs_et_add(&et, &rows[i], &index, &err), BS_OK);
    ck_assert_int_eq(bs_et_end(&et, &err), BS_OK);
    const int32_t rc = bs_goal_write(&et, files_path("d.goal"), &rounded, &err);
    if (i < 2)
      files_expect(&err, rc, BS_UNSUPPORTED, "BS-GOAL-NODE", "node");
    else
      ck_assert(rc == BS_OK && rounded == 1);
    bs_et_free(&et);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_chakra_file_made_by_hand, 2},
                             {each_broken_rule_of_chakra_has_its_id, TEST_COUNT(bad_chakra)},
                             {no_rank_is_missing},
                             {numbers_of_every_kind},
                             {each_broken_rule_of_goal_has_its_id_and_line, TEST_COUNT(bad_goal)},
                             {goal_comes_back_as_it_was, 2},
                             {what_is_written_as_chakra_comes_back, 40},
                             {groups_have_ranks},
                             {limits_hold},
                             {goal_says_what_it_cannot_hold},
                             {0}};
  return run_tests("et", tests, (test_setup){files_begin, files_end});
}
